#include "ops/ranks/run/ranked_plan.h"

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

tiling::PlanFacts FactsOfIdleRank(const char* op, const Context& context, DType dtype, const core::TaskGraph& graph) {
  return {.op = op,
          .machine = MachineOf(context, KernelsOf(context, dtype)),
          .kernels = {},
          .reason = {},
          .graph = graph,
          .load = {},
          .problem = {},
          .tasks = {},
          .loads = {},
          .tiles = {}};
}

}  // namespace fa::ops
