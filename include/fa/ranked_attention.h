#ifndef FA_RANKED_ATTENTION_H_
#define FA_RANKED_ATTENTION_H_

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

/// FlashAttention over all ranks of a transport (docs/distributed.md). Collective: every rank calls it with its own
/// rows of q, k, v and out (`shards` says which); shapes, options and shards describe one call.
///
/// The bits are those of the same call in one process if the cut is at multiples of the row unit, whatever the number
/// of ranks, the cut and the strategy. Ranks whose instruction sets differ use the lowest.
///
/// Masks, starts, dropout by seed and the prefix sums of TND are those of the whole sequence; sinks and slopes are
/// whole. pse of types 0 and 1 and dense_mask have the rows of this rank's queries against all keys, as they would in
/// a call of their own (TND: pse sequence after sequence, with the rank's rows of each in its order). Whole on every
/// rank are pse with one row for all queries, pse's 1024-row form (but where all ranks hold 1024 rows, these are their
/// own), the dense mask [maxSq,maxSk] of TND and compressed masks. Rows of pse and dense_mask do not travel: with them,
/// kHeads is an error. Not taken: drop_mask.
/// @return as FlashAttention; one error on all ranks ("invalid argument: rank 3: k.shape[2]=5, want 7 (...)", or what
/// they disagree about): nothing was written. An error of the transport: messages may be under way, the workspace stays
/// with it (fa/transport.h). A rank whose tiles fail in a run returns that alone: others get NaN for what it owed them.
FA_API Status FlashAttention(const AttentionArgs& args, const AttentionOptions& options, const SequenceShards& shards,
                             std::shared_ptr<Transport> transport, Context* context = nullptr);

/// Plans the same call; collective too. One Run at a time; every rank runs its plan as often as the others.
FA_API Result<PlanFor<AttentionArgs>> PlanFlashAttention(const AttentionArgs& args, const AttentionOptions& options,
                                                         const SequenceShards& shards,
                                                         std::shared_ptr<Transport> transport,
                                                         Context* context = nullptr);

/// FlashAttentionGrad over all ranks, as FlashAttention over ranks: every rank passes its own rows of q, k, v, out,
/// d_out and the statistics, and gets its own rows of dq, dk and dv. dsink and dslopes come out on every rank, summed
/// over all rows. The bits are those of one process.
/// dpse has the rows that pse has; that of a bias with one row for all queries is whole on every rank, summed over all
/// rows.
/// @return as FlashAttention over ranks
FA_API Status FlashAttentionGrad(const AttentionGradArgs& args, const AttentionOptions& options,
                                 const SequenceShards& shards, std::shared_ptr<Transport> transport,
                                 Context* context = nullptr);

/// Plans the same call; collective too. One Run at a time; every rank runs its plan as often as the others.
FA_API Result<PlanFor<AttentionGradArgs>> PlanFlashAttentionGrad(const AttentionGradArgs& args,
                                                                 const AttentionOptions& options,
                                                                 const SequenceShards& shards,
                                                                 std::shared_ptr<Transport> transport,
                                                                 Context* context = nullptr);

}  // namespace fa

#endif  // FA_RANKED_ATTENTION_H_
