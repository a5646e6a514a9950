// Merges any number of partial results row by row, in two passes over the parts. The first pass finds the maximum m of
// the lse, and the second pass adds e^(lse - m) times each part. The time goes to memory: every part is read once.
#include "fa/merge_by_lse.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "core/run/executor.h"
#include "core/run/guarded_call.h"
#include "ops/dense/bind_merge_by_lse.h"
#include "ops/dense/merge_types.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "tiling/plan_text.h"
#include "tiling/rows_facts.h"
#include "tiling/rows_plan.h"
#include "tiling/workspace_plan.h"

namespace fa {
namespace {

// The number of columns that are summed at a time. A longer row computes the exponentials again for each such block of
// columns.
constexpr int64_t kColumns = 512;
// The number of elements of all parts per task. A task then takes some tens of microseconds.
constexpr int64_t kElementsOfATask = 1 << 15;

class LseMerger {
 public:
  LseMerger(const ops::BoundMergeByLse& merge, const MergeByLseArgs& args) : merge_(merge), args_(args) {}

  template <typename Type>
  void MergeRows(tiling::Interval rows) const {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const float max = MaxOf(row);
      float sum = 0;
      for (int64_t begin = 0; begin < std::max<int64_t>(merge_.columns, 1); begin += kColumns) {
        sum = MergeColumns<Type>(row, max, {begin, std::min(begin + kColumns, merge_.columns)});
      }
      if (args_.lse_out.data == nullptr) continue;
      const bool no_keys = max == -INFINITY;
      static_cast<float*>(args_.lse_out.data)[row * merge_.lse_out] =
          no_keys ? merge_.lse_without_keys : max + std::log(sum);
    }
  }

 private:
  [[nodiscard]] float LseOf(size_t part, int64_t row) const {
    return static_cast<const float*>(args_.lse[part].data)[row * merge_.lse[part]];
  }

  /// Returns the largest finite lse of the parts: -inf if no part has keys, or NaN if an lse is NaN.
  [[nodiscard]] float MaxOf(int64_t row) const {
    float max = -INFINITY;
    for (size_t part = 0; part < merge_.lse.size(); ++part) {
      const float lse = LseOf(part, row);
      if (std::isnan(lse)) return lse;
      if (std::isfinite(lse)) max = std::max(max, lse);
    }
    return max;
  }

  /// Writes some columns of a row, and returns the sum of the weights.
  template <typename Type>
  float MergeColumns(int64_t row, float max, tiling::Interval columns) const {
    using Element = typename Type::Element;
    std::array<float, kColumns> weighted{};
    const int64_t count = columns.end - columns.begin;
    float sum = 0;
    for (size_t part = 0; part < merge_.lse.size(); ++part) {
      const float lse = LseOf(part, row);
      if (std::isinf(lse)) continue;
      const float weight = std::exp(lse - max);
      sum += weight;
      const ops::RowStrides& stride = merge_.local_out[part];
      const auto* from =
          static_cast<const Element*>(args_.local_out[part].data) + row * stride.row + columns.begin * stride.column;
      if (stride.column == 1) {
        for (int64_t i = 0; i < count; ++i) weighted[static_cast<size_t>(i)] += weight * Type::Load(from[i]);
      } else {
        for (int64_t i = 0; i < count; ++i) {
          weighted[static_cast<size_t>(i)] += weight * Type::Load(from[i * stride.column]);
        }
      }
    }
    auto* to = static_cast<Element*>(args_.out.data) + row * merge_.out.row + columns.begin * merge_.out.column;
    const float divisor = sum == 0 ? 1 : sum;  // without keys all sums are 0
    for (int64_t i = 0; i < count; ++i) {
      to[i * merge_.out.column] = Type::Store(weighted[static_cast<size_t>(i)] / divisor);
    }
    return sum;
  }

  const ops::BoundMergeByLse& merge_;
  const MergeByLseArgs& args_;
};

class MergeByLsePlanImpl final : public Plan::ImplFor<MergeByLseArgs> {
 public:
  MergeByLsePlanImpl(Context& context, ops::BoundMergeByLse bound)
      : ImplFor(context),
        bound_(std::move(bound)),
        plan_(tiling::MakeRowsPlan(bound_.rows, std::max<int64_t>(kElementsOfATask / ElementsOfARow(), 1),
                                   context.threads())) {
    workspace_.Book("run state", core::RunStateBytes(plan_.graph));
  }

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const override {
    // Each element of a part takes a product and a sum.
    const double flops = 2 * static_cast<double>(bound_.rows) * static_cast<double>(bound_.columns) *
                         static_cast<double>(bound_.lse.size());
    tiling::PlanText problem;
    problem.AddLine("merge lse, %s: %lld parts of %lld rows of %lld", Name(bound_.dtype),
                    tiling::Count(bound_.lse.size()), tiling::Wide(bound_.rows), tiling::Wide(bound_.columns));
    return tiling::FactsOf(
        plan_, ops::MachineOf(context(), ops::KernelsOf(context(), bound_.dtype)),
        {.op = "merge lse",
         .kernel = "merge_by_lse_portable",  // all levels share one kernel, since memory bounds the time
         .reason = kReason,
         .flops = flops,
         .problem = problem.Take()});
  }

  [[nodiscard]] Status Run(const MergeByLseArgs& args, std::byte* workspace) const override {
    FA_RETURN_IF_ERROR(ops::CheckMergeByLseRunArgs(bound_, args));
    const LseMerger merger(bound_, args);
    auto merge_task = [&](int32_t task, int /*worker*/) {
      const tiling::Interval rows = plan_.RowsOf(task);
      switch (bound_.dtype) {
        case DType::kF16: return merger.MergeRows<ops::MergedF16>(rows);
        case DType::kBF16: return merger.MergeRows<ops::MergedBF16>(rows);
        default: return merger.MergeRows<ops::MergedF32>(rows);
      }
    };
    return RunGraph(plan_.graph, core::TaskFunction(merge_task), workspace);
  }

 private:
  static constexpr const char* kReason = "about 32 thousand elements of the parts";

  [[nodiscard]] int64_t ElementsOfARow() const {
    return std::max<int64_t>(bound_.columns, 1) * std::max<int64_t>(std::ssize(bound_.lse), 1);
  }

  ops::BoundMergeByLse bound_;
  tiling::RowsPlan plan_;
  tiling::WorkspacePlan workspace_;
};

}  // namespace

Result<PlanFor<MergeByLseArgs>> PlanMergeByLse(const MergeByLseArgs& args, const MergeByLseOptions& options,
                                               Context* context) {
  return ops::MakePlan<MergeByLsePlanImpl>(context, [&] { return ops::BindMergeByLse(args, options); });
}

Status MergeByLse(const MergeByLseArgs& args, const MergeByLseOptions& options, Context* context) {
  auto plan = PlanMergeByLse(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
