#ifndef FA_OPERATORS_H_
#define FA_OPERATORS_H_

#include "fa/decode_attention.h"
#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "fa/indexer_loss.h"
#include "fa/indexer_lse.h"
#include "fa/lightning_indexer.h"
#include "fa/lightning_indexer_grad.h"
#include "fa/merge.h"
#include "fa/prompt_flash_attention.h"
#include "fa/sparse_flash_attention.h"
#include "fa/sparse_flash_attention_grad.h"

/// Every operator: X(short name, function, its arguments, its options, name in commands and in Python's fa.plan).
/// `function` runs it, Plan<function> plans it as PlanFor<arguments>. What exists once per operator, here and in the
/// faces, the tool and the tests, is declared from this list or compared with it.
#define FA_OPERATORS(X)                                                                                                \
  X(Forward, FlashAttention, AttentionArgs, AttentionOptions, "forward")                                               \
  X(Backward, FlashAttentionGrad, AttentionGradArgs, AttentionOptions, "backward")                                     \
  X(Merge, MergePartials, MergeArgs, MergeOptions, "merge")                                                            \
  X(Decode, DecodeAttention, DecodeAttentionArgs, DecodeAttentionOptions, "decode")                                    \
  X(Prompt, PromptFlashAttention, PromptAttentionArgs, PromptAttentionOptions, "prompt")                               \
  X(SparseForward, SparseFlashAttention, SparseAttentionArgs, SparseAttentionOptions, "sparse-forward")                \
  X(SparseBackward, SparseFlashAttentionGrad, SparseAttentionGradArgs, SparseAttentionOptions, "sparse-backward")      \
  X(Indexer, LightningIndexer, LightningIndexerArgs, LightningIndexerOptions, "indexer")                               \
  X(IndexerBackward, LightningIndexerGrad, LightningIndexerGradArgs, LightningIndexerGradOptions, "indexer-backward")  \
  X(IndexerLoss, SparseLightningIndexerGradKLLoss, SparseIndexerLossArgs, SparseIndexerLossOptions, "indexer-kl-loss") \
  X(DenseIndexerLse, DenseLightningIndexerSoftmaxLse, DenseIndexerLseArgs, DenseIndexerLseOptions,                     \
    "dense-indexer-lse")                                                                                               \
  X(DenseIndexerLoss, DenseLightningIndexerGradKLLoss, DenseIndexerLossArgs, DenseIndexerLossOptions,                  \
    "dense-indexer-kl-loss")

namespace fa {

/// Their names in commands, in the list's order.
inline constexpr const char* kOperatorNames[] = {
#define FA_NAME(name, function, args, options, text) text,
    FA_OPERATORS(FA_NAME)
#undef FA_NAME
};

}  // namespace fa

#endif  // FA_OPERATORS_H_
