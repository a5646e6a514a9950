#include "tiling/sparse/sparse_sequences.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/integer.h"
#include "core/saturating.h"

namespace fa::tiling {

double SparseSequences::SelectableKeys(int64_t entries, int64_t block_size) const {
  // Returns the sum of ceil(limit / block_size) over the limits 1..x.
  const auto blocks_up_to = [block_size](int64_t x) {
    const auto whole = static_cast<double>(x / block_size), rest = static_cast<double>(x % block_size);
    return static_cast<double>(block_size) * whole * (whole + 1) / 2 + rest * (whole + 1);
  };
  double blocks = 0;
  for (const SparseSequence& sequence : list) {
    const auto [sq, sk] = std::pair{sequence.sq, sequence.sk};
    const int64_t full = core::SaturatedProduct(entries, block_size);  // the most keys of a list
    if (mask == SparseMask::kNone) {
      const int64_t of_each = std::min(entries, core::CeilDiv(sk, block_size));
      blocks += static_cast<double>(sq) * static_cast<double>(of_each);
      continue;
    }
    if (sequence.ratio > 1) {
      for (int64_t t = 0; t < sq; ++t) {
        blocks += static_cast<double>(std::min(entries, core::CeilDiv(sequence.Limit(mask, t), block_size)));
      }
      continue;
    }
    // If sk >= sq, row t has the limit before + 1 + t. Otherwise the first rows have no keys, and the others have the
    // limits 1 to sk.
    const int64_t before = std::max<int64_t>(sk - sq, 0);
    const int64_t end = std::max(before, std::min(sk, full));
    blocks += blocks_up_to(end) - blocks_up_to(before) + static_cast<double>(sk - end) * static_cast<double>(entries);
  }
  return blocks * static_cast<double>(block_size);
}

SparseToken SparseSequences::Token(int64_t token) const {
  assert(token >= 0 && token < tokens);
  const auto after = std::upper_bound(list.begin(), list.end(), token,
                                      [](int64_t value, const SparseSequence& s) { return value < s.first_token; });
  const auto found = after - 1;
  return {found - list.begin(), token - found->first_token};
}

}  // namespace fa::tiling
