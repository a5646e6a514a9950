#ifndef FA_OPS_PRODUCT_SCALES_H_
#define FA_OPS_PRODUCT_SCALES_H_

#include <span>
#include <utility>

#include "fa/options.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::ops {

/// The arguments that scale the products of an int8 call.
struct ProductScaleTensors {
  const TensorView &deq_scale1, &quant_scale1, &deq_scale2;
};
template <typename Args>
[[nodiscard]] ProductScaleTensors ProductScalesOf(const Args& args) {
  return {args.deq_scale1, args.quant_scale1, args.deq_scale2};
}

/// The factors of an int8 call, read in a run.
struct ProductScales {
  float scores = 1;   ///< factor of the exact inner products: deq_scale1 * scale
  float quant = 1;    ///< factor of the probabilities; `product` has the factor's sign
  float limit = 127;  ///< bound of the quantized probabilities
  float product = 1;  ///< factor of the exact product of the quantized probabilities and V
};

/// Checks the output's type. The output has the queries' type or i8. With i8 queries the output has f16 or i8.
[[nodiscard]] Status CheckOutputType(DType q, DType out);

/// With i8 queries, refuses the options that Int8Tile lacks, and every tensor in `given` (name, whether it is present)
/// that is present.
[[nodiscard]] Status CheckFloatsOnly(std::span<const std::pair<const char*, bool>> given,
                                     const AttentionOptions& options);

/// Checks that i8 queries have all three scales, and other queries none.
[[nodiscard]] Status CheckProductScales(DType q, const ProductScaleTensors& tensors);

/// Reads the scales of an int8 call. @return kInvalidArgument for a scale that is not finite
[[nodiscard]] Result<ProductScales> ReadProductScales(const ProductScaleTensors& tensors, float scale);

}  // namespace fa::ops

#endif  // FA_OPS_PRODUCT_SCALES_H_
