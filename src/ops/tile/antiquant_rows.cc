#include "ops/tile/antiquant_rows.h"

#include <cassert>

#include "fa/half.h"

namespace fa::ops {
namespace {

using core::kernels::Antiquantization;
using tiling::Interval;

float LoadNumber(const std::byte* data, DType dtype, int64_t at) {
  switch (dtype) {
    case DType::kF16: return F32FromF16(reinterpret_cast<const uint16_t*>(data)[at]);
    case DType::kBF16: return F32FromBf16(reinterpret_cast<const uint16_t*>(data)[at]);
    default: return reinterpret_cast<const float*>(data)[at];
  }
}

/// Copies f32 numbers of n rows and kGroups groups, so that those of a group follow each other. Each row is read once.
template <int64_t kGroups>
void CopyGroups(const std::byte* from, int64_t stride, int64_t group_stride, int64_t n, float* to, int64_t to_group) {
  const auto* numbers = reinterpret_cast<const float*>(from);
  for (int64_t i = 0; i < n; ++i, numbers += stride) {
    for (int64_t g = 0; g < kGroups; ++g) to[g * to_group + i] = numbers[g * group_stride];
  }
}

/// Copies numbers of n rows, which lie `stride` elements apart. The numbers of a group then follow each other.
void CopyNumbers(const core::kernels::RowFunctions& kernels, const std::byte* from, DType dtype, int64_t stride,
                 int64_t groups, int64_t group_stride, int64_t n, float* to, int64_t to_group) {
  if (dtype == DType::kF32 && stride != 1) {  // the most frequent type
    switch (groups) {
      case 1: return CopyGroups<1>(from, stride, group_stride, n, to, to_group);
      case 2: return CopyGroups<2>(from, stride, group_stride, n, to, to_group);
      case 4: return CopyGroups<4>(from, stride, group_stride, n, to, to_group);
      case 8: return CopyGroups<8>(from, stride, group_stride, n, to, to_group);
      default: break;
    }
  }
  for (int64_t g = 0; g < groups; ++g, to += to_group) {
    const std::byte* of_group = from + g * group_stride * static_cast<int64_t>(SizeOf(dtype));
    if (stride == 1) {
      kernels.widen({of_group, dtype, n}, 1, n, to, n);
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = LoadNumber(of_group, dtype, i * stride);
    }
  }
}

/// Reads the scales or the offsets of rows of a head. If they differ per row, the result is [group][key]. Otherwise the
/// result has one number per column, or a single number if there is one group.
const float* Read(const Antiquants& of, const layout::HeadRows& head, int64_t group_stride,
                  const core::kernels::RowFunctions& kernels, Interval keys, int64_t columns, float* floats) {
  if (!of.per_row) {
    // One number holds for all columns of a group.
    const std::byte* at = head.At(0);
    const int64_t each = columns / of.groups;
    for (int64_t c = 0; c < (of.groups > 1 ? columns : 1); ++c) {
      floats[c] = LoadNumber(at, head.dtype, c / each * group_stride);
    }
    return floats;
  }
  if (of.groups == 1 && head.dtype == DType::kF32 && head.stride == 1 && !head.paged()) {
    return reinterpret_cast<const float*>(head.At(keys.begin));
  }
  assert(keys.size() * of.groups <= kMostNumbers);
  for (int64_t key = keys.begin; key < keys.end;) {
    const int64_t end = head.RunEnd(key, keys.end, 0);
    CopyNumbers(kernels, head.At(key), head.dtype, head.stride, of.groups, group_stride, end - key,
                floats + key - keys.begin, keys.size());
    key = end;
  }
  return floats;
}

}  // namespace

Antiquantization ReadAntiquants(const Antiquants& of, const core::kernels::RowFunctions& kernels, int64_t sequence,
                                int64_t head_kv, Interval keys, int64_t columns, bool in_place, float* floats) {
  Antiquantization by{.row_step = of.per_row ? 1 : 0, .group = of.groups == 1 ? 0 : 1};
  if (of.per_row && of.groups > 1) {
    by.group = columns / of.groups;
    by.group_step = keys.size();
  }
  const layout::HeadRows scale = of.scale.Head(sequence, head_kv, 0), offset = of.offset.Head(sequence, head_kv, 0);
  const bool has_offset = of.offset.view.data != nullptr;
  const auto lies = [&](const layout::HeadRows& head, int64_t group_stride) {
    return head.dtype == DType::kF32 && group_stride == 1 && head.stride == scale.stride && !head.paged();
  };
  if (in_place && by.row_step != 0 && by.group > 1 && scale.stride > 1 && lies(scale, of.scale_group) &&
      (!has_offset || lies(offset, of.offset_group))) {
    by.row_step = scale.stride;
    by.group_step = 1;
    by.scale = reinterpret_cast<const float*>(scale.At(keys.begin));
    if (has_offset) by.offset = reinterpret_cast<const float*>(offset.At(keys.begin));
    return by;
  }
  by.scale = Read(of, scale, of.scale_group, kernels, keys, columns, floats);
  if (has_offset) by.offset = Read(of, offset, of.offset_group, kernels, keys, columns, floats + kMostNumbers);
  return by;
}

}  // namespace fa::ops
