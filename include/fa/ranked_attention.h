#ifndef FA_RANKED_ATTENTION_H_
#define FA_RANKED_ATTENTION_H_

/// @file
/// Dense attention over many processes, each of which holds some rows of the sequence.
/// @code{.cpp}
/// // Every process calls this with its own rows of a sequence of 2048. fa/mpi.h makes a transport.
/// fa::Status Attend(const fa::AttentionArgs& rows_of_this_rank, std::shared_ptr<fa::Transport> transport) {
///   fa::SequenceShards shards;
///   shards.sq = shards.sk = 2048;
///   return fa::FlashAttention(rows_of_this_rank, {.mask = fa::Mask::Causal()}, shards, std::move(transport));
/// }
/// @endcode

#include <memory>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "fa/options.h"
#include "fa/plan.h"
#include "fa/sequence_shards.h"
#include "fa/status.h"
#include "fa/transport.h"

namespace fa {

/// Runs FlashAttention over all ranks of a transport (docs/distributed.md). The call is collective: every rank makes it
/// with its own rows of q, k, v and out, which `shards` names. Shapes, options and shards of all ranks describe one
/// call.
///
/// If all cuts lie at multiples of the row unit (docs/distributed.md), the bits are those of the same call in one
/// process. So the bits do not depend on the number of ranks, the cut or the strategy. Ranks with different instruction
/// sets use the lowest level.
///
/// Masks, q_start, kv_start, dropout by seed and the prefix sums of TND describe the whole sequence. Sinks and slopes
/// are whole on every rank. pse of types 0 and 1 and dense_mask have the rows of this rank's queries, in the order in
/// which the rank holds them. Each row has all keys. With TND, a pse of types 0 and 1 lists the sequences one after
/// another, with this rank's rows of each.
///
/// These tensors are whole on every rank: pse with one row for all queries, the dense mask [maxSq,maxSk] of TND, and
/// compressed masks. A pse with 1024 rows counts as the compressed form, which is also whole on every rank. But if all
/// ranks hold 1024 rows, it counts as the bias of the rank's own rows. Rows of pse and dense_mask are not sent, so
/// kHeads is refused if a tensor has the rows of this rank's queries. drop_mask is refused.
/// @return the errors of FlashAttention, and the same error on all ranks: "invalid argument: rank 3: k.shape[2]=5, want
/// 7 (...)". If the ranks disagree, the error names what they disagree about. After these errors nothing was written.
/// After an error of the transport, messages may be under way, and the workspace stays with the transport
/// (fa/transport.h). If the tiles of one rank fail during a run, only that rank returns the error; the others get NaN
/// for the results that this rank owed them.
FA_API Status FlashAttention(const AttentionArgs& args, const AttentionOptions& options, const SequenceShards& shards,
                             std::shared_ptr<Transport> transport, Context* context = nullptr);

/// Plans a call of FlashAttention. Planning and Run are collective. Every rank must run its plan equally often, and may
/// begin a Run only after the previous Run has ended.
FA_API Result<PlanFor<AttentionArgs>> PlanFlashAttention(const AttentionArgs& args, const AttentionOptions& options,
                                                         const SequenceShards& shards,
                                                         std::shared_ptr<Transport> transport,
                                                         Context* context = nullptr);

/// Runs FlashAttentionGrad over all ranks. What FlashAttention above says holds here too. Every rank passes its own
/// rows of q, k, v, out, d_out and the statistics, and gets its own rows of dq, dk and dv. Every rank gets dsink and
/// dslopes, summed over all rows. The bits equal those of the same call in one process. dpse has the rows that pse has.
/// If the bias has one row for all queries, its dpse is whole on every rank, summed over all rows.
/// @return the errors of FlashAttention over ranks
FA_API Status FlashAttentionGrad(const AttentionGradArgs& args, const AttentionOptions& options,
                                 const SequenceShards& shards, std::shared_ptr<Transport> transport,
                                 Context* context = nullptr);

/// Plans a call of FlashAttentionGrad. Planning and Run are collective. Every rank must run its plan equally often, and
/// may begin a Run only after the previous Run has ended.
FA_API Result<PlanFor<AttentionGradArgs>> PlanFlashAttentionGrad(const AttentionGradArgs& args,
                                                                 const AttentionOptions& options,
                                                                 const SequenceShards& shards,
                                                                 std::shared_ptr<Transport> transport,
                                                                 Context* context = nullptr);

}  // namespace fa

#endif  // FA_RANKED_ATTENTION_H_
