#ifndef FA_OPS_SELECTION_STEP_H_
#define FA_OPS_SELECTION_STEP_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/kernels/kernel_types.h"
#include "ops/indexer/bind_indexer.h"
#include "ops/indexer/indexer_tile.h"
#include "ops/indexer/top_k.h"
#include "ops/plan/carver.h"

namespace fa::ops {

/// Selects the keys with a token's largest scores.
class SelectionStep final : public TokenStep {
 public:
  static constexpr const char* kOp = "indexer";

  SelectionStep(const SelectionProblem& problem, const core::kernels::KernelTable& table, const SelectionRows& rows)
      : problem_(problem), table_(table), rows_(rows) {}

  [[nodiscard]] static std::string ResultOf(const SelectionProblem& problem);
  /// Returns the number of bytes of one worker's scratch.
  [[nodiscard]] static size_t ScratchBytes(const SelectionProblem& problem, const core::kernels::KernelTable& table);

  void operator()(const SparseToken& token, float* scores, std::byte* scratch) const override;
  /// Writes the rows of tokens that no sequence uses. All entries of these rows get index -1 and value -inf.
  void WriteUnusedRows(std::byte* scratch) const;

 private:
  struct Scratch {
    Scratch(Carver& carver, const SelectionProblem& problem, const core::kernels::KernelTable& table);
    float* values;  ///< values of one token's entries
    TopK top_k;
  };

  [[nodiscard]] Scratch ScratchAt(std::byte* memory) const;
  void WriteEntries(int64_t batch, int64_t row, int64_t used, float* values) const;

  SelectionProblem problem_;
  const core::kernels::KernelTable& table_;
  const SelectionRows& rows_;
};

}  // namespace fa::ops

#endif  // FA_OPS_SELECTION_STEP_H_
