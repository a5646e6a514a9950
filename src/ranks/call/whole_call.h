#ifndef FA_RANKS_CALL_WHOLE_CALL_H_
#define FA_RANKS_CALL_WHOLE_CALL_H_

#include <cstdint>
#include <vector>

#include "fa/options.h"
#include "fa/pair_mask.h"
#include "fa/status.h"
#include "fa/tensor.h"
#include "layout/bind_layout.h"
#include "ranks/plan/row_shards.h"

namespace fa::ops {

/// Returns the rank's share of the rows `rows`, as intervals of rows of the rank's own tensors.
[[nodiscard]] std::vector<tiling::Interval> OwnRows(const tiling::RowShards& shards, int rank, tiling::Interval rows);

/// Refuses arguments that no call over ranks takes.
[[nodiscard]] Status CheckTaken(const TensorView& drop_mask, const PairMask* pair_mask, const TensorView& sink,
                                const TensorView& dsink = {});

/// Gives a tensor an address if its data is null only because this rank has no rows. Bind then takes the tensor as
/// given. If the tensor has no elements for another reason, its data stays null.
/// @param at  the dimension of `tensor` that counts rows
void MarkGivenWithoutRows(TensorView* tensor, int at);
void MarkGivenWithoutRows(MutableTensorView* tensor, int at);

/// Widens tensors of one rank: gives each tensor the sizes that it has in the whole call. Widening checks the caller's
/// strides and then drops them.
class WholeTensors {
 public:
  WholeTensors(const tiling::RowShards& q, const tiling::RowShards& k, int rank) : q_(q), k_(k), rank_(rank) {}

  [[nodiscard]] const tiling::RowShards& queries() const { return q_; }
  /// Returns how many of the query rows `rows` the rank holds.
  [[nodiscard]] int64_t OwnCount(tiling::Interval rows) const;

  /// Widens a tensor. A tensor with a wrong number of dimensions stays as it is, and bind reports it.
  template <typename View>
  [[nodiscard]] Status Widen(const char* name, View* tensor, const layout::Axes& axes, bool queries,
                             bool written = false) const {
    return WidenAxis(name, *tensor, {axes.rank, axes.seq, queries, false}, &tensor->shape, &tensor->stride, written);
  }
  /// Widens a tensor whose dimension `at` counts rows of queries.
  [[nodiscard]] Status WidenQueries(const char* name, TensorView* tensor, int at) const {
    return WidenAxis(name, *tensor, {tensor->shape.rank(), at, true, false}, &tensor->shape, &tensor->stride, false);
  }
  /// Widens a statistic, which has one value per row.
  template <typename View>
  [[nodiscard]] Status WidenStatistic(const char* name, View* tensor, bool packed, bool written) const {
    return WidenAxis(name, *tensor, {packed ? 2 : 3, packed ? 0 : 2, true, true}, &tensor->shape, &tensor->stride,
                     written);
  }

 private:
  struct Axis {
    int rank, at;  ///< the least number of dimensions of the tensor, and the dimension that is cut
    bool queries, any_innermost;
  };
  [[nodiscard]] Status WidenAxis(const char* name, const TensorView& tensor, const Axis& axis, Dims* shape,
                                 Dims* stride, bool written) const;

  const tiling::RowShards& q_;
  const tiling::RowShards& k_;
  int rank_;
};

}  // namespace fa::ops

#endif  // FA_RANKS_CALL_WHOLE_CALL_H_
