#ifndef FA_TOOLS_FA_FLAGS_LAYOUT_SHAPES_H_
#define FA_TOOLS_FA_FLAGS_LAYOUT_SHAPES_H_

#include <cstdint>
#include <vector>

#include "fa/tensor.h"

namespace fa::tool {

/// The sizes of one tensor of an attention call, whatever its layout. In TND, batch is 1 and seq is T.
struct TensorSizes {
  int64_t batch = 0, seq = 0, heads = 0, d = 0;
};

/// ShapeOf returns the shape of an input with these sizes. OutputShapeOf returns the shape of an output with these
/// sizes.
[[nodiscard]] std::vector<int64_t> ShapeOf(Layout layout, const TensorSizes& sizes);
[[nodiscard]] std::vector<int64_t> OutputShapeOf(Layout layout, const TensorSizes& sizes);
/// Returns the layout of the inputs: for example, BNSD for BNSD_BSND.
[[nodiscard]] Layout InputLayout(Layout layout);
/// Returns the sizes of a tensor that has this shape. BSH and SBH need `heads`, which other layouts ignore. Throws
/// UsageError that names the flag.
[[nodiscard]] TensorSizes SizesOf(const char* flag, Layout layout, const std::vector<int64_t>& shape, int64_t heads);

/// Returns the layout of the output of a call in this layout: for example, BSND for BNSD_BSND.
[[nodiscard]] Layout OutputLayout(Layout layout);
/// Returns the shape of softmax maximum, sum and lse: [B, N, Sq], in TND [T, N].
[[nodiscard]] std::vector<int64_t> StatsShape(Layout layout, const TensorSizes& query);

/// SequenceAxis returns which dimension of a tensor is the sequence, or in TND the packed tokens. StatsSequenceAxis
/// returns the same for the statistics.
[[nodiscard]] int SequenceAxis(Layout layout);
[[nodiscard]] int StatsSequenceAxis(Layout layout);

/// The strides of batch, sequence and head in a dense tensor, in elements.
struct TensorStrides {
  int64_t batch = 0, seq = 0, head = 0;
};
/// Returns the strides of a dense tensor. In TND `sizes` describe one sequence, and all sequences have the same length.
[[nodiscard]] TensorStrides StridesOf(Layout layout, const TensorSizes& sizes);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FLAGS_LAYOUT_SHAPES_H_
