#ifndef FA_OPS_TOP_K_H_
#define FA_OPS_TOP_K_H_

#include <cstdint>

#include "core/kernels/indexer_kernel_types.h"
#include "ops/carver.h"

namespace fa::ops {

/// The largest of a row of scores, exactly and in order, with the memory of one worker: score descending, then index
/// ascending; -0 counts as +0, NaN comes after -inf.
class TopK {
 public:
  /// For rows of at most max_scores, of which the k largest are wanted; with null memory in the carver it is only
  /// counted.
  TopK(const core::kernels::IndexerKernels& kernels, Carver& carver, int64_t max_scores, int64_t k);

  /// Writes the indices of the min(k, count) largest. @return how many
  int64_t Select(const float* scores, int64_t count, int32_t* indices) const;

 private:
  /// The keys up to `value`, of those that equal it only the first `equal`.
  struct Cut {
    uint32_t value;
    int64_t equal;
  };
  static constexpr int64_t kAllEqual = -1;
  [[nodiscard]] Cut FindCut(int64_t count, uint32_t least, uint32_t greatest) const;
  void Collect(int64_t count, uint32_t least, Cut cut) const;
  [[nodiscard]] const uint64_t* Sort(int64_t count, uint32_t range) const;
  template <int Digits>
  [[nodiscard]] const uint64_t* SortDigits(int64_t count, int bits) const;

  const core::kernels::IndexerKernels& kernels_;
  int64_t k_;
  uint32_t *keys_, *members_;
  uint64_t *chosen_, *swap_;  // (key - least) << 32 | index
};

}  // namespace fa::ops

#endif  // FA_OPS_TOP_K_H_
