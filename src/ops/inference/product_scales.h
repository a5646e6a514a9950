#ifndef FA_OPS_PRODUCT_SCALES_H_
#define FA_OPS_PRODUCT_SCALES_H_

#include <span>
#include <utility>

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
  float scores = 1;   ///< of the exact inner products: deq_scale1 * scale
  float quant = 1;    ///< of the probabilities, not negative: the sign is in `product`
  float limit = 127;  ///< of the quantized probabilities
  float product = 1;  ///< of the exact P8 V
};

/// The output's type: that of the queries, or i8; of queries of i8, f16 or i8.
[[nodiscard]] Status CheckOutputType(DType q, DType out);

/// What only floats have, since the tile program of int8 operands lacks it: refuses, of queries of i8, the tensors that
/// are given, by name, and a softcap.
[[nodiscard]] Status CheckFloatsOnly(std::span<const std::pair<const char*, bool>> given, float softcap);

/// All three are required for queries of i8, and forbidden for others.
[[nodiscard]] Status CheckProductScales(DType q, const ProductScaleTensors& tensors);

/// @return kInvalidArgument for a scale that is not finite
[[nodiscard]] Result<ProductScales> ReadProductScales(const ProductScaleTensors& tensors, float scale);

}  // namespace fa::ops

#endif  // FA_OPS_PRODUCT_SCALES_H_
