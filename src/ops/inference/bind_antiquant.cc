// Binds the scales and offsets of int8 keys and values.
#include <algorithm>
#include <string>

#include "ops/inference/bind_decode_parts.h"

namespace fa::ops {
namespace {

Status CheckAntiquant(const DecodeBinding& call, const char* name, const TensorView& tensor) {
  if (tensor.dtype > DType::kBF16) return WrongType(name, tensor.dtype, "f32, f16 or bf16");
  FA_RETURN_IF_ERROR(CheckView(name, tensor));
  const tiling::AttentionProblem& problem = call.bound.attention.problem;
  const Dims& shape = tensor.shape;
  const int64_t heads = problem.heads_kv, d = problem.d;
  if (call.options.antiquant == Antiquant::kPerToken) {
    int64_t longest = 0;
    for (const tiling::Sequence& sequence : problem.sequences) longest = std::max(longest, sequence.sk);
    if (shape.rank() == 3 && shape[0] == 2 && shape[1] == call.batch() && shape[2] >= longest) return Status::Ok();
    return Status::InvalidArgument(Arg(name, ".shape").Is(Text(shape)) + ", want [2," + std::to_string(call.batch()) +
                                   "," + std::to_string(longest) + "] (one per key)");
  }
  if (shape == Dims{2}) return Status::Ok();
  if (shape == Dims{2, heads, d} || shape == Dims{2, heads, 1, d} || shape == Dims{2, heads * d}) {
    if (problem.dv == d) return Status::Ok();
    return Status::InvalidArgument(Arg(name, ".shape").Is(Text(shape)) + ", want [2] (heads of " + Arg("v") +
                                   " have another size than those of " + Arg("k") + ")");
  }
  return Status::InvalidArgument(Arg(name, ".shape").Is(Text(shape)) + ", want [2], [2," + std::to_string(heads) + "," +
                                 std::to_string(d) + "] or [2," + std::to_string(heads * d) + "]");
}

}  // namespace

Status BindAntiquant(DecodeBinding& call) {
  const TensorView &scale = call.args.antiquant_scale, &offset = call.args.antiquant_offset;
  if (!call.bound.storage.quantized) {
    const char* given = scale.data != nullptr    ? "antiquant_scale"
                        : offset.data != nullptr ? "antiquant_offset"
                                                 : nullptr;
    if (given == nullptr) return Status::Ok();
    return Status::InvalidArgument(Arg(given).Says("given, want none (") +
                                   Arg(call.int8_products() ? "q" : "k", ".dtype") + " is " +
                                   Name(call.args.k[0].dtype) + ")");
  }
  if (scale.data == nullptr)
    return Status::InvalidArgument(Arg("antiquant_scale").Says("missing (") + Arg("k", ".dtype") + " is i8)");
  if (call.options.antiquant > Antiquant::kPerToken) {
    return Status::InvalidArgument(Arg("antiquant").Is(std::to_string(static_cast<int>(call.options.antiquant))) +
                                   ", want kPerTensorOrChannel or kPerToken");
  }
  FA_RETURN_IF_ERROR(CheckAntiquant(call, "antiquant_scale", scale));
  call.bound.storage.per_token = call.options.antiquant == Antiquant::kPerToken;
  if (offset.data == nullptr) return Status::Ok();
  FA_RETURN_IF_ERROR(CheckAntiquant(call, "antiquant_offset", offset));
  if (offset.shape == scale.shape) return Status::Ok();
  return Status::InvalidArgument(Arg("antiquant_offset", ".shape").Is(Text(offset.shape)) + ", want " +
                                 Text(scale.shape) + " (" + Arg("antiquant_scale") + ")");
}

}  // namespace fa::ops
