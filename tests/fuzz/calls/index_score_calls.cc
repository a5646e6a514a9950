// Makes random calls for the scores of blocks of keys, and for the value of an indexer's loss.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <numeric>
#include <ostream>

#include "fuzz/calls/families.h"
#include "support/cases/random_token_case.h"
#include "support/cases/random_values.h"
#include "support/compressed_number.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

constexpr double kUnit = 0x1p-24;
constexpr int64_t kBlock = kMsaBlockSize;

int64_t Sum(const std::vector<int64_t>& numbers) { return std::accumulate(numbers.begin(), numbers.end(), int64_t{0}); }

std::vector<int64_t> PrefixSums(std::vector<int64_t> numbers) {
  std::partial_sum(numbers.begin(), numbers.end(), numbers.begin());
  return numbers;
}

/// Sets or returns an element. The class Tensor does not know e4m3.
void SetNumber(const Tensor& tensor, int64_t at, double value) {
  if (tensor.dtype() != DType::kF8E4M3) return tensor.Set(at, value);
  StoreCode(DType::kF8E4M3, tensor.Address(0), at, NearestCode(DType::kF8E4M3, static_cast<float>(value)));
}
double NumberAt(const Tensor& tensor, int64_t at) {
  if (tensor.dtype() != DType::kF8E4M3) return tensor.Get(at);
  return CompressedNumber(DType::kF8E4M3, static_cast<uint8_t>(*tensor.Address(at)));
}

struct ScoreCase {
  uint64_t seed = 0;
  DType q_type = DType::kF32, k_type = DType::kF32;
  int64_t heads = 1, d = 8, page_rows = 0, spare = 0;
  std::vector<int64_t> rows = {}, keys = {}, start_loc = {};
  MsaIndexScoreOptions options = {};
  Placement placement = {};
};

std::ostream& operator<<(std::ostream& os, const ScoreCase& c) {
  os << Name(c.q_type) << " " << Name(c.k_type) << " heads " << c.heads << " d " << c.d << " pages " << c.page_rows;
  for (size_t b = 0; b < c.rows.size(); ++b) os << " " << c.rows[b] << "x" << c.keys[b];
  return os << " init " << c.options.init_blocks << " local " << c.options.local_blocks;
}

ScoreCase RandomScoreCase(uint64_t seed) {
  RandomChoices random(seed);
  ScoreCase c{.seed = seed};
  c.q_type = c.k_type = random.OneOf({DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3});
  if (c.q_type != DType::kF8E4M3 && random.Pick(0, 2) == 0) c.k_type = DType::kI8;
  c.heads = random.OneOf<int64_t>({1, 2, 3, 8, 17});
  c.d = random.OneOf<int64_t>({1, 8, 24, 64});
  if (random.Pick(0, 1) == 0) c.page_rows = random.OneOf<int64_t>({1, 16, 128, 200});
  c.spare = random.Pick(0, 3);
  for (int64_t b = random.Pick(1, 3); b > 0; --b) {
    c.rows.push_back(random.OneOf<int64_t>({0, 1, 2, 5, 20}));
    c.keys.push_back(random.OneOf<int64_t>({0, 1, 127, 128, 300, 600}));
    c.start_loc.push_back(random.Pick(0, 6));
  }
  if (random.Pick(0, 1) == 0) c.start_loc.clear();
  if (LooksLikeLengths(c.rows, c.spare)) c.spare = 0;
  c.options = {.mask = random.OneOf({SparseMask::kNone, SparseMask::kRightDownCausal}),
               .init_blocks = random.Pick(0, 2),
               .local_blocks = random.Pick(0, 3)};
  c.placement.place = random.OneOf({Place::kInside, Place::kAtEnd, Place::kAtStart});
  return c;
}

/// The tensors of a call. Rows that no sequence uses are NaN.
class ScoreProblem {
 public:
  explicit ScoreProblem(const ScoreCase& c) : c_(c), row_sums_(PrefixSums(c.rows)), key_sums_(PrefixSums(c.keys)) {
    q_ = Make(c.q_type, {Sum(c.rows) + c.spare, c.heads, c.d});
    for (int64_t i = 0; i < Sum(c.rows) * c.heads * c.d; ++i) SetNumber(q_, i, Number(Tag::kQIndex, i, c.q_type));
    MakeKeys();
    for (size_t b = 0; b < c.keys.size(); ++b) {
      for (int64_t key = 0; key < c.keys[b]; ++key) FillKey(b, key);
    }
    score_ = Make(DType::kF32, {c.heads, Sum(c.rows) + c.spare, Blocks() + c.spare});
  }

  [[nodiscard]] MsaIndexScoreArgs args() const {
    return {.q = q_.view(),
            .k = k_.view(),
            .k_scale = scale_.absent() ? TensorView() : scale_.view(),
            .block_table = table_.absent() ? TensorView() : table_.view(),
            .lengths_q = row_sums_,
            .lengths_kv = table_.absent() ? key_sums_ : c_.keys,
            .start_loc = c_.start_loc,
            .score = score_.mutable_view()};
  }
  [[nodiscard]] MsaIndexScoreOptions options() const { return c_.options; }
  [[nodiscard]] Snapshot TakeSnapshot() const {
    Snapshot snapshot;
    for (const Tensor* tensor : {&q_, &k_, &scale_, &table_}) {
      if (!tensor->absent()) snapshot.Add(*tensor);
    }
    snapshot.Add(score_);
    snapshot.Allow(score_);
    return snapshot;
  }
  [[nodiscard]] AssertionResult MatchesReference() const {
    int64_t row = 0;
    for (size_t b = 0; b < c_.rows.size(); ++b) {
      for (int64_t t = 0; t < c_.rows[b]; ++t, ++row) {
        if (auto result = RowMatches(b, t, row); !result) return result;
      }
    }
    return AssertionSuccess();
  }

 private:
  /// A score in double, and the error that f32 may have. A sum of d products in any order has at most d rounding
  /// errors, and a scale adds one.
  struct Wanted {
    double score = -std::numeric_limits<double>::infinity(), allowed = 0;
  };

  [[nodiscard]] Tensor Make(DType dtype, const Dims& shape) const {
    return {dtype, shape, DenseStride(shape), c_.placement};
  }
  [[nodiscard]] double Number(Tag tag, int64_t at, DType dtype) const {
    const double x = RandomNormal(c_.seed, tag, {at});
    if (dtype == DType::kI8) return std::round(std::clamp(40 * x, -127.0, 127.0));
    return dtype == DType::kF8E4M3 ? x : RoundTo(dtype, x);
  }
  [[nodiscard]] int64_t Blocks() const {
    return (*std::max_element(c_.keys.begin(), c_.keys.end()) + kBlock - 1) / kBlock;
  }
  void MakeKeys() {
    const bool scaled = c_.k_type == DType::kI8;
    if (c_.page_rows == 0) {
      k_ = Make(c_.k_type, {Sum(c_.keys), 1, c_.d});
      if (scaled) scale_ = Make(DType::kF32, {Sum(c_.keys)});
      return;
    }
    columns_ = *std::max_element(c_.keys.begin(), c_.keys.end()) / c_.page_rows + 1;
    const int64_t pages = columns_ * std::ssize(c_.keys);
    k_ = Make(c_.k_type, {pages, c_.page_rows, 1, c_.d});
    if (scaled) scale_ = Make(DType::kF32, {pages, c_.page_rows, 1});
    table_ = Make(DType::kI32, {std::ssize(c_.keys), columns_});
    for (int64_t i = 0; i < pages; ++i) table_.Set(i, static_cast<double>(pages - 1 - i));
  }
  /// Returns the row of a key in its tensor.
  [[nodiscard]] int64_t KeyRow(size_t b, int64_t key) const {
    if (c_.page_rows == 0) return key_sums_[b] - c_.keys[b] + key;
    const auto page = static_cast<int64_t>(table_.Get(static_cast<int64_t>(b) * columns_ + key / c_.page_rows));
    return page * c_.page_rows + key % c_.page_rows;
  }
  void FillKey(size_t b, int64_t key) const {
    const int64_t row = KeyRow(b, key);
    for (int64_t x = 0; x < c_.d; ++x) SetNumber(k_, row * c_.d + x, Number(Tag::kKIndex, row * c_.d + x, c_.k_type));
    if (!scale_.absent()) scale_.Set(row, RoundTo(DType::kF32, RandomNormal(c_.seed, Tag::kWeights, {row}) / 40));
  }
  [[nodiscard]] Wanted Product(int64_t q_row, int64_t k_row) const {
    const double scale = scale_.absent() ? 1 : scale_.Get(k_row);
    Wanted of{.score = 0};
    for (int64_t x = 0; x < c_.d; ++x) {
      const double term = scale * NumberAt(q_, q_row * c_.d + x) * NumberAt(k_, k_row * c_.d + x);
      of.score += term;
      of.allowed += std::fabs(term);
    }
    of.allowed = of.allowed * static_cast<double>(c_.d + 1) * kUnit + static_cast<double>(FLT_MIN);
    return of;
  }
  [[nodiscard]] Wanted ScoreOf(size_t b, int64_t t, int64_t q_row, int64_t block) const {
    const int64_t keys = c_.keys[b];
    if (block * kBlock >= keys) return {};
    const int64_t own = c_.start_loc.empty() ? (std::max<int64_t>(keys - c_.rows[b], 0) + t) / kBlock : c_.start_loc[b];
    if (block <= own && block > own - c_.options.local_blocks) return {.score = static_cast<double>(1e29F)};
    if (block < c_.options.init_blocks) return {.score = static_cast<double>(1e30F)};
    const int64_t limit = c_.options.mask == SparseMask::kNone ? keys : keys - c_.rows[b] + t + 1;
    Wanted best;
    for (int64_t key = block * kBlock; key < std::min((block + 1) * kBlock, limit); ++key) {
      const Wanted product = Product(q_row, KeyRow(b, key));
      best.score = std::max(best.score, product.score);
      best.allowed = std::max(best.allowed, product.allowed);
    }
    return best;
  }
  [[nodiscard]] AssertionResult RowMatches(size_t b, int64_t t, int64_t row) const {
    const int64_t columns = Blocks() + c_.spare, rows = Sum(c_.rows) + c_.spare;
    for (int64_t i = 0; i < c_.heads * columns; ++i) {
      const int64_t head = i / columns, block = i % columns;
      const Wanted want = ScoreOf(b, t, row * c_.heads + head, block);
      const double got = score_.Get((head * rows + row) * columns + block);
      if (got == want.score || std::fabs(got - want.score) <= want.allowed) continue;
      return AssertionFailure() << "row " << row << " head " << head << " block " << block << ": " << got << ", want "
                                << want.score << " +- " << want.allowed;
    }
    return AssertionSuccess();
  }

  ScoreCase c_;
  std::vector<int64_t> row_sums_, key_sums_;
  int64_t columns_ = 0;
  Tensor q_, k_, scale_, table_, score_;
};

struct ValueCase {
  uint64_t seed = 0;
  DType target = DType::kF32, probabilities = DType::kF32;
  int64_t rows = 1, entries = 1, spare = 0;
  IndexerKLLossOptions options = {};
  Placement placement = {};
};

std::ostream& operator<<(std::ostream& os, const ValueCase& c) {
  return os << Name(c.target) << " " << Name(c.probabilities) << " " << c.rows << "x" << c.entries << " spare "
            << c.spare << " eps " << c.options.eps;
}

ValueCase RandomLossValueCase(uint64_t seed) {
  RandomChoices random(seed);
  ValueCase c{.seed = seed};
  c.target = random.OneOf({DType::kF32, DType::kBF16, DType::kF16});
  c.probabilities = random.OneOf({DType::kF32, DType::kBF16, DType::kF16});
  c.rows = random.OneOf<int64_t>({0, 1, 3, 70});
  c.entries = random.OneOf<int64_t>({0, 1, 5, 300});
  c.spare = random.Pick(0, 3);
  c.options.eps = random.OneOf({1e-8, 1e-3});
  c.options.weight = random.OneOf({IndexerKLLossWeight::kTarget, IndexerKLLossWeight::kNormalised});
  c.placement.place = random.OneOf({Place::kInside, Place::kAtEnd, Place::kAtStart});
  return c;
}

class ValueProblem {
 public:
  explicit ValueProblem(const ValueCase& c)
      : c_(c),
        target_(Make(c.target)),
        probabilities_(Make(c.probabilities)),
        loss_(DType::kF32, {1}, {1}, c.placement) {
    for (int64_t i = 0; i < c.rows * c.entries; ++i) {
      target_.Set(At(i), RoundTo(c.target, RandomUniform(c.seed, Tag::kQ, {i})));
      probabilities_.Set(At(i), RoundTo(c.probabilities, RandomUniform(c.seed, Tag::kK, {i})));
    }
  }
  [[nodiscard]] IndexerKLLossArgs args() const {
    return {.target = target_.view(), .probabilities = probabilities_.view(), .loss = loss_.mutable_view()};
  }
  [[nodiscard]] IndexerKLLossOptions options() const { return c_.options; }
  [[nodiscard]] Snapshot TakeSnapshot() const {
    Snapshot snapshot;
    for (const Tensor* tensor : {&target_, &probabilities_, &loss_}) snapshot.Add(*tensor);
    snapshot.Allow(loss_);
    return snapshot;
  }
  [[nodiscard]] AssertionResult MatchesReference() const {
    double want = 0, magnitude = 0;
    for (int64_t row = 0; row < c_.rows; ++row) {
      double sum = 0;
      for (int64_t i = 0; i < c_.entries; ++i) sum += target_.Get(At(row * c_.entries + i));
      for (int64_t i = 0; i < c_.entries; ++i) AddTerm(row * c_.entries + i, sum, &want, &magnitude);
    }
    // Terms are in double, so nearly the whole error comes from rounding the sum to f32.
    const double allowed = std::fabs(want) * kUnit * (1 + 0x1p-20) + magnitude * 0x1p-44;
    const double got = loss_.Get(0);
    if (std::fabs(got - want) <= allowed) return AssertionSuccess();
    return AssertionFailure() << got << ", want " << want << " +- " << allowed;
  }

 private:
  [[nodiscard]] Tensor Make(DType dtype) const {
    return {dtype, {c_.rows, c_.entries}, {c_.entries + c_.spare, 1}, c_.placement};
  }
  [[nodiscard]] int64_t At(int64_t i) const { return i / c_.entries * (c_.entries + c_.spare) + i % c_.entries; }
  void AddTerm(int64_t i, double sum, double* want, double* magnitude) const {
    const double y = target_.Get(At(i)), p = y / (sum + c_.options.eps);
    const double weight = c_.options.weight == IndexerKLLossWeight::kTarget ? y : p;
    const double log_p = std::log(std::max(p, c_.options.eps));
    const double log_y = std::log(probabilities_.Get(At(i)) + c_.options.eps);
    *want += weight * (log_p - log_y);
    *magnitude += weight * (std::fabs(log_p) + std::fabs(log_y));
  }

  ValueCase c_;
  Tensor target_, probabilities_, loss_;
};

template <typename Problem, typename Case>
class ReferencedCall : public PlannedCall<Problem, Case> {
 public:
  using PlannedCall<Problem, Case>::PlannedCall;
  [[nodiscard]] AssertionResult MatchesReference() override { return this->problem_.MatchesReference(); }
};

}  // namespace

std::unique_ptr<FuzzCall> RandomIndexScoreCall(uint64_t seed) {
  return std::make_unique<ReferencedCall<ScoreProblem, ScoreCase>>(RandomScoreCase(seed), PlanMsaIndexScore,
                                                                   MsaIndexScore);
}

std::unique_ptr<FuzzCall> RandomIndexerLossValueCall(uint64_t seed) {
  return std::make_unique<ReferencedCall<ValueProblem, ValueCase>>(RandomLossValueCase(seed), PlanIndexerKLLoss,
                                                                   IndexerKLLoss);
}

}  // namespace fa::test
