#ifndef FA_TILING_INDEXER_GRAD_PLAN_H_
#define FA_TILING_INDEXER_GRAD_PLAN_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fa/tensor.h"
#include "tiling/sparse/sparse_sequences.h"
#include "tiling/sparse/token_groups.h"

namespace fa::tiling {

/// Gradients of the indexer as the planner sees them: sizes, and which keys a token has.
struct IndexerGradProblem {
  static constexpr int64_t kEveryKey = std::numeric_limits<int64_t>::max();

  const SparseSequences& sequences;
  DType dtype = DType::kF32;
  int64_t heads = 0, d = 0;     ///< of the indexer
  int64_t entries = kEveryKey;  ///< largest number of keys per token
  int64_t attention_width = 0;  ///< heads * (d + d_rope) of the attention that a loss multiplies; 0: none is multiplied
  bool walks_twice = false;     ///< a loss that needs the sum of a row's probabilities before their first use
};

/// How such gradients are computed: tasks of tokens that add to sums of keys (KeySumPlan), a block of keys at a time.
struct IndexerGradPlan {
  const char* op = "";
  int64_t block_k = 0;             ///< keys whose rows, products and gradients a step takes
  int64_t tokens_per_task = 1;     ///< at most
  std::vector<TokenGroup> groups;  ///< tokens that walk the keys together, one task each; empty: a task per token
  int64_t units = 0;               ///< tasks of tokens
  double flops = 0;
  std::string reason;
};

}  // namespace fa::tiling

#endif  // FA_TILING_INDEXER_GRAD_PLAN_H_
