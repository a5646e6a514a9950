#ifndef FA_OPS_HEAD_STRIPS_H_
#define FA_OPS_HEAD_STRIPS_H_

#include <algorithm>
#include <cstdint>

#include "core/kernels/indexer/indexer_kernel_types.h"
#include "core/kernels/kernel_types.h"
#include "core/saturating.h"
#include "fa/tensor.h"

namespace fa::ops {

/// The heads of one query token along the lanes of strips of one width. Panels [d][width] and tiles [keys][width] have
/// one strip after the other.
class HeadStrips {
 public:
  HeadStrips(const core::kernels::KernelTable& table, int64_t heads);

  [[nodiscard]] const core::kernels::StripKernels& kernels() const { return *kernels_; }
  [[nodiscard]] int64_t heads() const { return heads_; }
  [[nodiscard]] int64_t width() const { return kernels_->width; }
  [[nodiscard]] int64_t strips() const { return strips_; }
  /// Returns the number of lanes of all strips, including lanes without a head.
  [[nodiscard]] int64_t lanes() const { return strips_ * width(); }
  [[nodiscard]] int64_t First(int64_t strip) const { return strip * width(); }
  [[nodiscard]] int64_t Count(int64_t strip) const { return std::min(width(), heads_ - First(strip)); }
  [[nodiscard]] int64_t PanelFloats(int64_t d) const { return core::SaturatedProduct(kernels_->PanelRows(d), lanes()); }

  /// Packs the heads' rows of d elements into the panel.
  void Pack(const core::kernels::RowBlock& q, int64_t d, float* panel) const;
  /// Computes s = the products of `keys` rows with every head; with `accumulate` it adds them to s.
  void Scores(const core::kernels::RowBlock& rows, int64_t keys, const float* panel, int64_t d, bool accumulate,
              float* s) const;
  /// Computes sum[key] = the sum over the heads of weight * f(s), where f is max(0, .) or the identity.
  void SumHeads(const core::kernels::IndexerKernels& kernels, const float* s, int64_t keys, const float* weights,
                bool relu, float* sum) const;

 private:
  const core::kernels::StripKernels* kernels_;
  int64_t heads_, strips_;
};

}  // namespace fa::ops

#endif  // FA_OPS_HEAD_STRIPS_H_
