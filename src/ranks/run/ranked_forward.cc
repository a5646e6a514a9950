// This file does the forward over ranks, in the steps bind -> agree -> plan -> run. While a unit is computed, the
// messages of the next unit are on their way. A transport may move messages only while it is called, so the calling
// thread calls it between its tiles.

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "core/run/guarded_call.h"
#include "fa/ranked_attention.h"
#include "ops/bind/attention_rows.h"
#include "ops/plan/plan_impl.h"
#include "ranks/call/agreement.h"
#include "ranks/call/bind_ranks.h"
#include "ranks/run/forward_unit.h"
#include "ranks/run/rank_runner.h"
#include "ranks/run/ranked_plan.h"
#include "ranks/run/unit_runs.h"

namespace fa {
namespace {

using ops::ForwardUnit;

class RankedForward final : public ops::RankedImpl<AttentionArgs> {
 public:
  RankedForward(ops::RankSession session, ops::BoundRanks bound)
      : RankedImpl(std::move(session), bound.call), bound_(std::move(bound)) {
    for (const tiling::RankUnit& unit : plan_.units) units_.emplace_back(bound_, plan_, unit, context());
    runs_.Book(results_travel(), workspace_);
    size_t engine = 0;
    for (const ForwardUnit& unit : units_) {
      if (unit.program() != nullptr) engine = std::max(engine, unit.program()->workspace().total_bytes());
    }
    engine_ = workspace_.Book("forward of a unit", engine);
  }

  [[nodiscard]] ops::MessagesUnderWay UnderWay() const { return runs_.under_way(); }

  [[nodiscard]] tiling::PlanFacts Facts() const override {
    std::vector<tiling::PlanFacts> of_units;
    for (const ForwardUnit& unit : units_) {
      if (unit.program() != nullptr) of_units.push_back(unit.program()->Facts());
    }
    return ops::FactsOfRank("forward", context(), bound_, plan_, session_.note, no_tasks_, of_units);
  }

  [[nodiscard]] Status Run(const AttentionArgs& args, std::byte* workspace) const override {
    const Status checked = core::GuardedCall("the run of a plan", [&] { return CheckRunArgs(bound_.whole, args); });
    FA_RETURN_IF_ERROR(ops::AgreeOnStatus(*session_.transport, checked));
    for (const tiling::Interval& tail : bound_.tails) {
      ops::ForwardRows rows = ops::RowsOf(bound_.whole, args);
      rows.unused_rows = tail;
      WriteUnusedRows(bound_.whole.problem, rows);
    }
    Status computed;  // first error in computing; messages go on after an error, so that no rank waits forever
    const auto compute = [&](size_t u, ops::UnitProgress& progress) {
      const ForwardUnit& unit = units_[u];
      std::byte* const staged = runs_.Staged(workspace);
      if (unit.program() != nullptr && computed.ok()) {
        const ops::ForwardRows rows = ops::RowsOf(unit.program()->bound(), unit.UnitArgs(args, staged));
        const ops::RankRunner runner(context(), progress.idle() ? nullptr : &progress);
        computed = unit.program()->Run(runner, rows, workspace + engine_);
      }
      if (!computed.ok()) ops::SpoilResults(staged, unit.staged_bytes());
      return Status::Ok();
    };
    const auto taken = [](size_t /*unit*/) {};
    ops::CountedTransport transport(*session_.transport);
    FA_RETURN_IF_ERROR(runs_.Run(transport, args, workspace, compute, taken));
    return computed;
  }

 private:
  [[nodiscard]] bool results_travel() const { return plan_.strategy == SequenceShards::Strategy::kHeads; }

  ops::BoundRanks bound_;
  std::deque<ForwardUnit> units_;
  ops::UnitRuns<ForwardUnit> runs_{units_};
  size_t engine_ = 0;
};

}  // namespace

Result<PlanFor<AttentionArgs>> PlanFlashAttention(const AttentionArgs& args, const AttentionOptions& options,
                                                  const SequenceShards& shards, std::shared_ptr<Transport> transport,
                                                  Context* context) {
  return ops::MakeRankedPlan<RankedForward>(
      std::move(transport), context,
      [&](const Transport& ranks) { return ops::BindRanks(args, options, shards, ranks.rank(), ranks.ranks()); },
      [&](const ops::BoundRanks& bound) { return ops::Describe(bound, options, shards); });
}

Status FlashAttention(const AttentionArgs& args, const AttentionOptions& options, const SequenceShards& shards,
                      std::shared_ptr<Transport> transport, Context* context) {
  auto plan = PlanFlashAttention(args, options, shards, std::move(transport), context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
