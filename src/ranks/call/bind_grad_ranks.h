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
  BoundRanks forward;  ///< the call that is differentiated; its `planned` has the tensors of the backward
  layout::Rows d_out, dq, dk, dv, dq_rope, dk_rope;  ///< layouts of this rank's tensors
  bool has_dpse = false, has_dslopes = false, has_dsink = false;
  PseRows dpse;                      ///< dpse in this rank's tensor: with own rows, or whole if it is a sum over rows
  int64_t dslopes_batch_stride = 0;  ///< as in BoundAttentionGrad
  bool dslopes_shared = false;
  std::vector<tiling::Interval> key_tails;  ///< as BoundRanks::tails, but for keys
};

/// Finds the errors of this rank's arguments.
[[nodiscard]] Result<BoundGradRanks> BindGradRanks(const AttentionGradArgs& args, const AttentionOptions& options,
                                                   const SequenceShards& shards, int rank, int ranks);

/// Describes what ranks must agree about.
[[nodiscard]] CallDescription Describe(const BoundGradRanks& bound, const AttentionOptions& options,
                                       const SequenceShards& shards);

[[nodiscard]] inline tiling::RankCall& CallOf(BoundGradRanks& bound) { return bound.forward.call; }
[[nodiscard]] inline uint32_t FormsOf(const BoundGradRanks& bound) { return FormsOf(bound.forward); }
/// Does what the forward's UseForms does.
[[nodiscard]] Status UseForms(uint32_t forms, BoundGradRanks& bound);

/// Whether dpse is a sum over the rows of all ranks.
[[nodiscard]] inline bool HasKeyBias(const BoundGradRanks& bound) { return bound.has_dpse && bound.dpse.shared_rows; }
/// Floats of the sums over the batch of a bias that the batch shares, [N,rows of this rank|1,Sk]; 0 for other biases.
[[nodiscard]] int64_t FloatsOfBiasSums(const BoundGradRanks& bound);
/// The layout of these sums.
[[nodiscard]] PseRows SumsOfBias(const BoundGradRanks& bound);

/// Does what BoundOfUnit of the forward does. dq, dk and dv lie as q, k and v do. If rows stay (`queries` is null), dq
/// is the rank's own tensor.
[[nodiscard]] BoundAttentionGrad BoundOfUnit(const BoundGradRanks& bound, const tiling::RankPlan& plan,
                                             const tiling::RankUnit& unit, const StagedRows& keys,
                                             const StagedRows* queries);

}  // namespace fa::ops

#endif  // FA_RANKS_CALL_BIND_GRAD_RANKS_H_
