// Checks the reference without a second implementation. The checks use pictures of masks in the vendor's documents,
// values worked out by hand, and finite differences.
#include "reference/attention.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <random>
#include <string>

namespace reference {
namespace {

std::string Picture(const MaskRule& rule, const Lengths& lengths, int64_t b) {
  std::string picture;
  for (int64_t i = 0; i < lengths.sq[b]; ++i) {
    for (int64_t j = 0; j < lengths.sk[b]; ++j) picture += RuleKeeps(rule, lengths, b, i, j) ? 'x' : '.';
    picture += '|';
  }
  return picture;
}

TEST(MaskRule, PicturesOfEveryMode) {
  EXPECT_EQ(Picture({.mode = 0}, {{2}, {3}}, 0), "xxx|xxx|");
  EXPECT_EQ(Picture({.mode = 0, .band = true, .pre = 1, .next = 0}, {{3}, {4}}, 0), "x...|xx..|.xx.|");
  EXPECT_EQ(Picture({.mode = 1}, {{2}, {3}}, 0), "xxx|xxx|");
  EXPECT_EQ(Picture({.mode = 2}, {{2}, {4}}, 0), "x...|xx..|");
  EXPECT_EQ(Picture({.mode = 3}, {{2}, {4}}, 0), "xxx.|xxxx|");
  EXPECT_EQ(Picture({.mode = 3}, {{4}, {2}}, 0), "..|..|x.|xx|");
  EXPECT_EQ(Picture({.mode = 4, .pre = 1, .next = 0}, {{2}, {4}}, 0), ".xx.|..xx|");
  EXPECT_EQ(Picture({.mode = 5, .prefix = {3}}, {{3}, {4}}, 0), "xxx.|xxx.|xxxx|");
  EXPECT_EQ(Picture({.mode = 6, .prefix = {1}}, {{4}, {2}}, 0), "x.|x.|x.|xx|");
  const MaskRule rows{.mode = MaskRule::kRows, .row_begin = {0, 9, 1}, .row_end = {2, 9, 4}};
  EXPECT_EQ(Picture(rows, {{3}, {4}}, 0), "xx..|....|.xxx|");
  EXPECT_EQ(Picture(rows, {{1, 2}, {2, 4}}, 1), "....|.xxx|");
}

// The expected masks are those that the device's documentation shows for the sparse modes.
TEST(MaskRule, BandModesOfPackedSequences) {
  const Lengths lengths{.sq = {3, 2, 0}, .sk = {3, 6, 4}};
  const MaskRule mode7{.mode = 7, .next = -2};
  EXPECT_EQ(Picture(mode7, lengths, 0), "x..|xx.|xxx|");
  EXPECT_EQ(Picture(mode7, lengths, 1), "xxx...|xxxx..|");
  const Lengths leading_empty{.sq = {0, 3, 2}, .sk = {2, 4, 3}};
  const MaskRule mode8{.mode = 8, .pre = 4, .next = 1};
  EXPECT_EQ(Picture(mode8, leading_empty, 1), "xxx.|xxxx|xxxx|");
  EXPECT_EQ(Picture(mode8, leading_empty, 2), "x..|xx.|");
}

TEST(MaskRule, UnlimitedBoundsDoNotWrap) {
  EXPECT_EQ(Picture({.mode = 4, .pre = INT64_MAX, .next = INT64_MAX}, {{2}, {2}}, 0), "xx|xx|");
  EXPECT_EQ(Picture({.mode = 4, .pre = INT64_MIN, .next = INT64_MIN}, {{2}, {2}}, 0), "..|..|");
}

Problem TwoKeys() {
  Problem p{.heads = 1, .heads_kv = 1, .d = 1, .dv = 1};
  p.lengths = {{1}, {2}};
  p.q = {2};
  p.k = {0, 0.5};
  p.v = {10, 20};
  return p;
}

TEST(Forward, TwoKeysByHand) {
  const ForwardResult r = Forward(TwoKeys());
  const double p1 = 1 / (1 + std::exp(-1.0));
  EXPECT_DOUBLE_EQ(r.out[0], 10 * (1 - p1) + 20 * p1);
  EXPECT_DOUBLE_EQ(r.max[0], 1);
  EXPECT_DOUBLE_EQ(r.sum[0], 1 + std::exp(-1.0));
  EXPECT_DOUBLE_EQ(r.lse[0], std::log(1 + std::exp(1.0)));
}

TEST(Forward, SinkIsAKeyOfValueZero) {
  Problem p = TwoKeys();
  p.sink = {3};
  const ForwardResult r = Forward(p);
  const double sum = std::exp(-3.0) + std::exp(-2.0) + 1;
  EXPECT_DOUBLE_EQ(r.max[0], 3);
  EXPECT_DOUBLE_EQ(r.sum[0], sum);
  EXPECT_DOUBLE_EQ(r.out[0], (10 * std::exp(-3.0) + 20 * std::exp(-2.0)) / sum);
}

TEST(Forward, DropoutScalesValuesAndLeavesTheSum) {
  Problem p = TwoKeys();
  p.keep_prob = 0.5;
  p.drop_bits = {2};  // bit 1 is set, so key 1 is kept
  const ForwardResult r = Forward(p);
  EXPECT_DOUBLE_EQ(r.sum[0], 1 + std::exp(-1.0));
  EXPECT_DOUBLE_EQ(r.out[0], 2 * 20 / (1 + std::exp(-1.0)));
}

TEST(Forward, RowsWithoutKeys) {
  Problem p = TwoKeys();
  p.mask = {.mode = 4, .pre = -5, .next = 5};
  ForwardResult r = Forward(p);
  EXPECT_EQ(r.out[0], 0);
  EXPECT_EQ(r.max[0], -static_cast<double>(FLT_MAX));
  EXPECT_EQ(r.sum[0], static_cast<double>(FLT_MAX));
  EXPECT_EQ(r.lse[0], -INFINITY);
  p.sink = {7};
  r = Forward(p);
  EXPECT_EQ(r.out[0], 0);
  EXPECT_EQ(r.max[0], 7);
  EXPECT_EQ(r.sum[0], 1);
  p.lengths.sk = {0};
  r = Forward(p);
  EXPECT_EQ(r.max[0], 0);
  EXPECT_EQ(r.sum[0], 0);
  EXPECT_EQ(r.lse[0], -INFINITY);
}

TEST(Forward, CompressedPseRepeatsAlongTheDiagonal) {
  Problem p;
  p.lengths = {{2500}, {2500}};
  p.pse_compressed = true;
  p.pse = {.values = {}, .offset = {0}, .head = {0}, .row = {2500}};
  EXPECT_EQ(PseIndex(p, 0, 0, 2499, 7), int64_t{1023} * 2500 + 7);
  EXPECT_EQ(PseIndex(p, 0, 0, 1476, 1476), 1476);
  // Row 1000 of the whole sequence reads row 2476, one of the last 1024 rows. Both have the same distance from the
  // diagonal.
  EXPECT_EQ(PseIndex(p, 0, 0, 1000, 990), int64_t{1000} * 2500 + 2466);
  EXPECT_EQ(PseIndex(p, 0, 0, 1030, 1030), int64_t{6} * 2500 + 1482);
}

TEST(NaiveForward, DiffersFromDoubleByRoundingOnly) {
  const ForwardResult exact = Forward(TwoKeys());
  for (const Format format : {Format::kF32, Format::kF16, Format::kBF16}) {
    const double error = std::fabs(NaiveForward(TwoKeys(), format).out[0] - exact.out[0]);
    EXPECT_GT(error, 0);
    EXPECT_LE(error, 4 * UnitRoundoff(format) * exact.out[0]);
  }
}

/// Makes random problems. Each option is on in some of them.
class RandomProblem {
 public:
  explicit RandomProblem(int seed) : random_(static_cast<unsigned>(seed)) {}

  Problem Make() {
    Problem p{.heads_kv = Pick(1, 2), .d = Pick(1, 4), .d_rope = Pick(0, 2), .dv = Pick(1, 4)};
    p.heads = p.heads_kv * Pick(1, 2);
    const int64_t batch = Pick(1, 2);
    for (int64_t b = 0; b < batch; ++b) {
      p.lengths.sq.push_back(Pick(0, 4));
      p.lengths.sk.push_back(Pick(0, 5));
    }
    const int64_t rows_q = p.RowsBefore(p.lengths.sq, batch) * p.heads;
    const int64_t rows_k = p.RowsBefore(p.lengths.sk, batch) * p.heads_kv;
    p.q = Values(rows_q * p.d);
    p.k = Values(rows_k * p.d);
    p.v = Values(rows_k * p.dv);
    p.q_rope = Values(rows_q * p.d_rope);
    p.k_rope = Values(rows_k * p.d_rope);
    p.scale = std::array{0.7, -0.4, 0.0}[static_cast<size_t>(Pick(0, 2))];
    p.mask = {.mode = static_cast<int>(Pick(0, 8)), .band = Pick(0, 1) == 1, .pre = Pick(-1, 3), .next = Pick(-1, 3)};
    p.mask.prefix.assign(static_cast<size_t>(batch), Pick(0, 3));
    AddBias(&p);
    if (Pick(0, 3) == 0) AddDenseMask(&p);
    if (p.pse_type != PseType::kAddThenScale && Pick(0, 1) == 1) p.softcap = 0.9;
    if (Pick(0, 2) == 0) {
      p.sink_form =
          std::array{SinkForm::kPerHead, SinkForm::kPerRowOfAll, SinkForm::kPerRow}[static_cast<size_t>(Pick(0, 2))];
      const int64_t longest = *std::max_element(p.lengths.sq.begin(), p.lengths.sq.end());
      p.sink = Values(p.sink_form == SinkForm::kPerHead  ? p.heads
                      : p.sink_form == SinkForm::kPerRow ? p.heads * p.RowsBefore(p.lengths.sq, p.batch())
                                                         : p.heads * longest);
    }
    if (Pick(0, 2) == 0) {
      p.seed = Seed{.seed = static_cast<uint64_t>(Pick(0, 1000)), .offset = 5};
      p.keep_prob = 0.6;
    }
    return p;
  }

  std::vector<double> Values(int64_t count) {
    std::vector<double> values(static_cast<size_t>(count));
    for (double& value : values) value = std::normal_distribution<double>()(random_);
    return values;
  }

 private:
  int64_t Pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  /// Adds a mask that drops each pair with a probability of one third.
  void AddDenseMask(Problem* p) {
    for (int64_t b = 0; b < p->batch(); ++b) {
      p->dense_mask.offset.push_back(static_cast<int64_t>(p->dense_mask.values.size()));
      p->dense_mask.head.push_back(p->lengths.sq[b] * p->lengths.sk[b]);
      p->dense_mask.row.push_back(p->lengths.sk[b]);
      for (int64_t x = 0; x < p->heads * p->dense_mask.head.back(); ++x) {
        p->dense_mask.values.push_back(Pick(0, 2) == 0 ? 1 : 0);
      }
    }
  }

  void AddBias(Problem* p) {
    p->pse_type = static_cast<PseType>(Pick(-1, 3));
    if (p->pse_type == PseType::kSlopes || p->pse_type == PseType::kSlopesSqrt) {
      const std::vector<double> of_heads = Values(p->heads);
      for (int64_t b = 0; b < p->batch(); ++b) p->slopes.insert(p->slopes.end(), of_heads.begin(), of_heads.end());
      p->q_start = Pick(-2, 2);
    } else if (p->pse_type != PseType::kNone) {
      const bool broadcast_row = Pick(0, 1) == 1;
      int64_t size = 0;
      for (int64_t b = 0; b < p->batch(); ++b) {
        p->pse.offset.push_back(size);
        p->pse.head.push_back(broadcast_row ? p->lengths.sk[b] : p->lengths.sq[b] * p->lengths.sk[b]);
        p->pse.row.push_back(broadcast_row ? 0 : p->lengths.sk[b]);
        size += p->heads * p->pse.head.back();
      }
      p->pse.values = Values(size);
    }
  }

  std::mt19937 random_;
};

double Loss(const Problem& problem, const std::vector<double>& d_out) {
  const ForwardResult forward = Forward(problem);
  double loss = 0;
  for (size_t x = 0; x < d_out.size(); ++x) loss += forward.out[x] * d_out[x];
  return loss;
}

/// Compares a gradient with central differences of step h = 1e-5. Their error is h^2 f''' / 6 + eps |f| / h, about 1e-9
/// for values around 1.
void ExpectGradient(Problem* problem, const std::vector<double>& d_out, std::vector<double>* input,
                    const std::vector<double>& gradient, const char* name) {
  constexpr double kStep = 1e-5;
  for (size_t x = 0; x < gradient.size(); ++x) {
    const double before = (*input)[x];
    (*input)[x] = before + kStep;
    const double above = Loss(*problem, d_out);
    (*input)[x] = before - kStep;
    const double below = Loss(*problem, d_out);
    (*input)[x] = before;
    ASSERT_NEAR(gradient[x], (above - below) / (2 * kStep), 1e-7) << name << '[' << x << ']';
  }
}

class BackwardReference : public ::testing::TestWithParam<int> {};

TEST_P(BackwardReference, AgreesWithFiniteDifferences) {
  RandomProblem random(GetParam());
  Problem p = random.Make();
  const std::vector<double> d_out = random.Values(p.RowsBefore(p.lengths.sq, p.batch()) * p.heads * p.dv);
  const Gradients g = Backward(p, Forward(p), d_out);
  ExpectGradient(&p, d_out, &p.q, g.dq, "dq");
  ExpectGradient(&p, d_out, &p.k, g.dk, "dk");
  ExpectGradient(&p, d_out, &p.v, g.dv, "dv");
  ExpectGradient(&p, d_out, &p.q_rope, g.dq_rope, "dq_rope");
  ExpectGradient(&p, d_out, &p.k_rope, g.dk_rope, "dk_rope");
  ExpectGradient(&p, d_out, &p.pse.values, g.dpse, "dpse");
  ExpectGradient(&p, d_out, &p.sink, g.dsink, "dsink");
}

INSTANTIATE_TEST_SUITE_P(RandomProblems, BackwardReference, ::testing::Range(0, 200));

TEST(BackwardReference, SlopesAgreeWithFiniteDifferences) {
  int checked = 0;
  for (int seed = 0; seed < 100; ++seed) {
    RandomProblem random(seed);
    Problem p = random.Make();
    if (p.slopes.empty()) continue;
    const std::vector<double> d_out = random.Values(p.RowsBefore(p.lengths.sq, p.batch()) * p.heads * p.dv);
    const Gradients g = Backward(p, Forward(p), d_out);
    ASSERT_EQ(g.dslopes.size(), p.slopes.size());
    ExpectGradient(&p, d_out, &p.slopes, g.dslopes, "dslopes");
    ++checked;
  }
  EXPECT_GT(checked, 20);
}

TEST(NaiveBackward, DiffersFromDoubleByRoundingOnly) {
  const Problem p = TwoKeys();
  const ForwardResult forward = Forward(p);
  const Gradients exact = Backward(p, forward, {1});
  const Gradients naive = NaiveBackward(p, forward, {1}, Format::kBF16);
  // The terms of dq are near 20 and cancel, because a softmax's gradients add up to 0. So dq has the error of terms
  // near 20.
  EXPECT_NE(naive.dq[0], exact.dq[0]);
  EXPECT_NEAR(naive.dq[0], exact.dq[0], 4 * UnitRoundoff(Format::kBF16) * 20);
  EXPECT_NEAR(naive.dv[1], exact.dv[1], 4 * UnitRoundoff(Format::kBF16));
}

}  // namespace
}  // namespace reference
