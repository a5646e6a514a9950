#ifndef FA_RANKS_PLAN_RANK_PLAN_H_
#define FA_RANKS_PLAN_RANK_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "fa/sequence_shards.h"
#include "ranks/plan/row_shards.h"
#include "ranks/plan/sequence_part.h"
#include "ranks/plan/sum_schedule.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// Half of the multiply-adds of a 2 GHz core. It serves a prediction that compares strategies, and is no promise.
/// @return FLOP/s
[[nodiscard]] double FlopsPerWorker(Isa isa, DType dtype);

/// Cuts of an axis at multiples of this number do not change the bits. Pairs of rows (bf16) and the deepest register
/// blocks of any level (32 rows) stay together. A tile of rows begins where a tile begins in one process.
inline constexpr int64_t kRowUnit = 128;

/// The link of each rank to all others.
struct Network {
  double bytes_per_s = 12.5e9;
  double latency_s = 5e-6;  ///< per message
};

/// One attention call over ranks as its planner sees it.
struct RankCall {
  AttentionProblem problem;  ///< the whole call
  bool packed = false;       ///< TND: sequences follow each other on one axis; otherwise each is one batch element
  RowShards q, k;
  bool backward = false;
  /// Backward with dsink or dslopes: floats per head that every rank tells all others at the end. 0: none.
  int64_t parameter_floats = 0;
  bool key_bias = false;    ///< backward: there is a gradient of a bias that has one row for all queries
  int64_t summed_rows = 1;  ///< backward: rows, from a sequence's first on, whose products are added at once
  /// Backward: whether another rank can compute a rank's rows, because no bias and no mask has rows of its own on each
  /// rank.
  bool rows_may_move = false;
  int64_t statistics = 0;  ///< statistics per row that a forward writes
  SequenceShards::Strategy strategy = SequenceShards::Strategy::kAuto;
  int64_t heads_in_flight = 0;     ///< 0: the plan chooses
  int workers = 1;                 ///< threads per rank
  double flops_per_worker = 64e9;  ///< per second, in products
  Network network;
  int64_t memory_bytes = int64_t{1} << 47;  ///< memory that a rank's plan may take; the same on every rank

  [[nodiscard]] int ranks() const { return q.ranks(); }
};

enum class RowAxis : uint8_t {
  kQuery,
  kKey,
  kEveryKey,  ///< all keys, which go to every rank
};

/// What all ranks work on at one time: one batch element (TND: the pack) and some kv heads.
struct RankUnit {
  Interval sequences;           ///< sequences of the problem
  std::vector<Interval> heads;  ///< per rank, the kv heads that it computes; may be empty
  /// Backward whose rows stay: the schedule of its sums, shared by units with equal schedules.
  std::shared_ptr<const SumSchedule> sums = {};
};

/// Units whose rows and sums have room at one time: one unit is computed while the next one arrives.
inline constexpr int kUnitsInFlight = 2;

/// A call over ranks as plain data, the same on every rank: a pure function of the call.
struct RankPlan {
  SequenceShards::Strategy strategy = SequenceShards::Strategy::kSequence;
  int64_t heads_in_flight = 1;  ///< most kv heads per unit and rank
  std::vector<RankUnit> units;  ///< the units in their order
  bool as_one_process = true;   ///< the cut is at multiples of kRowUnit, never between rows that are summed at once
  /// If rows stay, the rows that each rank computes, which are the rows that it holds. In a packed backward, rows that
  /// are summed at once go to the rank that holds the first of them, if they may move.
  RowShards q;
  int64_t moved_rows = 0;           ///< rows that a rank computes for another (see ComputesCopies)
  std::vector<int64_t> sent_bytes;  ///< per rank, for one run, without what a rank keeps for itself
  std::vector<int64_t> received_bytes;
  std::vector<int64_t> staged_bytes;  ///< per rank: K and V (also Q and O with kHeads) of the units in flight
  std::vector<double> flops;          ///< per rank
  std::vector<double> product_seconds, message_seconds, end_seconds;  ///< per rank, predicted; messages may overlap
  double seconds = 0;                                                 ///< predicted time of the whole run
  double efficiency = 1;                                              ///< share of products in the time of all ranks
  double hidden = 1;  ///< share of the time of messages that passes during products
};

/// RankCall::parameter_floats: one for dsink and one for dslopes. If the batch does not share slopes, dslopes has one
/// per sequence.
[[nodiscard]] constexpr int64_t ParameterFloats(bool dsink, bool dslopes, bool shared, int64_t sequences) {
  if (!dsink && !dslopes) return 0;
  return 1 + (!dslopes ? 0 : shared ? 1 : sequences);
}

/// The rows of an axis that belong to the unit's sequences.
[[nodiscard]] Interval AxisOf(const RankCall& call, const RankUnit& unit, RowAxis axis);

/// Rows of an axis that `rank` computes with in a unit, ascending. All ranks send it these rows.
[[nodiscard]] std::vector<Interval> NeededRows(const RankCall& call, const RankPlan& plan, const RankUnit& unit,
                                               int rank, RowAxis axis);

/// If rows stay: rows of the key axis whose gradients `rank` finishes, ascending. With rank -1: the keys that no row
/// keeps.
[[nodiscard]] std::vector<Interval> FinishedKeys(const RankCall& call, const RankUnit& unit, int rank);

/// Rows that one rank holds and another computes, with their place on either.
struct MovedRows {
  std::vector<PlacedRows> held, computed;  ///< the same rows in the same order
};
/// If rows stay: the rows of sequences that `from` holds and `to` computes.
[[nodiscard]] MovedRows RowsBetween(const RankCall& call, const RankPlan& plan, int from, int to);

/// If rows stay: whether the query rows that `rank` computes (RankPlan::q) differ from those that it holds, or lie in
/// another order. It then computes on copies. Otherwise none of its rows goes to another rank, and none arrives.
[[nodiscard]] bool ComputesCopies(const RankCall& call, const RankPlan& plan, int rank);

/// The parts of sequences whose rows `rank` computes in a unit. Their `at` counts in RankPlan::q (kSequence), or in
/// staged rows of the whole unit (kHeads). A backward has sequences without rows too, because their keys have
/// gradients.
[[nodiscard]] std::vector<RowPart> ComputedParts(const RankCall& call, const RankPlan& plan, const RankUnit& unit,
                                                 int rank);

/// If `call.strategy` is kHeads and there are fewer kv heads than ranks, some ranks have no work.
/// @throws PlanTooLarge  if units, sums or bytes exceed what a plan can have
[[nodiscard]] RankPlan MakeRankPlan(const RankCall& call);

[[nodiscard]] const char* Name(SequenceShards::Strategy strategy);

/// Bytes of a head's sums of dsink and dslopes up to now, which pass from rank to rank if rows stay.
inline constexpr int64_t kParameterSumBytes = 3 * sizeof(double);

}  // namespace fa::tiling

#endif  // FA_RANKS_PLAN_RANK_PLAN_H_
