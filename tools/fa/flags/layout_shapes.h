#ifndef FA_TOOLS_FA_FLAGS_LAYOUT_SHAPES_H_
#define FA_TOOLS_FA_FLAGS_LAYOUT_SHAPES_H_

#include <cstdint>
#include <vector>

#include "fa/tensor.h"

namespace fa::tool {

/// The sizes of one tensor of an attention call in any layout. In TND batch is 1 and seq is T.
struct TensorSizes {
  int64_t batch = 0, seq = 0, heads = 0, d = 0;
};

/// Returns the shape of a tensor with these sizes in the layout. For BNSD_BSND the shape of an input is returned.
[[nodiscard]] std::vector<int64_t> ShapeOf(Layout layout, const TensorSizes& sizes);
/// Returns the sizes of a tensor from its shape. BSH and SBH need `heads`; other layouts ignore `heads`. Throws
/// UsageError naming the flag.
[[nodiscard]] TensorSizes SizesOf(const char* flag, Layout layout, const std::vector<int64_t>& shape, int64_t heads);

/// Returns the layout of the output that belongs to inputs of `layout`.
[[nodiscard]] Layout OutputLayout(Layout layout);
/// Returns the shape of softmax maximum, sum and lse: [B, N, Sq], in TND [T, N].
[[nodiscard]] std::vector<int64_t> StatsShape(Layout layout, const TensorSizes& query);

/// SequenceAxis returns the dimension of the sequence in a tensor of the layout, which in TND is the dimension of the
/// packed tokens. StatsSequenceAxis returns this dimension in the statistics.
[[nodiscard]] int SequenceAxis(Layout layout);
[[nodiscard]] int StatsSequenceAxis(Layout layout);

/// Elements between neighbours along batch, head and sequence of a dense tensor.
struct TensorStrides {
  int64_t batch = 0, seq = 0, head = 0;
};
/// Returns the strides of a dense tensor. In TND `sizes` are the sizes of one sequence, and all sequences are equally
/// long.
[[nodiscard]] TensorStrides StridesOf(Layout layout, const TensorSizes& sizes);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FLAGS_LAYOUT_SHAPES_H_
