#include "ranks/run/ranked_plan.h"

#include <string>

#include "ranks/plan/rank_facts.h"
#include "tiling/row_rules.h"

namespace fa::ops {

Status UseAgreed(const Agreed& agreed, Context& own, RankSession& session) {
  session.context = &own;
  if (agreed.isa_lowered) {
    session.note = std::string("instruction set: ") + Name(agreed.isa) + ", the lowest of all ranks\n";
  }
  if (own.isa() == agreed.isa) return Status::Ok();
  auto lowered = Context::Create(
      {.threads = own.threads(), .isa = agreed.isa, .accumulation = own.accumulation(), .numa = own.numa()});
  if (!lowered.ok()) return lowered.status();
  session.lowered = std::move(*lowered);
  session.context = session.lowered.get();
  return Status::Ok();
}

Status TellRanks(const RankSession& session, const Status& why) {
  return core::GuardedCall("the run of a plan", [&] { return AgreeOnStatus(*session.transport, why); });
}

tiling::PlanFacts FactsOfRank(const char* op, const Context& context, const BoundRanks& bound,
                              const tiling::RankPlan& plan, const std::string& note, const core::TaskGraph& no_tasks,
                              std::span<const tiling::PlanFacts> of_units) {
  const DType dtype = bound.whole.problem.dtype;
  tiling::PlanFacts facts = !of_units.empty()
                                ? of_units.front()
                                : tiling::PlanFacts{.op = op,
                                                    .machine = MachineOf(context, KernelsOf(context, dtype)),
                                                    .kernels = {},
                                                    .reason = {},
                                                    .graph = no_tasks,
                                                    .load = {},
                                                    .problem = {},
                                                    .tasks = {},
                                                    .loads = {},
                                                    .tiles = {}};
  for (size_t u = 1; u < of_units.size(); ++u) {
    facts.flops += of_units[u].flops;
    facts.flops_full += of_units[u].flops_full;
    facts.flops_visited += of_units[u].flops_visited;
  }
  facts.problem = "rank " + std::to_string(bound.rank) + " of " + tiling::DescribeRanks(bound.call, plan) + note +
                  tiling::DescribeRank(plan, bound.rank) + "the first unit of this rank:\n" + facts.problem;
  facts.mask = tiling::MaskText(bound.whole.problem.sequences);
  facts.tiles = nullptr;
  return facts;
}

}  // namespace fa::ops
