#ifndef FA_TILING_BACKWARD_INTERLEAVE_H_
#define FA_TILING_BACKWARD_INTERLEAVE_H_

#include <cstdint>

#include "tiling/problem.h"

namespace fa::tiling {

/// The order in which (sequence, kv head) pairs stand in the list of tasks that workers claim. It may depend on the
/// number of workers, because it changes no sum.
struct BackwardInterleave {
  int64_t pairs = 1;  ///< (sequence, kv head) pairs in flight at one time; their bands take turns
  int64_t band = 1;   ///< number of columns of a pair that are claimed together
};

[[nodiscard]] BackwardInterleave ChooseBackwardInterleave(const AttentionProblem& problem, int workers);

}  // namespace fa::tiling

#endif  // FA_TILING_BACKWARD_INTERLEAVE_H_
