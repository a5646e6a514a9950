#ifndef FA_RANKS_RUN_GRAD_UNIT_H_
#define FA_RANKS_RUN_GRAD_UNIT_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "fa/flash_attention_grad.h"
#include "ops/dense/backward_program.h"
#include "ranks/call/bind_grad_ranks.h"
#include "ranks/rows/messenger.h"
#include "ranks/rows/unit_messages.h"
#include "ranks/run/grad_chain.h"
#include "ranks/run/unit_tensors.h"

namespace fa::ops {

/// What one rank does in one unit of a backward, like ForwardUnit.
class GradUnit : public UnitTensors<AttentionGradArgs> {
 public:
  GradUnit(const BoundGradRanks& bound, const tiling::RankPlan& plan, const tiling::RankUnit& unit,
           const Context& context);

  /// Returns the number of the unit's first sequence, which is also the unit's batch element.
  [[nodiscard]] int64_t first_sequence() const { return first_sequence_; }
  /// Returns the program, or null if this rank has nothing to compute or if rows stay on their rank.
  [[nodiscard]] const BackwardProgram* program() const { return program_.get(); }
  /// Returns the graph of tiles that this rank computes if rows stay on their rank. Returns null if rows do not stay,
  /// or if the rank has no tiles.
  [[nodiscard]] const GradChain* chain() const { return chain_.get(); }
  [[nodiscard]] GradChain::Finished FinishedRows(std::byte* staged) const;
  /// If rows stay on their rank, writes 0 to the gradients of this rank's keys that no row keeps.
  void ClearUnseenKeys(const AttentionGradArgs& args) const;

  /// Copies the bias gradient, summed over rows, from the program's workspace to the memory from which it is sent.
  void KeepBias(std::byte* program_workspace, std::byte* staged) const;
  /// Returns the bias gradient, summed over the rows of all ranks, after it has arrived. The shape is [query heads of
  /// the call][keys of the unit].
  [[nodiscard]] float* ArrivedBias(std::byte* staged) const { return reinterpret_cast<float*>(staged + bias_to_); }
  /// Writes 0 to the bias gradient at keys that no row keeps.
  void ClearUnseenBias(std::byte* staged) const;

  [[nodiscard]] UnitPlaces PlacesOf(const AttentionGradArgs& args, std::byte* staged) const;
  /// Returns the arguments for a run of the program. dsink is absent. dslopes is not written; it only says whether the
  /// call wants dslopes.
  [[nodiscard]] AttentionGradArgs UnitArgs(const AttentionGradArgs& args, std::byte* staged) const;

 private:
  void AddInputs(const BoundAttentionGrad& part);
  void AddOutputs(const BoundAttentionGrad& part);
  void AddBias();
  void PlanChain(const tiling::RankPlan& plan, const tiling::RankUnit& unit, BoundAttentionGrad part,
                 const Context& context);
  [[nodiscard]] bool has_bias() const { return HasKeyBias(bound_); }

  const BoundGradRanks& bound_;
  int64_t first_sequence_ = 0;
  tiling::Interval key_axis_;  ///< rows of the key axis that belong to the unit
  /// If rows stay on their rank, the keys whose gradients this rank finishes.
  StagedRows finished_;
  std::vector<tiling::PlacedRows> unseen_;       ///< if rows stay on their rank: this rank's keys that no row keeps
  std::vector<tiling::Interval> unseen_of_all_;  ///< if rows stay on their rank: keys of all ranks that no row keeps
  size_t bias_from_ = 0, bias_to_ = 0;           ///< where the sums of the bias gradient are staged, if has_bias()
  std::unique_ptr<const BackwardProgram> program_;
  std::unique_ptr<const GradChain> chain_;
};

}  // namespace fa::ops

#endif  // FA_RANKS_RUN_GRAD_UNIT_H_
