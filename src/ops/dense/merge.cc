// Merges two partial attention results row by row: with m = max(mp, mc), a = sp e^(mp-m), b = sc e^(mc-m),
// s = a + b the row becomes (op a + oc b) / s. Memory-bound: each output is read twice and written once, and only the
// two factors of a row take exponentials.
#include "fa/merge.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/executor.h"
#include "core/guarded_call.h"
#include "layout/bind_layout.h"
#include "layout/half.h"
#include "layout/overlap.h"
#include "layout/rows_view.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/call_tensors.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "tiling/plan_text.h"
#include "tiling/rows_plan.h"
#include "tiling/workspace_plan.h"

namespace fa {
namespace {

using layout::Rows;
using layout::Stats;
using ops::Arg;
using ops::At;
using ops::CheckSize;
using ops::CheckView;
using ops::SizeSource;
using ops::WrongSize;
using ops::WrongType;

struct NamedView {
  const char* name;
  TensorView tensor;
};

// A validated merge: sizes and strides. TND is one batch element of T rows.
struct BoundMerge {
  int64_t batch = 1, heads = 0, rows = 0, head_size = 0;
  DType dtype = DType::kF32;
  Rows prev_out, cur_out, out;
  Stats prev_max, prev_sum, cur_max, cur_sum, softmax_max, softmax_sum;
  std::vector<ops::PlannedTensor> planned;  ///< TensorsOf the planned call
};

// All three outputs of BNSD_BSND attention lie in BSND.
Layout ResultLayout(Layout layout) { return layout::OutputLayout(layout); }

Status CheckOut(const NamedView& named, const NamedView& first, Layout layout) {
  const TensorView& tensor = named.tensor;
  if (tensor.data == nullptr && tensor.shape.empty()) {
    return Status::InvalidArgument(Arg(named.name).Says("null data"));
  }
  if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kF16 && tensor.dtype != DType::kBF16) {
    return WrongType(named.name, tensor.dtype, "f32, f16 or bf16");
  }
  if (tensor.dtype != first.tensor.dtype) {
    return WrongType(named.name, tensor.dtype, ops::TypeOf(first.name, first.tensor.dtype));
  }
  const int rank = layout::AxesOf(layout).rank;
  if (tensor.shape.rank() != rank) {
    return Status::InvalidArgument(Arg(named.name, ".shape").Is(ops::Text(tensor.shape)) + ", want " +
                                   std::to_string(rank) + " dimensions (" + Name(layout) + ")");
  }
  if (Status status = CheckView(named.name, tensor); !status.ok()) return status;
  for (int i = 0; i < rank; ++i) {
    if (Status status = CheckSize(named.name, tensor, i, first.tensor.shape[i], {first.name, i}); !status.ok()) {
      return status;
    }
  }
  return Status::Ok();
}

Status CheckStats(const NamedView& named, const BoundMerge& merge, const layout::Axes& axes, Stats* stats) {
  const bool packed = axes.batch < 0;
  const TensorView& tensor = named.tensor;
  if (tensor.data == nullptr && tensor.shape.empty()) {
    return Status::InvalidArgument(Arg(named.name).Says("null data"));
  }
  if (tensor.dtype != DType::kF32) return WrongType(named.name, tensor.dtype, "f32");
  const int rank = packed ? 2 : 3;
  const int got = tensor.shape.rank();
  if (got != rank && got != rank + 1) {
    return Status::InvalidArgument(Arg(named.name, ".shape").Is(ops::Text(tensor.shape)) + ", want " +
                                   (packed ? "[T,N] or [T,N,8]" : "[B,N,S] or [B,N,S,8]"));
  }
  if (Status status = CheckView(named.name, tensor, /*any_innermost=*/true); !status.ok()) return status;
  if (!packed) {
    if (Status status = CheckSize(named.name, tensor, 0, merge.batch, {"prev_out", axes.batch}); !status.ok()) {
      return status;
    }
  }
  if (Status status = CheckSize(named.name, tensor, 1, merge.heads, {"heads", SizeSource::kArgument}); !status.ok())
    return status;
  if (Status status = CheckSize(named.name, tensor, packed ? 0 : 2, merge.rows, {"prev_out", axes.seq}); !status.ok()) {
    return status;
  }
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
        return Status::InvalidArgument(Arg("prev_max", ".shape").Is(ops::Text(statistics)) +
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
    return Status::InvalidArgument(Arg(output.name, ".stride").Is(ops::Text(output.tensor.stride)) +
                                   ", want strides that keep its elements apart");
  }
  return Status::Ok();
}

// An output shares nothing with the other outputs and the inputs, but may be the previous partial it replaces. Tensors
// without an address share nothing.
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
  if (Status status = CheckOut(first, first, layout); !status.ok()) return status;
  if (Status status = CheckOut({"cur_out", args.cur_out}, first, layout); !status.ok()) return status;
  if (Status status = CheckOut({"out", args.out}, first, layout); !status.ok()) return status;
  if (Status status = BindSizes(args, options, layout, merge); !status.ok()) return status;
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
    if (Status status = CheckStats(view, merge, axes, stats); !status.ok()) return status;
  }
  merge.prev_out = layout::RowsOf(args.prev_out, axes, merge.head_size);
  merge.cur_out = layout::RowsOf(args.cur_out, axes, merge.head_size);
  merge.out = layout::RowsOf(args.out, axes, merge.head_size);
  return CheckOutputsApart(args);
}

Result<BoundMerge> Bind(const MergeArgs& args, const MergeOptions& options) {
  BoundMerge merge;
  if (Status status = BindViews(args, options, merge); !status.ok()) return status;
  merge.planned = ops::KeepPlanned(ops::TensorsOf(args));
  return merge;
}

Status CheckMergeRunArgs(const BoundMerge& merge, const MergeArgs& args) {
  if (Status status = ops::CheckAllPlanned(ops::TensorsOf(args), merge.planned); !status.ok()) return status;
  return CheckAliasing(args);
}

struct F32 {
  using Element = float;
  static float Load(float x) { return x; }
  static float Store(float x) { return x; }
};
struct F16 {
  using Element = uint16_t;
  static float Load(uint16_t x) { return layout::F32FromF16(x); }
  static uint16_t Store(float x) { return layout::F16FromF32(x); }
};
struct BF16 {
  using Element = uint16_t;
  static float Load(uint16_t x) { return layout::F32FromBf16(x); }
  static uint16_t Store(float x) { return layout::Bf16FromF32(x); }
};

bool Absent(float max, float sum) { return sum == 0 || (max == -FLT_MAX && sum == FLT_MAX); }

/// The rows of a merge in a run.
struct MergedRows {
  MergedRows(const BoundMerge& merge, const MergeArgs& args)
      : prev_out(args.prev_out.data, merge.prev_out),
        cur_out(args.cur_out.data, merge.cur_out),
        prev_max(args.prev_max.data, merge.prev_max),
        prev_sum(args.prev_sum.data, merge.prev_sum),
        cur_max(args.cur_max.data, merge.cur_max),
        cur_sum(args.cur_sum.data, merge.cur_sum),
        out(args.out.data, merge.out),
        softmax_max(args.softmax_max.data, merge.softmax_max),
        softmax_sum(args.softmax_sum.data, merge.softmax_sum) {}

  layout::RowsView prev_out, cur_out;
  layout::StatsView prev_max, prev_sum, cur_max, cur_sum;
  layout::MutableRowsView out;
  layout::MutableStatsView softmax_max, softmax_sum;
};

class Merger {
 public:
  Merger(const MergedRows& rows, const BoundMerge& merge) : rows_(rows), merge_(merge) {}

  // Rows are counted with the head running fastest, as they lie in most layouts; in other layouts each is still a
  // contiguous row.
  template <typename Type>
  void MergeRows(int64_t begin, int64_t end) const {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t n = index % merge_.heads;
      const int64_t s = index / merge_.heads % merge_.rows;
      MergeRow<Type>(index / merge_.heads / merge_.rows, n, s);
    }
  }

 private:
  template <typename Type>
  void MergeRow(int64_t b, int64_t n, int64_t s) const {
    using Element = typename Type::Element;
    const int64_t d = merge_.head_size;
    const float prev_max = rows_.prev_max.At(b, n, s);
    const float prev_sum = rows_.prev_sum.At(b, n, s);
    const float cur_max = rows_.cur_max.At(b, n, s);
    const float cur_sum = rows_.cur_sum.At(b, n, s);
    const auto* prev = reinterpret_cast<const Element*>(rows_.prev_out.At(b, n, s));
    const auto* cur = reinterpret_cast<const Element*>(rows_.cur_out.At(b, n, s));
    auto* out = reinterpret_cast<Element*>(rows_.out.At(b, n, s));
    const auto write_stats = [&](float max, float sum) {
      rows_.softmax_max.Write(b, n, s, max);
      rows_.softmax_sum.Write(b, n, s, sum);
    };

    const bool prev_absent = Absent(prev_max, prev_sum);
    const bool cur_absent = Absent(cur_max, cur_sum);
    if (prev_absent && cur_absent) {
      std::fill_n(out, d, Type::Store(0.0f));
      write_stats(-FLT_MAX, FLT_MAX);
    } else if (prev_absent) {
      std::copy_n(cur, d, out);
      write_stats(cur_max, cur_sum);
    } else if (cur_absent) {
      if (out != prev) std::copy_n(prev, d, out);
      write_stats(prev_max, prev_sum);
    } else {
      // A NaN in either maximum must stay: std::max would drop it in one order.
      const float max = prev_max > cur_max || std::isnan(prev_max) ? prev_max : cur_max;
      const float prev_part = prev_sum * std::exp(prev_max - max);
      const float cur_part = cur_sum * std::exp(cur_max - max);
      const float sum = prev_part + cur_part;
      const float prev_factor = prev_part / sum;
      const float cur_factor = cur_part / sum;
      for (int64_t i = 0; i < d; ++i) {
        out[i] = Type::Store(Type::Load(prev[i]) * prev_factor + Type::Load(cur[i]) * cur_factor);
      }
      write_stats(max, sum);
    }
  }

  const MergedRows& rows_;
  const BoundMerge& merge_;
};

// Elements worth a task: about 64 KB per tensor, tens of microseconds.
constexpr int64_t kTaskElements = 1 << 14;

class MergePlanImpl final : public Plan::ImplFor<MergeArgs> {
 public:
  MergePlanImpl(Context& context, BoundMerge bound)
      : ImplFor(context),
        bound_(std::move(bound)),
        plan_(tiling::MakeRowsPlan(bound_.batch * bound_.heads * bound_.rows,
                                   std::max<int64_t>(kTaskElements / bound_.head_size, 1), context.threads())) {
    workspace_.Book("run state", core::RunStateBytes(plan_.graph));
  }

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const override {
    // Two products and a sum of every element.
    const double flops = 3 * static_cast<double>(plan_.rows) * static_cast<double>(bound_.head_size);
    tiling::PlanText problem, tasks;
    problem.AddLine("merge, %s: %lld batch elements, %lld heads, %lld rows of %lld", Name(bound_.dtype),
                    tiling::Wide(bound_.batch), tiling::Wide(bound_.heads), tiling::Wide(bound_.rows),
                    tiling::Wide(bound_.head_size));
    tasks.AddLine("tasks: %lld of %lld rows: %s", tiling::Wide(plan_.graph.task_count), tiling::Wide(plan_.step),
                  kReason);
    const std::vector<double> load = plan_.Load();
    return {.op = "merge",
            .machine = ops::MachineOf(context(), ops::KernelsOf(context(), bound_.dtype)),
            .kernels = {},
            .reason = kReason,
            .block_q = plan_.step,
            .graph = plan_.graph,
            .flops = flops,
            .flops_full = flops,
            .flops_visited = flops,
            .load = load,
            .efficiency = tiling::MeanLoad(load),
            .problem = problem.Take(),
            .tasks = tasks.Take(),
            .loads = {},
            .tiles = {}};
  }

  [[nodiscard]] Status Run(const MergeArgs& args, std::byte* workspace) const override {
    if (Status status = CheckMergeRunArgs(bound_, args); !status.ok()) return status;
    const MergedRows views(bound_, args);
    const Merger merger(views, bound_);
    auto merge_task = [&](int32_t task, int /*worker*/) {
      const tiling::Interval rows = plan_.RowsOf(task);
      switch (bound_.dtype) {
        case DType::kF16: return merger.MergeRows<F16>(rows.begin, rows.end);
        case DType::kBF16: return merger.MergeRows<BF16>(rows.begin, rows.end);
        default: return merger.MergeRows<F32>(rows.begin, rows.end);
      }
    };
    return RunGraph(plan_.graph, core::TaskFunction(merge_task), workspace);
  }

 private:
  static constexpr const char* kReason = "about 64 KB of each tensor";

  BoundMerge bound_;
  tiling::RowsPlan plan_;
  tiling::WorkspacePlan workspace_;
};

}  // namespace

Status CheckMergePartials(const MergeArgs& args, const MergeOptions& options) {
  return core::GuardedCall("check of a merge", [&] {
    BoundMerge merge;
    if (Status status = BindViews(args, options, merge); !status.ok()) return status;
    return CheckAliasing(args);
  });
}

Result<PlanFor<MergeArgs>> PlanMergePartials(const MergeArgs& args, const MergeOptions& options, Context* context) {
  return ops::MakePlan<MergePlanImpl>(context, [&] { return Bind(args, options); });
}

Status MergePartials(const MergeArgs& args, const MergeOptions& options, Context* context) {
  auto plan = PlanMergePartials(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
