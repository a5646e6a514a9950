#ifndef FA_TILING_RANKS_RANK_PLAN_H_
#define FA_TILING_RANKS_RANK_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "fa/sequence_shards.h"
#include "tiling/problem.h"
#include "tiling/ranks/row_shards.h"
#include "tiling/ranks/sequence_part.h"
#include "tiling/ranks/sum_schedule.h"

namespace fa::tiling {

/// Half of the multiply-adds of a core of 2 GHz: for a prediction that compares strategies, not for a promise.
/// @return FLOP/s
[[nodiscard]] double FlopsPerWorker(Isa isa, DType dtype);

/// The rows at whose multiples an axis may be cut without a change of the bits: pairs of rows (bf16) and the deepest
/// register blocks of any level (32 rows) stay together, and a tile of rows begins where one begins in one process.
inline constexpr int64_t kRowUnit = 128;

/// A link of each rank to all others.
struct Network {
  double bytes_per_s = 12.5e9;
  double latency_s = 5e-6;  ///< of one message
};

/// One attention call over ranks, as its planner sees it.
struct RankCall {
  AttentionProblem problem;  ///< of the whole call
  bool packed = false;       ///< TND: sequences follow each other on one axis; else each is a batch element of its own
  RowShards q, k;
  bool backward = false;
  /// Of a backward with dsink or dslopes: floats per head that every rank tells all others in the end. 0: none.
  int64_t parameter_floats = 0;
  bool key_bias = false;    ///< of a backward: the gradient of a bias that has one row for all queries
  int64_t summed_rows = 1;  ///< of a backward: rows of a sequence whose products are added at once, from its first on
  /// Of a backward: no bias and no mask has rows of its own on each rank, so others can compute a rank's rows.
  bool rows_may_move = false;
  int64_t statistics = 0;  ///< per row, of those that a forward writes
  SequenceShards::Strategy strategy = SequenceShards::Strategy::kAuto;
  int64_t heads_in_flight = 0;     ///< 0: chosen by the plan
  int workers = 1;                 ///< threads of a rank
  double flops_per_worker = 64e9;  ///< per second, in products
  Network network;
  int64_t memory_bytes = int64_t{1} << 47;  ///< that a rank's plan may take: the same on every rank

  [[nodiscard]] int ranks() const { return q.ranks(); }
};

enum class RowAxis : uint8_t {
  kQuery,
  kKey,
  kEveryKey,  ///< keys, of which every rank gets all
};

/// What all ranks work on at a time: one batch element (TND: the pack) and some heads.
struct RankUnit {
  Interval sequences;           ///< of the problem
  std::vector<Interval> heads;  ///< per rank: the kv heads that it computes; may be empty
  /// Of a backward whose rows stay; units with equal ones share it.
  std::shared_ptr<const SumSchedule> sums = {};
};

/// Units whose rows and sums have room at the same time: one is computed with, the next one arrives.
inline constexpr int kUnitsInFlight = 2;

/// A call over ranks as plain data, the same on every rank: a pure function of the call.
struct RankPlan {
  SequenceShards::Strategy strategy = SequenceShards::Strategy::kSequence;
  int64_t heads_in_flight = 1;  ///< kv heads of a unit, per rank, at most
  std::vector<RankUnit> units;  ///< in their order
  bool as_one_process = true;   ///< the cut is at multiples of kRowUnit, and no rows that are summed at once are parted
  /// The rows that each rank computes where rows stay: those that it holds. In a packed backward rows that are summed
  /// at once go to the rank that holds the first of them, if they may move.
  RowShards q;
  int64_t moved_rows = 0;           ///< that a rank computes for another (see ComputesCopies)
  std::vector<int64_t> sent_bytes;  ///< per rank, of one run, without what a rank keeps for itself
  std::vector<int64_t> received_bytes;
  std::vector<int64_t> staged_bytes;  ///< per rank: K and V (Q and O) of the units in flight
  std::vector<double> flops;          ///< per rank
  std::vector<double> product_seconds, message_seconds, end_seconds;  ///< per rank, predicted; messages may overlap
  double seconds = 0;                                                 ///< predicted, of the whole run
  double efficiency = 1;                                              ///< of all ranks' time, the share in products
  double hidden = 1;  ///< of the time that messages take, the share that passes during products
};

/// RankCall::parameter_floats: of dsink one, of dslopes one, or one per sequence where the batch does not share them.
[[nodiscard]] constexpr int64_t ParameterFloats(bool dsink, bool dslopes, bool shared, int64_t sequences) {
  if (!dsink && !dslopes) return 0;
  return 1 + (!dslopes ? 0 : shared ? 1 : sequences);
}

/// The rows of an axis that the sequences of a unit have.
[[nodiscard]] Interval AxisOf(const RankCall& call, const RankUnit& unit, RowAxis axis);

/// Rows of an axis that `rank` computes with in a unit and that all ranks therefore send it, ascending.
[[nodiscard]] std::vector<Interval> NeededRows(const RankCall& call, const RankPlan& plan, const RankUnit& unit,
                                               int rank, RowAxis axis);

/// Rows of the key axis whose gradients `rank` has in the end, ascending, where rows stay; rank -1: those that no row
/// keeps.
[[nodiscard]] std::vector<Interval> FinishedKeys(const RankCall& call, const RankUnit& unit, int rank);

/// Rows that one rank holds and one computes, where they lie on either.
struct MovedRows {
  std::vector<PlacedRows> held, computed;  ///< the same rows in the same order
};
/// The rows of sequences that `from` holds and `to` computes, where rows stay.
[[nodiscard]] MovedRows RowsBetween(const RankCall& call, const RankPlan& plan, int from, int to);

/// Whether the query rows that `rank` computes where rows stay (RankPlan::q) are others than those that it holds, or
/// lie in another order: it then computes on copies. If not, none of its rows goes to another rank and none comes.
[[nodiscard]] bool ComputesCopies(const RankCall& call, const RankPlan& plan, int rank);

/// The parts of sequences whose rows `rank` computes in a unit; `at`: among RankPlan::q (kSequence), or in staged rows
/// of the whole unit (kHeads). A backward has sequences without rows too: their keys have gradients.
[[nodiscard]] std::vector<RowPart> ComputedParts(const RankCall& call, const RankPlan& plan, const RankUnit& unit,
                                                 int rank);

/// `call.strategy` kHeads with fewer kv heads than ranks leaves ranks without work.
/// @throws PlanTooLarge  units, sums or bytes that no plan can have
[[nodiscard]] RankPlan MakeRankPlan(const RankCall& call);

[[nodiscard]] const char* Name(SequenceShards::Strategy strategy);

/// A head's sums of dsink and dslopes so far: with rows that stay, they pass from rank to rank.
inline constexpr int64_t kParameterSumBytes = 3 * sizeof(double);

}  // namespace fa::tiling

#endif  // FA_TILING_RANKS_RANK_PLAN_H_
