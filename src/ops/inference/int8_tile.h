#ifndef FA_OPS_INT8_TILE_H_
#define FA_OPS_INT8_TILE_H_

#include <cstddef>
#include <cstdint>

#include "core/kernels/int8/int8_kernel_types.h"
#include "core/kernels/kernel_types.h"
#include "ops/bind/attention_rows.h"
#include "ops/inference/int8_panels.h"
#include "ops/inference/product_scales.h"
#include "ops/tile/output_rows.h"
#include "ops/tile/score_tile.h"
#include "tiling/forward/forward_plan.h"

namespace fa::ops {

/// The kernels of a call: `words` has the int8 products, and `passes` has passes over f32 scores for the same widths.
struct Int8Kernels {
  const core::kernels::Int8Table& words;
  const core::kernels::KernelTable& passes;

  /// Returns the kernels for the first strip of `rows` rows of a sequence of `sk` keys.
  [[nodiscard]] const core::kernels::Int8Kernels& ForRows(int64_t rows, int64_t sk) const;
  [[nodiscard]] const core::kernels::StripKernels& PassesOf(const core::kernels::Int8Kernels& strip) const;
};

[[nodiscard]] Int8Kernels Int8KernelsOf(const Context& context);

/// Offsets of an int8 plan's buffers in the workspace.
struct Int8Buffers {
  size_t run_state = 0, slots = 0, scratch = 0;
  size_t scratch_bytes = 0;  ///< bytes of scratch per worker
};

/// A worker's own memory for one strip.
struct Int8Scratch {
  uint32_t* panel = nullptr;   ///< packed queries [word][width]
  float* scores = nullptr;     ///< [sk][width]: scores, then quantized probabilities
  int32_t* product = nullptr;  ///< [dv][width]: exact product of V and the probabilities
  int64_t* total = nullptr;    ///< [dv][width]: sums over several products, if one product cannot take all keys
  float* state = nullptr;      ///< [dv][width]: the product over all keys, rounded to f32
  float* staging = nullptr;    ///< [width][dv]: the strip as rows, for an int8 output

  static size_t Bytes(const tiling::AttentionProblem& problem, DType out, int64_t slot_rows,
                      const core::kernels::Int8Table& kernels);
  static Int8Scratch Carve(std::byte* memory, const tiling::AttentionProblem& problem, DType out, int64_t slot_rows,
                           const core::kernels::Int8Table& kernels);
};

/// Runs any task of a ForwardPlan of int8 attention. A run makes one object, which all workers share.
class Int8Tile {
 public:
  /// problem, plan, rows and quantization must outlive the object. rows.scores.scale multiplies the exact products of
  /// int8 numbers.
  Int8Tile(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan, const Int8Kernels& kernels,
           const ForwardRows& rows, const ProductScales& scales, const OutputQuantization* quantization,
           const Int8Buffers& buffers, std::byte* workspace);

  /// Runs one task with the worker's own scratch.
  void operator()(int32_t task, int worker);

 private:
  void RunTile(const tiling::ForwardItem& item, const Int8Scratch& scratch) const;
  void RunStrip(const Strip& strip, const core::kernels::Int8Kernels& words, int32_t slot,
                const Int8Scratch& scratch) const;
  void Product(const core::kernels::Int8Kernels& words, tiling::Interval keys, int32_t slot,
               const Int8Scratch& scratch) const;

  const tiling::AttentionProblem& problem_;
  const tiling::ForwardPlan& plan_;
  Int8Kernels kernels_;
  const ForwardRows& rows_;
  ProductScales scales_;
  const OutputQuantization* quantization_;
  Int8Buffers buffers_;
  std::byte* workspace_;
  ScoreTile score_tile_;
  Int8Panels panels_;
};

}  // namespace fa::ops

#endif  // FA_OPS_INT8_TILE_H_
