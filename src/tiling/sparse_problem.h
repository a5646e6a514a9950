#ifndef FA_TILING_SPARSE_PROBLEM_H_
#define FA_TILING_SPARSE_PROBLEM_H_

#include <cstdint>

#include "tiling/problem.h"
#include "tiling/sparse_sequences.h"

namespace fa::tiling {

/// A validated sparse call as the planner sees it: sizes, and where tokens may find their keys.
struct SparseProblem {
  const AttentionProblem& attention;  ///< the dense call of one key head that it amounts to
  const SparseSequences& sequences;
  int64_t entries = 0;        ///< of a token's list
  int64_t block_size = 1;     ///< keys an entry stands for
  bool has_v = false;         ///< else the values are the first columns of the keys
  bool paged = false;         ///< keys lie in pages
  bool whole_tokens = false;  ///< a mean over the heads wants all of a token's in one task

  /// What a token's keys give at most.
  [[nodiscard]] int64_t KeysAtMost(const SparseToken& token) const;
  /// Key pairs of all heads.
  [[nodiscard]] double Pairs() const {
    return sequences.SelectableKeys(entries, block_size) * static_cast<double>(attention.heads);
  }
};

}  // namespace fa::tiling

#endif  // FA_TILING_SPARSE_PROBLEM_H_
