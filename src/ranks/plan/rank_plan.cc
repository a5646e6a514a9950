#include "ranks/plan/rank_plan.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "core/integer.h"
#include "core/saturating.h"
#include "tiling/backward/backward_tiles.h"
#include "tiling/plan_limits.h"

namespace fa::tiling {
namespace {

using Strategy = SequenceShards::Strategy;

// These limits decide how many heads in flight a plan chooses for a backward. With more heads, ranks wait less, but use
// more memory. So the plan stops adding heads at kGoodEfficiency, or if more heads save less than 1 % of the time
// (kWorthwhile).
constexpr double kGoodEfficiency = 0.95, kWorthwhile = 1.01;

// The memory per worker that the heads in flight may take if the plan chooses their number. Servers have at least 2 GiB
// per core; this is a quarter of that.
constexpr int64_t kChosenBytesPerWorker = int64_t{512} << 20;

// An estimate of the bytes that a unit takes on a rank, for its part of the call, its messages and its plan.
constexpr int64_t kUnitBytes = 4096;

// Bytes that are sent are counted in 64 bits.
constexpr double kMostBytes = 0x1p62;

/// Returns the kv heads of `rank`. Each rank gets a range of heads, and the ranges differ by at most one head.
Interval OwnHeads(int64_t heads_kv, int rank, int ranks) {
  return {heads_kv * rank / ranks, heads_kv * (rank + 1) / ranks};
}

/// Returns the largest number of kv heads that a rank computes.
int64_t MostHeads(const RankCall& call, Strategy strategy) {
  return strategy == Strategy::kHeads ? core::CeilDiv(call.problem.heads_kv, call.ranks()) : call.problem.heads_kv;
}

std::vector<RankUnit> MakeUnits(const RankCall& call, Strategy strategy, int64_t step) {
  const int64_t sequences = std::ssize(call.problem.sequences), heads_kv = call.problem.heads_kv;
  step = std::min(step, std::max<int64_t>(heads_kv, 1));
  const int64_t most_heads = MostHeads(call, strategy);
  const double wanted = static_cast<double>(call.packed ? std::min<int64_t>(sequences, 1) : sequences) *
                        static_cast<double>(core::CeilDiv(most_heads, step));
  const int64_t unit_bytes = kUnitBytes + call.ranks() * static_cast<int64_t>(sizeof(Interval));
  const auto most = static_cast<double>(call.memory_bytes / unit_bytes);
  if (wanted > most) throw PlanTooLarge("units of a call over ranks", wanted, most);
  std::vector<RankUnit> units;
  const auto add = [&](Interval of) {
    for (int64_t first = 0; first < most_heads; first += step) {
      RankUnit& unit = units.emplace_back();
      unit.sequences = of;
      for (int rank = 0; rank < call.ranks(); ++rank) {
        const Interval own =
            strategy == Strategy::kHeads ? OwnHeads(heads_kv, rank, call.ranks()) : Interval{0, heads_kv};
        unit.heads.push_back({std::min(own.begin + first, own.end), std::min(own.begin + first + step, own.end)});
      }
    }
  };
  if (call.packed) {
    if (sequences > 0) add({0, sequences});
  } else {
    for (int64_t s = 0; s < sequences; ++s) add({s, s + 1});
  }
  return units;
}

/// Bytes per row and kv head. Keys (K, V) and queries go to the rank that computes with them, and results go back. The
/// bytes of `every_key`, one gradient of a bias per key, go to all ranks.
struct RowBytes {
  int64_t key = 0, query = 0, key_back = 0, query_back = 0, every_key = 0;
};

RowBytes RowBytesOf(const RankCall& call) {
  const AttentionProblem& problem = call.problem;
  const auto element = static_cast<int64_t>(SizeOf(problem.dtype)), statistic = static_cast<int64_t>(sizeof(float));
  const int64_t scored = element * (problem.d + problem.d_rope), value = element * problem.dv;
  const auto of_group = [&](int64_t of_head) { return core::SaturatedProduct(of_head, problem.group()); };
  if (!call.backward) {
    return {
        .key = scored + value, .query = of_group(scored), .query_back = of_group(value + call.statistics * statistic)};
  }
  // A backward also sends `out`, d_out and two statistics, and gets dq, dk and dv back.
  return {.key = scored + value,
          .query = of_group(scored + 2 * value + 2 * statistic),
          .key_back = scored + value,
          .query_back = of_group(scored),
          .every_key = call.key_bias ? of_group(sizeof(float)) : 0};
}

/// Returns the bytes of sums that one rank sends to the next, per key and kv head: dK, dV, and the gradient of a bias.
/// The sums belong to one query head of the group at a time.
int64_t SumBytes(const RankCall& call) {
  const AttentionProblem& problem = call.problem;
  return static_cast<int64_t>(sizeof(float)) * (problem.d + problem.d_rope + problem.dv + int64_t{call.key_bias});
}

/// Checks an upper bound of the bytes that are sent. Every rank receives at most all rows and all keys. The sums of a
/// key pass through every part of the rows, once per query head of a group. A rank has up to two parts.
/// @throws PlanTooLarge  if the bytes that a rank sends, receives or stages in a run could exceed 64 bits
void CheckBytes(const RankCall& call) {
  const RowBytes of = RowBytesOf(call);
  const auto sums = call.backward ? static_cast<double>(SumBytes(call)) : 0;
  double rows = 0, keys = 0;
  for (const Sequence& sequence : call.problem.sequences) {
    rows += static_cast<double>(sequence.sq);
    keys += static_cast<double>(sequence.sk);
  }
  const double of_rows = rows * (static_cast<double>(of.query) + static_cast<double>(of.query_back));
  const double of_keys =
      keys * (static_cast<double>(of.key) + static_cast<double>(of.key_back) + static_cast<double>(of.every_key));
  const double of_sums = keys * sums * 2 * static_cast<double>(call.problem.group());
  const double wanted = static_cast<double>(kUnitsInFlight) * static_cast<double>(call.problem.heads_kv) *
                        static_cast<double>(call.ranks()) * (of_rows + of_keys + of_sums);
  if (wanted > kMostBytes) throw PlanTooLarge("bytes that travel between ranks", wanted, kMostBytes);
}

/// Returns the FLOPs per kept (query head, row, key).
double FlopsPerPair(const RankCall& call) {
  const AttentionProblem& problem = call.problem;
  return call.backward ? BackwardFlopsPerPair(problem)
                       : 2 * static_cast<double>(problem.d + problem.d_rope + problem.dv);
}

/// The work of one rank for one unit.
struct UnitWork {
  int64_t sent = 0, received = 0;            // bytes of rows that move before the products
  int64_t sent_back = 0, received_back = 0;  // bytes of results that move after the products
  int64_t messages = 0, messages_back = 0;
  int64_t staged = 0;
  double flops = 0;
};

SumCall SumsOf(const RankCall& call, const RankPlan& plan, const RankUnit& unit) {
  const int64_t heads = unit.heads.front().size();
  return {.sequences = call.problem.sequences,
          .of = unit.sequences,
          .q = plan.q,
          .group = call.problem.group(),
          .head_by_head = call.key_bias,
          .heads_kv = heads,
          .workers = call.workers,
          .pair_seconds = FlopsPerPair(call) / (call.flops_per_worker * call.workers),
          .key_seconds = static_cast<double>(heads * SumBytes(call)) / call.network.bytes_per_s,
          .message_seconds = call.network.latency_s,
          .memory_bytes = call.memory_bytes};
}

/// Makes the schedule of sums of each unit.
void ScheduleSums(const RankCall& call, RankPlan& plan) {
  const std::vector<Sequence>& sequences = call.problem.sequences;
  const RankUnit* made = nullptr;
  for (RankUnit& unit : plan.units) {
    const int64_t heads = unit.heads.front().size();
    const bool same = made != nullptr && !call.packed && made->heads.front().size() == heads &&
                      sequences[static_cast<size_t>(made->sequences.begin)].rule ==
                          sequences[static_cast<size_t>(unit.sequences.begin)].rule;
    if (same || (made != nullptr && made->sequences == unit.sequences && made->heads.front().size() == heads)) {
      unit.sums = made->sums;
      continue;
    }
    unit.sums = std::make_shared<const SumSchedule>(MakeSumSchedule(SumsOf(call, plan, unit)));
    made = &unit;
  }
}

/// Adds to `work` the bytes of the sums that go from rank to rank. Also adds the finished gradients of keys, which go
/// to the ranks that hold the keys.
void MeasureSums(const RankCall& call, const RankPlan& plan, const RankUnit& unit, std::vector<UnitWork>& work) {
  const int64_t heads = unit.heads.front().size();
  for (const SumBlock& block : unit.sums->blocks) {
    if (block.to < 0 || block.to == block.rank) continue;
    const SumChunk& chunk = unit.sums->chunks[static_cast<size_t>(block.chunk)];
    const int64_t bytes = heads * chunk.keys.size() * SumBytes(call);
    UnitWork &sender = work[static_cast<size_t>(block.rank)], &receiver = work[static_cast<size_t>(block.to)];
    sender.sent += bytes;
    receiver.received += bytes;
    ++receiver.messages;
  }
  for (int from = 0; from < call.ranks(); ++from) {
    UnitWork& sender = work[static_cast<size_t>(from)];
    const std::vector<Interval> finished = FinishedKeys(call, unit, from);
    const RowBytes of = RowBytesOf(call);
    const bool adds = !ComputedParts(call, plan, unit, from).empty();
    sender.staged += heads * RowsIn(finished) * (of.key_back + of.every_key);
    if (adds) sender.staged += heads * unit.sums->keys * SumBytes(call);
    for (int to = 0; to < call.ranks(); ++to) {
      if (to == from) continue;
      int64_t rows = 0;
      for (const PlacedRows& run : Within(call.k.Of(to), finished)) rows += run.rows.size();
      const int64_t bytes = heads * (rows * of.key_back + RowsIn(finished) * of.every_key);
      sender.sent_back += bytes;
      work[static_cast<size_t>(to)].received_back += bytes;
      work[static_cast<size_t>(to)].messages_back += bytes > 0 ? 1 : 0;
    }
  }
}

/// Returns the work of every rank in a unit.
std::vector<UnitWork> Measure(const RankCall& call, const RankPlan& plan, const RankUnit& unit) {
  const AttentionProblem& problem = call.problem;
  RowBytes bytes_of = RowBytesOf(call);
  const int64_t arriving = problem.heads_kv * bytes_of.every_key * AxisOf(call, unit, RowAxis::kKey).size();
  if (plan.strategy == Strategy::kSequence) bytes_of.key_back = bytes_of.every_key = 0;  // MeasureSums adds these bytes
  std::vector<UnitWork> work(static_cast<size_t>(call.ranks()));
  for (int to = 0; to < call.ranks(); ++to) {
    UnitWork& of_rank = work[static_cast<size_t>(to)];
    const int64_t heads = unit.heads[static_cast<size_t>(to)].size();
    const std::vector<Interval> keys = NeededRows(call, plan, unit, to, RowAxis::kKey);
    const std::vector<Interval> queries = NeededRows(call, plan, unit, to, RowAxis::kQuery);
    of_rank.staged += arriving + heads * (RowsIn(keys) * (bytes_of.key + bytes_of.key_back + bytes_of.every_key) +
                                          RowsIn(queries) * (bytes_of.query + bytes_of.query_back));
    for (const RowPart& part : ComputedParts(call, plan, unit, to)) {
      const Sequence& sequence = problem.sequences[static_cast<size_t>(part.sequence)];
      of_rank.flops += FlopsPerPair(call) * static_cast<double>(problem.group() * heads) *
                       static_cast<double>(sequence.rule.KeptPairs(part.placed.rows));
    }
    if (heads == 0) continue;
    for (int from = 0; from < call.ranks(); ++from) {
      if (from == to) continue;
      const auto rows_of = [&](const RowShards& shards, const std::vector<Interval>& wanted) {
        int64_t rows = 0;
        for (const PlacedRows& run : Within(shards.Of(from), wanted)) rows += run.rows.size();
        return rows;
      };
      UnitWork& sender = work[static_cast<size_t>(from)];
      const int64_t query_rows = rows_of(call.q, queries), key_rows = rows_of(call.k, keys);
      const int64_t bytes = heads * (key_rows * bytes_of.key + query_rows * bytes_of.query);
      const int64_t back =
          heads * (key_rows * bytes_of.key_back + query_rows * bytes_of.query_back + RowsIn(keys) * bytes_of.every_key);
      sender.sent += bytes;
      of_rank.received += bytes;
      of_rank.messages += bytes > 0 ? 1 : 0;
      of_rank.sent_back += back;
      sender.received_back += back;
      sender.messages_back += back > 0 ? 1 : 0;
    }
  }
  if (unit.sums != nullptr) MeasureSums(call, plan, unit, work);
  return work;
}

/// Returns whether two units have the same sequences, and on each rank the same number of heads.
bool SameWork(const RankUnit& a, const RankUnit& b) {
  return a.sequences == b.sequences &&
         std::equal(a.heads.begin(), a.heads.end(), b.heads.begin(), b.heads.end(),
                    [](const Interval& x, const Interval& y) { return x.size() == y.size(); });
}

/// Predicts when one rank ends its messages and products. The messages of a unit start after the previous unit's
/// messages, once the memory for their rows is free. The products of a unit start after its messages and after the
/// previous unit's products.
class TimeLine {
 public:
  explicit TimeLine(const RankCall& call) : call_(call) {}

  void Add(const UnitWork& work) {
    const auto on_wire = [&](int64_t sent, int64_t received, int64_t messages) {
      return static_cast<double>(std::max(sent, received)) / call_.network.bytes_per_s +
             static_cast<double>(messages) * call_.network.latency_s;
    };
    const double bring = on_wire(work.sent, work.received, work.messages);
    const double products = work.flops / (call_.flops_per_worker * call_.workers);
    const double back = on_wire(work.sent_back, work.received_back, work.messages_back);
    const double arrived = std::max(wire_, before_) + bring;
    before_ = computed_;
    computed_ = std::max(computed_, arrived) + products;
    wire_ = back > 0 ? std::max(arrived, computed_) + back : arrived;
    messages_ += bring + back;
    products_ += products;
  }
  [[nodiscard]] double end() const { return std::max(wire_, computed_); }
  [[nodiscard]] double products() const { return products_; }
  [[nodiscard]] double messages() const { return messages_; }

 private:
  const RankCall& call_;
  double wire_ = 0, computed_ = 0, before_ = 0;
  double messages_ = 0, products_ = 0;
};

/// Adds the bytes of the finished dsink and dslopes, which each rank sends to all others at the end.
void AddGatheredSums(const RankCall& call, RankPlan& plan) {
  const int64_t bytes = call.parameter_floats * call.problem.heads * static_cast<int64_t>(sizeof(float));
  for (auto* of_ranks : {&plan.sent_bytes, &plan.received_bytes}) {
    for (int64_t& of_rank : *of_ranks) of_rank += bytes * (call.ranks() - 1);
  }
}

/// Adds the bytes of the unfinished sums for dsink and dslopes, which pass from rank to rank before they are finished.
void AddChainsOfSums(const RankCall& call, RankPlan& plan) {
  int before = -1;
  for (int64_t s = 0; s < std::ssize(call.problem.sequences); ++s) {
    for (const RankPart& part : PartsOfAllRanks(call.problem.sequences, s, plan.q)) {
      const int rank = part.rank;
      if (before >= 0 && before != rank) {
        plan.sent_bytes[static_cast<size_t>(before)] += kParameterSumBytes * call.problem.heads;
        plan.received_bytes[static_cast<size_t>(rank)] += kParameterSumBytes * call.problem.heads;
      }
      before = rank;
    }
  }
}

bool CutsSummedRows(const RankCall& call) {
  if (!call.backward || !call.packed) return false;  // in other calls, cuts at multiples of kRowUnit cut no summed rows
  for (const Sequence& sequence : call.problem.sequences) {
    for (int rank = 0; rank < call.ranks(); ++rank) {
      for (const PlacedRows& placed : call.q.Of(rank)) {
        const int64_t row = placed.rows.begin - sequence.q_offset;
        if (row > 0 && row < sequence.sq && row % call.summed_rows != 0) return true;
      }
    }
  }
  return false;
}

/// Returns the first row >= `row` at which the axis may be cut without separating rows that one instruction sums.
int64_t BehindSummedRows(const RankCall& call, int64_t row) {
  const std::vector<Sequence>& sequences = call.problem.sequences;
  const auto behind = std::partition_point(sequences.begin(), sequences.end(),
                                           [row](const Sequence& sequence) { return sequence.q_offset < row; });
  if (behind == sequences.begin()) return row;
  const Sequence& sequence = *(behind - 1);
  if (row >= sequence.q_offset + sequence.sq) return row;
  return sequence.q_offset + std::min(core::RoundUp(row - sequence.q_offset, call.summed_rows), sequence.sq);
}

RowShards WholeSummedRows(const RankCall& call) {
  std::vector<std::vector<Interval>> intervals(static_cast<size_t>(call.ranks()));
  for (int rank = 0; rank < call.ranks(); ++rank) {
    for (const PlacedRows& run : call.q.Of(rank)) {
      intervals[static_cast<size_t>(rank)].push_back(
          {BehindSummedRows(call, run.rows.begin), BehindSummedRows(call, run.rows.end)});
    }
  }
  return {call.q.rows(), std::move(intervals)};
}

/// Adds the bytes of moved rows, and of their gradients, which go back. A rank that computes rows of other ranks also
/// gets memory for their copies.
void AddMovedRows(const RankCall& call, RankPlan& plan) {
  const RowBytes of = RowBytesOf(call);
  const int64_t heads = call.problem.heads_kv;
  for (int from = 0; from < call.ranks(); ++from) {
    if (!ComputesCopies(call, plan, from)) continue;
    const auto f = static_cast<size_t>(from);
    plan.staged_bytes[f] += heads * plan.q.Count(from) * (of.query + of.query_back);
    for (int to = 0; to < call.ranks(); ++to) {
      if (to == from) continue;
      const auto t = static_cast<size_t>(to);
      int64_t rows = 0;
      for (const PlacedRows& run : RowsBetween(call, plan, from, to).held) rows += run.rows.size();
      plan.moved_rows += rows;
      plan.sent_bytes[f] += heads * rows * of.query;
      plan.received_bytes[t] += heads * rows * of.query;
      plan.sent_bytes[t] += heads * rows * of.query_back;
      plan.received_bytes[f] += heads * rows * of.query_back;
    }
  }
}

RankPlan PlanHeads(const RankCall& call, Strategy strategy, int64_t heads_in_flight) {
  RankPlan plan;
  plan.strategy = strategy;
  plan.heads_in_flight = std::min(heads_in_flight, std::max<int64_t>(MostHeads(call, strategy), 1));
  plan.units = MakeUnits(call, strategy, heads_in_flight);
  const int64_t in_flight = std::min<int64_t>(std::ssize(plan.units), kUnitsInFlight);
  const bool aligned = call.q.Aligned(kRowUnit), parted = strategy == Strategy::kSequence && CutsSummedRows(call);
  const bool moves = aligned && parted && call.rows_may_move;
  plan.q = moves ? WholeSummedRows(call) : call.q;
  plan.as_one_process = aligned && (!parted || moves);
  if (call.backward && strategy == Strategy::kSequence) ScheduleSums(call, plan);
  const auto ranks = static_cast<size_t>(call.ranks());
  plan.sent_bytes.assign(ranks, 0);
  plan.received_bytes.assign(ranks, 0);
  plan.staged_bytes.assign(ranks, 0);
  plan.flops.assign(ranks, 0);
  std::vector<TimeLine> lines(ranks, TimeLine(call));
  std::vector<UnitWork> work;
  const RankUnit* measured = nullptr;
  for (const RankUnit& unit : plan.units) {
    if (measured == nullptr || !SameWork(*measured, unit)) work = Measure(call, plan, unit);
    measured = &unit;
    for (size_t rank = 0; rank < ranks; ++rank) {
      plan.sent_bytes[rank] += work[rank].sent + work[rank].sent_back;
      plan.received_bytes[rank] += work[rank].received + work[rank].received_back;
      plan.staged_bytes[rank] = std::max(plan.staged_bytes[rank], in_flight * work[rank].staged);
      plan.flops[rank] += work[rank].flops;
      lines[rank].Add(work[rank]);
    }
  }
  if (moves) AddMovedRows(call, plan);
  if (call.parameter_floats > 0) {
    AddGatheredSums(call, plan);
    if (strategy == Strategy::kSequence) AddChainsOfSums(call, plan);
  }
  double products = 0, messages = 0, waited = 0;
  for (const TimeLine& line : lines) {
    plan.seconds = std::max(plan.seconds, line.end());
    products += line.products();
    messages += line.messages();
    plan.product_seconds.push_back(line.products());
    plan.message_seconds.push_back(line.messages());
    plan.end_seconds.push_back(line.end());
    waited += line.end() - line.products();
  }
  if (!plan.units.empty() && plan.units.front().sums != nullptr) {
    // Ranks also wait for sums. The prediction takes every unit to be like the first, which is not exact: the last unit
    // may have fewer heads, and batch elements with other masks have other blocks.
    const RankUnit& unit = plan.units.front();
    const double seconds = PredictedSeconds(*unit.sums, SumsOf(call, plan, unit), std::ssize(plan.units));
    plan.seconds = std::max(plan.seconds, seconds);
  }
  if (plan.seconds > 0) plan.efficiency = products / (plan.seconds * static_cast<double>(ranks));
  if (messages > 0) plan.hidden = std::clamp(1 - waited / messages, 0.0, 1.0);
  return plan;
}

}  // namespace

double FlopsPerWorker(Isa isa, DType dtype) {
  const bool bf16 = dtype == DType::kBF16;
  double per_cycle = 4;  // the portable level, and levels that tests emulate
  if (Includes(isa, Isa::kAvx512Amx) && bf16) {
    per_cycle = 256;  // a quarter of the tile unit's rate, since its products wait for exponentials
  } else if (Includes(isa, Isa::kAvx512Bf16) && bf16) {
    per_cycle = 128;
  } else if (Includes(isa, Isa::kAvx512)) {
    per_cycle = 64;
  } else if (Includes(isa, Isa::kAvx2) || (Includes(isa, Isa::kNeonBf16) && bf16)) {
    per_cycle = 32;
  } else if (Includes(isa, Isa::kNeon)) {
    per_cycle = 16;
  }
  constexpr double kCyclesPerSecond = 2e9, kAttained = 0.5;
  return kAttained * per_cycle * kCyclesPerSecond;
}

Interval AxisOf(const RankCall& call, const RankUnit& unit, RowAxis axis) {
  const Sequence& first = call.problem.sequences[static_cast<size_t>(unit.sequences.begin)];
  const Sequence& last = call.problem.sequences[static_cast<size_t>(unit.sequences.end - 1)];
  return axis == RowAxis::kQuery ? Interval{first.q_offset, last.q_offset + last.sq}
                                 : Interval{first.k_offset, last.k_offset + last.sk};
}

std::vector<Interval> NeededRows(const RankCall& call, const RankPlan& plan, const RankUnit& unit, int rank,
                                 RowAxis axis) {
  if (unit.heads[static_cast<size_t>(rank)].empty()) return {};
  if (plan.strategy == Strategy::kHeads) return UnionOf({AxisOf(call, unit, axis)});
  if (axis == RowAxis::kQuery) return {};
  // Tiles of a backward copy whole columns of keys, so the keys are widened to whole columns.
  return KeysSeen(call.problem.sequences, ComputedParts(call, plan, unit, rank), call.backward ? kColumnKeys : 1);
}

MovedRows RowsBetween(const RankCall& call, const RankPlan& plan, int from, int to) {
  const std::vector<Sequence>& sequences = call.problem.sequences;
  if (sequences.empty()) return {};
  const Interval all{sequences.front().q_offset, sequences.back().q_offset + sequences.back().sq};
  MovedRows rows;
  for (const PlacedRows& held : Within(call.q.Of(from), {&all, 1})) {
    for (const PlacedRows& computed : plan.q.Of(to)) {
      const Interval both{std::max(held.rows.begin, computed.rows.begin), std::min(held.rows.end, computed.rows.end)};
      if (both.empty()) continue;
      rows.held.push_back({both, held.at + both.begin - held.rows.begin});
      rows.computed.push_back({both, computed.at + both.begin - computed.rows.begin});
    }
  }
  return rows;
}

bool ComputesCopies(const RankCall& call, const RankPlan& plan, int rank) {
  const std::span<const PlacedRows> held = call.q.Of(rank), computed = plan.q.Of(rank);
  return !std::equal(held.begin(), held.end(), computed.begin(), computed.end());
}

std::vector<Interval> FinishedKeys(const RankCall& call, const RankUnit& unit, int rank) {
  std::vector<Interval> keys;
  for (const SumChunk& chunk : unit.sums->chunks) {
    if (chunk.last != rank) continue;
    const int64_t offset = call.problem.sequences[static_cast<size_t>(unit.sequences.begin + chunk.sequence)].k_offset;
    keys.push_back({offset + chunk.keys.begin, offset + chunk.keys.end});
  }
  return UnionOf(std::move(keys));
}

std::vector<RowPart> ComputedParts(const RankCall& call, const RankPlan& plan, const RankUnit& unit, int rank) {
  if (unit.heads[static_cast<size_t>(rank)].empty()) return {};
  if (plan.strategy == Strategy::kSequence) return PartsOf(call.problem.sequences, unit.sequences, plan.q.Of(rank));
  const Interval all = AxisOf(call, unit, RowAxis::kQuery);
  std::vector<RowPart> whole;
  for (int64_t s = unit.sequences.begin; s < unit.sequences.end; ++s) {
    const Sequence& sequence = call.problem.sequences[static_cast<size_t>(s)];
    if (sequence.sq == 0 && !call.backward) continue;
    whole.push_back({s, {{0, sequence.sq}, sequence.q_offset - all.begin}});
  }
  return whole;
}

/// Returns the largest number of heads in flight that a plan tries: half of the call's kv heads, but at least one.
int64_t MostChosenHeads(const RankCall& call, Strategy strategy) {
  return std::min(MostHeads(call, strategy), core::CeilDiv(call.problem.heads_kv, int64_t{2}));
}

/// Makes a plan with the given strategy. In a forward no rank waits for another rank's products. So a forward computes
/// one kv head at a time unless the caller asks for more.
RankPlan PlanStrategy(const RankCall& call, Strategy strategy) {
  RankPlan best = PlanHeads(call, strategy, std::max<int64_t>(call.heads_in_flight, 1));
  if (!call.backward || call.heads_in_flight > 0) return best;
  const int64_t most_heads = MostChosenHeads(call, strategy), most_bytes = kChosenBytesPerWorker * call.workers;
  for (int64_t heads = 1; heads < most_heads && best.efficiency < kGoodEfficiency;) {
    heads = std::min(2 * heads, most_heads);
    RankPlan more;
    try {
      more = PlanHeads(call, strategy, heads);
    } catch (const PlanTooLarge&) {  // memory_bytes is the same on all ranks, so all ranks catch this or no rank does
      break;
    }
    if (*std::max_element(more.staged_bytes.begin(), more.staged_bytes.end()) > most_bytes) break;
    if (more.efficiency > kWorthwhile * best.efficiency) best = std::move(more);
  }
  return best;
}

RankPlan MakeRankPlan(const RankCall& call) {
  CheckBytes(call);
  if (call.strategy != Strategy::kAuto) return PlanStrategy(call, call.strategy);
  const bool enough_heads = call.problem.heads_kv >= call.ranks();
  std::optional<RankPlan> sequence;
  try {
    sequence = PlanStrategy(call, Strategy::kSequence);
  } catch (const PlanTooLarge&) {  // memory_bytes is the same on all ranks, so all ranks catch this or no rank does
    if (!enough_heads) throw;
  }
  if (!enough_heads) return *std::move(sequence);
  RankPlan heads = PlanStrategy(call, Strategy::kHeads);
  return !sequence.has_value() || heads.seconds < sequence->seconds ? heads : *std::move(sequence);
}

const char* Name(Strategy strategy) {
  switch (strategy) {
    case Strategy::kAuto: return "auto";
    case Strategy::kHeads: return "heads";
    case Strategy::kSequence: return "sequence";
  }
  return "";
}

}  // namespace fa::tiling
