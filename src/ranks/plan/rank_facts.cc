#include "ranks/plan/rank_facts.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "tiling/plan_text.h"

namespace fa::tiling {
namespace {

/// Adds tiles to the picture of a plan. The tiles show which rows each rank computes in a unit, and the keys of these
/// rows. The rows are cut into pieces, since each piece has its own keys.
void AddTiles(const RankCall& call, const RankPlan& plan, const RankUnit& unit, std::vector<PlanTile>& tiles) {
  constexpr int kMostPieces = 16, kPiecesOfAll = 256;  // more pieces than these would be too small to see
  constexpr int64_t kMostTiles = int64_t{1} << 20;     // after this number of tiles, further units are left out
  const int64_t pieces = std::clamp(kPiecesOfAll / call.ranks(), 1, kMostPieces);
  const AttentionProblem& problem = call.problem;
  if (std::ssize(tiles) > kMostTiles) return;
  for (int rank = 0; rank < call.ranks(); ++rank) {
    Interval heads = unit.heads[static_cast<size_t>(rank)];
    // With kSequence all units have the same rows, so one unit stands for all heads.
    if (plan.strategy == SequenceShards::Strategy::kSequence) heads = {0, problem.heads_kv};
    for (const RowPart& part : ComputedParts(call, plan, unit, rank)) {
      const Sequence& sequence = problem.sequences[static_cast<size_t>(part.sequence)];
      const Interval rows = part.placed.rows;
      for (int64_t piece = 0; piece < pieces; ++piece) {
        const Interval of_piece{rows.begin + rows.size() * piece / pieces,
                                rows.begin + rows.size() * (piece + 1) / pieces};
        if (of_piece.empty()) continue;
        const Interval keys = sequence.rule.KeysOfRows(of_piece);
        tiles.push_back({.batch = part.sequence,
                         .head_kv = heads.begin,
                         .head_begin = heads.begin * problem.group(),
                         .head_end = heads.end * problem.group(),
                         .row_begin = of_piece.begin,
                         .row_end = of_piece.end,
                         .key_begin = keys.begin,
                         .key_end = keys.end,
                         .cost = sequence.rule.KeptPairs(of_piece),
                         .worker = rank});
      }
    }
  }
}

std::vector<PlanTile> TilesOf(const RankCall& call, const RankPlan& plan) {
  std::vector<PlanTile> tiles;
  const RankUnit* drawn = nullptr;
  for (const RankUnit& unit : plan.units) {
    const bool as_before =
        plan.strategy == SequenceShards::Strategy::kSequence && drawn != nullptr && drawn->sequences == unit.sequences;
    if (!as_before) AddTiles(call, plan, unit, tiles);
    drawn = &unit;
  }
  return tiles;
}

double MiB(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

core::TaskGraph GraphOf(const RankCall& call, const RankPlan& plan) {
  core::TaskGraph graph;
  graph.task_count = static_cast<int32_t>(std::ssize(plan.units));
  graph.range_begin.assign(static_cast<size_t>(call.ranks()) + 1, 0);
  return graph;
}

PlanFacts FactsOf(const char* op, const Machine& machine, const RankCall& call, const RankPlan& plan,
                  const core::TaskGraph& graph, double flops_full) {
  PlanFacts facts{.op = op,
                  .machine = machine,
                  .kernels = {},
                  .reason = {},
                  .graph = graph,
                  .load = {},
                  .problem = {},
                  .tasks = {},
                  .loads = {},
                  .tiles = [&call, &plan] { return TilesOf(call, plan); }};
  facts.flops = facts.flops_visited = std::accumulate(plan.flops.begin(), plan.flops.end(), 0.0);
  facts.flops_full = flops_full;
  facts.efficiency = plan.efficiency;
  for (const double seconds : plan.product_seconds) {
    facts.load.push_back(plan.seconds > 0 ? seconds / plan.seconds : 0);
  }
  return facts;
}

RanksInfo InfoOfRanks(const RankPlan& plan) {
  return {.strategy = Name(plan.strategy),
          .as_one_process = plan.as_one_process,
          .units = std::ssize(plan.units),
          .heads_in_flight = plan.heads_in_flight,
          .sent_bytes = plan.sent_bytes,
          .received_bytes = plan.received_bytes,
          .staged_bytes = plan.staged_bytes,
          .seconds = plan.seconds,
          .efficiency = plan.efficiency,
          .hidden = plan.hidden};
}

std::string DescribeRank(const RankPlan& plan, int rank) {
  const auto of = [rank](const std::vector<int64_t>& bytes) { return Wide(bytes[static_cast<size_t>(rank)]); };
  PlanText text;
  text.AddLine("this rank: %lld bytes sent, %lld bytes received, %lld bytes staged", of(plan.sent_bytes),
               of(plan.received_bytes), of(plan.staged_bytes));
  return text.Take();
}

std::string DescribeRanks(const RankCall& call, const RankPlan& plan) {
  const auto most = [](const auto& of_ranks) { return *std::max_element(of_ranks.begin(), of_ranks.end()); };
  PlanText text;
  text.AddLine("ranks: %d, strategy %s, %lld units of up to %lld kv heads per rank", call.ranks(), Name(plan.strategy),
               Count(plan.units.size()), Wide(plan.heads_in_flight));
  text.AddLine("bits: %s (row unit %lld)", plan.as_one_process ? "as one process" : "of this cut", Wide(kRowUnit));
  if (plan.moved_rows > 0) {
    text.AddLine("%lld query rows are computed by the rank of the rows before them, with which they are summed at once",
                 Wide(plan.moved_rows));
  }
  const double total = std::accumulate(plan.flops.begin(), plan.flops.end(), 0.0);
  text.AddLine("most per rank: %.1f MiB sent, %.1f MiB received, %.1f MiB staged, %.3g of %.3g GFLOP",
               MiB(most(plan.sent_bytes)), MiB(most(plan.received_bytes)), MiB(most(plan.staged_bytes)),
               most(plan.flops) / 1e9, total / 1e9);
  text.AddLine(
      "predicted: %.3g s with %d threads per rank at %.3g GFLOP/s each, network %.3g GB/s, %.3g us; "
      "efficiency %.1f %%, messages hidden %.0f %%",
      plan.seconds, call.workers, call.flops_per_worker / 1e9, call.network.bytes_per_s / 1e9,
      call.network.latency_s * 1e6, 100 * plan.efficiency, 100 * plan.hidden);
  return text.Take();
}

std::string DescribeSchedule(const char* op, Isa isa, const RankCall& call, const RankPlan& plan) {
  constexpr int kListed = 16;
  PlanText text;
  text.AddLine("%s over ranks, %s", op, Name(isa));
  text.Add(DescribeRanks(call, plan));
  for (int rank = 0; rank < std::min(call.ranks(), kListed); ++rank) {
    const auto r = static_cast<size_t>(rank);
    text.Add("rank " + std::to_string(rank) + ": rows");
    for (const PlacedRows& run : call.q.Of(rank)) {
      text.Add(" " + std::to_string(run.rows.begin) + "-" + std::to_string(run.rows.end));
    }
    if (call.q.Of(rank).empty()) text.Add(" none");
    text.AddLine("; %.1f MiB sent, %.1f MiB received; products %.3g s, messages %.3g s", MiB(plan.sent_bytes[r]),
                 MiB(plan.received_bytes[r]), plan.product_seconds[r], plan.message_seconds[r]);
  }
  if (call.ranks() > kListed) text.AddLine("and %d more ranks", call.ranks() - kListed);
  return text.Take();
}

}  // namespace fa::tiling
