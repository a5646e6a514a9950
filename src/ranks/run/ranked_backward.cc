// This file does the backward over ranks, in the same steps as the forward: bind -> agree -> plan -> run.

#include <algorithm>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/run/guarded_call.h"
#include "fa/ranked_attention.h"
#include "ops/dense/gradient_sums.h"
#include "ops/plan/plan_impl.h"
#include "ranks/call/agreement.h"
#include "ranks/call/bind_grad_ranks.h"
#include "ranks/run/grad_unit.h"
#include "ranks/run/parameter_sums.h"
#include "ranks/run/rank_runner.h"
#include "ranks/run/ranked_plan.h"
#include "ranks/run/row_moves.h"
#include "ranks/run/rows_of_sums.h"
#include "ranks/run/unit_runs.h"
#include "tiling/workspace_plan.h"

namespace fa {
namespace {

using ops::GradUnit;

class RankedBackward final : public ops::RankedImpl<AttentionGradArgs> {
 public:
  RankedBackward(ops::RankSession session, ops::BoundGradRanks bound)
      : RankedImpl(std::move(session), bound.forward.call), bound_(std::move(bound)) {
    moves_ = ops::RowMoves(plan_, bound_, workspace_);
    for (const tiling::RankUnit& unit : plan_.units) units_.emplace_back(bound_, plan_, unit, context());
    runs_.Book(/*results_travel=*/true, workspace_);
    size_t engine = 0, sums = 0, requests = 0;
    for (const GradUnit& unit : units_) {
      if (unit.program() != nullptr) engine = std::max(engine, unit.program()->workspace().total_bytes());
      if (unit.chain() == nullptr) continue;
      engine = std::max(engine, unit.chain()->workspace().total_bytes());
      sums = std::max(sums, unit.chain()->SumBytes());
      requests = std::max(requests, unit.chain()->RequestCount() * sizeof(Transport::Request));
    }
    engine_ = workspace_.Book("backward of a unit", engine);
    const size_t in_flight = std::min<size_t>(units_.size(), tiling::kUnitsInFlight);
    for (Travelling& travelling : std::span(travelling_).first(in_flight)) {
      travelling.sums = workspace_.Book("sums of dK and dV of the heads in flight", sums);
      travelling.requests = workspace_.Book("requests of sums", requests);
    }
    bias_sums_ = workspace_.Book("bias gradient summed over the batch", sizeof(float), FloatsOfBiasSums(bound_));
    if (rows_stay()) rows_of_sums_ = ops::RowsOfSums(bound_, plan_, sums_, workspace_);
  }

  [[nodiscard]] ops::MessagesUnderWay UnderWay() const {
    ops::MessagesUnderWay of_sums;
    for (const GradUnit& unit : units_) {
      if (unit.chain() == nullptr) continue;
      const ops::MessagesUnderWay of = unit.chain()->UnderWay();
      of_sums = {std::max(of_sums.requests, of.requests), std::max(of_sums.bytes, of.bytes)};
    }
    const ops::MessagesUnderWay& of_units = runs_.under_way();
    const ops::MessagesUnderWay of_moves = moves_.UnderWay();
    const auto parameters =
        static_cast<int64_t>(sums_.chain_bytes());  // these sums are sent alone, after all other messages have left
    return {std::max<int64_t>({of_units.requests + of_sums.requests, of_moves.requests, 1}),
            std::max({of_units.bytes, of_sums.bytes, of_moves.bytes, parameters})};
  }

  [[nodiscard]] tiling::PlanFacts Facts() const override {
    std::vector<tiling::PlanFacts> of_units;
    for (const GradUnit& unit : units_) {
      if (unit.program() != nullptr) of_units.push_back(unit.program()->Facts());
      if (unit.chain() != nullptr) of_units.push_back(unit.chain()->Facts());
    }
    return ops::FactsOfRank("backward", context(), bound_.forward, plan_, session_.note, no_tasks_, of_units);
  }

  [[nodiscard]] Status Run(const AttentionGradArgs& own, std::byte* workspace) const override {
    const Status checked = core::GuardedCall("the run of a plan", [&] {
      return CheckRunTensors(bound_.forward.whole, ops::TensorsOf(own), own.cu_q, own.cu_kv, own.dense_mask,
                             own.pair_mask);
    });
    FA_RETURN_IF_ERROR(ops::AgreeOnStatus(*session_.transport, checked));
    ClearTails(own);
    const AttentionGradArgs args = moves_.CopiesOf(own, workspace);
    sums_.Clear(workspace);
    ClearBias(args, workspace);
    Status computed;  // first error in computing; messages go on after an error, so that no rank waits forever
    ops::CountedTransport transport(*session_.transport);
    FA_RETURN_IF_ERROR(moves_.Bring(transport, own, workspace));
    const auto compute = [&](size_t u, ops::UnitProgress& progress) {
      Status status;
      if (rows_stay()) {
        status = RunChain(transport, u, progress, args, workspace, computed);
      } else if (units_[u].program() != nullptr && computed.ok()) {
        computed = RunProgram(units_[u], progress, args, workspace);
      }
      if (!computed.ok()) ops::SpoilResults(runs_.Staged(workspace), units_[u].staged_bytes());
      return status;
    };
    ForgetSends(workspace);
    const auto taken = [&](size_t u) { TakeBias(u, args, workspace); };
    FA_RETURN_IF_ERROR(runs_.Run(transport, args, workspace, compute, taken));
    for (size_t u = units_.size() - std::min<size_t>(units_.size(), tiling::kUnitsInFlight); u < units_.size(); ++u) {
      FA_RETURN_IF_ERROR(FinishSends(transport, u, workspace));
    }
    if (!computed.ok()) moves_.Spoil(workspace);
    FA_RETURN_IF_ERROR(moves_.TakeBack(transport, own, workspace));
    WriteBias(args, workspace);
    const Status shared = ShareSums(transport, args, workspace, computed);
    return shared.ok() ? computed : shared;
  }

 private:
  void ClearTails(const AttentionGradArgs& args) const {
    ops::GradRows rows{.dq = {args.dq.data, own_dq_},
                       .dq_rope = {args.dq_rope.data, own_dq_rope_},
                       .dk = {args.dk.data, bound_.dk},
                       .dk_rope = {args.dk_rope.data, bound_.dk_rope},
                       .dv = {args.dv.data, bound_.dv}};
    for (const tiling::Interval& tail : bound_.forward.tails) {
      rows.unused_queries = tail;
      ops::WriteTailGradients(bound_.forward.whole.problem, rows);
    }
    rows.unused_queries = {};
    for (const tiling::Interval& tail : bound_.key_tails) {
      rows.unused_keys = tail;
      ops::WriteTailGradients(bound_.forward.whole.problem, rows);
    }
  }

  [[nodiscard]] Status RunProgram(const GradUnit& unit, ops::UnitProgress& progress, const AttentionGradArgs& args,
                                  std::byte* workspace) const {
    const ops::BackwardProgram& program = *unit.program();
    const AttentionGradArgs unit_args = unit.UnitArgs(args, runs_.Staged(workspace));
    const ops::GradRows rows = ops::RowsOf(program.bound(), unit_args);
    const ops::RankRunner runner(context(), progress.idle() ? nullptr : &progress);
    FA_RETURN_IF_ERROR(program.Run(runner, rows, workspace + engine_));
    unit.KeepBias(workspace + engine_, runs_.Staged(workspace));
    const int64_t group = bound_.forward.whole.problem.group();
    sums_.AddProgram(program, rows, workspace + engine_, unit.first_sequence(), unit.heads().begin * group, workspace);
    return Status::Ok();
  }

  /// Shares dsink and dslopes with all ranks. All ranks must call this function.
  [[nodiscard]] Status ShareSums(Transport& transport, const AttentionGradArgs& args, std::byte* workspace,
                                 const Status& computed) const {
    if (!sums_.has_sums()) return Status::Ok();
    if (!computed.ok()) {
      sums_.Spoil(workspace);
      rows_of_sums_.Spoil(workspace);
    }
    if (rows_stay()) return rows_of_sums_.AddAndShare(transport, args, sums_, workspace);
    const auto owner = [&](int64_t head) { return OwnerOf(head); };
    return sums_.Share(transport, args, workspace, owner, [&](int64_t /*b*/, int64_t head) { return OwnerOf(head); });
  }

  [[nodiscard]] bool rows_stay() const { return plan_.strategy == SequenceShards::Strategy::kSequence; }

  [[nodiscard]] ops::GradChain::Travelling TravellingOf(size_t u, std::byte* workspace) const {
    const Travelling& of = travelling_[u % tiling::kUnitsInFlight];
    return {reinterpret_cast<float*>(workspace + of.sums),
            reinterpret_cast<Transport::Request*>(workspace + of.requests)};
  }
  void ForgetSends(std::byte* workspace) const {
    for (size_t u = 0; u < units_.size(); ++u) {
      if (units_[u].chain() != nullptr) units_[u].chain()->ForgetSends(TravellingOf(u, workspace));
    }
  }
  /// Returns the requests of the messages that send the unit's sums.
  [[nodiscard]] ops::UnitProgress::Requests SendsOf(size_t u, std::byte* workspace) const {
    return {TravellingOf(u, workspace).requests, units_[u].chain()->RequestCount()};
  }
  [[nodiscard]] Status FinishSends(Transport& transport, size_t u, std::byte* workspace) const {
    const ops::GradChain* chain = units_[u].chain();
    return chain != nullptr ? chain->FinishSends(transport, TravellingOf(u, workspace)) : Status::Ok();
  }

  [[nodiscard]] Status RunChain(Transport& transport, size_t u, ops::UnitProgress& progress,
                                const AttentionGradArgs& args, std::byte* workspace, Status& computed) const {
    const GradUnit& unit = units_[u];
    unit.ClearUnseenKeys(args);
    if (u >= tiling::kUnitsInFlight) {
      FA_RETURN_IF_ERROR(FinishSends(transport, u - tiling::kUnitsInFlight, workspace));
    }
    if (unit.chain() == nullptr) return Status::Ok();
    const ops::GradChain& chain = *unit.chain();
    // Other ranks wait for the sums of the previous unit, so these sums are tested first.
    if (u > 0 && units_[u - 1].chain() != nullptr) progress.TestFirst(SendsOf(u - 1, workspace));
    std::byte* staged = runs_.Staged(workspace);
    AttentionGradArgs unit_args = unit.UnitArgs(args, staged);
    if (sums_bias()) unit_args.dpse.data = BiasSums(workspace);
    const ops::GradRows rows = ops::RowsOf(chain.bound(), unit_args);
    FA_RETURN_IF_ERROR(chain.Run(context(), transport, rows, unit.FinishedRows(staged), TravellingOf(u, workspace),
                                 progress, workspace + engine_, computed));
    rows_of_sums_.Keep(chain, workspace + engine_, unit.first_sequence(), unit.heads(), workspace);
    return Status::Ok();
  }

  /// When the results of a unit have arrived, writes its bias gradient to dpse, or adds it to the sums over the batch.
  void TakeBias(size_t u, const AttentionGradArgs& args, std::byte* workspace) const {
    if (!HasKeyBias(bound_)) return;
    const tiling::RankUnit& unit = plan_.units[u];
    std::byte* staged = runs_.Staged(workspace);
    units_[u].ClearUnseenBias(staged);
    const int64_t group = bound_.forward.whole.problem.group();
    // If rows stay on their rank, all ranks compute the same heads. So the heads of the first rank are all heads.
    for (int rank = 0; rank < (rows_stay() ? 1 : bound_.forward.call.ranks()); ++rank) {
      const tiling::Interval heads = unit.heads[static_cast<size_t>(rank)];
      for (int64_t head = heads.begin * group; head < heads.end * group; ++head) {
        TakeBiasOfHead(unit, head, units_[u].ArrivedBias(staged), args, workspace);
      }
    }
  }
  /// Does the work of TakeBias for one head.
  /// @param arrived  GradUnit::ArrivedBias of the unit
  void TakeBiasOfHead(const tiling::RankUnit& unit, int64_t head, const float* arrived, const AttentionGradArgs& args,
                      std::byte* workspace) const {
    const tiling::RankCall& call = bound_.forward.call;
    const tiling::Interval axis = AxisOf(call, unit, tiling::RowAxis::kKey);
    const ops::MutablePseView dpse{static_cast<std::byte*>(args.dpse.data), &bound_.dpse};
    for (int64_t s = unit.sequences.begin; s < unit.sequences.end; ++s) {
      const tiling::Sequence& sequence = call.problem.sequences[static_cast<size_t>(s)];
      const float* sums = arrived + head * axis.size() + sequence.k_offset - axis.begin;
      if (!sums_bias()) {
        ops::WriteBiasRow(ops::KernelsOf(context(), call.problem.dtype), dpse.Of(s), head, 0, sums, sequence.sk);
        continue;
      }
      float* of_batch = BiasSums(workspace) + head * sequence.sk;
      for (int64_t key = 0; key < sequence.sk; ++key) of_batch[key] += sums[key];
    }
  }

  /// Returns whether the batch shares the bias.
  [[nodiscard]] bool sums_bias() const { return bound_.has_dpse && bound_.dpse.shared_batch; }
  [[nodiscard]] float* BiasSums(std::byte* workspace) const { return reinterpret_cast<float*>(workspace + bias_sums_); }
  void ClearBias(const AttentionGradArgs& args, std::byte* workspace) const {
    if (bound_.has_dpse && plan_.units.empty()) ops::ClearBiasGradient(args.dpse);
    if (sums_bias()) std::fill_n(BiasSums(workspace), FloatsOfBiasSums(bound_), 0.0f);
  }
  void WriteBias(const AttentionGradArgs& args, std::byte* workspace) const {
    if (!sums_bias() || plan_.units.empty()) return;
    const Dims& shape = bound_.forward.scores.dpse.shape;
    const layout::MutableRowsView dpse(args.dpse.data, bound_.dpse.Of(0));
    ops::WritePairBias(ops::KernelsOf(context(), bound_.forward.whole.problem.dtype),
                       {.heads = shape[1], .rows = shape[2], .keys = shape[3]}, BiasSums(workspace), dpse);
  }

  /// Returns the rank that computes the head. One rank computes all rows of a kv head.
  [[nodiscard]] int OwnerOf(int64_t head) const {
    const int64_t head_kv = head / bound_.forward.whole.problem.group();
    for (const tiling::RankUnit& unit : plan_.units) {
      for (int rank = 0; rank < bound_.forward.call.ranks(); ++rank) {
        const tiling::Interval& heads = unit.heads[static_cast<size_t>(rank)];
        if (heads.begin <= head_kv && head_kv < heads.end) return rank;
      }
    }
    return 0;  // the batch is empty, and every rank has the same sums
  }

  ops::BoundGradRanks bound_;
  layout::Rows own_dq_ = bound_.dq, own_dq_rope_ = bound_.dq_rope;  ///< layouts of the rank's own tensors
  std::deque<GradUnit> units_;
  ops::UnitRuns<GradUnit> runs_{units_};
  ops::ParameterSums sums_{bound_, workspace_};
  size_t engine_ = 0, bias_sums_ = 0;
  struct Travelling {
    size_t sums = 0, requests = 0;
  };
  Travelling travelling_[tiling::kUnitsInFlight];
  ops::RowsOfSums rows_of_sums_;
  ops::RowMoves moves_;
};

}  // namespace

Result<PlanFor<AttentionGradArgs>> PlanFlashAttentionGrad(const AttentionGradArgs& args,
                                                          const AttentionOptions& options, const SequenceShards& shards,
                                                          std::shared_ptr<Transport> transport, Context* context) {
  return ops::MakeRankedPlan<RankedBackward>(
      std::move(transport), context,
      [&](const Transport& ranks) { return ops::BindGradRanks(args, options, shards, ranks.rank(), ranks.ranks()); },
      [&](const ops::BoundGradRanks& bound) { return ops::Describe(bound, options, shards); });
}

Status FlashAttentionGrad(const AttentionGradArgs& args, const AttentionOptions& options, const SequenceShards& shards,
                          std::shared_ptr<Transport> transport, Context* context) {
  auto plan = PlanFlashAttentionGrad(args, options, shards, std::move(transport), context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
