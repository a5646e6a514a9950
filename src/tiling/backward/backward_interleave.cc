// This file chooses how many pairs are in flight at one time, and how many columns a band has. A pair is a sequence and
// a kv head. With enough pairs, one pair per worker is in flight. The band of a pair has as many columns as the pair
// has workers. Simulations support this choice: 1 to 32 heads of 2K and 8K tokens on 2 to 128 workers, with causal
// masks, full masks and windows.
// - With at least as many pairs as workers, every worker walks its own pair, column by column, and waits for no other
//   worker. Efficiency is 98 to 100 %. For comparison, two pairs in flight at one time have the same efficiency on 2
//   workers, but 77 % on 64 workers (8 heads of 8K).
// - With fewer pairs, a band with one column per worker lets each worker keep a column to its end. K, V, dK and dV stay
//   in the worker's L2: 79 to 97 % of the tiles run on the worker of their column's previous tile. The band still
//   levels the unequal columns of a causal head. 8 heads of 8K on 64 workers have an efficiency of 94.8 %. The
//   efficiency is 90.2 % with bands of one column, 91.8 % with 4 columns and 92.4 % with 16. Short columns come first,
//   so bands of one column leave the longest columns to the end. One head of 8K on 2 workers has an efficiency of
//   99.9 %, against 98.5 % with bands of one column.
// - Bands of all columns have the same simulated efficiency, but no worker keeps a column. With bands of all columns,
//   one causal head of 8K on one worker costs 18 % more CPU time. Bands of 1 to 4 columns cost the same time; bands of
//   8 columns cost 1 % more. With a full mask the band does not matter: columns follow each other whatever the order of
//   claims.
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
  // A light (sequence, kv head) pair counts as a fraction of a heavy pair, because it takes less time.
  const double equal_pairs = heaviest > 0 ? std::ceil(total / heaviest) : 1;
  BackwardInterleave interleave;
  interleave.pairs = equal_pairs < workers ? static_cast<int64_t>(equal_pairs) : workers;
  if (problem.one_pair_at_a_time) interleave.pairs = 1;
  interleave.band = core::CeilDiv(workers, interleave.pairs);
  return interleave;
}

}  // namespace fa::tiling
