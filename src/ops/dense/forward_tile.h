#ifndef FA_OPS_FORWARD_TILE_H_
#define FA_OPS_FORWARD_TILE_H_

#include <cstddef>
#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "ops/bind/attention_rows.h"
#include "ops/dense/attended_tiles.h"
#include "ops/tile/forward_strips.h"
#include "ops/tile/key_panels.h"
#include "ops/tile/output_rows.h"
#include "ops/tile/tile_scratch.h"
#include "tiling/forward/forward_plan.h"

namespace fa::ops {

/// The offsets of a forward plan's buffers in the workspace.
struct ForwardBuffers {
  size_t run_state = 0;      ///< state of the executor during a run
  size_t slots = 0;          ///< packed K and V
  size_t scratch = 0;        ///< memory of all workers, one piece per worker
  size_t scratch_bytes = 0;  ///< bytes of scratch per worker
  /// Whether scratch has memory for converted keys, and for staged rows of a compressed pse.
  bool converts_keys = false, stages_bias = false;
  /// One int32_t per merge: the number of parts that have stored their state; 0 before and after a run.
  size_t arrivals = 0;
  size_t states = 0;        ///< online-softmax states of parts of keys
  size_t state_floats = 0;  ///< floats of one part's state
};

/// Returns how many floats the state of one part takes: statistics and output state of all strips of a tile of `rows`
/// rows.
[[nodiscard]] size_t PartStateFloats(int64_t rows, int64_t dv);

/// Returns whether the keys of a sequence are one block. If so, an output state by rows is faster: it needs no
/// transposition and no rescaling, and V of the block stays in L1 from one register block of rows to the next. With
/// more blocks, a state by rows is slower, because it reads four vectors of V per key, and a state along the lanes
/// reads eight numbers. At S = 1024 a state by rows is 2 % slower with D = 64 and 20 % slower with D = 128.
[[nodiscard]] bool IsShort(const tiling::AttentionProblem& problem, int64_t block_k, int32_t sequence);

/// Returns the kernels for a strip of a sequence that begins `rows` rows before the end of a tile. If the rows of all
/// query heads of a KV head are few, the result is the kernels of few rows. Kernels of few rows give other bits than
/// other kernels, so the choice depends on the sequence alone.
[[nodiscard]] const core::kernels::StripKernels& ForwardKernels(const core::kernels::KernelTable& table,
                                                                const tiling::AttentionProblem& problem,
                                                                int64_t block_k, int32_t sequence, int64_t rows);

/// Runs any task of a ForwardPlan. A run makes one object, which all workers share.
class ForwardTile {
 public:
  /// All arguments must outlive the object.
  ForwardTile(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
              const core::kernels::KernelTable& table, const ForwardRows& rows, const ForwardBuffers& buffers,
              std::byte* workspace, const OutputQuantization* quantization);

  /// Runs one task with the worker's own scratch.
  void operator()(int32_t task, int worker);

 private:
  /// @param next  the tile that the worker is likely to run next, or null
  void RunTile(const tiling::ForwardItem& item, const tiling::ForwardItem* next, const TileScratch& scratch) const;
  void VisitKeys(const tiling::ForwardItem& item, const TileScratch& scratch, ForwardStrips::Strips& strips,
                 bool anew) const;
  void AttendTiles(const tiling::ForwardItem& item, const FoldedRows& folded, const TileScratch& scratch) const;
  void VisitShort(const tiling::ForwardItem& item, const tiling::ForwardItem* next, const TileScratch& scratch,
                  ForwardStrips::Strips& strips) const;
  bool MergeParts(const tiling::ForwardItem& item, RunningStrip* strips, int64_t count) const;
  void AddPart(const float* part, RunningStrip& strip) const;

  const tiling::AttentionProblem& problem_;
  const tiling::ForwardPlan& plan_;
  const core::kernels::KernelTable& table_;
  const ForwardRows& rows_;
  /// Whether a tile of a short sequence (IsShort) prefetches the next tile. With kernels of pairs, this is true only if
  /// the state lies by rows and all keys lie in one tensor.
  bool fetches_tiles_;
  ForwardBuffers buffers_;
  std::byte* workspace_;
  ForwardStrips strips_;
  AttendedTiles attended_;
  KeyPanels panels_;
};

}  // namespace fa::ops

#endif  // FA_OPS_FORWARD_TILE_H_
