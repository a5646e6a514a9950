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

/// A call for gradients of the indexer as the planner sees it: its sizes, and the keys that each token may select.
struct IndexerGradProblem {
  static constexpr int64_t kEveryKey = std::numeric_limits<int64_t>::max();

  const SparseSequences& sequences;
  DType dtype = DType::kF32;
  int64_t heads = 0, d = 0;     ///< numbers of heads and of columns of the indexer
  int64_t entries = kEveryKey;  ///< most keys per token
  int64_t attention_width = 0;  ///< heads * (d + d_rope) of the attention whose scores a loss computes; 0: no attention
  bool walks_twice = false;     ///< whether a loss computes a row's probabilities again, after their sum is known
};

/// The plan by which gradients of the indexer are computed. Tasks of tokens add to sums of keys (KeySumPlan), one block
/// of keys at a time.
struct IndexerGradPlan {
  const char* op = "";
  int64_t block_k = 0;             ///< number of keys of a block
  int64_t tokens_per_task = 1;     ///< most tokens of a task
  std::vector<TokenGroup> groups;  ///< tokens that go through the keys together, as one task; empty: one token per task
  int64_t units = 0;               ///< number of tasks of tokens
  double flops = 0;
  std::string reason;
};

}  // namespace fa::tiling

#endif  // FA_TILING_INDEXER_GRAD_PLAN_H_
