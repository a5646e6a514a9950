#ifndef FA_TESTS_OPS_INFERENCE_STRIDED_SCALES_H_
#define FA_TESTS_OPS_INFERENCE_STRIDED_SCALES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "support/tensor.h"

namespace fa::test {

/// Scales or offsets of an int8 output that are not contiguous. There is one per column of every head.
struct StridedScales {
  std::string name;
  Tensor tensor;  ///< its memory ends at an unreadable page
  Tensor packed;  ///< the same values in the order of the shape, [heads * dv]
};

/// Returns scales that are broadcast or transposed, or have gaps. Values lie between `low` and `high`, and no two
/// elements in memory are equal.
[[nodiscard]] inline std::vector<StridedScales> MakeStridedScales(DType dtype, int64_t heads, int64_t dv, double low,
                                                                  double high) {
  struct Form {
    const char* name;
    Dims shape, stride;
  };
  const Form forms[] = {{"one row for all heads", {heads, dv}, {0, 1}},
                        {"one value a head", {heads, dv}, {1, 0}},
                        {"one value", {heads * dv}, {0}},
                        {"transposed", {heads, dv}, {1, heads}},
                        {"outer dimensions transposed", {2, heads / 2, dv}, {dv, 2 * dv, 1}},
                        {"gaps between heads", {heads, 1, dv}, {dv + 3, 1, 1}},
                        {"gaps between values", {heads * dv}, {2}}};
  std::vector<StridedScales> all;
  for (const Form& form : forms) {
    StridedScales scales{form.name, Tensor(dtype, form.shape, form.stride, {.place = Place::kAtEnd}),
                         Tensor(dtype, {heads * dv}, {1})};
    const int64_t extent = Extent(form.shape, form.stride);
    for (int64_t i = 0; i < heads * dv; ++i) {
      int64_t offset = 0, rest = i;
      for (int dim = form.shape.rank() - 1; dim >= 0; --dim) {
        offset += rest % form.shape[dim] * form.stride[dim];
        rest /= form.shape[dim];
      }
      const double value = low + (high - low) * static_cast<double>(offset) / static_cast<double>(extent);
      scales.tensor.Set(offset, value);
      scales.packed.Set(i, value);
    }
    all.push_back(scales);
  }
  return all;
}

}  // namespace fa::test

#endif  // FA_TESTS_OPS_INFERENCE_STRIDED_SCALES_H_
