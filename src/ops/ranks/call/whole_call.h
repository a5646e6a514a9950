#ifndef FA_OPS_RANKS_CALL_WHOLE_CALL_H_
#define FA_OPS_RANKS_CALL_WHOLE_CALL_H_

#include <cstdint>
#include <vector>

#include "fa/options.h"
#include "fa/status.h"
#include "fa/tensor.h"
#include "layout/bind_layout.h"
#include "tiling/ranks/row_shards.h"

namespace fa::ops {

// The call of a rank as that of all ranks: what forward and backward share.

/// What of `rows` the rank holds, as rows of its own tensors.
[[nodiscard]] std::vector<tiling::Interval> OwnRows(const tiling::RowShards& shards, int rank, tiling::Interval rows);

/// Refuses what no call over ranks takes.
[[nodiscard]] Status CheckTaken(const TensorView& drop_mask);

/// A tensor of a rank that has no rows needs no memory: bind sees it as what it is, given. Null data of tensors that
/// have no elements for another reason stays as it is.
/// @param at  the dimension of rows
void MarkGivenWithoutRows(TensorView* tensor, int at);
void MarkGivenWithoutRows(MutableTensorView* tensor, int at);

/// Tensors of one rank with the sizes that they have in the whole call; the caller's strides are checked and left out.
class WholeTensors {
 public:
  WholeTensors(const tiling::RowShards& q, const tiling::RowShards& k, int rank) : q_(q), k_(k), rank_(rank) {}

  [[nodiscard]] const tiling::RowShards& queries() const { return q_; }
  /// How many of these query rows the rank holds.
  [[nodiscard]] int64_t OwnCount(tiling::Interval rows) const;

  /// Tensors of a wrong rank are left to bind.
  template <typename View>
  [[nodiscard]] Status Widen(const char* name, View* tensor, const layout::Axes& axes, bool queries,
                             bool written = false) const {
    return WidenAxis(name, *tensor, {axes.rank, axes.seq, queries, false}, &tensor->shape, &tensor->stride, written);
  }
  /// Dimension `at` is rows of queries.
  [[nodiscard]] Status WidenQueries(const char* name, TensorView* tensor, int at) const {
    return WidenAxis(name, *tensor, {tensor->shape.rank(), at, true, false}, &tensor->shape, &tensor->stride, false);
  }
  /// A statistic of rows.
  template <typename View>
  [[nodiscard]] Status WidenStatistic(const char* name, View* tensor, bool packed, bool written) const {
    return WidenAxis(name, *tensor, {packed ? 2 : 3, packed ? 0 : 2, true, true}, &tensor->shape, &tensor->stride,
                     written);
  }

 private:
  struct Axis {
    int rank, at;  ///< of at least so many dimensions, the one that is cut
    bool queries, any_innermost;
  };
  [[nodiscard]] Status WidenAxis(const char* name, const TensorView& tensor, const Axis& axis, Dims* shape,
                                 Dims* stride, bool written) const;

  const tiling::RowShards& q_;
  const tiling::RowShards& k_;
  int rank_;
};

}  // namespace fa::ops

#endif  // FA_OPS_RANKS_CALL_WHOLE_CALL_H_
