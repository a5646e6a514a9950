// This file makes the schedule of a call over ranks without running the call. The steps are: bind the whole call -> cut
// its rows -> plan -> describe.
#include "fa/rank_schedule.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "core/context/context_impl.h"
#include "core/integer.h"
#include "core/kernels/kernel_facts.h"
#include "core/memory.h"
#include "core/run/guarded_call.h"
#include "core/saturating.h"
#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_attention.h"
#include "ops/bind/bind_attention_grad.h"
#include "ops/bind/bind_parts.h"
#include "ranks/call/cut_rows.h"
#include "ranks/call/score_rows.h"
#include "ranks/call/whole_call.h"
#include "ranks/plan/rank_facts.h"
#include "ranks/plan/rank_plan.h"
#include "tiling/backward/backward_tiles.h"
#include "tiling/plan_limits.h"

namespace fa {
namespace {

using tiling::RankCall;
using tiling::RankPlan;

// Making a schedule visits every pair of ranks, and every block of a backward. Below these limits it takes at most
// about a minute.
constexpr int kMostRanks = 4096;
constexpr int64_t kMostPairs = int64_t{1} << 28, kMostBlocks = int64_t{1} << 26;
constexpr int64_t kPartsPerRank = 2;  // the most parts into which a rank's rows of one sequence fall

Status CheckMachines(const RankMachines& machines) {
  const auto positive = [](double number) { return number > 0 && std::isfinite(number); };
  const auto wrong = [](const char* name, double got, const char* want) {
    return Status::InvalidArgument(ops::Arg(std::string("machines.") + name).Is(ops::Text(static_cast<float>(got))) +
                                   ", want " + want);
  };
  if (machines.ranks < 1 || machines.ranks > kMostRanks) return wrong("ranks", machines.ranks, "1 to 4096");
  if (machines.threads < 0) return wrong("threads", machines.threads, "at least 0");
  if (machines.flops_per_thread != 0 && !positive(machines.flops_per_thread)) {
    return wrong("flops_per_thread", machines.flops_per_thread, "a positive number");
  }
  if (!positive(machines.network_bytes_per_s)) {
    return wrong("network_bytes_per_s", machines.network_bytes_per_s, "a positive number");
  }
  if (!(machines.latency_s >= 0 && std::isfinite(machines.latency_s))) {
    return wrong("latency_s", machines.latency_s, "at least 0");
  }
  return Status::Ok();
}

std::vector<SequenceShards::Interval> RowsOf(const tiling::RowShards& shards, int rank) {
  std::vector<SequenceShards::Interval> rows;
  for (const tiling::PlacedRows& run : shards.Of(rank)) rows.push_back({run.rows.begin, run.rows.end});
  return rows;
}

RankSchedule Tell(const RankCall& call, const RankPlan& plan, const tiling::PlanFacts& facts) {
  RankSchedule schedule;
  schedule.strategy = plan.strategy;
  schedule.as_one_process = plan.as_one_process;
  schedule.row_unit = tiling::kRowUnit;
  schedule.units = std::ssize(plan.units);
  schedule.seconds = plan.seconds;
  schedule.efficiency = plan.efficiency;
  schedule.hidden = plan.hidden;
  for (int rank = 0; rank < call.ranks(); ++rank) {
    const auto r = static_cast<size_t>(rank);
    schedule.ranks.push_back({.q_rows = RowsOf(call.q, rank),
                              .k_rows = RowsOf(call.k, rank),
                              .sent_bytes = plan.sent_bytes[r],
                              .received_bytes = plan.received_bytes[r],
                              .staged_bytes = plan.staged_bytes[r],
                              .flops = plan.flops[r],
                              .product_seconds = plan.product_seconds[r],
                              .message_seconds = plan.message_seconds[r],
                              .end_seconds = plan.end_seconds[r]});
  }
  schedule.info = InfoOf(facts, {});
  schedule.info.ranks = InfoOfRanks(plan);
  schedule.text = DescribeSchedule(facts.op.c_str(), facts.machine.isa, call, plan);
  return schedule;
}

/// Copies the caller's numbers about the machines to `call`.
void UseMachines(const RankMachines& machines, const Context& context, RankCall& call) {
  call.workers = machines.threads > 0 ? machines.threads : context.threads();
  call.flops_per_worker = machines.flops_per_thread > 0 ? machines.flops_per_thread
                                                        : tiling::FlopsPerWorker(context.isa(), call.problem.dtype);
  call.summed_rows = core::kernels::FactsOf(context.isa(), call.problem.dtype).RowsSummedAtOnce();
  call.network = {.bytes_per_s = machines.network_bytes_per_s, .latency_s = machines.latency_s};
}

Result<RankCall> CutCall(SequenceShards shards, int64_t q_rows, int64_t k_rows, int ranks) {
  if (shards.cut == SequenceShards::Cut::kIntervals && q_rows != k_rows) {
    return Status::InvalidArgument(ops::Arg("shards.intervals").Says("cut keys where they cut queries, want as many ") +
                                   "keys (" + std::to_string(k_rows) + ") as queries (" + std::to_string(q_rows) + ")");
  }
  shards.sq = q_rows;
  shards.sk = k_rows;
  FA_RETURN_IF_ERROR(ops::CheckShards(shards, ranks));
  auto q = ops::CutRows(shards, q_rows, ranks);
  if (!q.ok()) return q.status();
  auto k = ops::CutRows(shards, k_rows, ranks);
  if (!k.ok()) return k.status();
  RankCall call;
  call.q = std::move(*q);
  call.k = std::move(*k);
  call.strategy = shards.strategy;
  call.heads_in_flight = shards.heads_in_flight;
  return call;
}

/// Refuses calls whose schedule would take minutes to make. Such calls have more than kMostPairs pairs of ranks, summed
/// over all sequences, or a backward with more than kMostBlocks blocks. A block combines one chunk of keys, one part of
/// the rows and one head of a group.
Status CheckLength(const RankCall& call) {
  const int64_t sequences = std::max<int64_t>(std::ssize(call.problem.sequences), 1);
  const int64_t pairs =
      core::SaturatedProduct(sequences, int64_t{call.ranks()}, std::max<int64_t>(call.ranks(), call.problem.heads_kv));
  int64_t blocks = 0;
  if (call.backward) {
    // A plan chooses between 1, 2, 4 ... heads in flight, up to half of all kv heads. The planner makes a schedule for
    // each of these numbers.
    const int64_t most_heads = std::max<int64_t>(core::CeilDiv(call.problem.heads_kv, int64_t{2}), 1);
    const int64_t schedules = call.heads_in_flight > 0 ? 1 : std::bit_width(static_cast<uint64_t>(most_heads - 1)) + 1;
    for (const tiling::Sequence& sequence : call.problem.sequences) {
      const int64_t of_one = tiling::MostSumBlocks(sequence.sk, kPartsPerRank * call.ranks(), call.problem.group());
      blocks = core::SaturatedSum(blocks, core::SaturatedProduct(schedules, of_one));
    }
  }
  if (pairs <= kMostPairs && blocks <= kMostBlocks) return Status::Ok();
  const bool of_pairs = pairs > kMostPairs;
  return Status::OutOfMemory("the schedule of " + std::to_string(sequences) + " sequences over " +
                             std::to_string(call.ranks()) + " ranks: " + std::to_string(of_pairs ? pairs : blocks) +
                             (of_pairs ? " pairs of ranks" : " blocks of sums") + ", want at most " +
                             std::to_string(of_pairs ? kMostPairs : kMostBlocks));
}

double FullPairs(const tiling::AttentionProblem& problem) {
  double pairs = 0;
  for (const tiling::Sequence& sequence : problem.sequences) {
    pairs += static_cast<double>(sequence.sq) * static_cast<double>(sequence.sk);
  }
  return pairs * static_cast<double>(problem.heads);
}

/// Notes which form pse has, and whether the dense mask has one row per query. If pse or the mask has one row per
/// query, each rank must compute its own rows of queries.
void TakeScores(const ops::BoundAttention& bound, const AttentionOptions& options, ops::ScoreRows* scores) {
  if (bound.has_pse) {
    scores->pse_forms = bound.pse.compressed    ? ops::kCompressed
                        : bound.pse.shared_rows ? ops::kSharedRow
                                                : ops::kOwnRows;
  }
  scores->own_mask_rows = bound.has_dense_mask && options.layout != Layout::kTND;
}

/// Refuses the 1024-row form of pse if every rank holds 1024 rows. In a run, a rank tells the forms apart by their
/// numbers of rows. So the ranks would take a pse of this form for the rows of their own queries.
Status CheckForm(const ops::ScoreRows& scores, Layout layout, const tiling::RowShards& q) {
  if (scores.pse_forms != ops::kCompressed || layout == Layout::kTND) return Status::Ok();
  for (int rank = 0; rank < q.ranks(); ++rank) {
    if (q.Count(rank) != ops::kCompressedRows) return Status::Ok();
  }
  return Status::InvalidArgument(
      ops::Arg("pse").Says("the 1024-row form is not taken where every rank holds 1024 rows, want another cut"));
}

/// Makes the schedule of a call.
/// @param bind  bind(call, scores) binds the whole call; it sets the members of `call` that do not depend on the cut
template <typename Args, typename Bind>
Result<RankSchedule> Schedule(const char* op, const Args& whole, const AttentionOptions& options,
                              const SequenceShards& shards, const RankMachines& machines, Context* own,
                              const Bind& bind) {
  return core::GuardedCall("the schedule", [&]() -> Result<RankSchedule> {
    const Context& context = own != nullptr ? *own : Context::Default();
    FA_RETURN_IF_ERROR(core::ImplOf(context).status());
    FA_RETURN_IF_ERROR(CheckMachines(machines));
    RankCall bound;
    ops::ScoreRows scores;
    FA_RETURN_IF_ERROR(bind(bound, scores));
    FA_RETURN_IF_ERROR(ops::CheckTaken(whole.drop_mask, whole.pair_mask, whole.sink));
    const int axis = layout::AxesOf(options.layout).seq;
    auto cut = CutCall(shards, whole.q.shape[axis], whole.k.shape[axis], machines.ranks);
    if (!cut.ok()) return cut.status();
    const auto strategy = StrategyWith(scores, cut->strategy);
    if (!strategy.ok()) return strategy.status();
    FA_RETURN_IF_ERROR(CheckForm(scores, options.layout, cut->q));
    bound.q = std::move(cut->q);
    bound.k = std::move(cut->k);
    bound.strategy = *strategy;
    bound.rows_may_move = !scores.rows_stay();
    bound.heads_in_flight = cut->heads_in_flight;
    bound.packed = options.layout == Layout::kTND;
    UseMachines(machines, context, bound);
    FA_RETURN_IF_ERROR(CheckLength(bound));
    bound.memory_bytes = core::MemoryBytes();
    RankPlan plan;
    try {
      plan = MakeRankPlan(bound);
    } catch (const tiling::PlanTooLarge& error) {
      return Status::OutOfMemory(error.what());
    }
    const tiling::AttentionProblem& problem = bound.problem;
    const double flops_of_pair = bound.backward ? tiling::BackwardFlopsPerPair(problem)
                                                : 2 * static_cast<double>(problem.d + problem.d_rope + problem.dv);
    const core::TaskGraph graph = GraphOf(bound, plan);
    return Tell(bound, plan,
                FactsOf(op, {.isa = context.isa()}, bound, plan, graph, flops_of_pair * FullPairs(problem)));
  });
}

}  // namespace

Result<RankSchedule> ScheduleFlashAttention(const AttentionArgs& whole, const AttentionOptions& options,
                                            const SequenceShards& shards, const RankMachines& machines,
                                            Context* context) {
  return Schedule("forward", whole, options, shards, machines, context, [&](RankCall& call, ops::ScoreRows& scores) {
    auto bound = ops::BindAttention(whole, options);
    if (!bound.ok()) return bound.status();
    TakeScores(*bound, options, &scores);
    call.statistics = int64_t{bound->has_max} + int64_t{bound->has_sum} + int64_t{bound->has_lse};
    call.problem = std::move(bound->problem);
    return Status::Ok();
  });
}

Result<RankSchedule> ScheduleFlashAttentionGrad(const AttentionGradArgs& whole, const AttentionOptions& options,
                                                const SequenceShards& shards, const RankMachines& machines,
                                                Context* context) {
  return Schedule("backward", whole, options, shards, machines, context, [&](RankCall& call, ops::ScoreRows& scores) {
    auto bound = ops::BindAttentionGrad(whole, options);
    if (!bound.ok()) return bound.status();
    TakeScores(bound->forward, options, &scores);
    call.backward = true;
    call.key_bias = bound->has_dpse && bound->dpse.shared_rows;
    call.problem = std::move(bound->forward.problem);
    call.parameter_floats = tiling::ParameterFloats(bound->has_dsink, bound->has_dslopes, bound->dslopes_shared,
                                                    std::ssize(call.problem.sequences));
    return Status::Ok();
  });
}

}  // namespace fa
