#include "ops/inference/output_scales.h"

#include <cstring>
#include <string>

#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"
#include "ops/inference/scale_tensor.h"

namespace fa::ops {
namespace {

bool LiesInOrder(const TensorView& tensor) {
  if (tensor.stride.empty()) return true;
  const Dims dense = layout::FilledStride(tensor.shape, {});
  for (int dim = 0; dim < tensor.shape.rank(); ++dim) {
    if (tensor.shape[dim] > 1 && tensor.stride[dim] != dense[dim]) return false;
  }
  return true;
}

/// Copies `count` elements in the order of the shape.
void Pack(const TensorView& tensor, int64_t count, std::byte* to) {
  const Dims stride = layout::FilledStride(tensor.shape, tensor.stride);
  const auto size = static_cast<int64_t>(SizeOf(tensor.dtype));
  const auto* data = static_cast<const std::byte*>(tensor.data);
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0, rest = i;
    for (int dim = tensor.shape.rank() - 1; dim >= 0; --dim) {
      offset += rest % tensor.shape[dim] * stride[dim];
      rest /= tensor.shape[dim];
    }
    std::memcpy(to + i * size, data + offset * size, static_cast<size_t>(size));
  }
}

}  // namespace

Result<BoundOutputScales> BindOutputScales(const OutputScales& args, int64_t columns) {
  const std::string reason = std::string("out.dtype=") + Name(args.out);
  BoundOutputScales bound{.quantised = args.out == DType::kI8};
  const Need need = bound.quantised ? Need::kRequired : Need::kForbidden;
  const Need offset_need = bound.quantised ? Need::kOptional : Need::kForbidden;
  if (Status status = CheckPresence({"quant_scale2", args.scale, need, reason.c_str()}); !status.ok()) return status;
  if (Status status = CheckPresence({"quant_offset2", args.offset, offset_need, reason.c_str()}); !status.ok()) {
    return status;
  }
  if (!bound.quantised) return bound;
  const TensorView& scale = args.scale;
  const bool bf16 = scale.dtype == DType::kBF16 && args.q == DType::kBF16;
  if (scale.dtype != DType::kF32 && !bf16) {
    return WrongType("quant_scale2", scale.dtype, args.q == DType::kBF16 ? "f32 or bf16" : "f32");
  }
  if (Status status = CheckView("quant_scale2", scale, /*any_innermost=*/true); !status.ok()) return status;
  bound.values = ElementsOf(scale);
  if (bound.values != 1 && bound.values != columns) {
    return Status::InvalidArgument("quant_scale2.shape=" + Text(scale.shape) + ", want 1 element or " +
                                   std::to_string(columns) + " (query heads times the head size of value)");
  }
  bound.strided = !LiesInOrder(scale);
  const TensorView& offset = args.offset;
  if (offset.data == nullptr) return bound;
  if (offset.dtype != scale.dtype) {
    return WrongType("quant_offset2", offset.dtype, std::string(Name(scale.dtype)) + " (quant_scale2.dtype)");
  }
  if (Status status = CheckView("quant_offset2", offset, /*any_innermost=*/true); !status.ok()) return status;
  bound.strided = bound.strided || !LiesInOrder(offset);
  if (ElementsOf(offset) == bound.values) return bound;
  return Status::InvalidArgument("quant_offset2.shape=" + Text(offset.shape) + ", want " +
                                 std::to_string(bound.values) + " elements (quant_scale2)");
}

size_t OutputScaleBytes(const BoundOutputScales& bound) {
  constexpr size_t kTables = 2;  // scales and offsets
  return bound.strided ? kTables * static_cast<size_t>(bound.values) * sizeof(float) : 0;
}

OutputQuantisation ReadOutputScales(const BoundOutputScales& bound, const TensorView& scale, const TensorView& offset,
                                    const core::kernels::Int8Table& kernels, std::byte* memory) {
  OutputQuantisation quantisation{
      .values = {.scale = scale.data, .offset = offset.data, .dtype = scale.dtype, .per_column = bound.values > 1},
      .kernels = &kernels};
  if (!bound.strided) return quantisation;
  Pack(scale, bound.values, memory);
  quantisation.values.scale = memory;
  if (offset.data == nullptr) return quantisation;
  std::byte* offsets = memory + static_cast<size_t>(bound.values) * sizeof(float);
  Pack(offset, bound.values, offsets);
  quantisation.values.offset = offsets;
  return quantisation;
}

}  // namespace fa::ops
