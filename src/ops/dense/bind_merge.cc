#include "ops/dense/bind_merge.h"

#include <iterator>
#include <string>

#include "layout/bind_layout.h"
#include "layout/overlap.h"
#include "ops/bind/argument_error.h"

namespace fa::ops {
namespace {

using layout::Stats;

struct NamedView {
  const char* name;
  TensorView tensor;
};

// Returns the layout of prev_out, cur_out and out. All three are outputs of attention, so for BNSD_BSND they lie in
// BSND.
Layout ResultLayout(Layout layout) { return layout::OutputLayout(layout); }

Status CheckOut(const NamedView& named, const NamedView& first, Layout layout) {
  const TensorView& tensor = named.tensor;
  if (tensor.data == nullptr && tensor.shape.empty()) return Status::InvalidArgument(Arg(named.name).Says("missing"));
  if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kF16 && tensor.dtype != DType::kBF16) {
    return WrongType(named.name, tensor.dtype, "f32, f16 or bf16");
  }
  if (tensor.dtype != first.tensor.dtype) {
    return WrongType(named.name, tensor.dtype, TypeOf(first.name, first.tensor.dtype));
  }
  const int rank = layout::AxesOf(layout).rank;
  if (tensor.shape.rank() != rank) {
    return Status::InvalidArgument(Arg(named.name, ".shape").Is(Text(tensor.shape)) + ", want " + std::to_string(rank) +
                                   " dimensions (" + Name(layout) + ")");
  }
  FA_RETURN_IF_ERROR(CheckView(named.name, tensor));
  for (int i = 0; i < rank; ++i) {
    FA_RETURN_IF_ERROR(CheckSize(named.name, tensor, i, first.tensor.shape[i], {first.name, i}));
  }
  return Status::Ok();
}

Status CheckStats(const NamedView& named, const BoundMerge& merge, const layout::Axes& axes, Stats* stats) {
  const bool packed = axes.batch < 0;
  const TensorView& tensor = named.tensor;
  if (tensor.data == nullptr && tensor.shape.empty()) return Status::InvalidArgument(Arg(named.name).Says("missing"));
  if (tensor.dtype != DType::kF32) return WrongType(named.name, tensor.dtype, "f32");
  const int rank = packed ? 2 : 3;
  const int got = tensor.shape.rank();
  if (got != rank && got != rank + 1) {
    return Status::InvalidArgument(Arg(named.name, ".shape").Is(Text(tensor.shape)) + ", want " +
                                   (packed ? "[T,N] or [T,N,8]" : "[B,N,S] or [B,N,S,8]"));
  }
  FA_RETURN_IF_ERROR(CheckView(named.name, tensor, /*any_innermost=*/true));
  if (!packed) {
    FA_RETURN_IF_ERROR(CheckSize(named.name, tensor, 0, merge.batch, {"prev_out", axes.batch}));
  }
  FA_RETURN_IF_ERROR(CheckSize(named.name, tensor, 1, merge.heads, {"heads", SizeSource::kArgument}));
  FA_RETURN_IF_ERROR(CheckSize(named.name, tensor, packed ? 0 : 2, merge.rows, {"prev_out", axes.seq}));
  if (got > rank && tensor.shape[rank] != 8) {
    return WrongSize(named.name, rank, tensor.shape[rank], 8, {"equal copies of a statistic"});
  }
  *stats = layout::StatsOf(tensor, packed);
  return Status::Ok();
}

Status BindSizes(const MergeArgs& args, const MergeOptions& options, Layout layout, BoundMerge& merge) {
  const layout::Axes axes = layout::AxesOf(layout);
  const Dims& shape = args.prev_out.shape;
  merge.dtype = args.prev_out.dtype;
  merge.batch = axes.batch < 0 ? 1 : shape[axes.batch];
  merge.rows = shape[axes.seq];
  if (options.heads < 0) {
    return Status::InvalidArgument(Arg("heads").Is(std::to_string(options.heads)) + ", want >= 1, or 0 (of " +
                                   Arg("prev_max") + ")");
  }
  const int head_dim = axes.fused() ? axes.dim : axes.head;
  if (axes.fused()) {
    merge.heads = options.heads;
    if (merge.heads == 0) {
      const Dims& statistics = args.prev_max.shape;
      if (statistics.rank() < 2 || statistics[1] < 1) {
        return Status::InvalidArgument(Arg("prev_max", ".shape").Is(Text(statistics)) +
                                       ", want heads along dimension 1");
      }
      merge.heads = statistics[1];
    }
    if (shape[head_dim] % merge.heads != 0) {
      return WrongSize("prev_out", head_dim, shape[head_dim],
                       "want a multiple of " + std::to_string(merge.heads) + " (" + Arg("heads") + ")");
    }
    merge.head_size = shape[head_dim] / merge.heads;
  } else {
    merge.heads = shape[head_dim];
    merge.head_size = shape[axes.dim];
    if (options.heads > 0 && options.heads != merge.heads) {
      return Status::InvalidArgument(Arg("heads").Is(std::to_string(options.heads)) + ", want " +
                                     std::to_string(merge.heads) + " (" + Arg("prev_out", ".shape", At(head_dim)) +
                                     ")");
    }
  }
  if (merge.heads < 1) return WrongSize("prev_out", head_dim, merge.heads, "want >= 1");
  if (merge.head_size < 1) return WrongSize("prev_out", axes.dim, 0, "want a head size >= 1");
  return Status::Ok();
}

TensorView Filled(const TensorView& tensor) {
  return {tensor.data, tensor.dtype, tensor.shape, layout::FilledStride(tensor.shape, tensor.stride)};
}

bool SameView(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.shape == b.shape && a.stride == b.stride;
}

Status CheckOutputsApart(const MergeArgs& args) {
  for (const NamedView& output :
       {NamedView{"out", Filled(args.out)}, NamedView{"softmax_max", Filled(args.softmax_max)},
        NamedView{"softmax_sum", Filled(args.softmax_sum)}}) {
    if (!layout::OverlapsItself(output.tensor)) continue;
    return Status::InvalidArgument(Arg(output.name, ".stride").Is(Text(output.tensor.stride)) +
                                   ", want strides that keep its elements apart");
  }
  return Status::Ok();
}

// Checks that an output shares no element with other outputs or with inputs, except with the previous partial result
// that it replaces. Tensors whose data is null share nothing.
Status CheckAliasing(const MergeArgs& args) {
  const NamedView outputs[] = {
      {"out", Filled(args.out)}, {"softmax_max", Filled(args.softmax_max)}, {"softmax_sum", Filled(args.softmax_sum)}};
  const NamedView inputs[] = {{"prev_out", Filled(args.prev_out)}, {"prev_max", Filled(args.prev_max)},
                              {"prev_sum", Filled(args.prev_sum)}, {"cur_out", Filled(args.cur_out)},
                              {"cur_max", Filled(args.cur_max)},   {"cur_sum", Filled(args.cur_sum)}};
  for (size_t o = 0; o < std::size(outputs); ++o) {
    const NamedView& output = outputs[o];
    for (size_t i = 0; i < std::size(inputs) + o; ++i) {
      const NamedView& other = i < std::size(inputs) ? inputs[i] : outputs[i - std::size(inputs)];
      const bool replaces = i == o && SameView(output.tensor, other.tensor);
      if (output.tensor.data == nullptr || other.tensor.data == nullptr) continue;
      if (!replaces && layout::Overlap(output.tensor, other.tensor)) {
        return Status::InvalidArgument(Arg(output.name).Says("shares memory with ") + Arg(other.name));
      }
    }
  }
  return Status::Ok();
}

Status BindViews(const MergeArgs& args, const MergeOptions& options, BoundMerge& merge) {
  if (options.layout > Layout::kBNSD_BSND) {
    return Status::InvalidArgument(Arg("layout").Is(std::to_string(static_cast<int>(options.layout))) +
                                   ", want BNSD, BSND, BSH, SBH, TND or BNSD_BSND");
  }
  const Layout layout = ResultLayout(options.layout);
  const layout::Axes axes = layout::AxesOf(layout);
  const NamedView first = {"prev_out", args.prev_out};
  FA_RETURN_IF_ERROR(CheckOut(first, first, layout));
  FA_RETURN_IF_ERROR(CheckOut({"cur_out", args.cur_out}, first, layout));
  FA_RETURN_IF_ERROR(CheckOut({"out", args.out}, first, layout));
  FA_RETURN_IF_ERROR(BindSizes(args, options, layout, merge));
  const struct {
    NamedView view;
    Stats* stats;
  } statistics[] = {{{"prev_max", args.prev_max}, &merge.prev_max},
                    {{"prev_sum", args.prev_sum}, &merge.prev_sum},
                    {{"cur_max", args.cur_max}, &merge.cur_max},
                    {{"cur_sum", args.cur_sum}, &merge.cur_sum},
                    {{"softmax_max", args.softmax_max}, &merge.softmax_max},
                    {{"softmax_sum", args.softmax_sum}, &merge.softmax_sum}};
  for (const auto& [view, stats] : statistics) {
    FA_RETURN_IF_ERROR(CheckStats(view, merge, axes, stats));
  }
  merge.prev_out = layout::RowsOf(args.prev_out, axes, merge.head_size);
  merge.cur_out = layout::RowsOf(args.cur_out, axes, merge.head_size);
  merge.out = layout::RowsOf(args.out, axes, merge.head_size);
  return CheckOutputsApart(args);
}

}  // namespace

Result<BoundMerge> BindMerge(const MergeArgs& args, const MergeOptions& options) {
  BoundMerge merge;
  FA_RETURN_IF_ERROR(BindViews(args, options, merge));
  merge.planned = KeepPlanned(TensorsOf(args));
  return merge;
}

Status CheckMergeArgs(const MergeArgs& args, const MergeOptions& options) {
  BoundMerge merge;
  FA_RETURN_IF_ERROR(BindViews(args, options, merge));
  return CheckAliasing(args);
}

Status CheckMergeRunArgs(const BoundMerge& bound, const MergeArgs& args) {
  FA_RETURN_IF_ERROR(CheckAllPlanned(TensorsOf(args), bound.planned));
  return CheckAliasing(args);
}

MergeRows RowsOf(const BoundMerge& bound, const MergeArgs& args) {
  return {.prev_out = {args.prev_out.data, bound.prev_out},
          .cur_out = {args.cur_out.data, bound.cur_out},
          .prev_max = {args.prev_max.data, bound.prev_max},
          .prev_sum = {args.prev_sum.data, bound.prev_sum},
          .cur_max = {args.cur_max.data, bound.cur_max},
          .cur_sum = {args.cur_sum.data, bound.cur_sum},
          .out = {args.out.data, bound.out},
          .softmax_max = {args.softmax_max.data, bound.softmax_max},
          .softmax_sum = {args.softmax_sum.data, bound.softmax_sum}};
}

}  // namespace fa::ops
