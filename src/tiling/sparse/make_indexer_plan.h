#ifndef FA_TILING_MAKE_INDEXER_PLAN_H_
#define FA_TILING_MAKE_INDEXER_PLAN_H_

#include <cstdint>

#include "tiling/problem.h"
#include "tiling/sparse/indexer_plan.h"
#include "tiling/sparse/sparse_sequences.h"

namespace fa::tiling {

/// Plans the forward of an indexer. @param width  keys along the lanes of a strip; intervals of keys begin at
///               multiples of `width`
[[nodiscard]] IndexerPlan MakeIndexerPlan(const SparseSequences& sequences, int64_t heads, int64_t d, int64_t width,
                                          const Machine& machine);

}  // namespace fa::tiling

#endif  // FA_TILING_MAKE_INDEXER_PLAN_H_
