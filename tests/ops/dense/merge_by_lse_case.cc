#include "ops/dense/merge_by_lse_case.h"

#include <cmath>
#include <limits>
#include <ostream>

#include "support/cases/random_token_case.h"
#include "support/cases/random_values.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

constexpr double kF32Unit = 0x1p-24;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Returns an output's tolerance, in f32 units of the sum of |weight * part|. A weight is off by an exp's error (2
/// units) and by the rounding of its argument (|x| <= 50 here). Each part adds a product and a sum to numerator and
/// denominator. A quotient follows.
double Units(int64_t parts) { return 60 + 4 * static_cast<double>(parts); }

reference::LsePart DrawPart(const MergeByLseCase& c, int64_t row, int64_t part) {
  const auto normal = [&](int64_t x) { return RandomNormal(c.seed, Tag::kV, {row, part, x}); };
  // One row in eight has keys in no part. In the other rows, one part in four has no keys.
  const bool no_row = RandomBits(c.seed, Tag::kChoice, {row, -1}) % 8 == 0;
  const uint64_t kind = RandomBits(c.seed, Tag::kChoice, {row, part}) % 8;
  reference::LsePart drawn;
  drawn.lse = no_row || kind < 2 ? (kind % 2 == 0 ? kInfinity : -kInfinity) : RoundTo(DType::kF32, 5 * normal(-1));
  for (int64_t x = 0; x < c.columns; ++x) {
    drawn.out.push_back(std::isinf(drawn.lse) ? std::numeric_limits<double>::quiet_NaN() : RoundTo(c.dtype, normal(x)));
  }
  return drawn;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const MergeByLseCase& c) {
  return out << "seed " << c.seed << " " << Name(c.dtype) << " parts " << c.parts << " rows " << c.rows << " of "
             << c.columns << (c.has_lse ? " lse" : "") << (c.positive_empty_lse ? " +inf" : "")
             << (c.transposed ? " transposed" : "") << " gaps " << c.inner << "," << c.outer << " place "
             << static_cast<int>(c.placement.place) << "," << c.placement.misalignment;
}

MergeByLseCase RandomMergeByLseCase(uint64_t seed) {
  RandomChoices random(seed);
  MergeByLseCase c{.seed = seed};
  c.dtype = random.OneOf({DType::kF32, DType::kF16, DType::kBF16});
  c.parts = random.OneOf<int64_t>({1, 2, 3, 5, 17});
  c.rows = random.Pick(0, 3) == 0 ? random.Pick(0, 2) : random.Pick(1, 50);
  c.columns = random.OneOf<int64_t>({0, 1, 7, 8, 33, 64, 128, 512, 515});
  c.has_lse = random.Pick(0, 2) > 0;
  c.positive_empty_lse = random.Pick(0, 1) == 0;
  c.transposed = random.Pick(0, 3) == 0;
  if (random.Pick(0, 1) == 0) c.outer = random.Pick(0, 9);
  if (random.Pick(0, 3) == 0) c.inner = random.Pick(1, 2);
  c.placement.place = random.OneOf({Place::kInside, Place::kAtEnd, Place::kAtStart});
  if (c.placement.place == Place::kInside) c.placement.misalignment = random.Pick(0, 17);
  return c;
}

MergeByLseProblem::MergeByLseProblem(const MergeByLseCase& c) : case_(c), out_(Rows()) {
  if (c.has_lse) lse_out_ = Statistic();
  for (int64_t part = 0; part < c.parts; ++part) {
    lse_.push_back(Statistic());
    local_out_.push_back(Rows());
  }
  for (int64_t row = 0; row < c.rows; ++row) {
    std::vector<reference::LsePart>& parts = values_.emplace_back();
    for (int64_t part = 0; part < c.parts; ++part) {
      parts.push_back(DrawPart(c, row, part));
      const Tensor &lse = lse_[part], &rows = local_out_[part];
      lse.Set(row * lse.stride()[0], parts.back().lse);
      for (int64_t x = 0; x < c.columns; ++x) {
        rows.Set(row * rows.stride()[0] + x * rows.stride()[1], parts.back().out[x]);
      }
    }
  }
  for (int64_t part = 0; part < c.parts; ++part) {
    lse_views_.push_back(lse_[part].view());
    local_out_views_.push_back(local_out_[part].view());
  }
}

Tensor MergeByLseProblem::Rows() const {
  const int64_t step = case_.inner + 1;
  const Dims stride =
      case_.transposed ? Dims{step, case_.rows * step + case_.outer} : Dims{case_.columns * step + case_.outer, step};
  return {case_.dtype, {case_.rows, case_.columns}, stride, case_.placement};
}

Tensor MergeByLseProblem::Statistic() const { return {DType::kF32, {case_.rows}, {case_.inner + 1}, case_.placement}; }

MergeByLseArgs MergeByLseProblem::args() const {
  return {.lse = lse_views_,
          .local_out = local_out_views_,
          .out = out_.mutable_view(),
          .lse_out = lse_out_.absent() ? MutableTensorView{} : lse_out_.mutable_view()};
}

MergeByLseOptions MergeByLseProblem::options() const {
  MergeByLseOptions options;
  if (case_.positive_empty_lse) options.lse_without_keys = std::numeric_limits<float>::infinity();
  return options;
}

Snapshot MergeByLseProblem::TakeSnapshot() const {
  Snapshot snapshot;
  for (const Tensor& tensor : lse_) snapshot.Add(tensor);
  for (const Tensor& tensor : local_out_) snapshot.Add(tensor);
  snapshot.Allow(out_);
  if (!lse_out_.absent()) snapshot.Allow(lse_out_);
  return snapshot;
}

AssertionResult MergeByLseProblem::RowMatches(int64_t row) const {
  const std::vector<reference::LsePart>& parts = values_[row];
  const reference::LsePart want = reference::MergeByLse(parts);
  const double units = Units(case_.parts) * kF32Unit;
  if (!lse_out_.absent()) {
    const double got = lse_out_.Get(row * lse_out_.stride()[0]);
    const double empty = case_.positive_empty_lse ? kInfinity : -kInfinity;
    // The sum's relative error is the logarithm's absolute error. The logarithm and the last addition round once each.
    const bool right =
        std::isinf(want.lse) ? got == empty : std::fabs(got - want.lse) <= units + 4 * kF32Unit * std::fabs(want.lse);
    if (!right) return AssertionFailure() << "lse of row " << row << " = " << got << ", want " << want.lse;
  }
  for (int64_t x = 0; x < case_.columns; ++x) {
    double magnitude = 0;
    for (const reference::LsePart& part : parts) {
      if (!std::isinf(part.lse)) magnitude += std::exp(part.lse - want.lse) * std::fabs(part.out[x]);
    }
    const double rounding = case_.dtype == DType::kF32
                                ? 0
                                : reference::UnitRoundoff(FormatOf(case_.dtype)) * std::fabs(want.out[x]) +
                                      reference::SmallestError(FormatOf(case_.dtype));
    const double got = out_.Get(row * out_.stride()[0] + x * out_.stride()[1]);
    const double allowed = units * magnitude + rounding;
    if (!(std::fabs(got - want.out[x]) <= allowed)) {
      return AssertionFailure() << "out of row " << row << " column " << x << " = " << got << ", want " << want.out[x]
                                << " +- " << allowed;
    }
  }
  return AssertionSuccess();
}

AssertionResult MergeByLseProblem::MatchesReference() const {
  for (int64_t row = 0; row < case_.rows; ++row) {
    if (AssertionResult result = RowMatches(row); !result) return result;
  }
  return AssertionSuccess();
}

}  // namespace fa::test
