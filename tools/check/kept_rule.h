#ifndef FA_CHECK_KEPT_RULE_H_
#define FA_CHECK_KEPT_RULE_H_

#include <cstdint>

#include "fa/mask.h"

namespace fa::check {

/// What Keeps needs to know about one sequence of a call.
struct SequenceFacts {
  int64_t index = 0;  ///< the batch element of the sequence
  int64_t sq = 0, sk = 0;
  bool first_non_empty = false, last_non_empty = false;
};

/// Returns whether the mask keeps key j for query row i, by Mask's definition for a single pair.
[[nodiscard]] bool Keeps(const Mask& mask, const SequenceFacts& sequence, int64_t i, int64_t j);

}  // namespace fa::check

#endif  // FA_CHECK_KEPT_RULE_H_
