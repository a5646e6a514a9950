#ifndef FA_RANKS_RUN_UNIT_TENSORS_H_
#define FA_RANKS_RUN_UNIT_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fa/sequence_shards.h"
#include "fa/tensor.h"
#include "layout/rows_view.h"
#include "ranks/plan/rank_plan.h"
#include "ranks/rows/messenger.h"
#include "ranks/rows/row_tensor.h"
#include "ranks/rows/unit_messages.h"
#include "tiling/row_cut.h"
#include "tiling/row_interval.h"

namespace fa::ops {

/// The tensors of one unit whose rows are sent between ranks. Rows of inputs arrive before the unit is computed, and
/// rows of results go back afterwards. Each tensor is a member of the call's arguments. The computing rank stages the
/// rows in its own memory.
template <typename Args>
class UnitTensors {
 public:
  [[nodiscard]] const UnitMessages& in() const { return in_; }
  [[nodiscard]] const UnitMessages& back() const { return back_; }
  /// Return the layouts of the inputs (in) and of the results (back), as they are sent (from) and as they arrive (to).
  [[nodiscard]] const std::vector<RowTensor>& in_from() const { return in_from_; }
  [[nodiscard]] const std::vector<RowTensor>& in_to() const { return in_to_; }
  [[nodiscard]] const std::vector<RowTensor>& back_from() const { return back_from_; }
  [[nodiscard]] const std::vector<RowTensor>& back_to() const { return back_to_; }
  [[nodiscard]] size_t staged_bytes() const { return staged_bytes_; }
  [[nodiscard]] tiling::Interval heads() const { return heads_; }  ///< kv heads of the unit that this rank computes

  /// Returns the addresses of the tensors of in_from(), in_to(), back_from() and back_to().
  [[nodiscard]] UnitPlaces PlacesOf(const Args& args, std::byte* staged) const {
    UnitPlaces places;
    for (size_t t = 0; t < inputs_.size(); ++t) {
      places.in_from.Add(layout::RowsView((args.*inputs_[t]).data, in_from_[t].rows).At(batch_, 0, 0));
      places.in_to.Add(staged + in_at_[t]);
    }
    for (size_t t = 0; t < outputs_.size(); ++t) {
      places.back_from.Add(staged + back_at_[t]);
      places.back_to.Add(layout::MutableRowsView((args.*outputs_[t]).data, back_to_[t].rows).At(batch_, 0, 0));
    }
    return places;
  }
  /// Writes 0 to the staged rows next to the needed keys.
  void ClearSlack(std::byte* staged) const { ops::ClearSlack(in_to_, in_at_, keys_, heads_.size(), staged); }

 protected:
  using Input = TensorView Args::*;
  using Output = MutableTensorView Args::*;

  UnitTensors(const tiling::RankCall& call, const tiling::RankPlan& plan, const tiling::RankUnit& unit, int rank)
      : heads_(unit.heads[static_cast<size_t>(rank)]),
        batch_(call.packed ? 0 : unit.sequences.begin),
        group_(call.problem.group()),
        staged_queries_(plan.strategy == SequenceShards::Strategy::kHeads),
        queries_(NeededRows(call, plan, unit, rank, tiling::RowAxis::kQuery), 0),
        keys_(NeededRows(call, plan, unit, rank, tiling::RowAxis::kKey), tiling::kKeyStep) {}

  [[nodiscard]] static RowTensor Key(int64_t columns) { return {.axis = tiling::RowAxis::kKey, .columns = columns}; }
  [[nodiscard]] RowTensor Query(int64_t columns) const {
    return {.axis = tiling::RowAxis::kQuery, .heads_per_kv = group_, .columns = columns};
  }
  void Bring(Input tensor, RowTensor shape, const layout::Rows& from, const layout::Rows& to) {
    inputs_.push_back(tensor);
    shape.rows = from;
    in_from_.push_back(shape);
    shape.rows = to;
    in_to_.push_back(shape);
    in_at_.push_back(Book(shape, shape.axis == tiling::RowAxis::kQuery ? queries_.rows : keys_.rows));
  }
  /// Adds a result that goes back.
  /// @param from  the layout of the staged result, with `rows` rows per head
  void TakeBack(Output tensor, RowTensor shape, const layout::Rows& from, const layout::Rows& to, int64_t rows) {
    outputs_.push_back(tensor);
    shape.rows = to;
    back_to_.push_back(shape);
    shape.rows = from;
    back_from_.push_back(shape);
    back_at_.push_back(Book(shape, rows));
  }
  size_t Book(const RowTensor& staged, int64_t rows) {
    const size_t at = staged_bytes_;
    staged_bytes_ += AlignedBytes(heads_.size() * staged.HeadBytes(rows));
    return at;
  }

  /// Returns the arguments, with the addresses of staged tensors. Results are staged if queries are staged.
  [[nodiscard]] Args StagedArgs(const Args& args, std::byte* staged) const {
    const auto lead_bytes = [&](const RowTensor& tensor) {
      return tensor.axis == tiling::RowAxis::kKey ? keys_.lead * tensor.RowBytes() : 0;
    };
    Args part = args;
    for (size_t t = 0; t < inputs_.size(); ++t) {
      (part.*inputs_[t]).data = staged + in_at_[t] - lead_bytes(in_to_[t]);
    }
    for (size_t t = 0; staged_queries_ && t < outputs_.size(); ++t) {
      (part.*outputs_[t]).data = staged + back_at_[t] - lead_bytes(back_from_[t]);
    }
    return part;
  }
  /// Moves the address of a tensor of this rank's queries to the unit's batch element and heads.
  void MoveToUnit(TensorView& view, const layout::Rows& rows) const {
    view.data = layout::RowsView(view.data, rows).At(batch_, heads_.begin * group_, 0);
  }
  void MoveToUnit(MutableTensorView& view, const layout::Rows& rows) const {
    view.data = layout::MutableRowsView(view.data, rows).At(batch_, heads_.begin * group_, 0);
  }
  /// Moves the address of a tensor with one value per query head to the unit's first head.
  void MoveToUnit(TensorView& values_of_heads) const {
    values_of_heads.data = static_cast<const float*>(values_of_heads.data) + heads_.begin * group_;
  }

  tiling::Interval heads_;
  int64_t batch_ = 0, group_ = 1;
  bool staged_queries_ = false;
  StagedRows queries_, keys_;
  UnitMessages in_, back_;
  std::vector<RowTensor> in_from_, in_to_, back_from_, back_to_;
  std::vector<Input> inputs_;            ///< the members of the arguments that hold the tensors of in_from_
  std::vector<Output> outputs_;          ///< the members of the arguments that hold the tensors of back_to_
  std::vector<size_t> in_at_, back_at_;  ///< offsets, in the staged memory, of the tensors of in_to_ and back_from_
  size_t staged_bytes_ = 0;
};

}  // namespace fa::ops

#endif  // FA_RANKS_RUN_UNIT_TENSORS_H_
