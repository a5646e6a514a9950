// Merges two partial attention results row by row, a previous one (p) and a current one (c). With outputs o, maxima m
// and sums s of the two: m = max(mp, mc), a = sp e^(mp-m), b = sc e^(mc-m), s = a + b. The row becomes (op a + oc b) /
// s. The time goes to memory: two outputs are read and one is written. Only the two factors of a row take exponentials.
#include "fa/merge.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/run/executor.h"
#include "core/run/guarded_call.h"
#include "ops/dense/bind_merge.h"
#include "ops/dense/merge_types.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "ops/tile/row_probability.h"
#include "tiling/plan_text.h"
#include "tiling/rows_facts.h"
#include "tiling/rows_plan.h"
#include "tiling/workspace_plan.h"

namespace fa {
namespace {

class Merger {
 public:
  Merger(const ops::MergeRows& rows, const ops::BoundMerge& merge) : rows_(rows), merge_(merge) {}

  // Merges the rows [begin, end). Rows are numbered with the head as the fastest index, which is their order in memory
  // in most layouts.
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

    const bool prev_absent = ops::IsEmptyRow(prev_max, prev_sum);
    const bool cur_absent = ops::IsEmptyRow(cur_max, cur_sum);
    if (prev_absent && cur_absent) {
      std::fill_n(out, d, Type::Store(0.0f));
      write_stats(ops::kEmptyRowMax, ops::kEmptyRowSum);
    } else if (prev_absent) {
      std::copy_n(cur, d, out);
      write_stats(cur_max, cur_sum);
    } else if (cur_absent) {
      if (out != prev) std::copy_n(prev, d, out);
      write_stats(prev_max, prev_sum);
    } else {
      // If either maximum is NaN, the result must be NaN. std::max would drop a NaN in its second argument.
      const float max = prev_max > cur_max || std::isnan(prev_max) ? prev_max : cur_max;
      const float prev_part = prev_sum * ops::ExpBelow(prev_max, max);
      const float cur_part = cur_sum * ops::ExpBelow(cur_max, max);
      const float sum = prev_part + cur_part;
      const float prev_factor = prev_part / sum;
      const float cur_factor = cur_part / sum;
      for (int64_t i = 0; i < d; ++i) {
        out[i] = Type::Store(Type::Load(prev[i]) * prev_factor + Type::Load(cur[i]) * cur_factor);
      }
      write_stats(max, sum);
    }
  }

  const ops::MergeRows& rows_;
  const ops::BoundMerge& merge_;
};

// The number of elements per task. These elements take about 64 KB per tensor and some tens of microseconds.
constexpr int64_t kTaskElements = 1 << 14;

class MergePlanImpl final : public Plan::ImplFor<MergeArgs> {
 public:
  MergePlanImpl(Context& context, ops::BoundMerge bound)
      : ImplFor(context),
        bound_(std::move(bound)),
        plan_(tiling::MakeRowsPlan(bound_.batch * bound_.heads * bound_.rows,
                                   std::max<int64_t>(kTaskElements / bound_.head_size, 1), context.threads())) {
    workspace_.Book("run state", core::RunStateBytes(plan_.graph));
  }

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const override {
    // An element takes two products and one sum.
    const double flops = 3 * static_cast<double>(plan_.rows) * static_cast<double>(bound_.head_size);
    tiling::PlanText problem;
    problem.AddLine("merge, %s: %lld batch elements, %lld heads, %lld rows of %lld", Name(bound_.dtype),
                    tiling::Wide(bound_.batch), tiling::Wide(bound_.heads), tiling::Wide(bound_.rows),
                    tiling::Wide(bound_.head_size));
    return tiling::FactsOf(plan_, ops::MachineOf(context(), ops::KernelsOf(context(), bound_.dtype)),
                           {.op = "merge",
                            .kernel = "merge_portable",  // memory bounds the time, so all levels share one kernel
                            .reason = kReason,
                            .flops = flops,
                            .problem = problem.Take()});
  }

  [[nodiscard]] Status Run(const MergeArgs& args, std::byte* workspace) const override {
    FA_RETURN_IF_ERROR(ops::CheckMergeRunArgs(bound_, args));
    const ops::MergeRows views = ops::RowsOf(bound_, args);
    const Merger merger(views, bound_);
    auto merge_task = [&](int32_t task, int /*worker*/) {
      const tiling::Interval rows = plan_.RowsOf(task);
      switch (bound_.dtype) {
        case DType::kF16: return merger.MergeRows<ops::MergedF16>(rows.begin, rows.end);
        case DType::kBF16: return merger.MergeRows<ops::MergedBF16>(rows.begin, rows.end);
        default: return merger.MergeRows<ops::MergedF32>(rows.begin, rows.end);
      }
    };
    return RunGraph(plan_.graph, core::TaskFunction(merge_task), workspace);
  }

 private:
  static constexpr const char* kReason = "about 64 KB of each tensor";

  ops::BoundMerge bound_;
  tiling::RowsPlan plan_;
  tiling::WorkspacePlan workspace_;
};

}  // namespace

Status CheckMergePartials(const MergeArgs& args, const MergeOptions& options) {
  return core::GuardedCall("check of a merge", [&] { return ops::CheckMergeArgs(args, options); });
}

Result<PlanFor<MergeArgs>> PlanMergePartials(const MergeArgs& args, const MergeOptions& options, Context* context) {
  return ops::MakePlan<MergePlanImpl>(context, [&] { return ops::BindMerge(args, options); });
}

Status MergePartials(const MergeArgs& args, const MergeOptions& options, Context* context) {
  auto plan = PlanMergePartials(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
