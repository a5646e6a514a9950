#ifndef FA_RANKS_RUN_RANKED_PLAN_H_
#define FA_RANKS_RUN_RANKED_PLAN_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "core/context/context_impl.h"
#include "core/kernels/kernel_facts.h"
#include "core/memory.h"
#include "core/run/guarded_call.h"
#include "core/task_graph.h"
#include "fa/context.h"
#include "fa/error_text.h"
#include "fa/plan.h"
#include "fa/transport.h"
#include "fa/workspace.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "ranks/call/agreement.h"
#include "ranks/call/bind_ranks.h"
#include "ranks/call/score_rows.h"
#include "ranks/plan/rank_facts.h"
#include "ranks/plan/rank_plan.h"
#include "ranks/rows/counted_transport.h"
#include "ranks/rows/messenger.h"
#include "tiling/plan_facts.h"
#include "tiling/plan_limits.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// The transport of a plan over ranks, and the context for the level on which the ranks have agreed. A session lives as
/// long as its plan.
struct RankSession {
  std::shared_ptr<Transport> transport;
  std::shared_ptr<Context> lowered;  ///< the context to use if another rank has a lower instruction set
  Context* context = nullptr;
  std::string note;
};

/// Sets the session's context to one with the instruction-set level that the ranks have agreed on.
[[nodiscard]] Status UseAgreed(const Agreed& agreed, Context& own, RankSession& session);

/// Call this function if this rank cannot begin a run that all other ranks begin. The other ranks then get the error
/// `why`.
[[nodiscard]] Status TellRanks(const RankSession& session, const Status& why);

/// Returns the PlanFacts of a rank's first unit, but with the FLOPs of all its units.
/// @param no_tasks  the graph of a rank that computes nothing; it must live as long as the result
/// @param of_units  the PlanFacts of the units that this rank computes
[[nodiscard]] tiling::PlanFacts FactsOfRank(const char* op, const Context& context, const BoundRanks& bound,
                                            const tiling::RankPlan& plan, const std::string& note,
                                            const core::TaskGraph& no_tasks,
                                            std::span<const tiling::PlanFacts> of_units);

/// What all operators' plans over ranks have in common.
template <typename Args>
class RankedImpl : public Plan::ImplFor<Args> {
 public:
  RankedImpl(RankSession session, const tiling::RankCall& call)
      : Plan::ImplFor<Args>(*session.context), session_(std::move(session)), plan_(tiling::MakeRankPlan(call)) {
    no_tasks_.range_begin = {0, 0};
  }

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const final { return workspace_; }
  [[nodiscard]] PlanInfo Info() const final {
    PlanInfo info = Plan::ImplFor<Args>::Info();
    info.ranks = tiling::InfoOfRanks(plan_);
    return info;
  }
  [[nodiscard]] Status CannotRun(const Status& why) const final { return TellRanks(session_, why); }
  void AfterError(Workspace& workspace) const noexcept final { KeepIfUnderWay(*session_.transport, workspace); }

 protected:
  RankSession session_;
  tiling::RankPlan plan_;
  tiling::WorkspacePlan workspace_;
  core::TaskGraph no_tasks_;
};

/// Does the steps bind -> agree -> plan. Makes an `Impl` from a session and the result of bind(transport). Reserves
/// room in the transport for the messages of a run. If a rank fails, returns the same error on all ranks.
/// @param describe  describe(bound) returns the CallDescription of the call
template <typename Impl, typename Bind, typename Describe>
Result<PlanFor<typename Impl::Args>> MakeRankedPlan(std::shared_ptr<Transport> transport, Context* context,
                                                    const Bind& bind, const Describe& describe) {
  using Planned = PlanFor<typename Impl::Args>;
  return core::GuardedCall("the plan", [&]() -> Result<Planned> {
    if (transport == nullptr) return Status::InvalidArgument(ErrorText::Argument("transport").Says("null"));
    // From here on, no rank returns before all ranks have agreed.
    Context* own = context;
    std::optional<std::invoke_result_t<const Bind&, Transport&>> bound;
    RankFacts facts;
    facts.status = core::GuardedCall("the plan", [&] {
      if (own == nullptr) own = &Context::Default();
      FA_RETURN_IF_ERROR(core::ImplOf(*own).status());
      FA_RETURN_IF_ERROR(core::ImplOf(*own).CheckRuns());
      facts.isa = own->isa();
      facts.workers = own->threads();
      facts.memory_bytes = core::MemoryBytes();
      bound.emplace(bind(*transport));
      if (!bound->ok()) return bound->status();
      facts.description = describe(**bound).text();
      facts.pse_forms = FormsOf(**bound);
      return Status::Ok();
    });
    auto agreed = AgreeOnCall(*transport, facts);
    if (!agreed.ok()) return agreed.status();

    std::shared_ptr<const Impl> impl;
    const Status planned = core::GuardedCall("the plan", [&] {
      tiling::RankCall& call = CallOf(**bound);
      call.workers = agreed->workers;
      call.memory_bytes = agreed->memory_bytes;
      call.flops_per_worker = tiling::FlopsPerWorker(agreed->isa, call.problem.dtype);
      call.summed_rows = core::kernels::FactsOf(agreed->isa, call.problem.dtype).RowsSummedAtOnce();
      RankSession session{.transport = transport, .lowered = nullptr, .context = nullptr, .note = {}};
      FA_RETURN_IF_ERROR(UseForms(agreed->pse_forms, **bound));
      FA_RETURN_IF_ERROR(UseAgreed(*agreed, *own, session));
      try {
        impl = std::make_shared<const Impl>(std::move(session), std::move(**bound));
      } catch (const tiling::PlanTooLarge& error) {
        return Status::OutOfMemory(error.what());
      }
      FA_RETURN_IF_ERROR(CheckWorkspace(impl->workspace().total_bytes()));
      // If a rank had no memory for its messages during a run, the other ranks would wait for this rank. So the room is
      // reserved now.
      ReserveKept(*transport);
      const MessagesUnderWay most = impl->UnderWay();
      return transport->Reserve(most.requests, static_cast<size_t>(most.bytes));
    });
    FA_RETURN_IF_ERROR(AgreeOnStatus(*transport, planned));
    return Planned(std::move(impl));
  });
}

}  // namespace fa::ops

#endif  // FA_RANKS_RUN_RANKED_PLAN_H_
