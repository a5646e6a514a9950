// The forward over ranks: bind -> agree -> plan -> run. While a unit is computed, the messages of the next unit are on
// their way. A transport may move messages only while it is called, so the calling thread calls it between its tiles.

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "core/run/guarded_call.h"
#include "fa/ranked_attention.h"
#include "ops/bind/attention_rows.h"
#include "ops/plan/plan_impl.h"
#include "ranks/call/agreement.h"
#include "ranks/call/bind_ranks.h"
#include "ranks/plan/rank_facts.h"
#include "ranks/run/forward_unit.h"
#include "ranks/run/ranked_plan.h"
#include "ranks/run/unit_runs.h"
#include "tiling/row_rules.h"
#include "tiling/workspace_plan.h"

namespace fa {
namespace {

using ops::ForwardUnit;

class RankedForward final : public ops::RankedImpl<AttentionArgs> {
 public:
  RankedForward(ops::RankSession session, ops::BoundRanks bound)
      : RankedImpl(std::move(session)), bound_(std::move(bound)), plan_(tiling::MakeRankPlan(bound_.call)) {
    no_graph_.range_begin = {0, 0};
    for (const tiling::RankUnit& unit : plan_.units) units_.emplace_back(bound_, plan_, unit, context());
    runs_.Book(results_travel(), workspace_);
    size_t engine = 0;
    for (const ForwardUnit& unit : units_) {
      if (unit.program() != nullptr) engine = std::max(engine, unit.program()->workspace().total_bytes());
    }
    engine_ = workspace_.Book("forward of a unit", engine);
  }

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return workspace_; }
  [[nodiscard]] ops::MessagesUnderWay UnderWay() const { return runs_.under_way(); }

  /// The facts of the first unit that this rank computes, with the FLOPs of all its units.
  [[nodiscard]] tiling::PlanFacts Facts() const override {
    const auto computes = [](const ForwardUnit& unit) { return unit.program() != nullptr; };
    const auto first = std::find_if(units_.begin(), units_.end(), computes);
    tiling::PlanFacts facts = first != units_.end()
                                  ? first->program()->Facts()
                                  : ops::FactsOfIdleRank("forward", context(), bound_.whole.problem.dtype, no_graph_);
    for (auto unit = first; unit != units_.end() && ++unit != units_.end();) {
      if (!computes(*unit)) continue;
      const tiling::PlanFacts of_unit = unit->program()->Facts();
      facts.flops += of_unit.flops;
      facts.flops_full += of_unit.flops_full;
      facts.flops_visited += of_unit.flops_visited;
    }
    const std::string ranks = tiling::DescribeRanks(bound_.call, plan_);
    facts.problem = "rank " + std::to_string(bound_.rank) + " of " + ranks + session().note +
                    tiling::DescribeRank(plan_, bound_.rank) + "the first unit of this rank:\n" + facts.problem;
    facts.mask = tiling::MaskText(bound_.whole.problem.sequences);
    facts.tiles = nullptr;
    facts.ranks = tiling::InfoOfRanks(plan_);
    return facts;
  }

  [[nodiscard]] Status Run(const AttentionArgs& args, std::byte* workspace) const override {
    const Status checked = core::GuardedCall("the run of a plan", [&] { return CheckRunArgs(bound_.whole, args); });
    FA_RETURN_IF_ERROR(ops::AgreeOnStatus(*session().transport, checked));
    for (const tiling::Interval& tail : bound_.tails) {
      ops::ForwardRows rows = ops::RowsOf(bound_.whole, args);
      rows.unused_rows = tail;
      WriteUnusedRows(bound_.whole.problem, rows);
    }
    Status computed;  // the first error of products; messages go on after it, so that no other rank is left waiting
    const auto compute = [&](size_t u, ops::UnitProgress& progress) {
      const ForwardUnit& unit = units_[u];
      std::byte* const staged = runs_.Staged(workspace);
      if (unit.program() != nullptr && computed.ok()) {
        const ops::ForwardRows rows = ops::RowsOf(unit.program()->bound(), unit.UnitAddresses(args, staged));
        computed =
            unit.program()->Run(*this, rows, workspace + engine_, nullptr, progress.idle() ? nullptr : &progress);
      }
      if (!computed.ok()) ops::SpoilResults(staged, unit.staged_bytes());
      return Status::Ok();
    };
    const auto taken = [](size_t /*unit*/) {};
    ops::CountedTransport transport(*session().transport);
    FA_RETURN_IF_ERROR(runs_.Run(transport, args, workspace, compute, taken));
    return computed;
  }

 private:
  [[nodiscard]] bool results_travel() const { return plan_.strategy == SequenceShards::Strategy::kHeads; }

  ops::BoundRanks bound_;
  tiling::RankPlan plan_;
  std::deque<ForwardUnit> units_;
  ops::UnitRuns<ForwardUnit> runs_{units_};
  tiling::WorkspacePlan workspace_;
  core::TaskGraph no_graph_;  ///< the graph of a rank without work
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
