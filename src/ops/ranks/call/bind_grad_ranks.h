#ifndef FA_OPS_RANKS_CALL_BIND_GRAD_RANKS_H_
#define FA_OPS_RANKS_CALL_BIND_GRAD_RANKS_H_

#include <vector>

#include "fa/flash_attention_grad.h"
#include "fa/sequence_shards.h"
#include "ops/bind/bind_attention_grad.h"
#include "ops/ranks/call/bind_ranks.h"

namespace fa::ops {

/// A dense backward over ranks, bound on one of them.
struct BoundGradRanks {
  BoundRanks forward;  ///< the call that is differentiated; `planned`: the tensors of the backward
  layout::Rows d_out, dq, dk, dv, dq_rope, dk_rope;  ///< of this rank's tensors
  bool has_dpse = false, has_dslopes = false, has_dsink = false;
  PseRows dpse;                      ///< in this rank's tensor: of own rows, or whole where it is a sum over rows
  int64_t dslopes_batch_stride = 0;  ///< as BoundAttentionGrad
  bool dslopes_shared = false;
  std::vector<tiling::Interval> key_tails;  ///< as BoundRanks::tails, of keys
};

/// Finds the errors of this rank's arguments.
[[nodiscard]] Result<BoundGradRanks> BindGradRanks(const AttentionGradArgs& args, const AttentionOptions& options,
                                                   const SequenceShards& shards, int rank, int ranks);

/// What ranks must agree about.
[[nodiscard]] CallDescription Describe(const BoundGradRanks& bound, const AttentionOptions& options,
                                       const SequenceShards& shards);

[[nodiscard]] inline tiling::RankCall& CallOf(BoundGradRanks& bound) { return bound.forward.call; }
[[nodiscard]] inline uint32_t FormsOf(const BoundGradRanks& bound) { return FormsOf(bound.forward); }
/// As of the forward.
[[nodiscard]] Status UseForms(uint32_t forms, BoundGradRanks& bound);

/// Whether dpse is a sum over the rows of all ranks.
[[nodiscard]] inline bool HasKeyBias(const BoundGradRanks& bound) { return bound.has_dpse && bound.dpse.shared_rows; }
/// Floats of the sums over the batch of a bias that is shared by it, [N,rows of this rank|1,Sk]; 0: there are none.
[[nodiscard]] int64_t FloatsOfBiasSums(const BoundGradRanks& bound);
/// Where these sums lie.
[[nodiscard]] PseRows SumsOfBias(const BoundGradRanks& bound);

/// As BoundOfUnit of the forward. dq, dk and dv lie as q, k and v do, but for dq of rows that stay, which is the
/// rank's own. Null `queries`: rows stay.
[[nodiscard]] BoundAttentionGrad BoundOfUnit(const BoundGradRanks& bound, const tiling::RankPlan& plan,
                                             const tiling::RankUnit& unit, const StagedRows& keys,
                                             const StagedRows* queries);

}  // namespace fa::ops

#endif  // FA_OPS_RANKS_CALL_BIND_GRAD_RANKS_H_
