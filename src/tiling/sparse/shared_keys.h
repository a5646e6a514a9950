#ifndef FA_TILING_SHARED_KEYS_H_
#define FA_TILING_SHARED_KEYS_H_

#include <cstdint>
#include <vector>

#include "fa/sparse_mask.h"
#include "tiling/row_interval.h"
#include "tiling/sparse/sparse_sequences.h"

namespace fa::tiling {

/// The keys of two tensors that a query token may have. A sequence's keys are numbered through both tensors: first the
/// keys of the first tensor, then the keys of the second tensor.
struct SharedKeys {
  SparseMask first_mask = SparseMask::kNone, second_mask = SparseMask::kRightDownCausal;
  int64_t left = -1, right = -1;  ///< limits of the band if first_mask is kBand; -1: no limit on that side
  int64_t ratio = 1;              ///< positions per key of the second tensor
  /// Lengths of a token's lists; -1: there is no list, and a token has all keys that the mask allows.
  int64_t first_entries = -1, second_entries = -1;
  int64_t most_first = 0, most_second = 0;  ///< the most keys of each tensor that a sequence has

  /// Returns the keys of the first tensor that the token may have.
  [[nodiscard]] Interval First(const SparseSequence& sequence, int64_t token) const;
  /// Returns how many keys of the second tensor the token may have. They are the tensor's first keys.
  [[nodiscard]] int64_t SecondEnd(const SparseSequence& sequence, int64_t token) const;
  /// Returns the largest number of keys that the token can have.
  [[nodiscard]] int64_t KeysAtMost(const SparseSequence& sequence, int64_t token) const;
  /// Returns the largest number of keys that any token can have.
  [[nodiscard]] int64_t MostKeys() const;
  /// Returns the number of (token, key) pairs of one head.
  [[nodiscard]] double Pairs(const SparseSequences& sequences) const;

 private:
  /// Returns the token's position: the number of original tokens up to and including it.
  [[nodiscard]] static int64_t Position(const SparseSequence& sequence, int64_t token) {
    return sequence.positions - sequence.sq + token + 1;
  }
};

}  // namespace fa::tiling

#endif  // FA_TILING_SHARED_KEYS_H_
