#ifndef FA_TILING_BACKWARD_INTERLEAVE_H_
#define FA_TILING_BACKWARD_INTERLEAVE_H_

#include <cstdint>

#include "tiling/problem.h"

namespace fa::tiling {

/// How (sequence, kv head) pairs share the list of claims. May follow the number of workers: it touches no sum.
struct BackwardInterleave {
  int64_t band = 1;   ///< columns that are claimed together, as BackwardCut::band
  int64_t pairs = 1;  ///< whose bands take turns
  int64_t slots = 1;  ///< pairs that may be in flight, >= pairs
};

[[nodiscard]] BackwardInterleave ChooseBackwardInterleave(const AttentionProblem& problem, int workers,
                                                          int64_t block_k);

}  // namespace fa::tiling

#endif  // FA_TILING_BACKWARD_INTERLEAVE_H_
