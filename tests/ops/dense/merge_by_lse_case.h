#ifndef FA_TESTS_OPS_DENSE_MERGE_BY_LSE_CASE_H_
#define FA_TESTS_OPS_DENSE_MERGE_BY_LSE_CASE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <iosfwd>
#include <vector>

#include "fa/merge_by_lse.h"
#include "reference/merge_by_lse.h"
#include "support/tensor.h"

namespace fa::test {

/// The description of one merge by lse.
struct MergeByLseCase {
  uint64_t seed = 1;
  DType dtype = DType::kF32;
  int64_t parts = 2, rows = 5, columns = 8;
  bool has_lse = true, positive_empty_lse = false;
  bool transposed = false;       ///< [M, D] tensors are column-major
  int64_t inner = 0, outer = 0;  ///< elements that are left free after each element, and after each row or column
  Placement placement = {};
};

std::ostream& operator<<(std::ostream& out, const MergeByLseCase& c);
/// Returns a valid case that depends on the seed alone.
[[nodiscard]] MergeByLseCase RandomMergeByLseCase(uint64_t seed);

/// Random partial results in guarded buffers. In some rows, some or all parts have no keys; their outputs are NaN.
class MergeByLseProblem {
 public:
  explicit MergeByLseProblem(const MergeByLseCase& c);
  MergeByLseProblem(const MergeByLseProblem&) = delete;
  MergeByLseProblem& operator=(const MergeByLseProblem&) = delete;

  [[nodiscard]] MergeByLseArgs args() const;
  [[nodiscard]] MergeByLseOptions options() const;
  [[nodiscard]] Snapshot TakeSnapshot() const;
  /// Compares the outputs with the reference, within rounding (merge_by_lse_case.cc).
  [[nodiscard]] ::testing::AssertionResult MatchesReference() const;

 private:
  [[nodiscard]] Tensor Rows() const;
  [[nodiscard]] Tensor Statistic() const;
  [[nodiscard]] ::testing::AssertionResult RowMatches(int64_t row) const;

  MergeByLseCase case_;
  std::vector<std::vector<reference::LsePart>> values_;  ///< parts by [row][part]
  std::vector<Tensor> lse_, local_out_;
  Tensor out_, lse_out_;
  std::vector<TensorView> lse_views_, local_out_views_;
};

}  // namespace fa::test

#endif  // FA_TESTS_OPS_DENSE_MERGE_BY_LSE_CASE_H_
