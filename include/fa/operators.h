#ifndef FA_OPERATORS_H_
#define FA_OPERATORS_H_

/// @file
/// The list of all operators, for programs that do something once per operator.
/// @code{.cpp}
/// // Prints every operator's function and its name in commands: "FlashAttention forward".
/// #define PRINT(name, function, args, options, text) std::printf("%s %s\n", #function, text);
/// FA_OPERATORS(PRINT)
/// #undef PRINT
/// @endcode

#include "fa/cache_rows.h"
#include "fa/decode_attention.h"
#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "fa/indexer_kl_loss.h"
#include "fa/indexer_loss.h"
#include "fa/indexer_lse.h"
#include "fa/infer_attention.h"
#include "fa/lightning_indexer.h"
#include "fa/lightning_indexer_grad.h"
#include "fa/merge.h"
#include "fa/merge_by_lse.h"
#include "fa/msa_index_score.h"
#include "fa/prompt_flash_attention.h"
#include "fa/shared_kv_attention.h"
#include "fa/shared_kv_attention_grad.h"
#include "fa/sparse_flash_attention.h"
#include "fa/sparse_flash_attention_grad.h"

/// The list of all operators, as X(short name, function, its arguments, its options, its name in commands and in
/// Python's fa.plan). `function` runs the operator. Plan<function> plans it and returns a PlanFor<arguments>.
#define FA_OPERATORS(X)                                                                                                \
  X(Forward, FlashAttention, AttentionArgs, AttentionOptions, "forward")                                               \
  X(Backward, FlashAttentionGrad, AttentionGradArgs, AttentionOptions, "backward")                                     \
  X(Merge, MergePartials, MergeArgs, MergeOptions, "merge")                                                            \
  X(Decode, DecodeAttention, DecodeAttentionArgs, DecodeAttentionOptions, "decode")                                    \
  X(Prompt, PromptFlashAttention, PromptAttentionArgs, PromptAttentionOptions, "prompt")                               \
  X(Infer, InferAttention, InferAttentionArgs, InferAttentionOptions, "infer")                                         \
  X(SparseForward, SparseFlashAttention, SparseAttentionArgs, SparseAttentionOptions, "sparse-forward")                \
  X(SparseBackward, SparseFlashAttentionGrad, SparseAttentionGradArgs, SparseAttentionOptions, "sparse-backward")      \
  X(SharedKv, SharedKvAttention, SharedKvArgs, SharedKvOptions, "shared-kv")                                           \
  X(SharedKvBackward, SharedKvAttentionGrad, SharedKvGradArgs, SharedKvOptions, "shared-kv-backward")                  \
  X(Indexer, LightningIndexer, LightningIndexerArgs, LightningIndexerOptions, "indexer")                               \
  X(IndexerBackward, LightningIndexerGrad, LightningIndexerGradArgs, LightningIndexerGradOptions, "indexer-backward")  \
  X(IndexerLoss, SparseLightningIndexerGradKLLoss, SparseIndexerLossArgs, SparseIndexerLossOptions, "indexer-kl-loss") \
  X(DenseIndexerLse, DenseLightningIndexerSoftmaxLse, DenseIndexerLseArgs, DenseIndexerLseOptions,                     \
    "dense-indexer-lse")                                                                                               \
  X(DenseIndexerLoss, DenseLightningIndexerGradKLLoss, DenseIndexerLossArgs, DenseIndexerLossOptions,                  \
    "dense-indexer-kl-loss")                                                                                           \
  X(IndexerLossValue, IndexerKLLoss, IndexerKLLossArgs, IndexerKLLossOptions, "indexer-loss-value")                    \
  X(IndexScore, MsaIndexScore, MsaIndexScoreArgs, MsaIndexScoreOptions, "index-score")                                 \
  X(MergeLse, MergeByLse, MergeByLseArgs, MergeByLseOptions, "merge-lse")                                              \
  X(Scatter, ScatterRows, ScatterRowsArgs, ScatterRowsOptions, "scatter")                                              \
  X(Gather, GatherRows, GatherRowsArgs, GatherRowsOptions, "gather")

namespace fa {

/// The operators' names in commands, in the order of the list.
inline constexpr const char* kOperatorNames[] = {
#define FA_NAME(name, function, args, options, text) text,
    FA_OPERATORS(FA_NAME)
#undef FA_NAME
};

}  // namespace fa

#endif  // FA_OPERATORS_H_
