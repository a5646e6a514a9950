#ifndef FA_CORE_KERNELS_COMPRESSED_GROUP_ORDER_H_
#define FA_CORE_KERNELS_COMPRESSED_GROUP_ORDER_H_

#include <cstdint>

#include "core/kernels/kernel_types.h"

namespace fa::core::kernels {

/// The columns of a block of block_words.inc.
inline constexpr int64_t kBlockColumns = 128;

/// Whether heads of `columns` columns with numbers per row and `group` columns have blocks.
[[nodiscard]] constexpr bool HasBlocks(int64_t columns, int64_t group) {
  return columns % kBlockColumns == 0 && (group == 32 || group == 64);
}

/// Whether the loop for these types takes numbers of rows and groups also where the groups of a row follow each other.
[[nodiscard]] inline bool TakesGroupsOfRows(const FewRowLoops& loops, DType keys, DType queries, int64_t columns,
                                            int64_t group) {
  return keys == DType::kI4x8 && loops.AttendTo(keys, queries) != loops.attend_compressed && HasBlocks(columns, group);
}

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_COMPRESSED_GROUP_ORDER_H_
