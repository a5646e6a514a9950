#include "tiling/backward_interleave.h"

#include <algorithm>

namespace fa::tiling {

BackwardInterleave ChooseBackwardInterleave(const AttentionProblem& problem, int workers, int64_t block_k) {
  int64_t longest = 1;
  for (const Sequence& sequence : problem.sequences) longest = std::max(longest, sequence.sk);
  const int64_t columns = (longest + block_k - 1) / block_k;
  const int64_t all_pairs = std::max<int64_t>(problem.heads_kv * std::ssize(problem.sequences), 1);
  BackwardInterleave interleave;
  interleave.band = workers == 1 ? 1 : std::min<int64_t>(columns, std::max(8, 2 * workers));
  interleave.pairs = std::min<int64_t>(all_pairs, (2 * workers + columns - 1) / columns);
  interleave.slots = std::min(all_pairs, 2 * interleave.pairs);
  return interleave;
}

}  // namespace fa::tiling
