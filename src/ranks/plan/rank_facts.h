#ifndef FA_RANKS_PLAN_RANK_FACTS_H_
#define FA_RANKS_PLAN_RANK_FACTS_H_

#include <string>

#include "core/task_graph.h"
#include "fa/plan_info.h"
#include "ranks/plan/rank_plan.h"
#include "tiling/plan_facts.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// Returns a graph with one worker per rank and one task per unit. The graph serves only to describe a schedule, and is
/// never run.
[[nodiscard]] core::TaskGraph GraphOf(const RankCall& call, const RankPlan& plan);

/// Returns the PlanFacts of a call's schedule. Each tile has some rows that a rank computes, and the keys that these
/// rows see.
/// @param graph  GraphOf(call, plan); `graph`, `call` and `plan` must outlive the result
/// @param flops_full  FLOPs of the call without a mask
[[nodiscard]] PlanFacts FactsOf(const char* op, const Machine& machine, const RankCall& call, const RankPlan& plan,
                                const core::TaskGraph& graph, double flops_full);

/// Returns the RanksInfo of a plan.
[[nodiscard]] RanksInfo InfoOfRanks(const RankPlan& plan);

/// Returns a text about the bytes that one rank moves and stages.
[[nodiscard]] std::string DescribeRank(const RankPlan& plan, int rank);

/// Returns a text about the plan: cut, whether one process gives the same bits, strategy, bytes and FLOPs of each rank,
/// and predicted time.
[[nodiscard]] std::string DescribeRanks(const RankCall& call, const RankPlan& plan);

/// Returns a text about the schedule: DescribeRanks, followed by the rows that the first ranks hold, move and compute.
[[nodiscard]] std::string DescribeSchedule(const char* op, Isa isa, const RankCall& call, const RankPlan& plan);

}  // namespace fa::tiling

#endif  // FA_RANKS_PLAN_RANK_FACTS_H_
