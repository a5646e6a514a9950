#include "tiling/sparse/sparse_problem.h"

#include <algorithm>

#include "core/integer.h"

namespace fa::tiling {

int64_t SparseProblem::KeysAtMost(const SparseToken& token) const {
  if (shared != nullptr) return shared->KeysAtMost(sequences.list[static_cast<size_t>(token.sequence)], token.row);
  const int64_t limit = sequences.Limit(token);
  return std::min(entries, core::CeilDiv(limit, block_size)) * block_size;
}

}  // namespace fa::tiling
