#include "ranks/run/ranked_plan.h"

#include <atomic>

#include "core/run/serial_executor.h"

namespace fa::ops {
namespace {

/// Whether a run has begun, so that it cannot start anew.
class Begun {
 public:
  void Note() {
    if (!begun_.load(std::memory_order_relaxed)) begun_.store(true, std::memory_order_relaxed);
  }
  [[nodiscard]] bool begun() const { return begun_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> begun_{false};
};

class NotedGates final : public core::ArrivalGates {
 public:
  NotedGates(core::ArrivalGates& gates, Begun& begun) : gates_(gates), begun_(begun) {}
  [[nodiscard]] Status Poll(core::GateOpener& opener) override {
    begun_.Note();
    return gates_.Poll(opener);
  }
  [[nodiscard]] bool done() const override { return gates_.done(); }

 private:
  core::ArrivalGates& gates_;
  Begun& begun_;
};

}  // namespace

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

Status RunAtLeastAlone(const Plan::Impl& plan, const core::TaskGraph& graph, core::TaskFunction run_task,
                       std::byte* state, core::ArrivalGates* gates) {
  Begun begun;
  auto noted_task = [&](int32_t task, int worker) {
    begun.Note();
    run_task(task, worker);
  };
  std::optional<NotedGates> noted_gates;
  if (gates != nullptr) noted_gates.emplace(*gates, begun);
  Status status = plan.Plan::Impl::RunGraph(graph, core::TaskFunction(noted_task), state,
                                            gates != nullptr ? &*noted_gates : nullptr);
  if (status.ok() || begun.begun()) return status;
  core::SerialExecutor alone;
  return gates != nullptr ? alone.RunWithGates(graph, run_task, state, *gates) : alone.Run(graph, run_task, state);
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
