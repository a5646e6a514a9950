#include "tiling/sparse/sparse_problem.h"

#include <algorithm>

namespace fa::tiling {

int64_t SparseProblem::KeysAtMost(const SparseToken& token) const {
  const int64_t limit = sequences.Limit(token);
  return std::min(entries, limit / block_size + (limit % block_size != 0 ? 1 : 0)) * block_size;
}

}  // namespace fa::tiling
