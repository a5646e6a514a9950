// Binds softmax_max, softmax_sum, lse and sink. All are f32, with one value per row. A sink may have one per head.
#include <string>

#include "layout/bind_layout.h"
#include "layout/overlap.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_parts.h"

namespace fa::ops {
namespace {

constexpr int64_t kCopies = 8;  // the device stores each statistic as 8 equal copies, which fill a 32-byte block

Status BindStats(const Binding& call, const char* name, const TensorView& tensor, bool* present, layout::Stats* stats) {
  const bool written = call.direction == Direction::kForward;
  *present = tensor.data != nullptr || !written;
  if (!*present) return Status::Ok();
  const bool packed = call.packed();
  const char* const shapes = packed ? "[T,N] or [T,N,8]" : "[B,N,Sq] or [B,N,Sq,8]";
  if (tensor.data == nullptr && tensor.shape.empty()) {
    return Status::InvalidArgument(Arg(name).Says(std::string("missing, want the forward's, f32 ") + shapes));
  }
  if (tensor.dtype != DType::kF32) return WrongType(name, tensor.dtype, "f32");
  FA_RETURN_IF_ERROR(CheckView(name, tensor, /*any_innermost=*/true));
  const layout::Axes axes = layout::AxesOf(call.options.layout);
  const int rank = packed ? 2 : 3;
  if (tensor.shape.rank() != rank && tensor.shape.rank() != rank + 1) {
    return Status::InvalidArgument(Arg(name, ".shape").Is(Text(tensor.shape)) + ", want " + shapes);
  }
  const SizeSource heads = axes.fused() ? SizeSource{"heads", SizeSource::kArgument} : SizeSource{"q", axes.head};
  if (!packed) {
    FA_RETURN_IF_ERROR(CheckSize(name, tensor, 0, call.sizes.sequences, {"q", axes.batch}));
  }
  FA_RETURN_IF_ERROR(CheckSize(name, tensor, 1, call.bound.problem.heads, heads));
  FA_RETURN_IF_ERROR(CheckSize(name, tensor, packed ? 0 : 2, call.sizes.q_rows, {"q", axes.seq}));
  if (tensor.shape.rank() > rank && !(call.fused() && tensor.shape[rank] == 1)) {
    FA_RETURN_IF_ERROR(CheckSize(name, tensor, rank, kCopies, {"equal copies of a statistic"}));
  }
  if (written && !tensor.stride.empty() && layout::OverlapsItself(tensor)) {
    return Status::InvalidArgument(Arg(name, ".stride").Is(Text(tensor.stride)) +
                                   ", want strides that keep its elements apart");
  }
  *stats = layout::StatsOf(tensor, packed);
  return Status::Ok();
}

Status BindSink(Binding& call) {
  const TensorView& sink = call.args.sink;
  BoundAttention& bound = call.bound;
  bound.has_sink = sink.data != nullptr;
  if (!bound.has_sink) return Status::Ok();
  if (sink.dtype != DType::kF32) return WrongType("sink", sink.dtype, "f32");
  FA_RETURN_IF_ERROR(CheckView("sink", sink, /*any_innermost=*/true));
  const int rank = sink.shape.rank(), rank_of_rows = call.packed() ? 2 : 3;
  if (rank != 1 && rank != rank_of_rows) {
    return Status::InvalidArgument(Arg("sink", ".shape").Is(Text(sink.shape)) + ", want [N] or " +
                                   (call.packed() ? "[T,N]" : "[B|1,N,Sq]"));
  }
  const layout::Axes axes = layout::AxesOf(call.options.layout);
  const SizeSource heads = axes.fused() ? SizeSource{"heads", SizeSource::kArgument} : SizeSource{"q", axes.head};
  FA_RETURN_IF_ERROR(CheckSize("sink", sink, rank == 1 ? 0 : 1, bound.problem.heads, heads));
  bound.sink_per_row = rank > 1;
  if (bound.sink_per_row) {
    FA_RETURN_IF_ERROR(CheckSize("sink", sink, call.packed() ? 0 : 2, call.sizes.q_rows, {"q", axes.seq}));
    if (!call.packed() && sink.shape[0] != 1) {
      FA_RETURN_IF_ERROR(CheckSize("sink", sink, 0, call.sizes.sequences, {"q", axes.batch}));
    }
  }
  bound.sink = SinkStats(sink, call.packed());
  return Status::Ok();
}

}  // namespace

layout::Stats SinkStats(const TensorView& tensor, bool packed) {
  if (tensor.shape.rank() == 1) return {.head = layout::FilledStride(tensor.shape, tensor.stride)[0]};
  layout::Stats stats = layout::StatsOf(tensor, packed);
  if (!packed && tensor.shape[0] == 1) stats.batch = 0;
  return stats;
}

Status BindStatistics(Binding& call) {
  const DenseTensors& args = call.args;
  BoundAttention& bound = call.bound;
  FA_RETURN_IF_ERROR(BindStats(call, "softmax_max", args.softmax_max, &bound.has_max, &bound.softmax_max));
  FA_RETURN_IF_ERROR(BindStats(call, "softmax_sum", args.softmax_sum, &bound.has_sum, &bound.softmax_sum));
  if (call.direction == Direction::kForward) {
    FA_RETURN_IF_ERROR(BindStats(call, "lse", args.lse, &bound.has_lse, &bound.lse));
  }
  return BindSink(call);
}

}  // namespace fa::ops
