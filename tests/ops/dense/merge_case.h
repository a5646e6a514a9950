#ifndef FA_TESTS_OPS_DENSE_MERGE_CASE_H_
#define FA_TESTS_OPS_DENSE_MERGE_CASE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <iosfwd>
#include <vector>

#include "fa/merge.h"
#include "reference/merge.h"
#include "support/tensor.h"

namespace fa::test {

/// The description of one merge.
struct MergeCase {
  uint64_t seed = 1;
  DType dtype = DType::kF32;
  Layout layout = Layout::kSBH;
  int64_t batch = 2, heads = 3, rows = 5, d = 8;            ///< the sizes; TND has one batch element
  int64_t prev_copies = 1, cur_copies = 1, out_copies = 1;  ///< how often each statistic is stored: 1 or 8 times
  bool in_place = false;                                    ///< whether the outputs overwrite the tensors of prev
  Padding padding = {};
  Placement placement = {};
};

std::ostream& operator<<(std::ostream& out, const MergeCase& c);
/// Returns a valid case that depends on the seed alone.
[[nodiscard]] MergeCase RandomMergeCase(uint64_t seed);

/// Random partial results in guarded buffers. Some rows have no keys in `prev`, in `cur`, or in both.
class MergeProblem {
 public:
  explicit MergeProblem(const MergeCase& c);
  MergeProblem(const MergeProblem&) = delete;
  MergeProblem& operator=(const MergeProblem&) = delete;

  [[nodiscard]] const MergeCase& merge_case() const { return case_; }
  [[nodiscard]] MergeArgs args() const;
  [[nodiscard]] MergeOptions options() const;
  [[nodiscard]] Snapshot TakeSnapshot() const;
  /// Restores the values of `prev`, which in-place outputs overwrite.
  void RestoreInputs() const;
  /// Compares the outputs. They must be exact in rows in which a partial has no keys, and within rounding
  /// (merge_case.cc) in the others.
  [[nodiscard]] ::testing::AssertionResult MatchesReference() const;

 private:
  struct Partial {
    HeadTensor out, max, sum;
    int64_t copies = 1;
  };
  [[nodiscard]] Partial Place(int64_t copies) const;
  void Fill(const std::vector<reference::PartialRow>& rows, const Partial& to) const;
  /// Returns every copy of one row's statistic.
  [[nodiscard]] std::vector<double> Statistic(const HeadTensor& from, int64_t copies, int64_t row) const;
  [[nodiscard]] int64_t Offset(const HeadTensor& tensor, int64_t row) const;
  [[nodiscard]] const Partial& result() const { return case_.in_place ? prev_ : out_; }

  MergeCase case_;
  std::vector<reference::PartialRow> prev_rows_, cur_rows_;  ///< rows by [batch][head][row]
  Partial prev_, cur_, out_;
};

}  // namespace fa::test

#endif  // FA_TESTS_OPS_DENSE_MERGE_CASE_H_
