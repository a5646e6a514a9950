#ifndef FA_RANKS_PLAN_RANK_FACTS_H_
#define FA_RANKS_PLAN_RANK_FACTS_H_

#include <string>

#include "core/task_graph.h"
#include "fa/plan_info.h"
#include "ranks/plan/rank_plan.h"
#include "tiling/plan_facts.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// A graph with a worker per rank and a task per unit, for the facts of a schedule that nobody runs.
[[nodiscard]] core::TaskGraph GraphOf(const RankCall& call, const RankPlan& plan);

/// The facts that a plan tells about the schedule of a call. Its tiles are rows of ranks with the keys that they see.
/// @param graph  GraphOf(call, plan); it, `call` and `plan` must outlive the facts
/// @param flops_full  FLOPs of the call without a mask
[[nodiscard]] PlanFacts FactsOf(const char* op, const Machine& machine, const RankCall& call, const RankPlan& plan,
                                const core::TaskGraph& graph, double flops_full);

/// The facts about all ranks in PlanInfo.
[[nodiscard]] RanksInfo InfoOfRanks(const RankPlan& plan);

/// The rows that one rank moves and stages, as text.
[[nodiscard]] std::string DescribeRank(const RankPlan& plan, int rank);

/// The plan as text: cut, bits, strategy, bytes and FLOPs of each rank, predicted time.
[[nodiscard]] std::string DescribeRanks(const RankCall& call, const RankPlan& plan);

/// The schedule as text: DescribeRanks, then what the first ranks hold, move and compute.
[[nodiscard]] std::string DescribeSchedule(const char* op, Isa isa, const RankCall& call, const RankPlan& plan);

}  // namespace fa::tiling

#endif  // FA_RANKS_PLAN_RANK_FACTS_H_
