#ifndef FA_TOOLS_FA_CASES_CASE_TENSORS_H_
#define FA_TOOLS_FA_CASES_CASE_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "check/forward_row.h"
#include "files/tensors.h"
#include "flags/layout_shapes.h"

namespace fa::tool {

/// Returns a tensor with the shape and type of `view`, not initialised.
[[nodiscard]] Tensor NewLike(const TensorView& view);
/// Fills the tensor with nearly normal values of variance 1. The values are the same in every run.
void FillRandom(Tensor& tensor, uint64_t seed);
/// Returns a table with the shape of `table` that names every page once. The order is random, and the same in every
/// run.
[[nodiscard]] Tensor RandomPages(const TensorView& table);
/// Returns one head's rows in a dense tensor of this layout.
[[nodiscard]] check::HeadRows RowsOf(const Tensor& tensor, Layout layout, const TensorSizes& sizes, int64_t batch,
                                     int64_t head);

/// The expected values of a row of a result. `bound` has one entry per column: how far the result may be off.
struct ExpectedRow {
  std::string name;  ///< "out[batch 0, head 1, row 2"; CheckRow adds the column
  const std::vector<double>& value;
  const std::vector<double>& bound;
};
/// Throws Failure if an element is further from the expected value than its bound.
/// @return the largest distance, as a fraction of the element's bound
double CheckRow(const check::HeadRows& got, int64_t row, const ExpectedRow& want);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_CASE_TENSORS_H_
