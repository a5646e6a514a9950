#ifndef FA_RANKS_RUN_ROW_MOVES_H_
#define FA_RANKS_RUN_ROW_MOVES_H_

#include <cstddef>
#include <vector>

#include "fa/flash_attention_grad.h"
#include "fa/status.h"
#include "fa/transport.h"
#include "ranks/call/bind_grad_ranks.h"
#include "ranks/rows/messenger.h"
#include "ranks/rows/row_tensor.h"
#include "ranks/rows/unit_messages.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// Copies moved rows before the first unit of a backward with kSequence, and sends their dQ back after the last unit.
/// A row moves only if one instruction sums it with rows of another rank (tiling::RankPlan::q). A rank that computes
/// just the rows that it holds, in the same order, copies nothing.
class RowMoves {
 public:
  /// Makes an object for a rank without moved rows.
  RowMoves() = default;
  /// If this rank needs copies, the tensors of queries in `bound` become these copies.
  RowMoves(const tiling::RankPlan& plan, BoundGradRanks& bound, tiling::WorkspacePlan& workspace);

  /// Returns the messages of one exchange. No other messages are under way during an exchange.
  [[nodiscard]] MessagesUnderWay UnderWay() const;
  /// Returns `args` with the copies in place of the rank's own rows.
  [[nodiscard]] AttentionGradArgs CopiesOf(const AttentionGradArgs& args, std::byte* workspace) const;
  /// Makes the copies. All ranks must call this function, and also TakeBack.
  [[nodiscard]] Status Bring(Transport& transport, const AttentionGradArgs& args, std::byte* workspace) const;
  [[nodiscard]] Status TakeBack(Transport& transport, const AttentionGradArgs& args, std::byte* workspace) const;
  /// Writes NaN over the copies of dQ, because other ranks may get parts of the copies.
  void Spoil(std::byte* workspace) const;

 private:
  using Input = TensorView AttentionGradArgs::*;
  using Output = MutableTensorView AttentionGradArgs::*;
  /// A tensor of the rank's own rows, and its copy.
  template <typename Tensor>
  struct Copied {
    Tensor tensor;
    size_t at = 0;     ///< offset of the copy in the workspace
    size_t bytes = 0;  ///< size of the copy
  };

  ExchangeBuffers Buffers(std::byte* workspace) const;

  std::vector<Copied<Input>> inputs_;
  std::vector<Copied<Output>> outputs_;
  std::vector<RowTensor> held_inputs_, copied_inputs_, held_outputs_, copied_outputs_;
  UnitMessages in_, back_;
  size_t send_ = 0, receive_ = 0, requests_ = 0;
};

}  // namespace fa::ops

#endif  // FA_RANKS_RUN_ROW_MOVES_H_
