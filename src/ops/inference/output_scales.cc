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

/// Returns whether `mask` leaves a row of the sequence without keys. Without a mask, or with a causal mask from the top
/// left, only a sequence without keys has such rows. The NPU accepts this sequence, so the result is then false.
bool HasEmptyRow(const Mask& mask, const tiling::Sequence& sequence) {
  const bool never = mask.kind() == Mask::Kind::kNone || mask.kind() == Mask::Kind::kCausalTopLeft;
  return !never && sequence.rule.HasEmptyRow();
}

}  // namespace

Result<BoundOutputScales> BindOutputScales(const OutputScales& args, int64_t columns) {
  const ErrorText reason = Arg("out", ".dtype").Is(Name(args.out));
  BoundOutputScales bound{.quantized = args.out == DType::kI8};
  const Need need = bound.quantized ? Need::kRequired : Need::kForbidden;
  const Need offset_need = bound.quantized ? Need::kOptional : Need::kForbidden;
  FA_RETURN_IF_ERROR(CheckPresence({"quant_scale2", args.scale, need, reason}));
  FA_RETURN_IF_ERROR(CheckPresence({"quant_offset2", args.offset, offset_need, reason}));
  if (!bound.quantized) return bound;
  const TensorView& scale = args.scale;
  const bool bf16 = scale.dtype == DType::kBF16 && args.q == DType::kBF16;
  if (scale.dtype != DType::kF32 && !bf16) {
    return WrongType("quant_scale2", scale.dtype, args.q == DType::kBF16 ? "f32 or bf16" : "f32");
  }
  FA_RETURN_IF_ERROR(CheckView("quant_scale2", scale, /*any_innermost=*/true));
  bound.values = ElementsOf(scale);
  if (bound.values != 1 && bound.values != columns) {
    return Status::InvalidArgument(Arg("quant_scale2", ".shape").Is(Text(scale.shape)) + ", want 1 element or " +
                                   std::to_string(columns) + " (query heads times the head size of " + Arg("v") + ")");
  }
  bound.strided = !LiesInOrder(scale);
  const TensorView& offset = args.offset;
  if (offset.data == nullptr) return bound;
  if (offset.dtype != scale.dtype) {
    return WrongType("quant_offset2", offset.dtype, TypeOf("quant_scale2", scale.dtype));
  }
  FA_RETURN_IF_ERROR(CheckView("quant_offset2", offset, /*any_innermost=*/true));
  bound.strided = bound.strided || !LiesInOrder(offset);
  if (ElementsOf(offset) == bound.values) return bound;
  return Status::InvalidArgument(Arg("quant_offset2", ".shape").Is(Text(offset.shape)) + ", want " +
                                 std::to_string(bound.values) + " elements (" + Arg("quant_scale2") + ")");
}

Status CheckOffsetRows(const TensorView& offset, const Mask& mask, const tiling::AttentionProblem& problem) {
  if (offset.data == nullptr) return Status::Ok();
  for (size_t b = 0; b < problem.sequences.size(); ++b) {
    const tiling::Sequence& sequence = problem.sequences[b];
    if (!HasEmptyRow(mask, sequence)) continue;
    return Status::InvalidArgument(
        Arg("quant_offset2").Says("given, want none where the mask leaves rows without keys (batch ") +
        std::to_string(b) + ", Sq=" + std::to_string(sequence.sq) + ", Sk=" + std::to_string(sequence.sk) + ")");
  }
  return Status::Ok();
}

size_t OutputScaleBytes(const BoundOutputScales& bound) {
  constexpr size_t kTables = 2;  // number of tables: scales and offsets
  return bound.strided ? kTables * static_cast<size_t>(bound.values) * sizeof(float) : 0;
}

OutputQuantization ReadOutputScales(const BoundOutputScales& bound, const TensorView& scale, const TensorView& offset,
                                    const core::kernels::Int8Table& kernels, std::byte* memory) {
  OutputQuantization quantization{
      .values = {.scale = scale.data, .offset = offset.data, .dtype = scale.dtype, .per_column = bound.values > 1},
      .kernels = &kernels};
  if (!bound.strided) return quantization;
  Pack(scale, bound.values, memory);
  quantization.values.scale = memory;
  if (offset.data == nullptr) return quantization;
  std::byte* offsets = memory + static_cast<size_t>(bound.values) * sizeof(float);
  Pack(offset, bound.values, offsets);
  quantization.values.offset = offsets;
  return quantization;
}

}  // namespace fa::ops
