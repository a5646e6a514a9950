#include "ops/tile_scratch.h"

namespace fa::ops {
namespace {

/// Hands out 64-byte aligned pieces; with null memory it only counts.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}
  float* Floats(int64_t count) {
    const size_t offset = used_;
    used_ += (static_cast<size_t>(count) * sizeof(float) + 63) & ~size_t{63};
    return memory_ == nullptr ? nullptr : reinterpret_cast<float*>(memory_ + offset);
  }
  [[nodiscard]] size_t used() const { return used_; }

 private:
  std::byte* memory_;
  size_t used_ = 0;
};

TileScratch Layout(Carver& carver, const tiling::AttentionProblem& problem, int64_t tile_rows, int64_t block_k,
                   bool convert, bool stage_bias) {
  // A tile's last strip may be narrower than the widest, never wider; rows are rounded up to full strips.
  const int64_t rows = (tile_rows + kMaxStripWidth - 1) / kMaxStripWidth * kMaxStripWidth;
  TileScratch scratch;
  scratch.panels = carver.Floats(rows * (problem.d + problem.d_rope));
  scratch.state = carver.Floats(rows * problem.dv);
  scratch.backup = carver.Floats(kMaxStripWidth * problem.dv);
  scratch.scores = carver.Floats(kMaxStripWidth * block_k);
  scratch.stats = carver.Floats(2 * rows);
  if (convert) {
    scratch.k_block = carver.Floats(block_k * problem.d);
    scratch.k_rope_block = carver.Floats(block_k * problem.d_rope);
    scratch.v_block = carver.Floats(block_k * problem.dv);
  }
  if (stage_bias) scratch.bias = carver.Floats(kMaxStripWidth * block_k);
  return scratch;
}

}  // namespace

size_t TileScratch::Bytes(const tiling::AttentionProblem& problem, int64_t tile_rows, int64_t block_k, bool convert,
                          bool stage_bias) {
  Carver carver(nullptr);
  Layout(carver, problem, tile_rows, block_k, convert, stage_bias);
  return carver.used();
}

TileScratch TileScratch::Carve(std::byte* memory, const tiling::AttentionProblem& problem, int64_t tile_rows,
                               int64_t block_k, bool convert, bool stage_bias) {
  Carver carver(memory);
  return Layout(carver, problem, tile_rows, block_k, convert, stage_bias);
}

}  // namespace fa::ops
