#ifndef FA_OPS_STATISTICS_STEP_H_
#define FA_OPS_STATISTICS_STEP_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/kernels/kernel_types.h"
#include "ops/indexer/bind_indexer_lse.h"
#include "ops/indexer/indexer_tile.h"
#include "ops/indexer/loss_row.h"

namespace fa::ops {

/// Takes the maximum of a token's scores, and the sum of their exponentials.
class StatisticsStep final : public TokenStep {
 public:
  static constexpr const char* kOp = "dense indexer lse";

  StatisticsStep(const SparseSequences& sequences, const core::kernels::KernelTable& table, const StatisticsRows& rows)
      : sequences_(sequences), kernels_(*table.rows), rows_(rows) {}

  [[nodiscard]] static std::string ResultOf(const SparseSequences& /*sequences*/) { return "maximum and sum"; }
  /// Returns 0, because the exponentials overwrite the scores.
  [[nodiscard]] static size_t ScratchBytes(const SparseSequences& /*sequences*/,
                                           const core::kernels::KernelTable& /*table*/) {
    return 0;
  }

  void operator()(const SparseToken& token, float* scores, std::byte* scratch) const override;
  /// Writes maximum 0 and sum 0 to the rows of tokens that no sequence uses.
  void WriteUnusedRows(std::byte* scratch) const;

 private:
  void Write(int64_t batch, int64_t row, const RowStatistics& statistics) const;

  const SparseSequences& sequences_;
  const core::kernels::RowKernels& kernels_;
  const StatisticsRows& rows_;
};

}  // namespace fa::ops

#endif  // FA_OPS_STATISTICS_STEP_H_
