// As many pairs in flight as there are workers, and in each a band of as many columns as it has workers. Simulated with
// 1 to 32 heads of 2K and 8K, causal, full and with a window, on 2 to 128 workers:
// - pairs >= workers: every worker walks a pair of its own, column by column, and waits for no other: 98 to 100 %
//   efficient. One pair at a time (two slots) has the same efficiency on 2 workers, but 77 % on 64 (8 heads of 8K).
// - fewer pairs: a band of exactly its workers lets each of them keep a column to its end (K, V, dK and dV stay in its
//   L2: 79 to 97 % of the tiles follow their column's last one on the same worker) and still levels the unequal columns
//   of a causal head: 8 heads of 8K on 64 workers 94.8 %, against 90.2 % with bands of one column (short columns come
//   first, so that the longest stand last), 91.8 % with 4 and 92.4 % with 16; one head of 8K on 2 workers 99.9 %
//   against 98.5 %.
// - bands of all columns are as efficient on paper, but no worker keeps a column: measured with one causal head of 8K
//   on one worker, they cost 18 % of CPU time (bands of 1 to 4 columns are equal, 8 cost 1 %). With a full mask the
//   band does not matter: its columns follow each other whatever the order of claims.
#include "tiling/backward/backward_interleave.h"

#include <algorithm>
#include <cmath>

#include "core/integer.h"

namespace fa::tiling {

BackwardInterleave ChooseBackwardInterleave(const AttentionProblem& problem, int workers) {
  double total = 0, heaviest = 0;
  for (const Sequence& sequence : problem.sequences) {
    const auto pairs = static_cast<double>(sequence.rule.KeptPairs({0, sequence.sq}));
    total += pairs * static_cast<double>(problem.heads_kv);
    heaviest = std::max(heaviest, pairs);
  }
  // A light pair counts as a fraction of a heavy one: it cannot keep a worker for as long.
  const double equal_pairs = heaviest > 0 ? std::ceil(total / heaviest) : 1;
  BackwardInterleave interleave;
  interleave.pairs = equal_pairs < workers ? static_cast<int64_t>(equal_pairs) : workers;
  if (problem.one_pair_at_a_time) interleave.pairs = 1;
  interleave.band = core::CeilDiv(workers, interleave.pairs);
  return interleave;
}

}  // namespace fa::tiling
