#ifndef FA_TILING_MAKE_KEY_SUM_PLAN_H_
#define FA_TILING_MAKE_KEY_SUM_PLAN_H_

#include <cstdint>

#include "tiling/sparse/key_sum_plan.h"
#include "tiling/sparse/sparse_sequences.h"

namespace fa::tiling {

[[nodiscard]] KeySumPlan MakeKeySumPlan(const SparseSequences& sequences, int64_t columns, int64_t units, int workers);

}  // namespace fa::tiling

#endif  // FA_TILING_MAKE_KEY_SUM_PLAN_H_
