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
  /// The whole call, with its sequences, masks and dropout offsets. The strides and planned tensors belong to this
  /// rank's part.
  BoundAttention whole;
  tiling::RankCall call;
  int rank = 0;
  ScoreRows scores;
  std::vector<tiling::Interval> tails;  ///< TND: rows of this rank's tensors of queries that belong to no sequence
};

/// Binds this rank's arguments, or returns the first error in them.
[[nodiscard]] Result<BoundRanks> BindRanks(const AttentionArgs& args, const AttentionOptions& options,
                                           const SequenceShards& shards, int rank, int ranks);

/// Describes the properties of the call that must be equal on all ranks.
[[nodiscard]] CallDescription Describe(const BoundRanks& bound, const AttentionOptions& options,
                                       const SequenceShards& shards);

[[nodiscard]] inline tiling::RankCall& CallOf(BoundRanks& bound) { return bound.call; }
[[nodiscard]] inline uint32_t FormsOf(const BoundRanks& bound) { return bound.scores.pse_forms; }
/// Decides the form of pse (score_rows.h). Then decides the strategy, which is kSequence if the form or the mask makes
/// rows stay on their rank.
/// @param forms  forms of pse that the sizes on all ranks allow
[[nodiscard]] Status UseForms(uint32_t forms, BoundRanks& bound);

/// Returns what this rank computes in a unit, as a call of its own. The sequences of the result are the rank's parts of
/// the unit's sequences. The result has the unit's heads, and one batch element. K and V lie where `keys` says, head
/// after head. If `queries` is not null, Q and the outputs lie where `queries` says.
[[nodiscard]] BoundAttention BoundOfUnit(const BoundRanks& bound, const tiling::RankPlan& plan,
                                         const tiling::RankUnit& unit, const StagedRows& keys,
                                         const StagedRows* queries);

}  // namespace fa::ops

#endif  // FA_RANKS_CALL_BIND_RANKS_H_
