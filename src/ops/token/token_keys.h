#ifndef FA_OPS_TOKEN_KEYS_H_
#define FA_OPS_TOKEN_KEYS_H_

#include <cstdint>

#include "ops/plan/carver.h"
#include "ops/token/key_selection.h"
#include "tiling/sparse/sparse_problem.h"

namespace fa::ops {

/// The lists of a call during a run: one list per token or, with keys in two tensors, up to two.
struct TokenLists {
  KeyListRows first, second = {};
};

/// Finds the keys of a query token of sparse attention, with the memory of one worker.
class TokenKeys {
 public:
  /// A carver of null memory only counts the bytes. `sparse` must outlive the object.
  TokenKeys(Carver& carver, const tiling::SparseProblem& sparse, const TokenLists& lists);

  /// Returns the token's keys in ascending order. The result is valid until the next call. The slot of a key without a
  /// list is its number in its tensor.
  [[nodiscard]] SelectedKeys Select(const SparseToken& token, const TokenLists& lists) const;
  /// Returns the most keys that a token of the call can have.
  [[nodiscard]] static int64_t MostKeys(const tiling::SparseProblem& sparse, const TokenLists& lists);

 private:
  const tiling::SparseProblem& sparse_;
  KeySelection first_, second_;
  int32_t *keys_, *slots_;  ///< the keys of two tensors, one behind the other
};

}  // namespace fa::ops

#endif  // FA_OPS_TOKEN_KEYS_H_
