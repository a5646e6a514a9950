#include "ops/inference/int8_output.h"

#include <algorithm>
#include <cmath>

#include "reference/prompt.h"
#include "support/cases/random_values.h"

namespace fa::test {

OutputScales::OutputScales(const OutputScaleForm& form, uint64_t seed, int64_t heads, int64_t dv, Placement placement)
    : dv_(dv), per_column_(form.per_column) {
  const int64_t columns = form.per_column ? heads * dv : 1;
  const Dims shape = form.per_column && form.heads_by_columns ? Dims{heads, dv} : Dims{columns};
  scale_ = Tensor(form.dtype, shape, {}, placement);
  if (form.with_offset) offset_ = Tensor(form.dtype, shape, {}, placement);
  for (int64_t x = 0; x < columns; ++x) {
    const double vary = form.per_column ? RandomUniform(seed, Tag::kChoice, {x}) : 0;
    scale_.Set(x, form.scale * (1 + vary));
    if (form.with_offset) offset_.Set(x, form.offset + 10 * vary);
  }
}

double OutputScales::Quantized(double x, int64_t head, int64_t column) const {
  const int64_t at = per_column_ ? head * dv_ + column : 0;
  return reference::Quantize(x, scale_.Get(at), offset_.absent() ? 0 : offset_.Get(at));
}

double OutputScales::Tolerance(double x, double far, int64_t head, int64_t column) const {
  const double usual = Quantized(x, head, column);
  return std::max(std::fabs(Quantized(x + far, head, column) - usual),
                  std::fabs(Quantized(x - far, head, column) - usual));
}

}  // namespace fa::test
