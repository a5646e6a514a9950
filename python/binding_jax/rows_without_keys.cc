#include "rows_without_keys.h"

#include <cstddef>
#include <limits>
#include <vector>

#include "fa/half.h"

namespace fa::xla_calls {
namespace {

float ReadNumber(const void* row, DType dtype, int64_t i) {
  if (dtype == DType::kF32) return static_cast<const float*>(row)[i];
  const uint16_t bits = static_cast<const uint16_t*>(row)[i];
  return dtype == DType::kBF16 ? F32FromBf16(bits) : F32FromF16(bits);
}

void WriteNumber(void* row, DType dtype, int64_t i, float value) {
  if (dtype == DType::kF32) {
    static_cast<float*>(row)[i] = value;
  } else {
    static_cast<uint16_t*>(row)[i] = dtype == DType::kBF16 ? Bf16FromF32(value) : F16FromF32(value);
  }
}

// Returns the address of row (b, s, n) of a tensor [B, S, N, D].
template <typename Pointer>
Pointer RowOf(Pointer data, const TensorView& view, int64_t b, int64_t s, int64_t n) {
  const int64_t offset = b * view.stride[0] + s * view.stride[1] + n * view.stride[2];
  return data + offset * static_cast<int64_t>(SizeOf(view.dtype));
}
const std::byte* RowOf(const TensorView& view, int64_t b, int64_t s, int64_t n) {
  return RowOf(static_cast<const std::byte*>(view.data), view, b, s, n);
}
std::byte* RowOf(const MutableTensorView& view, int64_t b, int64_t s, int64_t n) {
  return RowOf(static_cast<std::byte*>(view.data), view, b, s, n);
}

void AddRow(const std::byte* row, DType dtype, std::vector<double>* sums) {
  for (size_t i = 0; i < sums->size(); ++i) (*sums)[i] += ReadNumber(row, dtype, static_cast<int64_t>(i));
}

// Calls visit(t) for each row in use of (b, n) without keys. fa/flash_attention.h says which statistics such a row has.
template <typename Visit>
void ForEachRowWithoutKeys(const TensorView& softmax_max, const TensorView& softmax_sum, int64_t b, int64_t n,
                           int64_t in_use, const Visit& visit) {
  const auto at = [&](const TensorView& view, int64_t t) {
    return static_cast<const float*>(view.data)[b * view.stride[0] + n * view.stride[1] + t * view.stride[2]];
  };
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (int64_t t = 0; t < in_use; ++t) {
    if (at(softmax_sum, t) == kLargest && at(softmax_max, t) == -kLargest) visit(t);
  }
}

}  // namespace

void WriteMeans(const TensorView& v, const TensorView& softmax_max, const TensorView& softmax_sum,
                const RowsInUse& in_use, const MutableTensorView& out) {
  const int64_t keys = v.shape[1], group = out.shape[2] / v.shape[2];
  std::vector<double> mean;
  for (int64_t b = 0; b < out.shape[0]; ++b) {
    for (int64_t n = 0; n < out.shape[2]; ++n) {
      if (n % group == 0) mean.clear();
      ForEachRowWithoutKeys(softmax_max, softmax_sum, b, n, in_use(b), [&](int64_t t) {
        if (mean.empty()) {
          mean.assign(static_cast<size_t>(v.shape[3]), 0);
          for (int64_t s = 0; s < keys; ++s) AddRow(RowOf(v, b, s, n / group), v.dtype, &mean);
          for (double& sum : mean) sum /= static_cast<double>(keys);
        }
        std::byte* row = RowOf(out, b, t, n);
        for (int64_t i = 0; i < v.shape[3]; ++i) {
          WriteNumber(row, out.dtype, i, static_cast<float>(mean[static_cast<size_t>(i)]));
        }
      });
    }
  }
}

void AddToValues(const TensorView& d_out, const TensorView& softmax_max, const TensorView& softmax_sum,
                 const RowsInUse& in_use, const MutableTensorView& dv) {
  const int64_t keys = dv.shape[1], group = d_out.shape[2] / dv.shape[2];
  for (int64_t b = 0; b < dv.shape[0]; ++b) {
    for (int64_t n_kv = 0; n_kv < dv.shape[2]; ++n_kv) {
      std::vector<double> sums;
      for (int64_t n = n_kv * group; n < (n_kv + 1) * group; ++n) {
        ForEachRowWithoutKeys(softmax_max, softmax_sum, b, n, in_use(b), [&](int64_t t) {
          sums.resize(static_cast<size_t>(dv.shape[3]));
          AddRow(RowOf(d_out, b, t, n), d_out.dtype, &sums);
        });
      }
      for (int64_t s = 0; s < keys && !sums.empty(); ++s) {
        std::byte* row = RowOf(dv, b, s, n_kv);
        for (int64_t i = 0; i < dv.shape[3]; ++i) {
          const double added = sums[static_cast<size_t>(i)] / static_cast<double>(keys);
          WriteNumber(row, dv.dtype, i, static_cast<float>(ReadNumber(row, dv.dtype, i) + added));
        }
      }
    }
  }
}

}  // namespace fa::xla_calls
