#ifndef FA_RANKS_CALL_BIND_GRAD_RANKS_H_
#define FA_RANKS_CALL_BIND_GRAD_RANKS_H_

#include <vector>

#include "fa/flash_attention_grad.h"
#include "fa/sequence_shards.h"
#include "ops/bind/bind_attention_grad.h"
#include "ranks/call/bind_ranks.h"

namespace fa::ops {

/// A dense backward over ranks, bound on one rank.
struct BoundGradRanks {
  BoundRanks forward;  ///< the call that is differentiated; forward.whole.planned has the tensors of the backward
  layout::Rows d_out, dq, dk, dv, dq_rope, dk_rope;  ///< layouts of this rank's tensors
  bool has_dpse = false, has_dslopes = false, has_dsink = false;
  PseRows dpse;  ///< layout of dpse on this rank: the rows of its own queries, or the sum over the rows of all ranks
  int64_t dslopes_batch_stride = 0;  ///< stride of dslopes from one batch element to the next, as in BoundAttentionGrad
  bool dslopes_shared = false;
  std::vector<tiling::Interval> key_tails;  ///< rows of this rank's K and V that belong to no sequence
};

/// Binds this rank's arguments, or returns the first error in them.
[[nodiscard]] Result<BoundGradRanks> BindGradRanks(const AttentionGradArgs& args, const AttentionOptions& options,
                                                   const SequenceShards& shards, int rank, int ranks);

/// Describes the properties of the call that must be equal on all ranks.
[[nodiscard]] CallDescription Describe(const BoundGradRanks& bound, const AttentionOptions& options,
                                       const SequenceShards& shards);

[[nodiscard]] inline tiling::RankCall& CallOf(BoundGradRanks& bound) { return bound.forward.call; }
[[nodiscard]] inline uint32_t FormsOf(const BoundGradRanks& bound) { return FormsOf(bound.forward); }
/// Does what UseForms of the forward does (bind_ranks.h).
[[nodiscard]] Status UseForms(uint32_t forms, BoundGradRanks& bound);

/// Returns whether dpse is a sum over the rows of all ranks.
[[nodiscard]] inline bool HasKeyBias(const BoundGradRanks& bound) { return bound.has_dpse && bound.dpse.shared_rows; }
/// If all batch elements share a bias, its gradient is a sum over the batch. Returns the number of floats of the sums
/// [N,rows of this rank|1,Sk], or 0 if no sum over the batch is needed.
[[nodiscard]] int64_t FloatsOfBiasSums(const BoundGradRanks& bound);
/// Returns the layout of the sums that FloatsOfBiasSums counts.
[[nodiscard]] PseRows SumsOfBias(const BoundGradRanks& bound);

/// Works like BoundOfUnit of the forward (bind_ranks.h). dq, dk and dv have the layouts of q, k and v. If rows stay on
/// their rank (`queries` is null), dq is the rank's own tensor.
[[nodiscard]] BoundAttentionGrad BoundOfUnit(const BoundGradRanks& bound, const tiling::RankPlan& plan,
                                             const tiling::RankUnit& unit, const StagedRows& keys,
                                             const StagedRows* queries);

}  // namespace fa::ops

#endif  // FA_RANKS_CALL_BIND_GRAD_RANKS_H_
