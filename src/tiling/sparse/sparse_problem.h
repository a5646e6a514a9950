#ifndef FA_TILING_SPARSE_PROBLEM_H_
#define FA_TILING_SPARSE_PROBLEM_H_

#include <cstdint>
#include <optional>

#include "tiling/problem.h"
#include "tiling/sparse/shared_keys.h"
#include "tiling/sparse/sparse_sequences.h"

namespace fa::tiling {

/// A validated sparse call as the planner sees it: sizes, and where tokens may find their keys.
struct SparseProblem {
  const AttentionProblem& attention;  ///< the equivalent dense call with one KV head
  const SparseSequences& sequences;
  int64_t entries = 0;     ///< length of the list of a token
  int64_t block_size = 1;  ///< number of keys that an entry stands for
  bool has_v = false;      ///< whether values have their own tensor; otherwise they are the first columns of keys
  bool paged = false;      ///< whether keys lie in pages
  const SharedKeys* shared = nullptr;   ///< which keys of two tensors a token has; null: one tensor and one list
  bool whole_tokens = false;            ///< one task computes all heads of a token, for the mean over the heads
  std::optional<DType> quantized = {};  ///< the type of the numbers in rows of quantised keys

  /// Returns the largest number of keys that the token can have.
  [[nodiscard]] int64_t KeysAtMost(const SparseToken& token) const;
  /// Returns the number of (token, key) pairs, summed over all heads.
  [[nodiscard]] double Pairs() const {
    const double keys = shared != nullptr ? shared->Pairs(sequences) : sequences.SelectableKeys(entries, block_size);
    return keys * static_cast<double>(attention.heads);
  }
};

}  // namespace fa::tiling

#endif  // FA_TILING_SPARSE_PROBLEM_H_
