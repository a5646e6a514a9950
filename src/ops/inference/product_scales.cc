#include "ops/inference/product_scales.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "fa/decode_attention.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_parts.h"
#include "ops/inference/scale_tensor.h"

namespace fa::ops {
namespace {

Status CheckOneElement(const WantedScale& want) {
  if (want.tensor.data == nullptr) return Status::Ok();
  FA_RETURN_IF_ERROR(CheckView(want.name, want.tensor));
  if (ElementsOf(want.tensor) == 1) return Status::Ok();
  return Status::InvalidArgument(Arg(want.name, ".shape").Is(Text(want.tensor.shape)) + ", want one element");
}

// Reads a scale that is an f32, or a u64 whose low half holds the bits of an f32.
float ReadScale(const TensorView& tensor) {
  if (tensor.dtype == DType::kF32) return *static_cast<const float*>(tensor.data);
  return std::bit_cast<float>(static_cast<uint32_t>(*static_cast<const uint64_t*>(tensor.data)));
}

Status CheckFinite(const char* name, float value) {
  if (std::isfinite(value)) return Status::Ok();
  return Status::InvalidArgument(Arg(name).Is(Text(value)) + ", want a finite number");
}

}  // namespace

Status CheckOutputType(DType q, DType out) {
  if (out == DType::kI8 || out == (q == DType::kI8 ? DType::kF16 : q)) return Status::Ok();
  return WrongType("out", out,
                   q == DType::kI8 ? "f16 or i8 (" + Arg("q", ".dtype") + "=i8)" : TypeOf("q", q) + " or i8");
}

Status CheckFloatsOnly(std::span<const std::pair<const char*, bool>> given, const AttentionOptions& options) {
  const ErrorText reason = " (" + Arg("q", ".dtype") + "=i8)";
  for (const auto& [name, is_given] : given) {
    if (is_given) return Status::InvalidArgument(Arg(name).Says("given, want none") + reason);
  }
  Status status = Status::Ok();
  const auto want_default = [&](const char* name, auto, auto number, auto usual) {
    if (status.ok() && number != usual) {
      status = Status::InvalidArgument(Arg(name).Is(Text(number)) + ", want " + Text(usual) + reason);
    }
  };
  ForEachNumber(want_default, options, DecodeAttentionOptions());
  FA_RETURN_IF_ERROR(status);
  if (options.pse_type != PseType::kScaleThenAdd) {
    return Status::InvalidArgument(Arg("pse_type").Is(std::to_string(static_cast<int>(options.pse_type))) + ", want 0" +
                                   reason);
  }
  return Status::Ok();
}

Status CheckProductScales(DType q, const ProductScaleTensors& tensors) {
  const bool wanted = q == DType::kI8;
  const ErrorText reason = Arg("q", ".dtype").Is(Name(q));
  const Need need = wanted ? Need::kRequired : Need::kForbidden;
  const WantedScale scales[] = {{"deq_scale1", tensors.deq_scale1, need, reason},
                                {"quant_scale1", tensors.quant_scale1, need, reason},
                                {"deq_scale2", tensors.deq_scale2, need, reason}};
  for (const WantedScale& scale : scales) {
    FA_RETURN_IF_ERROR(CheckPresence(scale));
    FA_RETURN_IF_ERROR(CheckOneElement(scale));
    const bool packed = &scale != &scales[1];
    if (!wanted || scale.tensor.dtype == DType::kF32 || (packed && scale.tensor.dtype == DType::kU64)) continue;
    return WrongType(scale.name, scale.tensor.dtype, packed ? "f32 or u64" : "f32");
  }
  return Status::Ok();
}

Result<ProductScales> ReadProductScales(const ProductScaleTensors& tensors, float scale) {
  const float deq1 = ReadScale(tensors.deq_scale1), quant = ReadScale(tensors.quant_scale1);
  const float deq2 = ReadScale(tensors.deq_scale2);
  FA_RETURN_IF_ERROR(CheckFinite("deq_scale1", deq1));
  FA_RETURN_IF_ERROR(CheckFinite("quant_scale1", quant));
  FA_RETURN_IF_ERROR(CheckFinite("deq_scale2", deq2));
  if (!std::isfinite(deq1 * scale)) {
    return Status::InvalidArgument(Arg("deq_scale1").Is(Text(deq1)) +
                                   ", want a value that stays finite when multiplied by " + Arg("scale") + "=" +
                                   Text(scale));
  }
  // A negative quant_scale1 is applied as its absolute value, and `product` gets its sign. The change of signs is
  // exact, because rounding to even is symmetric. Probabilities are then limited to 128 instead of 127, because i8
  // reaches from -128 to 127.
  const bool negative = quant < 0;
  return ProductScales{.scores = deq1 * scale,
                       .quant = std::fabs(quant),
                       .limit = negative ? 128.0f : 127.0f,
                       .product = negative ? -deq2 : deq2};
}

}  // namespace fa::ops
