#ifndef FA_RANKS_CALL_BIND_RANKS_H_
#define FA_RANKS_CALL_BIND_RANKS_H_

#include <cstdint>
#include <vector>

#include "fa/flash_attention.h"
#include "fa/sequence_shards.h"
#include "ops/bind/bind_attention.h"
#include "ranks/call/agreement.h"
#include "ranks/call/score_rows.h"
#include "ranks/plan/rank_plan.h"
#include "ranks/rows/unit_messages.h"

namespace fa::ops {

/// A dense call over ranks, bound on one rank.
struct BoundRanks {
  /// The whole call, with its sequences, rules and offsets of dropout. Strides and planned tensors belong to this
  /// rank's own tensors.
  BoundAttention whole;
  tiling::RankCall call;
  int rank = 0;
  ScoreRows scores;
  std::vector<tiling::Interval> tails;  ///< TND: own rows that belong to no sequence, as rows of this rank's tensors
};

/// Finds the errors of this rank's arguments.
[[nodiscard]] Result<BoundRanks> BindRanks(const AttentionArgs& args, const AttentionOptions& options,
                                           const SequenceShards& shards, int rank, int ranks);

/// Describes what ranks must agree about.
[[nodiscard]] CallDescription Describe(const BoundRanks& bound, const AttentionOptions& options,
                                       const SequenceShards& shards);

[[nodiscard]] inline tiling::RankCall& CallOf(BoundRanks& bound) { return bound.call; }
[[nodiscard]] inline uint32_t FormsOf(const BoundRanks& bound) { return bound.scores.pse_forms; }
/// Decides how pse is read, and with it the strategy. @param forms  forms that the sizes of all ranks allow
[[nodiscard]] Status UseForms(uint32_t forms, BoundRanks& bound);

/// The work of `rank` in a unit, as a call by itself. Its sequences are parts of rows, its heads are the unit's heads,
/// and its tensors belong to one batch element. K and V lie where `keys` says, head after head. If `queries` is given,
/// Q and the outputs lie where `queries` says.
[[nodiscard]] BoundAttention BoundOfUnit(const BoundRanks& bound, const tiling::RankPlan& plan,
                                         const tiling::RankUnit& unit, const StagedRows& keys,
                                         const StagedRows* queries);

}  // namespace fa::ops

#endif  // FA_RANKS_CALL_BIND_RANKS_H_
