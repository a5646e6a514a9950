#ifndef FA_TILING_TOKEN_GROUPS_H_
#define FA_TILING_TOKEN_GROUPS_H_

#include <cstdint>
#include <vector>

#include "tiling/row_interval.h"
#include "tiling/sparse/sparse_sequences.h"

namespace fa::tiling {

/// Tokens `rows` of a sequence, which go through the sequence's keys together.
struct TokenGroup {
  int64_t sequence = 0;
  Interval rows;
  int64_t first_group = 0;  ///< number of the sequence's first group
};

/// Returns the number of tokens per group. With few tokens per worker, groups are smaller than the largest size.
[[nodiscard]] int64_t TokensOfAGroup(const SparseSequences& sequences, int workers);
/// Returns all tokens in order, in groups of at most `tokens` of one sequence.
[[nodiscard]] std::vector<TokenGroup> MakeTokenGroups(const SparseSequences& sequences, int64_t tokens);

}  // namespace fa::tiling

#endif  // FA_TILING_TOKEN_GROUPS_H_
