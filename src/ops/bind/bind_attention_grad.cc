// Binds the backward. A gradient must have the shape and type of the tensor that it belongs to. Everything else follows
// from the forward call, which is bound first.
#include "ops/bind/bind_attention_grad.h"

#include <string>

#include "layout/bind_layout.h"
#include "layout/overlap.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_parts.h"

namespace fa::ops {
namespace {

// A gradient and the tensor whose shape and type it has.
struct Gradient {
  const char* name;
  TensorView tensor;
  const char* source_name;
  TensorView source;
};

Status CheckLike(const Gradient& gradient, bool any_innermost = false) {
  const auto& [name, tensor, source_name, source] = gradient;
  if (tensor.shape.empty() && tensor.data == nullptr) {
    return Status::InvalidArgument(Arg(name).Says("missing, want " + Text(source.shape)) + " (" +
                                   Arg(source_name, ".shape") + ")");
  }
  if (tensor.dtype != source.dtype) {
    return WrongType(name, tensor.dtype, TypeOf(source_name, source.dtype));
  }
  if (tensor.shape.rank() != source.shape.rank()) {
    return Status::InvalidArgument(Arg(name, ".shape").Is(Text(tensor.shape)) + ", want " + Text(source.shape) + " (" +
                                   Arg(source_name, ".shape") + ")");
  }
  FA_RETURN_IF_ERROR(CheckView(name, tensor, any_innermost));
  for (int i = 0; i < source.shape.rank(); ++i) {
    FA_RETURN_IF_ERROR(CheckSize(name, tensor, i, source.shape[i], {source_name, i}));
  }
  return Status::Ok();
}

Status CheckWritten(const Gradient& gradient, bool any_innermost = false) {
  FA_RETURN_IF_ERROR(CheckLike(gradient, any_innermost));
  const TensorView& tensor = gradient.tensor;
  if (tensor.stride.empty() || !layout::OverlapsItself(tensor)) return Status::Ok();
  return Status::InvalidArgument(Arg(gradient.name, ".stride").Is(Text(tensor.stride)) +
                                 ", want strides that keep its elements apart");
}

// Checks that the gradient of q_rope or k_rope is given if the call has rope tensors, and only then.
Status CheckRope(bool has_rope, const Gradient& gradient) {
  const bool given = gradient.tensor.data != nullptr;
  if (given != has_rope) {
    return Status::InvalidArgument(
        Arg(gradient.name).Says(given ? "given without " : "missing, want the gradient of ") +
        Arg(gradient.source_name));
  }
  return given ? CheckWritten(gradient) : Status::Ok();
}

Status BindRows(const AttentionGradArgs& args, Layout layout, BoundAttentionGrad& bound) {
  FA_RETURN_IF_ERROR(CheckLike({"d_out", args.d_out, "out", args.out}));
  FA_RETURN_IF_ERROR(CheckWritten({"dq", args.dq, "q", args.q}));
  FA_RETURN_IF_ERROR(CheckWritten({"dk", args.dk, "k", args.k}));
  FA_RETURN_IF_ERROR(CheckWritten({"dv", args.dv, "v", args.v}));
  const bool has_rope = bound.forward.has_rope;
  FA_RETURN_IF_ERROR(CheckRope(has_rope, {"dq_rope", args.dq_rope, "q_rope", args.q_rope}));
  FA_RETURN_IF_ERROR(CheckRope(has_rope, {"dk_rope", args.dk_rope, "k_rope", args.k_rope}));
  const layout::Axes axes = layout::AxesOf(layout);
  const tiling::AttentionProblem& problem = bound.forward.problem;
  bound.d_out = layout::RowsOf(args.d_out, layout::AxesOf(layout::OutputLayout(layout)), problem.dv);
  bound.dq = layout::RowsOf(args.dq, axes, problem.d);
  bound.dk = layout::RowsOf(args.dk, axes, problem.d);
  bound.dv = layout::RowsOf(args.dv, axes, problem.dv);
  if (has_rope) {
    bound.dq_rope = layout::RowsOf(args.dq_rope, axes, problem.d_rope);
    bound.dk_rope = layout::RowsOf(args.dk_rope, axes, problem.d_rope);
  }
  return Status::Ok();
}

Status BindDPse(const AttentionGradArgs& args, BoundAttentionGrad& bound) {
  if (args.dpse.data == nullptr) return Status::Ok();
  if (bound.forward.has_slopes) {
    return Status::InvalidArgument(Arg("dpse").Says("given, want ") + Arg("dslopes") + " (" + Arg("pse_type") + " " +
                                   std::to_string(static_cast<int>(bound.forward.pse_type)) + ")");
  }
  if (!bound.forward.has_pse) return Status::InvalidArgument(Arg("dpse").Says("given without ") + Arg("pse"));
  if (bound.forward.pse.compressed) {
    return Status::InvalidArgument(Arg("dpse").Says("not available for the compressed 1024-row form"));
  }
  TensorView pse = args.pse;
  const auto of_one_head = [](const TensorView& bias) { return bias.shape.rank() == 4 && bias.shape[1] == 1; };
  const bool heads_share = pse.shape.rank() == 4 && !pse.stride.empty() && pse.stride[1] == 0;
  const bool shared_heads = heads_share && of_one_head(args.dpse) && !of_one_head(pse);
  if (shared_heads) pse.shape[1] = 1;
  FA_RETURN_IF_ERROR(CheckWritten({"dpse", args.dpse, "pse", pse}));
  bound.has_dpse = true;
  bound.dpse = GradPseRows(bound.forward.pse, args.dpse);
  bound.dpse.shared_heads = shared_heads;
  bound.forward.problem.one_pair_at_a_time = (bound.dpse.shared_batch || shared_heads) && !bound.dpse.shared_rows;
  return Status::Ok();
}

Status BindDSlopes(const AttentionGradArgs& args, BoundAttentionGrad& bound) {
  if (args.dslopes.data == nullptr) return Status::Ok();
  if (!bound.forward.has_slopes) {
    return Status::InvalidArgument(Arg("dslopes").Says("given, want none (") + Arg("pse_type") + " " +
                                   std::to_string(static_cast<int>(bound.forward.pse_type)) + ")");
  }
  FA_RETURN_IF_ERROR(CheckWritten({"dslopes", args.dslopes, "pse", args.pse}));
  bound.has_dslopes = true;
  bound.dslopes_shared = args.dslopes.shape.rank() == 1;
  if (!bound.dslopes_shared) {
    bound.dslopes_batch_stride = layout::FilledStride(args.dslopes.shape, args.dslopes.stride)[0];
  }
  return Status::Ok();
}

Status BindDSink(const AttentionGradArgs& args, BoundAttentionGrad& bound) {
  if (args.dsink.data == nullptr) return Status::Ok();
  if (!bound.forward.has_sink) return Status::InvalidArgument(Arg("dsink").Says("given without ") + Arg("sink"));
  bound.has_dsink = true;
  FA_RETURN_IF_ERROR(CheckWritten({"dsink", args.dsink, "sink", args.sink}, /*any_innermost=*/true));
  const bool packed = !bound.forward.cu_q.empty();
  bound.dsink = SinkStats(args.dsink, packed);
  const Dims& shape = args.dsink.shape;
  const bool shared = shape.rank() == 3 && shape[0] == 1 && bound.forward.problem.sequences.size() != 1;
  bound.dsink_shared_rows = shared ? shape[2] : 0;
  return Status::Ok();
}

Status BindGradient(const AttentionGradArgs& args, const AttentionOptions& options, BoundAttentionGrad& bound) {
  const DenseTensors forward = ForwardTensors(args);
  Binding call{forward, options, bound.forward, Direction::kBackward};
  FA_RETURN_IF_ERROR(BindParts(call));
  FA_RETURN_IF_ERROR(BindRows(args, options.layout, bound));
  FA_RETURN_IF_ERROR(BindDPse(args, bound));
  FA_RETURN_IF_ERROR(BindDSlopes(args, bound));
  FA_RETURN_IF_ERROR(BindDSink(args, bound));
  if (!bound.forward.cu_q.empty()) bound.unused_keys = {bound.forward.cu_kv.back(), args.k.shape[0]};
  bound.forward.planned = KeepPlanned(TensorsOf(args));
  return Status::Ok();
}

}  // namespace

Result<BoundAttentionGrad> BindAttentionGrad(const AttentionGradArgs& args, const AttentionOptions& options) {
  // The result is built in place, because it is large.
  Result<BoundAttentionGrad> result{BoundAttentionGrad{}};
  FA_RETURN_IF_ERROR(BindGradient(args, options, *result));
  return result;
}

Status CheckGradRunArgs(const BoundAttentionGrad& bound, const AttentionGradArgs& args) {
  return CheckRunTensors(bound.forward, TensorsOf(args), args.cu_q, args.cu_kv, args.dense_mask, args.pair_mask);
}

GradRows RowsOf(const BoundAttentionGrad& bound, const AttentionGradArgs& args) {
  const BoundAttention& forward = bound.forward;
  GradRows rows{
      .q = {args.q.data, forward.q},
      .q_rope = {args.q_rope.data, forward.q_rope},
      .k = {args.k.data, forward.k},
      .k_rope = {args.k_rope.data, forward.k_rope},
      .v = {args.v.data, forward.v},
      .out = {args.out.data, forward.out},
      .d_out = {args.d_out.data, bound.d_out},
      .softmax_max = {args.softmax_max.data, forward.softmax_max},
      .softmax_sum = {args.softmax_sum.data, forward.softmax_sum},
      .sink = {args.sink.data, forward.sink},
      .scores = ScoreInputsOf(forward, {args.pse.data, args.dense_mask.data, args.drop_mask.data, args.pair_mask}),
      .dq = {args.dq.data, bound.dq},
      .dq_rope = {args.dq_rope.data, bound.dq_rope},
      .dk = {args.dk.data, bound.dk},
      .dk_rope = {args.dk_rope.data, bound.dk_rope},
      .dv = {args.dv.data, bound.dv},
      .dpse_of_one_row = bound.dpse_of_one_row,
      .dslopes_shared = bound.dslopes_shared,
      .dsink = {args.dsink.data, bound.dsink},
      .dsink_per_row = forward.sink_per_row,
      .dsink_shared_rows = bound.dsink_shared_rows,
      .unused_queries = {forward.tail_row_begin, forward.tail_row_end},
      .unused_keys = bound.unused_keys};
  if (bound.has_dpse) rows.dpse = {static_cast<std::byte*>(args.dpse.data), &bound.dpse};
  if (bound.has_dslopes) rows.dslopes = {args.dslopes.data, {.batch = bound.dslopes_batch_stride, .head = 1}};
  return rows;
}

}  // namespace fa::ops
