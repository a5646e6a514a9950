#ifndef FA_OPS_ANTIQUANT_ROWS_H_
#define FA_OPS_ANTIQUANT_ROWS_H_

#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "ops/bind/attention_rows.h"
#include "tiling/row_interval.h"

namespace fa::ops {

/// The most scales that one call of ReadAntiquants may read. A head of compressed keys has at most this many columns.
inline constexpr int64_t kMostNumbers = 4096;

/// Returns the scales and offsets of the rows `keys` of a head, as f32 for the kernels.
/// @param columns  the number of columns of a head
/// @param in_place  whether groups of a row may follow each other (TakesGroupsOfRows)
/// @param floats  2 * kMostNumbers floats. If scales differ per row and group, keys.size() * groups is at most
///   kMostNumbers
[[nodiscard]] core::kernels::Antiquantization ReadAntiquants(const Antiquants& of,
                                                             const core::kernels::RowFunctions& kernels,
                                                             int64_t sequence, int64_t head_kv, tiling::Interval keys,
                                                             int64_t columns, bool in_place, float* floats);

/// Returns how many rows one call of ReadAntiquants can take.
[[nodiscard]] inline int64_t MostAntiquantRows(const Antiquants& of) { return kMostNumbers / of.groups; }

}  // namespace fa::ops

#endif  // FA_OPS_ANTIQUANT_ROWS_H_
