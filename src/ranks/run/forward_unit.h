#ifndef FA_RANKS_RUN_FORWARD_UNIT_H_
#define FA_RANKS_RUN_FORWARD_UNIT_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "fa/flash_attention.h"
#include "ops/bind/attention_rows.h"
#include "ops/dense/forward_program.h"
#include "ranks/call/bind_ranks.h"
#include "ranks/rows/messenger.h"
#include "ranks/rows/row_tensor.h"
#include "ranks/rows/unit_messages.h"

namespace fa::ops {

/// One rank's share of one unit of a forward: rows that arrive, the program that computes, and results that go back.
class ForwardUnit {
 public:
  ForwardUnit(const BoundRanks& bound, const tiling::RankPlan& plan, const tiling::RankUnit& unit,
              const Context& context);

  [[nodiscard]] const UnitMessages& in() const { return in_; }
  [[nodiscard]] const UnitMessages& back() const { return back_; }
  /// The tensors of in() and back(), where they are sent from and where they arrive.
  [[nodiscard]] const std::vector<RowTensor>& in_from() const { return in_from_; }
  [[nodiscard]] const std::vector<RowTensor>& in_to() const { return in_to_; }
  [[nodiscard]] const std::vector<RowTensor>& back_from() const { return back_from_; }
  [[nodiscard]] const std::vector<RowTensor>& back_to() const { return back_to_; }
  /// Null if this rank has nothing to compute.
  [[nodiscard]] const ForwardProgram* program() const { return program_.get(); }
  [[nodiscard]] size_t staged_bytes() const { return staged_bytes_; }

  /// Addresses of the tensors of in_from(), in_to(), back_from() and back_to().
  [[nodiscard]] UnitPlaces PlacesOf(const AttentionArgs& args, std::byte* staged) const;
  /// Writes 0 to the staged rows next to the needed ones.
  void ClearSlack(std::byte* staged) const;
  /// Addresses of the program's tensors.
  [[nodiscard]] ForwardAddresses UnitAddresses(const AttentionArgs& args, std::byte* staged) const;

 private:
  void AddTensors(const BoundRanks& bound, const BoundAttention& part, bool whole_heads);

  const BoundRanks& bound_;
  tiling::Interval heads_;
  int64_t batch_ = 0;
  bool staged_queries_ = false;
  StagedRows queries_, keys_;
  UnitMessages in_, back_;
  std::vector<RowTensor> in_from_, in_to_, back_from_, back_to_;
  std::vector<size_t> in_at_, back_at_;  ///< where in_to_ and back_from_ are staged
  size_t staged_bytes_ = 0;
  std::unique_ptr<const ForwardProgram> program_;
};

}  // namespace fa::ops

#endif  // FA_RANKS_RUN_FORWARD_UNIT_H_
