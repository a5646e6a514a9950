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

/// Copies n numbers that lie `stride` elements apart.
void CopyNumbers(const core::kernels::RowFunctions& kernels, const std::byte* from, DType dtype, int64_t stride,
                 int64_t n, float* to) {
  if (stride == 1) return kernels.widen({from, dtype, n}, 1, n, to, n);
  if (dtype == DType::kF32) {  // the most frequent type
    const auto* numbers = reinterpret_cast<const float*>(from);
    for (int64_t i = 0; i < n; ++i) to[i] = numbers[i * stride];
    return;
  }
  for (int64_t i = 0; i < n; ++i) to[i] = LoadNumber(from, dtype, i * stride);
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
  const int64_t group_bytes = group_stride * static_cast<int64_t>(SizeOf(head.dtype));
  for (int64_t key = keys.begin; key < keys.end;) {
    const int64_t end = head.RunEnd(key, keys.end, 0);
    for (int64_t group = 0; group < of.groups; ++group) {
      CopyNumbers(kernels, head.At(key) + group * group_bytes, head.dtype, head.stride, end - key,
                  floats + group * keys.size() + key - keys.begin);
    }
    key = end;
  }
  return floats;
}

}  // namespace

Antiquantization ReadAntiquants(const Antiquants& of, const core::kernels::RowFunctions& kernels, int64_t sequence,
                                int64_t head_kv, Interval keys, int64_t columns, float* floats) {
  Antiquantization by{.row_step = of.per_row ? 1 : 0, .group = of.groups == 1 ? 0 : 1};
  if (of.per_row && of.groups > 1) {
    by.group = columns / of.groups;
    by.group_step = keys.size();
  }
  by.scale = Read(of, of.scale.Head(sequence, head_kv, 0), of.scale_group, kernels, keys, columns, floats);
  if (of.offset.view.data != nullptr) {
    by.offset =
        Read(of, of.offset.Head(sequence, head_kv, 0), of.offset_group, kernels, keys, columns, floats + kMostNumbers);
  }
  return by;
}

}  // namespace fa::ops
