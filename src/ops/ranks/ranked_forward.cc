// The forward over ranks: bind -> agree -> plan -> run. While a unit is computed, the messages of the next one are on
// their way; transports that need a call to make progress make it between units.

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "core/context_impl.h"
#include "core/run/guarded_call.h"
#include "fa/ranked_attention.h"
#include "ops/bind/attention_rows.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "ops/ranks/agreement.h"
#include "ops/ranks/bind_ranks.h"
#include "ops/ranks/forward_unit.h"
#include "ops/ranks/messenger.h"
#include "tiling/workspace_plan.h"

namespace fa {
namespace {

using ops::ExchangeBuffers;
using ops::ForwardUnit;
using ops::Messenger;
using ops::UnitMessages;

/// What the ranks have agreed to run with, kept for as long as the plan.
struct Session {
  std::shared_ptr<Transport> transport;
  std::shared_ptr<Context> lowered;  ///< where another rank has a lower instruction set
  Context* context = nullptr;
  std::string note;
};

class RankedForward final : public Plan::ImplFor<AttentionArgs> {
 public:
  RankedForward(Session session, ops::BoundRanks bound)
      : ImplFor(*session.context),
        session_(std::move(session)),
        bound_(std::move(bound)),
        plan_(tiling::MakeRankPlan(bound_.call)) {
    no_graph_.range_begin = {0, 0};
    for (const tiling::RankUnit& unit : plan_.units) units_.emplace_back(bound_, plan_, unit, *session_.context);
    Book();
  }

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return workspace_; }

  /// The facts of the first unit that this rank computes, with the FLOPs of all its units.
  [[nodiscard]] tiling::PlanFacts Facts() const override {
    const auto computes = [](const ForwardUnit& unit) { return unit.program() != nullptr; };
    const auto first = std::find_if(units_.begin(), units_.end(), computes);
    tiling::PlanFacts facts = first != units_.end() ? first->program()->Facts() : NoFacts();
    for (auto unit = first; unit != units_.end() && ++unit != units_.end();) {
      if (!computes(*unit)) continue;
      const tiling::PlanFacts of_unit = unit->program()->Facts();
      facts.flops += of_unit.flops;
      facts.flops_full += of_unit.flops_full;
      facts.flops_visited += of_unit.flops_visited;
    }
    const std::string ranks = tiling::DescribeRanks(bound_.call, plan_);
    facts.problem = "rank " + std::to_string(bound_.rank) + " of " + ranks + session_.note +
                    "the first unit of this rank:\n" + facts.problem;
    facts.tiles = nullptr;
    return facts;
  }

  [[nodiscard]] Status Run(const AttentionArgs& args, std::byte* workspace) const override {
    Transport& transport = *session_.transport;
    if (Status status = ops::AgreeOnStatus(transport, CheckRunArgs(bound_.whole, args)); !status.ok()) return status;
    for (const tiling::Interval& tail : bound_.tails) {
      ops::ForwardRows rows = ops::RowsOf(bound_.whole, args);
      rows.unused_rows = tail;
      WriteUnusedRows(bound_.whole.problem, rows);
    }
    Status computed;
    if (Status status = RunUnits(args, workspace, computed); !status.ok()) return status;
    const bool results_travel = plan_.strategy == SequenceShards::Strategy::kHeads;
    return results_travel ? ops::AgreeOnStatus(transport, computed) : computed;
  }

 private:
  /// The exchanges of a unit and of the next one, and results on their way back.
  static constexpr size_t kExchanges = 3, kBack = 2;

  [[nodiscard]] tiling::PlanFacts NoFacts() const {
    const core::kernels::KernelTable& table = ops::KernelsOf(context(), bound_.whole.problem.dtype);
    return {.op = "forward",
            .machine = ops::MachineOf(context(), table),
            .kernels = {},
            .reason = {},
            .graph = no_graph_,
            .load = {},
            .problem = {},
            .tasks = {},
            .loads = {},
            .tiles = {}};
  }

  void Book() {
    size_t send = 0, receive = 0, staged = 0, engine = 0, requests = 0;
    for (const ForwardUnit& unit : units_) {
      for (const UnitMessages* messages : {&unit.in(), &unit.back()}) {
        send = std::max(send, messages->send_bytes + static_cast<size_t>(messages->kept_from.bytes));
        receive = std::max(receive, messages->receive_bytes);
        requests = std::max(requests, messages->send.size() + messages->receive.size());
      }
      staged = std::max(staged, unit.staged_bytes());
      if (unit.program() != nullptr) engine = std::max(engine, unit.program()->workspace().total_bytes());
    }
    for (size_t exchange = 0; exchange < kExchanges; ++exchange) {
      if (exchange == kBack && plan_.strategy != SequenceShards::Strategy::kHeads) break;
      send_[exchange] = workspace_.Book("rows to send", send);
      receive_[exchange] = workspace_.Book("rows received", receive);
      requests_[exchange] = workspace_.Book("requests", requests * sizeof(Transport::Request));
    }
    staged_ = workspace_.Book("rows of the heads in flight", staged);
    engine_ = workspace_.Book("forward of a unit", engine);
  }

  [[nodiscard]] ExchangeBuffers Buffers(std::byte* workspace, size_t exchange) const {
    return {workspace + send_[exchange], workspace + receive_[exchange],
            reinterpret_cast<Transport::Request*>(workspace + requests_[exchange])};
  }

  /// `computed`: the first error of products, with which the exchange goes on: no other rank is left waiting.
  Status RunUnits(const AttentionArgs& args, std::byte* workspace, Status& computed) const {
    std::byte* staged = workspace + staged_;
    const auto start = [&](size_t u) {
      const ForwardUnit& unit = units_[u];
      const ForwardUnit::Places places = unit.PlacesOf(args, staged);
      return Messenger(*session_.transport, unit.in_from(), unit.in_to())
          .Start(unit.in(), TagOf(u), places.in_from, Buffers(workspace, u % 2));
    };
    if (!units_.empty()) {
      if (Status status = start(0); !status.ok()) return status;
    }
    for (size_t u = 0; u < units_.size(); ++u) {
      if (u + 1 < units_.size()) {
        if (Status status = start(u + 1); !status.ok()) return status;
      }
      const ForwardUnit& unit = units_[u];
      const ForwardUnit::Places places = unit.PlacesOf(args, staged);
      const ExchangeBuffers buffers = Buffers(workspace, u % 2);
      const Messenger messenger(*session_.transport, unit.in_from(), unit.in_to());
      if (Status status = messenger.Arrive(unit.in(), places.in_from, places.in_to, buffers); !status.ok()) {
        return status;
      }
      unit.ClearSlack(staged);
      if (unit.program() != nullptr && computed.ok()) {
        const ops::ForwardRows rows = ops::RowsOf(unit.program()->bound(), unit.UnitArgs(args, staged));
        computed = unit.program()->Run(*this, rows, workspace + engine_);
      }
      if (Status status = messenger.Leave(unit.in(), buffers); !status.ok()) return status;
      if (plan_.strategy != SequenceShards::Strategy::kHeads) continue;
      const Messenger back(*session_.transport, unit.back_from(), unit.back_to());
      const ExchangeBuffers back_buffers = Buffers(workspace, kBack);
      if (Status status = back.Start(unit.back(), kBackTag, places.back_from, back_buffers); !status.ok()) {
        return status;
      }
      if (Status status = back.Arrive(unit.back(), places.back_from, places.back_to, back_buffers); !status.ok()) {
        return status;
      }
      if (Status status = back.Leave(unit.back(), back_buffers); !status.ok()) return status;
    }
    return Status::Ok();
  }

  static constexpr int kBackTag = 2;
  static int TagOf(size_t unit) { return static_cast<int>(unit % 2); }

  Session session_;
  ops::BoundRanks bound_;
  tiling::RankPlan plan_;
  std::deque<ForwardUnit> units_;
  tiling::WorkspacePlan workspace_;
  core::TaskGraph no_graph_;  ///< of a rank without work
  size_t send_[kExchanges] = {}, receive_[kExchanges] = {}, requests_[kExchanges] = {};
  size_t staged_ = 0, engine_ = 0;
};

/// A context of the instruction set that the ranks have agreed on.
Status UseAgreed(const ops::Agreed& agreed, Context& own, Session& session) {
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

Result<PlanFor<AttentionArgs>> MakeRanked(const AttentionArgs& args, const AttentionOptions& options,
                                          const SequenceShards& shards, std::shared_ptr<Transport> transport,
                                          Context& context) {
  // No rank leaves before all have agreed.
  auto bound = core::GuardedCall(
      "the plan", [&] { return ops::BindRanks(args, options, shards, transport->rank(), transport->ranks()); });
  ops::RankFacts facts{
      .status = core::ImplOf(context).status(), .description = {}, .isa = context.isa(), .workers = context.threads()};
  if (facts.status.ok()) facts.status = core::ImplOf(context).CheckRuns();
  if (facts.status.ok()) facts.status = bound.status();
  if (facts.status.ok()) facts.description = Describe(*bound, options, shards).text();
  auto agreed = AgreeOnCall(*transport, facts);
  if (!agreed.ok()) return agreed.status();

  bound->call.workers = agreed->workers;
  std::shared_ptr<const RankedForward> impl;
  const Status planned = core::GuardedCall("the plan", [&] {
    Session session{.transport = transport, .lowered = nullptr, .context = nullptr, .note = {}};
    if (Status status = UseAgreed(*agreed, context, session); !status.ok()) return status;
    try {
      impl = std::make_shared<const RankedForward>(std::move(session), std::move(*bound));
    } catch (const tiling::PlanTooLarge& error) {
      return Status::OutOfMemory(error.what());
    }
    return ops::CheckWorkspace(impl->workspace().total_bytes());
  });
  if (Status status = ops::AgreeOnStatus(*transport, planned); !status.ok()) return status;
  return PlanFor<AttentionArgs>(std::move(impl));
}

}  // namespace

Result<PlanFor<AttentionArgs>> PlanFlashAttention(const AttentionArgs& args, const AttentionOptions& options,
                                                  const SequenceShards& shards, std::shared_ptr<Transport> transport,
                                                  Context* context) {
  return core::GuardedCall("the plan", [&]() -> Result<PlanFor<AttentionArgs>> {
    if (transport == nullptr) return Status::InvalidArgument(ErrorText::Argument("transport").Says("null"));
    return MakeRanked(args, options, shards, std::move(transport), context != nullptr ? *context : Context::Default());
  });
}

Status FlashAttention(const AttentionArgs& args, const AttentionOptions& options, const SequenceShards& shards,
                      std::shared_ptr<Transport> transport, Context* context) {
  auto plan = PlanFlashAttention(args, options, shards, std::move(transport), context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
