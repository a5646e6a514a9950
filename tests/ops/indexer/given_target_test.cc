// The sparse KL loss with a given target, compressed keys, rows not in use and y as an output, against its definition
// in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fa/indexer_loss.h"
#include "fa/view.h"
#include "support/cases/random_values.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr int64_t kHeads = 3, kD = 24, kEntries = 9;

struct GivenCase {
  Layout layout = Layout::kBSND;
  SparseMask mask = SparseMask::kRightDownCausal;
  int64_t ratio = 4;
  std::vector<int64_t> residual = {3, 0, 1};
  std::vector<int64_t> rows = {30, 30, 30}, keys = {12, 12, 12};         ///< sizes of each sequence in the tensors
  std::vector<int64_t> used_rows = {30, 17, 0}, used_keys = {12, 5, 3};  ///< the rows and keys in use
};

template <typename Real>
struct GivenResult {
  std::vector<Real> dq, dk, dw, y;
};

class GivenTarget {
 public:
  explicit GivenTarget(const GivenCase& c) : c_(c) {
    for (const int64_t rows : c.rows) tokens_ += rows;
    for (const int64_t keys : c.keys) keys_ += keys;
    const auto draw = [](Tag tag, int64_t count, float factor) {
      std::vector<float> values;
      for (int64_t i = 0; i < count; ++i) values.push_back(factor * static_cast<float>(RandomNormal(5, tag, {i})));
      return values;
    };
    q_ = draw(Tag::kQIndex, tokens_ * kHeads * kD, 1);
    k_ = draw(Tag::kKIndex, keys_ * kD, 1);
    w_ = draw(Tag::kWeights, tokens_ * kHeads, 0.2F);
    for (float& p : p_ = draw(Tag::kPse, tokens_ * kEntries, 0.3F)) p = std::fabs(p);  // rows do not add up to 1
    for (int64_t i = 0; i < tokens_ * kEntries; ++i) {
      // Some keys are beyond a limit, some are listed twice, and some lists end early.
      lists_.push_back(i % 31 == 30 ? -1 : static_cast<int32_t>(RandomBits(5, Tag::kLists, {i}) % 3));
    }
    for (size_t i = 0; i < lists_.size(); ++i) {
      const int64_t token = static_cast<int64_t>(i) / kEntries;
      const auto [b, t] = Place(token);
      if (lists_[i] >= 0 && t < c.used_rows[b] && c.used_keys[b] > 0) {
        lists_[i] = static_cast<int32_t>(RandomBits(5, Tag::kLists, {static_cast<int64_t>(i)}) %
                                         static_cast<uint64_t>(c.used_keys[b]));
      }
    }
  }

  template <typename Real>
  [[nodiscard]] GivenResult<Real> Expected() const {
    GivenResult<Real> result;
    result.dq.resize(q_.size()), result.dk.resize(k_.size()), result.dw.resize(w_.size()), result.y.resize(p_.size());
    int64_t first_key = 0;
    for (int64_t token = 0; token < tokens_; ++token) {
      const auto [b, t] = Place(token);
      if (t == 0 && token > 0) first_key += c_.keys[b - 1];
      if (t < c_.used_rows[b]) AddToken(token, first_key, LimitOf(b, t), result);
    }
    return result;
  }

  [[nodiscard]] GivenResult<float> Run(Context* context) const {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    GivenResult<float> got;
    got.dq.assign(q_.size(), kNan), got.dk.assign(k_.size(), kNan), got.dw.assign(w_.size(), kNan);
    got.y.assign(p_.size(), kNan);
    const bool packed = c_.layout == Layout::kTND;
    const auto batch = static_cast<int64_t>(c_.rows.size());
    const auto shape = [&](int64_t rows, std::initializer_list<int64_t> rest) {
      Dims dims = packed ? Dims{rows} : Dims{batch, rows / batch};
      for (const int64_t size : rest) dims.push_back(size);
      return dims;
    };
    std::vector<int64_t> sums_q = c_.rows, sums_k = c_.keys;
    for (size_t b = 1; b < sums_q.size(); ++b) sums_q[b] += sums_q[b - 1], sums_k[b] += sums_k[b - 1];
    float loss = kNan;
    SparseIndexerLossArgs args;
    args.q_index = View(q_.data(), shape(tokens_, {kHeads, kD}));
    args.k_index = View(k_.data(), shape(keys_, {1, kD}));
    args.weights = View(w_.data(), shape(tokens_, {kHeads}));
    args.sparse_indices = View(lists_.data(), shape(tokens_, {1, kEntries}));
    args.p_head_mean = View(p_.data(), shape(tokens_, {kEntries}));
    args.lengths_q = packed ? sums_q : c_.used_rows;
    args.lengths_kv = packed ? sums_k : c_.used_keys;
    if (packed) args.used_q = c_.used_rows, args.used_kv = c_.used_keys;
    args.residual_kv = c_.residual;
    args.dq_index = View(got.dq.data(), shape(tokens_, {kHeads, kD}));
    args.dk_index = View(got.dk.data(), shape(keys_, {1, kD}));
    args.dweights = View(got.dw.data(), shape(tokens_, {kHeads}));
    args.softmax_index = View(got.y.data(), shape(tokens_, {kEntries}));
    args.loss = View(&loss, {1});
    const Status status = SparseLightningIndexerGradKLLoss(
        args, {.layout = c_.layout, .mask = c_.mask, .target = IndexerTarget::kGiven, .cmp_ratio = c_.ratio}, context);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(std::isfinite(loss));
    return got;
  }

 private:
  struct TokenPlace {
    size_t b;
    int64_t t;
  };
  [[nodiscard]] TokenPlace Place(int64_t token) const {
    for (size_t b = 0;; ++b) {
      if (token < c_.rows[b]) return {b, token};
      token -= c_.rows[b];
    }
  }
  [[nodiscard]] int64_t LimitOf(size_t b, int64_t t) const {
    const int64_t keys = c_.used_keys[b];
    if (c_.mask == SparseMask::kNone) return keys;
    const int64_t residual = c_.residual.empty() ? 0 : c_.residual[b];
    const auto tokens = static_cast<double>(keys * c_.ratio + residual - c_.used_rows[b] + t + 1);
    return std::clamp<int64_t>(static_cast<int64_t>(std::floor(tokens / static_cast<double>(c_.ratio))), 0, keys);
  }

  template <typename Real>
  void AddToken(int64_t token, int64_t first_key, int64_t limit, GivenResult<Real>& result) const {
    struct Entry {
      int64_t slot, key;
      Real score;
    };
    const auto at = [](const std::vector<float>& x, int64_t i) { return static_cast<Real>(x[static_cast<size_t>(i)]); };
    const auto product = [&](int64_t g, int64_t key) {
      Real sum = 0;
      for (int64_t x = 0; x < kD; ++x) sum += at(q_, (token * kHeads + g) * kD + x) * at(k_, key * kD + x);
      return sum;
    };
    std::vector<Entry> entries;
    Real p_sum = 0, max = -std::numeric_limits<Real>::infinity(), sum = 0;
    for (int64_t slot = 0; slot < std::min(kEntries, limit); ++slot) {
      const int64_t listed = lists_[static_cast<size_t>(token * kEntries + slot)];
      if (listed < 0) break;
      if (listed >= limit) continue;
      Real score = 0;
      for (int64_t g = 0; g < kHeads; ++g) {
        score += at(w_, token * kHeads + g) * std::max<Real>(product(g, first_key + listed), 0);
      }
      entries.push_back({slot, first_key + listed, score});
      p_sum += at(p_, token * kEntries + slot);
      max = std::max(max, score);
    }
    for (const Entry& entry : entries) sum += std::exp(entry.score - max);
    for (const auto& [slot, key, score] : entries) {
      const Real y = std::exp(score - max) / sum, gradient = y * p_sum - at(p_, token * kEntries + slot);
      result.y[static_cast<size_t>(token * kEntries + slot)] = y;
      for (int64_t g = 0; g < kHeads; ++g) {
        const int64_t row = token * kHeads + g;
        const Real s = product(g, key), e = s > 0 ? at(w_, row) * gradient : 0;
        result.dw[static_cast<size_t>(row)] += gradient * std::max<Real>(s, 0);
        for (int64_t x = 0; x < kD; ++x) {
          result.dq[static_cast<size_t>(row * kD + x)] += e * at(k_, key * kD + x);
          result.dk[static_cast<size_t>(key * kD + x)] += e * at(q_, row * kD + x);
        }
      }
    }
  }

  GivenCase c_;
  int64_t tokens_ = 0, keys_ = 0;
  std::vector<float> q_, k_, w_, p_;
  std::vector<int32_t> lists_;
};

/// Returns the largest difference, or NaN if any difference is NaN, so that every comparison with the result is false.
template <typename Real>
double LargestDifference(const std::vector<Real>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - want[i]);
    if (std::isnan(error)) return error;
    largest = std::max(largest, error);
  }
  return largest;
}

std::vector<GivenCase> GivenCases() {
  std::vector<GivenCase> cases;
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    cases.push_back({.layout = layout});
    cases.push_back({.layout = layout, .mask = SparseMask::kNone});
    cases.push_back({.layout = layout, .ratio = 1, .residual = {}});
    cases.push_back({.layout = layout, .ratio = 128, .residual = {127, 0, 5}});
  }
  return cases;
}

TEST(IndexerLossOfAGivenTarget, IsItsDefinitionOnEveryLevel) {
  for (const GivenCase& c : GivenCases()) {
    const GivenTarget problem(c);
    const GivenResult<double> want = problem.Expected<double>();
    // The usual rule: at most three times the error of a plain computation in f32.
    const GivenResult<float> naive = problem.Expected<float>();
    for (const Isa isa : IsaLevels()) {
      SCOPED_TRACE(std::string(Name(isa)) + " " + Name(c.layout) + " ratio " + std::to_string(c.ratio));
      const GivenResult<float> got = problem.Run(ContextOf(isa));
      EXPECT_LE(LargestDifference(got.dq, want.dq), 3 * LargestDifference(naive.dq, want.dq));
      EXPECT_LE(LargestDifference(got.dk, want.dk), 3 * LargestDifference(naive.dk, want.dk));
      EXPECT_LE(LargestDifference(got.dw, want.dw), 3 * LargestDifference(naive.dw, want.dw));
      EXPECT_LE(LargestDifference(got.y, want.y), 3 * LargestDifference(naive.y, want.y));
      for (size_t i = 0; i < want.y.size(); ++i) EXPECT_EQ(got.y[i] == 0, want.y[i] == 0) << i;
    }
    EXPECT_GT(*std::max_element(want.y.begin(), want.y.end()), 0);
  }
}

TEST(IndexerLossOfAGivenTarget, BitsDoNotDependOnThreads) {
  for (const GivenCase& c : GivenCases()) {
    const GivenTarget problem(c);
    const GivenResult<float> one = problem.Run(ContextOf(DetectIsa(), 1));
    for (const int threads : {2, 7, 0}) {
      const GivenResult<float> got = problem.Run(ContextOf(DetectIsa(), threads));
      EXPECT_TRUE(got.dq == one.dq && got.dk == one.dk && got.dw == one.dw && got.y == one.y) << threads;
    }
  }
}

TEST(IndexerLossOfAGivenTarget, ErrorsNameTheArgument) {
  std::vector<float> q(2 * 3 * 8), k(4 * 8), w(2 * 3), p(2 * 5), loss(1), y(2 * 5), dq(q), dk(k), dw(w);
  const std::vector<int32_t> lists(2 * 5, -1);
  const auto refused = [&](const std::string& text, const auto& change) {
    SparseIndexerLossArgs args;
    args.q_index = View(q.data(), {1, 2, 3, 8});
    args.k_index = View(k.data(), {1, 4, 1, 8});
    args.weights = View(w.data(), {1, 2, 3});
    args.sparse_indices = View(lists.data(), {1, 2, 1, 5});
    args.p_head_mean = View(p.data(), {1, 2, 5});
    args.dq_index = View(dq.data(), {1, 2, 3, 8});
    args.dk_index = View(dk.data(), {1, 4, 1, 8});
    args.dweights = View(dw.data(), {1, 2, 3});
    args.loss = View(loss.data(), {1});
    args.softmax_index = View(y.data(), {1, 2, 5});
    SparseIndexerLossOptions options{.target = IndexerTarget::kGiven, .cmp_ratio = 4};
    change(args, options);
    EXPECT_EQ(SparseLightningIndexerGradKLLoss(args, options).message(),
              text.empty() ? "ok" : "invalid argument: " + text);
  };
  using Args = SparseIndexerLossArgs;
  using Options = SparseIndexerLossOptions;
  static constexpr int64_t kFour[] = {4}, kTwo[] = {2};
  refused("p_head_mean: missing (target is given (2))", [](Args& a, Options&) { a.p_head_mean = {}; });
  refused("cmp_ratio=0, want 1..1048576", [](Args&, Options& o) { o.cmp_ratio = 0; });
  refused("residual_kv[0]=4, want 0..3 (cmp_ratio - 1)", [](Args& a, Options&) { a.residual_kv = kFour; });
  refused("used_q: given, want none: rows are not packed, use lengths_q", [](Args& a, Options&) { a.used_q = kTwo; });
  refused("softmax_index.shape[2]=5, want 4 (sparse_indices.shape[3])", [&](Args& a, Options&) {
    a.sparse_indices = View(lists.data(), {1, 2, 1, 4});
    a.p_head_mean = View(p.data(), {1, 2, 4});
  });
  refused("target=3, want head mean (0), L1 (1) or given (2)",
          [](Args&, Options& o) { o.target = static_cast<IndexerTarget>(3); });
  EXPECT_EQ(y, std::vector<float>(2 * 5));
}

}  // namespace
}  // namespace fa::test
