#ifndef FA_TESTS_OPS_INFERENCE_INT8_OUTPUT_H_
#define FA_TESTS_OPS_INFERENCE_INT8_OUTPUT_H_

#include <cstdint>

#include "support/tensor.h"

namespace fa::test {

/// The form of the quant_scale2 and quant_offset2 of an int8 output.
struct OutputScaleForm {
  double scale = 20, offset = 0;  ///< means around which the values of the columns vary
  bool per_column = false;        ///< whether there are N * Dv scales; otherwise there is one
  bool heads_by_columns = false;  ///< scales per column have the shape [N, Dv]; otherwise [N * Dv]
  bool with_offset = false;
  DType dtype = DType::kF32;
};

class OutputScales {
 public:
  OutputScales() = default;  ///< the scales are absent
  OutputScales(const OutputScaleForm& form, uint64_t seed, int64_t heads, int64_t dv, Placement placement);

  [[nodiscard]] const Tensor& scale() const { return scale_; }
  [[nodiscard]] const Tensor& offset() const { return offset_; }
  /// Returns the int8 value of an output that is exactly `x`.
  [[nodiscard]] double Quantized(double x, int64_t head, int64_t column) const;
  /// Returns how far an int8 output may be from Quantized(x), if the output before quantization is off by `far`.
  [[nodiscard]] double Tolerance(double x, double far, int64_t head, int64_t column) const;

 private:
  int64_t dv_ = 0;
  bool per_column_ = false;
  Tensor scale_, offset_;
};

}  // namespace fa::test

#endif  // FA_TESTS_OPS_INFERENCE_INT8_OUTPUT_H_
