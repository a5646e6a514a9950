#ifndef FA_OPS_BLOCK_SCORE_STEP_H_
#define FA_OPS_BLOCK_SCORE_STEP_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/kernels/kernel_types.h"
#include "ops/indexer/bind_block_score.h"
#include "ops/indexer/indexer_tile.h"

namespace fa::ops {

/// Writes the scores of a token's blocks, with the constants of the blocks that are always selected.
class BlockScoreStep final : public TokenStep {
 public:
  static constexpr const char* kOp = "index score";

  BlockScoreStep(const BlockScoreProblem& problem, const core::kernels::KernelTable& /*table*/,
                 const BlockScoreRows& rows)
      : problem_(problem), rows_(rows) {}

  [[nodiscard]] static std::string ResultOf(const BlockScoreProblem& problem) {
    return "maxima of up to " + std::to_string(problem.shape.BlocksPerHead()) + " blocks per head";
  }
  /// Returns 0, because the step copies from the row of scores.
  [[nodiscard]] static size_t ScratchBytes(const BlockScoreProblem& /*problem*/,
                                           const core::kernels::KernelTable& /*table*/) {
    return 0;
  }

  void operator()(const SparseToken& token, float* scores, std::byte* scratch) const override;
  /// Writes -inf to the rows of tokens that no sequence uses.
  void WriteUnusedRows(std::byte* scratch) const;

 private:
  /// Returns the block to which the token's local blocks lead.
  [[nodiscard]] int64_t OwnBlock(const SparseToken& token) const;
  [[nodiscard]] float* Row(int64_t head, int64_t row) const {
    return reinterpret_cast<float*>(rows_.score.At(0, head, row));
  }

  BlockScoreProblem problem_;
  const BlockScoreRows& rows_;
};

}  // namespace fa::ops

#endif  // FA_OPS_BLOCK_SCORE_STEP_H_
