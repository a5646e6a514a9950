#ifndef FA_TESTS_REFERENCE_TOKEN_SELECTION_H_
#define FA_TESTS_REFERENCE_TOKEN_SELECTION_H_

#include <cstdint>
#include <vector>

#include "reference/mask.h"

namespace reference {

/// A key that a token's list names, and the entry that names it.
struct SelectedKey {
  int64_t slot, key;
};

/// The keys that each query token may see, and the lists that choose among them. Tokens and keys are packed. In
/// sequence b they begin at FirstToken(b) and FirstKey(b). Within a sequence, tokens t and keys count from 0.
struct Selection {
  Lengths lengths = {};
  /// Whether Limit(b, t) is floor((original tokens - queries + t + 1) / ratio); otherwise it is the number of keys.
  bool causal = true;
  int64_t block_size = 1;
  int64_t slots = 0;
  bool whole = false;                 ///< whether KeysOf reads lists to their end
  std::vector<int64_t> indices = {};  ///< the entries of all lists [tokens, slots]
  /// Each key stands for `ratio` original tokens. In sequence b, residual[b] further tokens follow the tokens of the
  /// last key, or none if `residual` is empty.
  int64_t ratio = 1;
  std::vector<int64_t> residual = {};

  [[nodiscard]] int64_t batch() const { return static_cast<int64_t>(lengths.sq.size()); }
  [[nodiscard]] int64_t tokens() const { return FirstToken(batch()); }
  [[nodiscard]] int64_t keys() const { return FirstKey(batch()); }
  [[nodiscard]] int64_t FirstToken(int64_t b) const;
  [[nodiscard]] int64_t FirstKey(int64_t b) const;
  /// Returns the limit of token t: it may see the keys below this number. The limit is never negative.
  [[nodiscard]] int64_t Limit(int64_t b, int64_t t) const;
  /// Returns the keys that the token's list names, in the list's order. Reading ends at the first -1. Unless `whole` is
  /// set, it ends after ceil(limit / block_size) entries at the latest. Blocks that begin at or above the limit are
  /// skipped.
  [[nodiscard]] std::vector<SelectedKey> KeysOf(int64_t b, int64_t t) const;
  /// Returns every key below the limit, in ascending order.
  [[nodiscard]] std::vector<SelectedKey> EveryKey(int64_t b, int64_t t) const;
};

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_TOKEN_SELECTION_H_
