#ifndef FA_OPS_RANKS_RUN_ROW_MOVES_H_
#define FA_OPS_RANKS_RUN_ROW_MOVES_H_

#include <cstddef>
#include <vector>

#include "fa/flash_attention_grad.h"
#include "fa/status.h"
#include "fa/transport.h"
#include "ops/ranks/call/bind_grad_ranks.h"
#include "ops/ranks/rows/messenger.h"
#include "ops/ranks/rows/row_tensor.h"
#include "ops/ranks/rows/unit_messages.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// Query rows of a backward whose rows stay, but for those that are summed at once (tiling::RankPlan::q): a rank that
/// computes other rows than it holds, or in another order, has copies of them, made before the first unit; dQ goes to
/// where it belongs after the last. Other ranks work on their own tensors, and exchange nothing.
class RowMoves {
 public:
  /// All rows stay where they are.
  RowMoves() = default;
  /// The tensors of queries in `bound` become the copies, if this rank has any.
  RowMoves(const tiling::RankPlan& plan, BoundGradRanks& bound, tiling::WorkspacePlan& workspace);

  /// Those of one exchange; no others are under way meanwhile.
  [[nodiscard]] MessagesUnderWay UnderWay() const;
  /// `args` with the copies in place of the rank's own rows.
  [[nodiscard]] AttentionGradArgs CopiesOf(const AttentionGradArgs& args, std::byte* workspace) const;
  /// Collective, as TakeBack.
  [[nodiscard]] Status Bring(Transport& transport, const AttentionGradArgs& args, std::byte* workspace) const;
  [[nodiscard]] Status TakeBack(Transport& transport, const AttentionGradArgs& args, std::byte* workspace) const;
  /// Writes NaN over the copies of dQ, of which others may get a part.
  void Spoil(std::byte* workspace) const;

 private:
  using Input = TensorView AttentionGradArgs::*;
  using Output = MutableTensorView AttentionGradArgs::*;
  /// A tensor of own rows, and its copy.
  template <typename Tensor>
  struct Copied {
    Tensor tensor;
    size_t at = 0;     ///< of the copy, in the workspace
    size_t bytes = 0;  ///< of the copy
  };

  ExchangeBuffers Buffers(std::byte* workspace) const;

  std::vector<Copied<Input>> inputs_;
  std::vector<Copied<Output>> outputs_;
  std::vector<RowTensor> held_inputs_, copied_inputs_, held_outputs_, copied_outputs_;
  UnitMessages in_, back_;
  size_t send_ = 0, receive_ = 0, requests_ = 0;
};

}  // namespace fa::ops

#endif  // FA_OPS_RANKS_RUN_ROW_MOVES_H_
