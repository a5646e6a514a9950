// Checks the references of the sparse operators without a second implementation. The checks use lists worked out by
// hand, dense attention, and finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "reference/attention.h"
#include "reference/token/indexer_loss.h"

namespace reference {
namespace {

std::string KeysInWords(const Selection& s, int64_t b, int64_t t) {
  std::string words;
  for (const SelectedKey& at : s.KeysOf(b, t)) {
    words += std::to_string(at.slot) + ":" + std::to_string(at.key) + " ";
  }
  return words;
}

TEST(Selection, LimitsOfBothMasks) {
  Selection s{.lengths = {{2, 3}, {5, 2}}, .causal = true};
  EXPECT_EQ(s.Limit(0, 0), 4);
  EXPECT_EQ(s.Limit(0, 1), 5);
  EXPECT_EQ(s.Limit(1, 0), 0);
  EXPECT_EQ(s.Limit(1, 2), 2);
  s.causal = false;
  EXPECT_EQ(s.Limit(1, 0), 2);
}

TEST(Selection, EndsAtTheFirstMinusOneAndSkipsWhatIsNoKey) {
  Selection s{.lengths = {{1}, {9}}, .slots = 7, .indices = {3, 9, 3, -5, 0, -1, 4}};
  EXPECT_EQ(KeysInWords(s, 0, 0), "0:3 2:3 4:0 ");
  s.indices = {int64_t{1} << 40, 8, 1, 1, 1, 1, 1};
  EXPECT_EQ(KeysInWords(s, 0, 0), "1:8 2:1 3:1 4:1 5:1 6:1 ");
}

// There are seven keys in blocks of 4. With the limit 6, two entries of a list are read. The limit cuts the second
// block, wherever the list names it.
TEST(Selection, CutsTheTailBlockAnywhere) {
  const Selection s{.lengths = {{2}, {7}}, .block_size = 4, .slots = 3, .indices = {1, 0, 1, 1, 0, 1}};
  EXPECT_EQ(KeysInWords(s, 0, 0), "0:4 0:5 1:0 1:1 1:2 1:3 ");
  EXPECT_EQ(KeysInWords(s, 0, 1), "0:4 0:5 0:6 1:0 1:1 1:2 1:3 ");
}

TEST(TopKeys, TiesMinusZeroAndNan) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::vector<double> scores = {0.0, kNan, -0.0, 2, -kInf, 2, kNan, kInf, 0.0};
  EXPECT_EQ(TopKeys(scores, 9), (std::vector<int64_t>{7, 3, 5, 0, 2, 8, 4, 1, 6}));
  EXPECT_EQ(TopKeys(scores, 4), (std::vector<int64_t>{7, 3, 5, 0}));
  EXPECT_EQ(TopKeys(std::vector<double>{1}, 3), (std::vector<int64_t>{0}));
}

TEST(IndexerForward, UnusedEntriesAndEmptyRows) {
  IndexerProblem p{.heads = 1, .d = 1};
  p.selection = {.lengths = {{2}, {1}}, .slots = 2};
  p.q = {1, 2};
  p.k = {3};
  p.weights = {1, -0.5};
  const IndexerResult r = IndexerForward(p);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(r.indices, (std::vector<int64_t>{-1, -1, 0, -1}));
  EXPECT_EQ(r.values, (std::vector<double>{-kInf, -kInf, -3, -kInf}));
}

/// Makes small random problems. The lists have duplicates, -1 before their end, and entries beyond the limit. In the
/// middle they have the block that the limit cuts.
class RandomSparse {
 public:
  explicit RandomSparse(int seed) : random_(static_cast<unsigned>(seed)) {}

  Selection MakeSelection(int64_t block_size) {
    Selection s{.causal = Pick(0, 2) > 0, .block_size = block_size, .slots = Pick(1, 5)};
    for (int64_t b = Pick(1, 2); b > 0; --b) {
      s.lengths.sq.push_back(Pick(0, 4));
      s.lengths.sk.push_back(Pick(0, 9));
    }
    for (int64_t b = 0; b < s.batch(); ++b) {
      const int64_t blocks = (s.lengths.sk[b] + block_size - 1) / block_size;
      for (int64_t x = 0; x < s.lengths.sq[b] * s.slots; ++x) {
        s.indices.push_back(Pick(0, 9) == 0 || blocks == 0 ? -1 : Pick(0, blocks - 1));
      }
    }
    return s;
  }

  SparseProblem MakeAttention(const Selection& selection) {
    SparseProblem p{.heads = Pick(1, 3), .d = Pick(2, 4), .d_rope = Pick(0, 2), .selection = selection, .scale = 0.7};
    p.merged = Pick(0, 1) == 1;
    p.dv = p.merged ? Pick(1, p.d) : Pick(1, 4);
    p.q = Values(selection.tokens() * p.heads * p.d);
    p.k = Values(selection.keys() * p.d);
    p.v = Values(p.merged ? 0 : selection.keys() * p.dv);
    p.q_rope = Values(selection.tokens() * p.heads * p.d_rope);
    p.k_rope = Values(selection.keys() * p.d_rope);
    return p;
  }

  IndexerProblem MakeIndexer(const Selection& selection) {
    IndexerProblem p{.heads = Pick(1, 3), .d = Pick(2, 4), .selection = selection};
    p.q = Values(selection.tokens() * p.heads * p.d);
    p.k = Values(selection.keys() * p.d);
    p.weights = Values(selection.tokens() * p.heads);
    return p;
  }

  std::vector<double> Values(int64_t count) {
    std::vector<double> values(static_cast<size_t>(count));
    for (double& value : values) value = std::normal_distribution<double>()(random_);
    return values;
  }

  int64_t Pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

 private:
  std::mt19937 random_;
};

/// Compares a gradient with central differences of step h = 1e-5. Their error is h^2 f''' / 6 + eps |f| / h, about 1e-9
/// for values around 1. ReLU has no derivative at 0. All products in these problems are farther from 0 than h.
void ExpectGradient(const std::function<double()>& loss, std::vector<double>* input,
                    const std::vector<double>& gradient, const char* name) {
  constexpr double kStep = 1e-5;
  ASSERT_EQ(gradient.size(), input->size()) << name;
  for (size_t x = 0; x < gradient.size(); ++x) {
    const double before = (*input)[x];
    (*input)[x] = before + kStep;
    const double above = loss();
    (*input)[x] = before - kStep;
    const double below = loss();
    (*input)[x] = before;
    ASSERT_NEAR(gradient[x], (above - below) / (2 * kStep), 2e-7) << name << '[' << x << ']';
  }
}

double Weighted(const std::vector<double>& values, const std::vector<double>& weights) {
  double sum = 0;
  for (size_t x = 0; x < weights.size(); ++x) sum += weights[x] * values[x];
  return sum;
}

class SparseReference : public ::testing::TestWithParam<int> {};

TEST_P(SparseReference, AttentionGradientsAgreeWithFiniteDifferences) {
  RandomSparse random(GetParam());
  SparseProblem p = random.MakeAttention(random.MakeSelection(random.Pick(1, 3)));
  const std::vector<double> d_out = random.Values(p.selection.tokens() * p.heads * p.dv);
  const SparseGradients g = SparseBackward(p, SparseForward(p), d_out);
  const auto loss = [&] { return Weighted(SparseForward(p).out, d_out); };
  ExpectGradient(loss, &p.q, g.dq, "dq");
  ExpectGradient(loss, &p.k, g.dk, "dk");
  ExpectGradient(loss, &p.v, g.dv, "dv");
  ExpectGradient(loss, &p.q_rope, g.dq_rope, "dq_rope");
  ExpectGradient(loss, &p.k_rope, g.dk_rope, "dk_rope");
}

TEST_P(SparseReference, AttentionGradientsWithASinkAgreeWithFiniteDifferences) {
  RandomSparse random(GetParam());
  SparseProblem p = random.MakeAttention(random.MakeSelection(random.Pick(1, 3)));
  p.sink = random.Values(p.heads);
  const std::vector<double> d_out = random.Values(p.selection.tokens() * p.heads * p.dv);
  const SparseGradients g = SparseBackward(p, SparseForward(p), d_out);
  const auto loss = [&] { return Weighted(SparseForward(p).out, d_out); };
  ExpectGradient(loss, &p.q, g.dq, "dq");
  ExpectGradient(loss, &p.k, g.dk, "dk");
  ExpectGradient(loss, &p.v, g.dv, "dv");
  ExpectGradient(loss, &p.sink, g.dsink, "dsink");
}

// A sink acts as one more key, whose score is the sink and whose value is 0. With one head, a real key of this kind in
// the list gives the same numbers.
TEST(SparseReferenceSink, IsAFurtherKeyOfValueZero) {
  RandomSparse random(5);
  SparseProblem p{.heads = 1, .d = 2, .dv = 3};
  p.selection = {.lengths = {{2}, {3}}, .causal = false, .slots = 3, .indices = {0, 1, -1, 2, -1, -1}};
  p.q = {1, 0.5, 1, -2};
  p.k = {0.3, 0.1, -0.2, 0.7, 0.9, 0.4};
  p.v = random.Values(9);
  p.sink = {0.6};
  SparseProblem with_key = p;
  with_key.sink.clear();
  with_key.selection.lengths.sk[0] = 4;
  with_key.selection.indices = {0, 1, 3, 2, 3, -1};
  // The new key gives q . k = 0.6 for both rows.
  with_key.k.insert(with_key.k.end(), {0.6, 0});
  with_key.v.insert(with_key.v.end(), {0, 0, 0});
  const SparseResult got = SparseForward(p), want = SparseForward(with_key);
  for (size_t x = 0; x < got.out.size(); ++x) EXPECT_NEAR(got.out[x], want.out[x], 1e-15) << x;
  for (size_t x = 0; x < got.sum.size(); ++x) {
    EXPECT_NEAR(got.max[x] + std::log(got.sum[x]), want.max[x] + std::log(want.sum[x]), 1e-15) << x;
  }
}

TEST_P(SparseReference, IndexerGradientsAgreeWithFiniteDifferences) {
  RandomSparse random(GetParam());
  IndexerProblem p = random.MakeIndexer(random.MakeSelection(1));
  const Selection& s = p.selection;
  const std::vector<double> d_values = random.Values(s.tokens() * s.slots);
  // The loss adds up the score of each entry that is read, times the entry's d_values.
  const auto loss = [&] {
    double sum = 0;
    for (int64_t b = 0; b < s.batch(); ++b) {
      for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
        const int64_t token = s.FirstToken(b) + t;
        for (const SelectedKey& at : s.KeysOf(b, t)) {
          sum += d_values[token * s.slots + at.slot] * p.Score(token, s.FirstKey(b) + at.key);
        }
      }
    }
    return sum;
  };
  const IndexerGradients g = IndexerBackward(p, d_values);
  ExpectGradient(loss, &p.q, g.dq, "dq");
  ExpectGradient(loss, &p.k, g.dk, "dk");
  ExpectGradient(loss, &p.weights, g.dweights, "dweights");
}

/// The indexer's forward selects the keys. The loss uses the scores that the forward returns.
TEST_P(SparseReference, IndexerValuesAgreeWithFiniteDifferences) {
  RandomSparse random(GetParam());
  IndexerProblem p = random.MakeIndexer(random.MakeSelection(1));
  const std::vector<double> d_values = random.Values(p.selection.tokens() * p.selection.slots);
  p.selection.indices = IndexerForward(p).indices;
  const auto loss = [&] {
    const IndexerResult r = IndexerForward(p);
    double sum = 0;
    for (size_t x = 0; x < r.values.size(); ++x) {
      if (r.indices[x] >= 0) sum += d_values[x] * r.values[x];
    }
    return sum;
  };
  const IndexerGradients g = IndexerBackward(p, d_values);
  ExpectGradient(loss, &p.q, g.dq, "dq");
  ExpectGradient(loss, &p.k, g.dk, "dk");
  ExpectGradient(loss, &p.weights, g.dweights, "dweights");
}

void ExpectLossGradients(LossProblem* problem) {
  const LossResult r = IndexerLoss(*problem);
  const auto loss = [&] { return IndexerLoss(*problem).loss; };
  ExpectGradient(loss, &problem->indexer.q, r.gradients.dq, "dq_index");
  ExpectGradient(loss, &problem->indexer.k, r.gradients.dk, "dk_index");
  ExpectGradient(loss, &problem->indexer.weights, r.gradients.dweights, "dweights");
}

/// Returns the problem of a loss. The weights are halved, so that every y stays far above the value to which the loss
/// clamps it.
LossProblem MakeLoss(RandomSparse* random) {
  const Selection selection = random->MakeSelection(1);
  LossProblem problem{.attention = random->MakeAttention(selection), .indexer = random->MakeIndexer(selection)};
  for (double& weight : problem.indexer.weights) weight *= 0.5;
  problem.mean = random->Pick(0, 1) == 1;
  return problem;
}

// If the statistics belong to the same selection, the heads' mean probabilities add up to 1. Then y - p is the gradient
// of the loss.
TEST_P(SparseReference, LossGradientsAgreeWithFiniteDifferences) {
  RandomSparse random(GetParam());
  LossProblem problem = MakeLoss(&random);
  const SparseResult forward = SparseForward(problem.attention);
  problem.max = forward.max;
  problem.sum = forward.sum;
  const double recomputed = IndexerLoss(problem).loss;
  ExpectLossGradients(&problem);
  problem.p_head_mean = forward.p_head_mean;
  EXPECT_NEAR(IndexerLoss(problem).loss, recomputed, 1e-12);
  ExpectLossGradients(&problem);
}

// kL1 normalises the target, whatever the statistics are.
TEST_P(SparseReference, LossGradientsOfTheNormalisedTargetAgreeWithFiniteDifferences) {
  RandomSparse random(GetParam());
  LossProblem problem = MakeLoss(&random);
  problem.l1 = true;
  problem.max = random.Values(problem.attention.selection.tokens() * problem.attention.heads);
  problem.sum.assign(problem.max.size(), 3.5);
  ExpectLossGradients(&problem);
}

/// In the dense loss, the statistics of the scores are computed again for every step of the differences.
TEST_P(SparseReference, DenseLossGradientsAgreeWithFiniteDifferences) {
  RandomSparse random(GetParam());
  Selection selection = random.MakeSelection(1);
  LossProblem problem{.attention = random.MakeAttention(selection), .indexer = random.MakeIndexer(selection)};
  problem.dense = true;
  for (double& weight : problem.indexer.weights) weight *= 0.5;
  SparseProblem every_key = problem.attention;
  Selection& s = every_key.selection;
  s.slots = 9;
  s.indices.clear();
  for (int64_t x = 0; x < s.tokens() * s.slots; ++x) s.indices.push_back(x % s.slots);
  const SparseResult forward = SparseForward(every_key);
  problem.max = forward.max;
  problem.sum = forward.sum;
  const auto renew = [&] {
    problem.max_index.assign(static_cast<size_t>(s.tokens()), 0);
    problem.sum_index.assign(static_cast<size_t>(s.tokens()), 0);
    for (int64_t b = 0; b < s.batch(); ++b) {
      for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
        const int64_t token = s.FirstToken(b) + t;
        for (int64_t key = 0; key < s.Limit(b, t); ++key) {
          problem.sum_index[token] += std::exp(problem.indexer.Score(token, s.FirstKey(b) + key));
        }
      }
    }
  };
  renew();
  const LossResult r = IndexerLoss(problem);
  const auto loss = [&] {
    renew();
    return IndexerLoss(problem).loss;
  };
  ExpectGradient(loss, &problem.indexer.q, r.gradients.dq, "dq_index");
  ExpectGradient(loss, &problem.indexer.k, r.gradients.dk, "dk_index");
  ExpectGradient(loss, &problem.indexer.weights, r.gradients.dweights, "dweights");

  renew();
  LossProblem sparse = problem;
  sparse.attention = every_key;
  sparse.dense = false;
  EXPECT_NEAR(IndexerLoss(sparse).loss, IndexerLoss(problem).loss, 1e-12);
}

/// Returns the values [tokens, heads, size] of one sequence, reordered to [heads, tokens, size].
std::vector<double> HeadsFirst(const std::vector<double>& from, int64_t tokens, int64_t heads, int64_t size) {
  std::vector<double> to(from.size());
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 0; n < heads; ++n) {
      for (int64_t x = 0; x < size; ++x) to[(n * tokens + t) * size + x] = from[(t * heads + n) * size + x];
    }
  }
  return to;
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, const char* name) {
  ASSERT_EQ(got.size(), want.size()) << name;
  for (size_t x = 0; x < got.size(); ++x) ASSERT_NEAR(got[x], want[x], 1e-12) << name << '[' << x << ']';
}

TEST_P(SparseReference, IsDenseAttentionWhereEveryKeyIsSelected) {
  RandomSparse random(GetParam());
  const int64_t tokens = random.Pick(1, 5), keys = tokens + random.Pick(0, 4), block_size = random.Pick(1, 3);
  Selection s{.lengths = {{tokens}, {keys}}, .causal = random.Pick(0, 1) == 1, .block_size = block_size};
  s.slots = (keys + block_size - 1) / block_size;
  for (int64_t x = 0; x < tokens * s.slots; ++x) s.indices.push_back(x % s.slots);
  const SparseProblem p = random.MakeAttention(s);

  Problem dense{.heads = p.heads, .heads_kv = 1, .d = p.d, .d_rope = p.d_rope, .dv = p.dv, .lengths = s.lengths};
  dense.q = HeadsFirst(p.q, tokens, p.heads, p.d);
  dense.q_rope = HeadsFirst(p.q_rope, tokens, p.heads, p.d_rope);
  dense.k = p.k;
  dense.k_rope = p.k_rope;
  for (int64_t key = 0; key < keys; ++key) dense.v.insert(dense.v.end(), p.Value(key), p.Value(key) + p.dv);
  dense.scale = p.scale;
  dense.mask.mode = s.causal ? 3 : 1;

  const SparseResult got = SparseForward(p);
  const ForwardResult want = Forward(dense);
  ExpectNear(HeadsFirst(got.out, tokens, p.heads, p.dv), want.out, "out");
  ExpectNear(HeadsFirst(got.max, tokens, p.heads, 1), want.max, "max");
  ExpectNear(HeadsFirst(got.sum, tokens, p.heads, 1), want.sum, "sum");

  const std::vector<double> d_out = random.Values(tokens * p.heads * p.dv);
  const SparseGradients g = SparseBackward(p, got, d_out);
  Gradients of_dense = Backward(dense, want, HeadsFirst(d_out, tokens, p.heads, p.dv));
  if (p.merged) {
    for (int64_t x = 0; x < keys * p.dv; ++x) of_dense.dk[x / p.dv * p.d + x % p.dv] += of_dense.dv[x];
    of_dense.dv.clear();
  }
  ExpectNear(HeadsFirst(g.dq, tokens, p.heads, p.d), of_dense.dq, "dq");
  ExpectNear(g.dk, of_dense.dk, "dk");
  ExpectNear(g.dv, of_dense.dv, "dv");
  ExpectNear(HeadsFirst(g.dq_rope, tokens, p.heads, p.d_rope), of_dense.dq_rope, "dq_rope");
  ExpectNear(g.dk_rope, of_dense.dk_rope, "dk_rope");
}

INSTANTIATE_TEST_SUITE_P(RandomProblems, SparseReference, ::testing::Range(0, 60));

TEST(SparseForward, RowsWithoutKeysAreZero) {
  RandomSparse random(1);
  SparseProblem p = random.MakeAttention({.lengths = {{3}, {2}}, .slots = 2, .indices = {0, 1, -1, 1, 1, 1}});
  const SparseResult r = SparseForward(p);
  // Row 0 has the limit 0, and the list of row 1 begins with -1. Row 2's list names key 1 twice.
  for (int64_t row = 0; row < 2 * p.heads; ++row) {
    EXPECT_EQ(r.max[row], 0);
    EXPECT_EQ(r.sum[row], 0);
    for (int64_t x = 0; x < p.dv; ++x) EXPECT_EQ(r.out[row * p.dv + x], 0);
  }
  EXPECT_EQ(r.p_head_mean, (std::vector<double>{0, 0, 0, 0, 0.5, 0.5}));
  for (int64_t n = 0; n < p.heads; ++n) EXPECT_EQ(r.sum[2 * p.heads + n], 2);
}

// The expected loss is worked out by hand. Attention and indexer have one head each. Two keys have equal scores, and
// the statistics make p = (1/4, 3/4).
TEST(IndexerLoss, TwoKeysByHand) {
  const Selection s{.lengths = {{1}, {2}}, .slots = 2, .indices = {1, 0}};
  LossProblem problem;
  problem.attention = {.heads = 1, .d = 1, .selection = s, .q = {1}, .k = {std::log(3.0), 0}};
  problem.indexer = {.heads = 1, .d = 1, .selection = s, .q = {2}, .k = {1, 1}, .weights = {0.5}};
  problem.max = {std::log(3.0)};
  problem.sum = {4.0 / 3};
  LossResult r = IndexerLoss(problem);
  EXPECT_NEAR(r.loss, 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-15);
  EXPECT_NEAR(r.gradients.dk[0], (0.5 - 0.75) * 0.5 * 2, 1e-15);
  EXPECT_NEAR(r.gradients.dk[1], (0.5 - 0.25) * 0.5 * 2, 1e-15);
  EXPECT_NEAR(r.gradients.dq[0], 0, 1e-15);
  EXPECT_NEAR(r.gradients.dweights[0], 0, 1e-15);
  // Doubling the sum halves the head mean. The L1 target stays the same.
  problem.sum = {8.0 / 3};
  r = IndexerLoss(problem);
  EXPECT_NEAR(r.loss, 0.125 * std::log(0.25) + 0.375 * std::log(0.75), 1e-15);
  problem.l1 = true;
  EXPECT_NEAR(IndexerLoss(problem).loss, 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-15);
}

}  // namespace
}  // namespace reference
