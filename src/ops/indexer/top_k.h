#ifndef FA_OPS_TOP_K_H_
#define FA_OPS_TOP_K_H_

#include <cstdint>

#include "core/kernels/indexer/indexer_kernel_types.h"
#include "ops/plan/carver.h"

namespace fa::ops {

class ScoreSample;

/// The largest of a row of scores, exactly and in order, with the memory of one worker: score descending, then index
/// ascending; -0 counts as +0, NaN comes after -inf.
class TopK {
 public:
  /// For rows of at most max_scores, of which the k largest are wanted. With null memory in the carver, the memory is
  /// only counted.
  TopK(const core::kernels::IndexerKernels& kernels, Carver& carver, int64_t max_scores, int64_t k);

  /// Writes the indices of the min(k, count) largest scores. @return their number
  int64_t Select(const float* scores, int64_t count, int32_t* indices) const;

 private:
  /// Writes the first `wanted` of the `count` candidates, all below the cut, in order.
  void Sort(int64_t count, int64_t wanted, const ScoreSample& sample, uint32_t cut, int32_t* indices) const;
  /// Sorts the entries of the candidates into their buckets; wanted entries of a crowded bucket are in order.
  void Place(int64_t count, int64_t wanted, int32_t last_bucket) const;

  const core::kernels::IndexerKernels& kernels_;
  int64_t k_;
  uint32_t* keys_;     // of the candidates
  int32_t* indices_;   // of the candidates
  uint16_t* bucket_;   // of the candidates
  uint64_t* entries_;  // key << 32 | index, by buckets
  int32_t* ends_;      // of the buckets
  uint16_t* crowded_;  // buckets with more entries than the registers put in order
};

}  // namespace fa::ops

#endif  // FA_OPS_TOP_K_H_
