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

  /// Returns the token's keys, the keys of the first tensor first. In each tensor the keys ascend, unless lists keep
  /// their order (KeyLists::sorted). The result is valid until the next call. If a tensor has no lists, a key's slot is
  /// the key's number in the tensor.
  [[nodiscard]] SelectedKeys Select(const SparseToken& token, const TokenLists& lists) const;
  /// Returns the most keys that a token of the call can have.
  [[nodiscard]] static int64_t MostKeys(const tiling::SparseProblem& sparse, const TokenLists& lists);

 private:
  const tiling::SparseProblem& sparse_;
  KeySelection first_, second_;
  int32_t *keys_, *slots_;  ///< selected keys of the first tensor, then of the second, and their slots
};

}  // namespace fa::ops

#endif  // FA_OPS_TOKEN_KEYS_H_
