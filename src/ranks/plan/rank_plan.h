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

/// Returns the FLOPs per second that a plan assumes for one worker. The result is half of the peak rate of a 2 GHz
/// core. The number serves only to compare the predicted times of strategies.
/// @return FLOP/s
[[nodiscard]] double FlopsPerWorker(Isa isa, DType dtype);

/// Cutting an axis at multiples of this number does not change the bits of the results. Such a cut separates no pair of
/// rows (bf16) and no register block (at most 32 rows). In one process, a tile of rows also begins at each multiple.
inline constexpr int64_t kRowUnit = 128;

/// Every rank's connection to the other ranks.
struct Network {
  double bytes_per_s = 12.5e9;
  double latency_s = 5e-6;  ///< time that a message takes on top of the time for its bytes
};

/// One attention call over ranks, as the planner sees the call.
struct RankCall {
  AttentionProblem problem;  ///< the whole call
  bool packed = false;  ///< TND: sequences follow each other on one axis; otherwise each sequence is one batch element
  RowShards q, k;
  bool backward = false;
  /// Backward: the floats of dsink and dslopes per head that every rank sends to all others at the end; 0 without dsink
  /// and dslopes.
  int64_t parameter_floats = 0;
  bool key_bias = false;    ///< backward: whether a bias with one row for all queries has a gradient
  int64_t summed_rows = 1;  ///< backward: how many rows one instruction sums (RowsSummedAtOnce)
  /// Backward: whether a rank can compute rows of another rank. No rank can if each rank has only its own rows of pse
  /// or of the mask.
  bool rows_may_move = false;
  int64_t statistics = 0;  ///< number of statistics per row that a forward writes
  SequenceShards::Strategy strategy = SequenceShards::Strategy::kAuto;
  int64_t heads_in_flight = 0;     ///< kv heads that a rank works on at a time; 0: the plan chooses
  int workers = 1;                 ///< threads per rank
  double flops_per_worker = 64e9;  ///< FLOPs per second of one worker
  Network network;
  int64_t memory_bytes = int64_t{1} << 47;  ///< memory that a rank's plan may take; the same on every rank

  [[nodiscard]] int ranks() const { return q.ranks(); }
};

enum class RowAxis : uint8_t {
  kQuery,
  kKey,
  kEveryKey,  ///< all keys, which go to every rank
};

/// What the ranks compute between two exchanges of rows: some kv heads of one batch element, or, with TND, of all
/// sequences.
struct RankUnit {
  Interval sequences;           ///< the unit's sequences, as numbers of the problem's sequences
  std::vector<Interval> heads;  ///< for each rank: the kv heads that it computes; may be empty
  /// Backward with kSequence: the schedule of the sums. Units with equal schedules share it.
  std::shared_ptr<const SumSchedule> sums = {};
};

/// There is memory for the rows and sums of this number of units: one unit is computed while the rows of the next
/// arrive.
inline constexpr int kUnitsInFlight = 2;

/// The plan of a call over ranks, as plain data. A plan is a pure function of the call, so it is the same on every
/// rank.
struct RankPlan {
  SequenceShards::Strategy strategy = SequenceShards::Strategy::kSequence;
  int64_t heads_in_flight = 1;  ///< the largest number of kv heads per unit and rank
  std::vector<RankUnit> units;  ///< the units in their order
  /// Whether the results have the bits of one process. Cuts must lie at multiples of kRowUnit, and one rank must
  /// compute all rows that one instruction sums.
  bool as_one_process = true;
  /// With kSequence, the query rows that each rank computes: usually the rows that the rank holds. If rows may move in
  /// a packed backward, all rows that one instruction sums are computed by the rank that holds the first of them.
  RowShards q;
  int64_t moved_rows = 0;  ///< number of rows that a rank computes for another rank (see ComputesCopies)
  /// For each rank, the bytes that it sends and receives in one run. Bytes that a rank keeps for itself do not count.
  std::vector<int64_t> sent_bytes;
  std::vector<int64_t> received_bytes;
  std::vector<int64_t> staged_bytes;  ///< for each rank: bytes of K and V (kHeads: also Q and O) for the units in
                                      ///< flight
  std::vector<double> flops;          ///< FLOPs of each rank
  /// The predicted times of each rank. Messages and products may overlap.
  std::vector<double> product_seconds, message_seconds, end_seconds;
  double seconds = 0;     ///< predicted time of the whole run
  double efficiency = 1;  ///< time of all ranks in matrix products, as a fraction of `seconds` times ranks
  double hidden = 1;      ///< fraction of the messages' time during which matrix products are computed
};

/// Returns RankCall::parameter_floats. dsink takes one float, even if only dslopes is wanted. dslopes takes one float,
/// or one float per sequence if the batch does not share the slopes.
[[nodiscard]] constexpr int64_t ParameterFloats(bool dsink, bool dslopes, bool shared, int64_t sequences) {
  if (!dsink && !dslopes) return 0;
  return 1 + (!dslopes ? 0 : shared ? 1 : sequences);
}

/// Returns the rows of an axis that belong to the unit's sequences.
[[nodiscard]] Interval AxisOf(const RankCall& call, const RankUnit& unit, RowAxis axis);

/// Returns the rows of an axis that are staged on `rank` for a unit, ascending. The ranks that hold these rows send
/// them.
[[nodiscard]] std::vector<Interval> NeededRows(const RankCall& call, const RankPlan& plan, const RankUnit& unit,
                                               int rank, RowAxis axis);

/// With kSequence, returns the keys whose gradients `rank` completes, as rows of the key axis, ascending. For rank -1,
/// returns the keys that no row keeps.
[[nodiscard]] std::vector<Interval> FinishedKeys(const RankCall& call, const RankUnit& unit, int rank);

/// Rows that one rank holds and another rank computes, with their places on both ranks.
struct MovedRows {
  std::vector<PlacedRows> held, computed;  ///< `held` and `computed` list the same rows in the same order
};
/// With kSequence, returns the query rows that rank `from` holds and rank `to` computes.
[[nodiscard]] MovedRows RowsBetween(const RankCall& call, const RankPlan& plan, int from, int to);

/// With kSequence, returns whether the query rows that `rank` computes (RankPlan::q) differ from the rows that it
/// holds, or have another order. If so, the rank computes on copies. If not, it sends no query rows and gets none.
[[nodiscard]] bool ComputesCopies(const RankCall& call, const RankPlan& plan, int rank);

/// Returns the parts of sequences whose rows `rank` computes in a unit. placed.at is a position in the rows of
/// RankPlan::q (kSequence) or in the staged rows of the unit (kHeads). In a backward, the result also has the sequences
/// without rows, because their keys have gradients.
[[nodiscard]] std::vector<RowPart> ComputedParts(const RankCall& call, const RankPlan& plan, const RankUnit& unit,
                                                 int rank);

/// Makes the plan of a call. If `call.strategy` is kHeads and there are fewer kv heads than ranks, some ranks have no
/// work.
/// @throws PlanTooLarge  if the call needs too many units, too many blocks or chunks of sums, or too many bytes
[[nodiscard]] RankPlan MakeRankPlan(const RankCall& call);

[[nodiscard]] const char* Name(SequenceShards::Strategy strategy);

/// The bytes of one head's unfinished sums for dsink and dslopes (ParameterSums::Chain). With kSequence the sums pass
/// from rank to rank.
inline constexpr int64_t kParameterSumBytes = 3 * sizeof(double);

}  // namespace fa::tiling

#endif  // FA_RANKS_PLAN_RANK_PLAN_H_
