#ifndef FA_OPS_TOP_K_H_
#define FA_OPS_TOP_K_H_

#include <cstdint>

#include "core/kernels/indexer/indexer_kernel_types.h"
#include "ops/plan/carver.h"

namespace fa::ops {

class ScoreSample;

/// Finds the largest scores of a row, exactly and in order, with the memory of one worker. Scores descend; equal scores
/// have ascending indices. -0 counts as +0, and NaN comes after -inf.
class TopK {
 public:
  /// Prepares searches for the k largest of at most max_scores scores. A carver of null memory only counts the bytes.
  TopK(const core::kernels::IndexerKernels& kernels, Carver& carver, int64_t max_scores, int64_t k);

  /// Writes the indices of the min(k, count) largest scores. @return their number
  int64_t Select(const float* scores, int64_t count, int32_t* indices) const;

 private:
  /// Writes the indices of the first `wanted` of the `count` candidates, in order. The keys of all candidates lie below
  /// the cut.
  void Sort(int64_t count, int64_t wanted, const ScoreSample& sample, uint32_t cut, int32_t* indices) const;
  /// Puts the candidates into their buckets, and puts the wanted entries of crowded buckets in order.
  void Place(int64_t count, int64_t wanted, int32_t last_bucket) const;

  const core::kernels::IndexerKernels& kernels_;
  int64_t k_;
  uint32_t* keys_;     // keys of the candidates
  int32_t* indices_;   // indices of the candidates
  uint16_t* bucket_;   // buckets of the candidates
  uint64_t* entries_;  // key << 32 | index, bucket after bucket
  int32_t* ends_;      // end of each bucket
  uint16_t* crowded_;  // buckets with more than kRun entries
};

}  // namespace fa::ops

#endif  // FA_OPS_TOP_K_H_
