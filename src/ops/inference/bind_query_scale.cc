// Binds the scales of queries of 8 bits, and refuses what calls with these scales may not have.
#include <algorithm>
#include <string>
#include <utility>

#include "ops/inference/bind_decode_parts.h"

namespace fa::ops {
namespace {

Status RefuseWith(const char* name, const ErrorText& why) {
  return Status::InvalidArgument(Arg(name).Says("given, want none (") + why + ")");
}

// Returns the axes of q_scale: the axes of q without D. If heads and D share a dimension of q, that dimension of
// q_scale has one element per head.
layout::Axes ScaleAxes(layout::Axes axes) {
  if (axes.fused()) axes.head = axes.dim;
  return axes;
}

Dims ShapeOfQueryScale(const DecodeBinding& call, const layout::Axes& axes) {
  Dims shape;
  for (int dim = 0; dim < call.axes.rank; ++dim) {
    if (dim == axes.head) {
      shape.push_back(call.bound.attention.problem.heads);
    } else if (dim != axes.dim) {
      shape.push_back(call.args.q.shape[dim]);
    }
  }
  return shape;
}

/// Returns whether each key has its own scale. If no sequence has a second key, the shape of the scales does not tell,
/// and the option antiquant decides.
bool HasScalesOfKeys(const DecodeBinding& call) {
  return call.bound.storage.k_antiquants.per_row || call.options.antiquant == Antiquant::kPerToken;
}

/// Returns whether the scales of keys may be one per key.
bool MayHaveScalesOfKeys(const DecodeBinding& call) {
  const auto& sequences = call.bound.attention.problem.sequences;
  return HasScalesOfKeys(call) || std::ranges::all_of(sequences, [](const auto& of) { return of.sk <= 1; });
}

// Binds the factor of probabilities. The caller may choose the factor only if each key has a scale.
Status BindProbabilityFactor(DecodeBinding& call) {
  const TensorView& factor = call.args.quant_scale1;
  const bool integers = call.args.q.dtype == DType::kI8, per_key = HasScalesOfKeys(call);
  call.bound.query_scale.p_factor = integers ? 127.0f : per_key ? 1.0f : 448.0f;
  if (integers && per_key) {
    return Status::InvalidArgument(Arg("k_scale").Says("one per key, want one per head (") +
                                   Arg("q", ".dtype").Is("i8)"));
  }
  if (factor.data == nullptr) return Status::Ok();
  if (integers) return RefuseWith("quant_scale1", Arg("q_scale").Says("given"));
  if (!MayHaveScalesOfKeys(call)) return RefuseWith("quant_scale1", Arg("k_scale").Says("not one per key"));
  if (factor.dtype != DType::kF32) return WrongType("quant_scale1", factor.dtype, "f32");
  FA_RETURN_IF_ERROR(CheckView("quant_scale1", factor));
  for (const int64_t size : factor.shape) {
    if (size == 1) continue;
    return Status::InvalidArgument(Arg("quant_scale1", ".shape").Is(Text(factor.shape)) + ", want one element");
  }
  return Status::Ok();
}

}  // namespace

Status CheckScaledTypes(const DecodeBinding& call) {
  const DecodeAttentionArgs& args = call.args;
  if (args.q.dtype != DType::kI8 && args.q.dtype != DType::kF8E4M3) {
    return RefuseWith("q_scale", Arg("q", ".dtype").Is(Name(args.q.dtype)));
  }
  const std::pair<const char*, const TensorView*> refused[] = {{"pse", &args.pse},
                                                               {"deq_scale1", &args.deq_scale1},
                                                               {"deq_scale2", &args.deq_scale2},
                                                               {"k_offset", &args.k_offset},
                                                               {"v_offset", &args.v_offset},
                                                               {"antiquant_scale", &args.antiquant_scale},
                                                               {"antiquant_offset", &args.antiquant_offset}};
  for (const auto& [name, tensor] : refused) {
    if (tensor->data != nullptr) return RefuseWith(name, Arg("q_scale").Says("given"));
  }
  for (const auto& [name, tensor] : {std::pair{"k_scale", &args.k_scale}, {"v_scale", &args.v_scale}}) {
    if (tensor->data != nullptr) continue;
    return Status::InvalidArgument(Arg(name).Says("missing (") + Arg("q_scale").Says("given") + ")");
  }
  const DType out = args.out.dtype;
  return out <= DType::kBF16 || out == DType::kI8 ? Status::Ok() : WrongType("out", out, "f32, f16, bf16 or i8");
}

Status BindQueryScale(DecodeBinding& call) {
  if (!call.scaled_queries()) return Status::Ok();
  const TensorView& scale = call.fused->q_scale;
  if (scale.dtype != DType::kF32) return WrongType("q_scale", scale.dtype, "f32");
  FA_RETURN_IF_ERROR(CheckView("q_scale", scale, /*any_innermost=*/true));
  const layout::Axes axes = ScaleAxes(call.axes);
  if (const Dims want = ShapeOfQueryScale(call, axes); scale.shape != want) {
    return Status::InvalidArgument(Arg("q_scale", ".shape").Is(Text(scale.shape)) + ", want " + Text(want));
  }
  if (call.has_rope() && (HasScalesOfKeys(call) || call.bound.storage.k_antiquants.groups > 1)) {
    return RefuseWith("q_rope", Arg("k_scale").Says("more than one per head"));
  }
  const Dims stride = layout::FilledStride(scale.shape, scale.stride);
  const auto step = [&](int dim) { return dim < 0 ? 0 : stride[dim]; };
  call.bound.query_scale = {.used = true,
                            .scale = {.batch = step(axes.batch), .head = step(axes.head), .row = step(axes.seq)}};
  return BindProbabilityFactor(call);
}

}  // namespace fa::ops
