#ifndef FA_ACLNN_ANTIQUANT_SCALES_H_
#define FA_ACLNN_ANTIQUANT_SCALES_H_

#include <cstdint>

#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::aclnn {

/// The sizes of keys or values that their scales must fit. If the keys are a list of tensors, `rows` counts the rows of
/// the longest tensor. With pages, `batch` is the number of pages and `rows` the rows per page; `sequences` is the
/// number of sequences, and `tokens` the length of the longest sequence. Packed keys have no rows per batch element.
struct KeySizes {
  int64_t batch = 0, heads = 0, rows = 0, columns = 0, sequences = 0, tokens = 0;
  bool paged = false, packed = false;
};

/// Returns the sizes of these keys. If the shape does not show the number of heads, `heads` gives the number. Other
/// sizes that the shape does not show are 0, and the library refuses that shape.
[[nodiscard]] KeySizes KeySizesOf(const TensorView& keys, Layout layout, int64_t heads, bool paged, int64_t block_size);

/// Returns a scale or offset of keys or values as [B|1, Nkv|1, S|1, D|1], with pages [pages|1, Nkv|1, rows|1, D|1]. An
/// absent tensor stays absent. There may be numbers for more rows than the keys have. The modes are the device's: 0 per
/// tensor or column, 1 per token, 2 per head, 3 per token and head. With pages, mode 4 means per row of a page, and
/// mode 5 per row and head. Modes 1 and 3 then count the tokens of each sequence.
/// @return kInvalidArgument for a mode that the keys do not have, or a shape that does not fit the mode
[[nodiscard]] Result<TensorView> ScaleOfMode(const char* name, const TensorView& scale, const char* mode_name,
                                             int64_t mode, const KeySizes& keys);

/// Returns whether a mode has one scale per token of a sequence.
[[nodiscard]] constexpr bool PerToken(int64_t mode) { return mode == 1 || mode == 3; }

/// Returns the scales of query rows in the shape of the query without its last dimension. The scales may be given as
/// one dimension of all numbers. Dimensions of size 1 may be left out or added.
/// @param heads  the number of heads, which the shape of a query in BSH does not show
/// @return kInvalidArgument for another shape
[[nodiscard]] Result<TensorView> ScaleOfQuery(const char* name, const TensorView& scale, const TensorView& query,
                                              Layout layout, int64_t heads);

}  // namespace fa::aclnn

#endif  // FA_ACLNN_ANTIQUANT_SCALES_H_
