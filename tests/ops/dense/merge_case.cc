#include "ops/dense/merge_case.h"

#include <cfloat>
#include <cmath>
#include <ostream>

#include "support/cases/random_token_case.h"
#include "support/cases/random_values.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

constexpr double kLargest = static_cast<double>(FLT_MAX);
constexpr double kUnit = 0x1p-24;
/// Each factor exp(x) has the error of exp (2 ulp), and the error from rounding x (|x| <= 50 here, so at most 50 *
/// 2^-24 of the factor). A product, a sum and a quotient follow. All errors together are below 64 units.
constexpr double kUnits = 64;

enum Side : int64_t { kPrev, kCur };

/// Draws the partial result of a row. Two rows in ten have no keys: one in the form (-FLT_MAX, FLT_MAX) of maximum and
/// sum, one in the form (0, 0).
reference::PartialRow DrawRow(const MergeCase& c, Side side, int64_t row) {
  const auto normal = [&](int64_t x) { return RandomNormal(c.seed, Tag::kV, {side, row, x}); };
  reference::PartialRow drawn;
  const uint64_t kind = RandomBits(c.seed, Tag::kChoice, {side, row}) % 10;
  drawn.max = kind == 0 ? -kLargest : kind == 1 ? 0 : RoundTo(DType::kF32, 5 * normal(-1));
  drawn.sum = kind == 0 ? kLargest : kind == 1 ? 0 : RoundTo(DType::kF32, 1 + std::fabs(10 * normal(-2)));
  for (int64_t x = 0; x < c.d; ++x) drawn.out.push_back(kind <= 1 ? 0 : RoundTo(c.dtype, normal(x)));
  return drawn;
}

Layout ResultLayout(Layout layout) { return layout == Layout::kBNSD_BSND ? Layout::kBSND : layout; }

/// Returns an output's tolerance, which covers the errors of the factors and the rounding of the output.
double OutTolerance(DType dtype, double prev, double cur, double want) {
  const double rounding = dtype == DType::kF32 ? 0
                                               : reference::UnitRoundoff(FormatOf(dtype)) * std::fabs(want) +
                                                     reference::SmallestError(FormatOf(dtype));
  return kUnits * kUnit * (std::fabs(prev) + std::fabs(cur)) + rounding;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const MergeCase& c) {
  return out << "seed " << c.seed << " " << Name(c.dtype) << " " << Name(c.layout) << " batch " << c.batch << " heads "
             << c.heads << " rows " << c.rows << " of " << c.d << " copies " << c.prev_copies << "," << c.cur_copies
             << "," << c.out_copies << (c.in_place ? " in place" : "") << " padding " << c.padding.inner << ","
             << c.padding.middle << "," << c.padding.outer << " place " << static_cast<int>(c.placement.place) << ","
             << c.placement.misalignment;
}

MergeCase RandomMergeCase(uint64_t seed) {
  RandomChoices random(seed);
  MergeCase c{.seed = seed};
  c.dtype = random.OneOf({DType::kF32, DType::kF16, DType::kBF16});
  c.layout = random.OneOf({Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kTND, Layout::kBNSD_BSND});
  c.batch = c.layout == Layout::kTND ? 1 : random.Pick(0, 3);
  c.heads = random.Pick(1, 5);
  c.rows = random.Pick(0, 3) == 0 ? random.Pick(0, 2) : random.Pick(1, 80);
  c.d = random.OneOf<int64_t>({1, 7, 8, 16, 33, 64, 128, 200});
  c.prev_copies = random.OneOf<int64_t>({1, 8});
  c.cur_copies = random.OneOf<int64_t>({1, 8});
  c.in_place = random.Pick(0, 3) == 0;
  c.out_copies = c.in_place ? c.prev_copies : random.OneOf<int64_t>({1, 8});
  if (random.Pick(0, 1) == 0) c.padding = {random.Pick(0, 9), random.Pick(0, 9), random.Pick(0, 9)};
  c.placement.place = random.OneOf({Place::kInside, Place::kAtEnd, Place::kAtStart});
  if (c.placement.place == Place::kInside) c.placement.misalignment = random.Pick(0, 17);
  return c;
}

MergeProblem::MergeProblem(const MergeCase& c) : case_(c) {
  for (int64_t row = 0; row < c.batch * c.heads * c.rows; ++row) {
    prev_rows_.push_back(DrawRow(c, kPrev, row));
    cur_rows_.push_back(DrawRow(c, kCur, row));
  }
  prev_ = Place(c.prev_copies);
  cur_ = Place(c.cur_copies);
  if (!c.in_place) out_ = Place(c.out_copies);
  Fill(prev_rows_, prev_);
  Fill(cur_rows_, cur_);
}

MergeProblem::Partial MergeProblem::Place(int64_t copies) const {
  const HeadSizes sizes{.batch = case_.batch, .heads = case_.heads, .rows = case_.rows, .size = case_.d};
  const auto statistic = [&] {
    return MakeStatistic(case_.layout == Layout::kTND, sizes, copies, case_.padding, case_.placement);
  };
  return {.out = MakeHeadTensor(case_.dtype, ResultLayout(case_.layout), sizes, case_.padding, case_.placement),
          .max = statistic(),
          .sum = statistic(),
          .copies = copies};
}

int64_t MergeProblem::Offset(const HeadTensor& tensor, int64_t row) const {
  const int64_t head = row / case_.rows;
  return tensor.Offset(head / case_.heads, head % case_.heads, row % case_.rows);
}

void MergeProblem::Fill(const std::vector<reference::PartialRow>& rows, const Partial& to) const {
  for (int64_t row = 0; row < std::ssize(rows); ++row) {
    for (int64_t x = 0; x < case_.d; ++x) to.out.tensor.Set(Offset(to.out, row) + x, rows[row].out[x]);
    for (int64_t copy = 0; copy < to.copies; ++copy) {
      to.max.tensor.Set(Offset(to.max, row) + copy, rows[row].max);
      to.sum.tensor.Set(Offset(to.sum, row) + copy, rows[row].sum);
    }
  }
}

void MergeProblem::RestoreInputs() const {
  if (case_.in_place) Fill(prev_rows_, prev_);
}

MergeArgs MergeProblem::args() const {
  const Partial& to = result();
  return {.prev_out = prev_.out.tensor.view(),
          .cur_out = cur_.out.tensor.view(),
          .prev_max = prev_.max.tensor.view(),
          .cur_max = cur_.max.tensor.view(),
          .prev_sum = prev_.sum.tensor.view(),
          .cur_sum = cur_.sum.tensor.view(),
          .out = to.out.tensor.mutable_view(),
          .softmax_max = to.max.tensor.mutable_view(),
          .softmax_sum = to.sum.tensor.mutable_view()};
}

MergeOptions MergeProblem::options() const { return {.layout = case_.layout, .heads = case_.heads}; }

Snapshot MergeProblem::TakeSnapshot() const {
  Snapshot snapshot;
  for (const Partial* input : {&prev_, &cur_}) {
    for (const HeadTensor* tensor : {&input->out, &input->max, &input->sum}) snapshot.Add(tensor->tensor);
  }
  for (const HeadTensor* tensor : {&result().out, &result().max, &result().sum}) snapshot.Allow(tensor->tensor);
  return snapshot;
}

AssertionResult MergeProblem::MatchesReference() const {
  const Partial& got = result();
  for (int64_t row = 0; row < std::ssize(prev_rows_); ++row) {
    const reference::PartialRow &prev = prev_rows_[row], &cur = cur_rows_[row];
    const reference::PartialRow want = reference::Merge(prev, cur);
    const bool exact = prev.absent() || cur.absent();
    for (int64_t copy = 0; copy < got.copies; ++copy) {
      const double max = got.max.tensor.Get(Offset(got.max, row) + copy);
      const double sum = got.sum.tensor.Get(Offset(got.sum, row) + copy);
      if (!(max == want.max) || !(std::fabs(sum - want.sum) <= (exact ? 0 : kUnits * kUnit * want.sum))) {
        return AssertionFailure() << "statistics of row " << row << " copy " << copy << " = " << max << ", " << sum
                                  << ", want " << want.max << ", " << want.sum;
      }
    }
    for (int64_t x = 0; x < case_.d; ++x) {
      const double out = got.out.tensor.Get(Offset(got.out, row) + x);
      const double allowed = exact ? 0 : OutTolerance(case_.dtype, prev.out[x], cur.out[x], want.out[x]);
      if (!(std::fabs(out - want.out[x]) <= allowed)) {
        return AssertionFailure() << "out of row " << row << " column " << x << " = " << out << ", want " << want.out[x]
                                  << " +- " << allowed;
      }
    }
  }
  return AssertionSuccess();
}

}  // namespace fa::test
