#ifndef FA_TILING_INDEXER_FACTS_H_
#define FA_TILING_INDEXER_FACTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fa/tensor.h"
#include "tiling/plan_facts.h"
#include "tiling/sparse/indexer_plan.h"
#include "tiling/sparse/sparse_sequences.h"

namespace fa::tiling {

/// The sizes of a call that scores keys for tokens.
struct IndexerSizes {
  const char* op = "";
  std::string result;  ///< what the call computes from a token's scores: "the 2048 best"
  DType dtype = DType::kF32;
  int64_t heads = 0, d = 0;
  int64_t key_width = 0;  ///< number of keys along the lanes of a strip
};

/// Returns the PlanFacts of a call that scores keys. They refer to `plan`.
[[nodiscard]] PlanFacts FactsOf(const IndexerSizes& sizes, const SparseSequences& sequences, const Machine& machine,
                                const IndexerPlan& plan, std::vector<std::string> kernels);

}  // namespace fa::tiling

#endif  // FA_TILING_INDEXER_FACTS_H_
