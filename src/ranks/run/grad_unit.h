#ifndef FA_RANKS_RUN_GRAD_UNIT_H_
#define FA_RANKS_RUN_GRAD_UNIT_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "fa/flash_attention_grad.h"
#include "ops/dense/backward_program.h"
#include "ranks/call/bind_grad_ranks.h"
#include "ranks/rows/messenger.h"
#include "ranks/rows/row_tensor.h"
#include "ranks/rows/unit_messages.h"
#include "ranks/run/grad_chain.h"

namespace fa::ops {

/// One rank's share of one unit of a backward, like ForwardUnit.
class GradUnit {
 public:
  GradUnit(const BoundGradRanks& bound, const tiling::RankPlan& plan, const tiling::RankUnit& unit,
           const Context& context);

  [[nodiscard]] const UnitMessages& in() const { return in_; }
  [[nodiscard]] const UnitMessages& back() const { return back_; }
  [[nodiscard]] const std::vector<RowTensor>& in_from() const { return in_from_; }
  [[nodiscard]] const std::vector<RowTensor>& in_to() const { return in_to_; }
  [[nodiscard]] const std::vector<RowTensor>& back_from() const { return back_from_; }
  [[nodiscard]] const std::vector<RowTensor>& back_to() const { return back_to_; }
  [[nodiscard]] size_t staged_bytes() const { return staged_bytes_; }
  [[nodiscard]] tiling::Interval heads() const { return heads_; }  ///< kv heads
  /// Number of the unit's first sequence, and the unit's batch element.
  [[nodiscard]] int64_t first_sequence() const { return first_sequence_; }
  /// Null if this rank has nothing to compute, or if rows stay.
  [[nodiscard]] const BackwardProgram* program() const { return program_.get(); }
  /// The rank's work if rows stay; otherwise null.
  [[nodiscard]] const GradChain* chain() const { return chain_.get(); }
  [[nodiscard]] GradChain::Finished FinishedRows(std::byte* staged) const;
  /// If rows stay, writes 0 to the gradients of this rank's keys that no row keeps.
  void ClearUnseenKeys(const AttentionGradArgs& args) const;

  /// Keeps the program's sums over rows, to be sent to all ranks.
  void KeepBias(std::byte* program_workspace, std::byte* staged) const;
  /// The sums over the rows of all ranks, which have arrived: [query heads of the call][keys of the unit].
  [[nodiscard]] float* ArrivedBias(std::byte* staged) const { return reinterpret_cast<float*>(staged + bias_to_); }
  /// Writes 0 to the sums of keys that no row keeps.
  void ClearUnseenBias(std::byte* staged) const;

  [[nodiscard]] UnitPlaces PlacesOf(const AttentionGradArgs& args, std::byte* staged) const;
  void ClearSlack(std::byte* staged) const;
  /// The arguments of the program. dsink is absent; dslopes only says whether it is wanted.
  [[nodiscard]] AttentionGradArgs UnitArgs(const AttentionGradArgs& args, std::byte* staged) const;

 private:
  using Input = TensorView AttentionGradArgs::*;
  using Output = MutableTensorView AttentionGradArgs::*;

  void AddInputs(const BoundAttentionGrad& part);
  void AddOutputs(const BoundAttentionGrad& part);
  void AddBias();
  [[nodiscard]] size_t Book(const RowTensor& staged, int64_t rows);
  void PlanChain(const tiling::RankPlan& plan, const tiling::RankUnit& unit, BoundAttentionGrad part,
                 const Context& context);
  [[nodiscard]] bool has_bias() const { return HasKeyBias(bound_); }
  void Bring(Input tensor, RowTensor shape, const layout::Rows& from, const layout::Rows& to);
  void TakeBack(Output tensor, RowTensor shape, const layout::Rows& from, const layout::Rows& to);

  const BoundGradRanks& bound_;
  tiling::Interval heads_;
  int64_t batch_ = 0, first_sequence_ = 0;
  bool staged_queries_ = false;
  tiling::Interval key_axis_;  ///< rows of the key axis that belong to the unit
  StagedRows queries_, keys_;
  StagedRows finished_;                          ///< if rows stay, keys whose gradients this rank rounds
  std::vector<tiling::PlacedRows> unseen_;       ///< if rows stay, own keys that no row keeps
  std::vector<tiling::Interval> unseen_of_all_;  ///< if rows stay, keys of all ranks that no row keeps
  UnitMessages in_, back_;
  std::vector<RowTensor> in_from_, in_to_, back_from_, back_to_;
  std::vector<Input> inputs_;            ///< tensors of in_from_
  std::vector<Output> outputs_;          ///< tensors of back_to_
  std::vector<size_t> in_at_, back_at_;  ///< where in_to_ and back_from_ are staged
  size_t bias_from_ = 0, bias_to_ = 0;   ///< the same for the tensors of a bias, if has_bias()
  size_t staged_bytes_ = 0;
  std::unique_ptr<const BackwardProgram> program_;
  std::unique_ptr<const GradChain> chain_;
};

}  // namespace fa::ops

#endif  // FA_RANKS_RUN_GRAD_UNIT_H_
