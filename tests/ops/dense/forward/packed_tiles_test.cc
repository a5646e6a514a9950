// Tests forwards with at least eight strips of 32 rows per KV head, so at least 225 rows, and head sizes that are
// multiples of 32. On CPUs with a tile unit (AMX), K and V of these calls are packed as tiles, and one loop computes
// whole strips (docs/kernels.md). The other levels run the same cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "support/cases/random_values.h"
#include "support/compare/compare.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

/// Returns a bf16 case with 8 query heads of 35 rows and one KV head of 101 keys. Its 280 rows make nine strips of 32
/// rows.
ForwardCase Usual() {
  ForwardCase c;
  c.dtype = DType::kBF16;
  c.heads = 8;
  c.d = 64;
  c.dv = 32;
  c.lengths = EqualLengths(1, 35, 101);
  return c;
}

struct Feature {
  const char* name;
  std::function<void(ForwardCase*)> change;
};

const Feature kFeatures[] = {
    {"Plain", [](ForwardCase*) {}},
    {"Causal", [](ForwardCase* c) { c->mask.mode = 3; }},
    {"CausalFromTheTopLeft", [](ForwardCase* c) { c->mask.mode = 2; }},
    {"OneHeadOfManyRows",
     [](ForwardCase* c) {
       c->heads = 1;
       c->lengths = EqualLengths(1, 300, 300);
       c->mask.mode = 3;
     }},
    {"Window",
     [](ForwardCase* c) {
       c->mask = {.mode = 4, .pre = 20, .next = 3};
       c->lengths = EqualLengths(1, 90, 101);
     }},
    {"ListedRows",
     [](ForwardCase* c) {
       c->heads = 2;
       c->lengths = EqualLengths(1, 130, 130);
       c->mask.mode = reference::MaskRule::kRows;
       for (int64_t i = 0; i < 130; ++i) {
         c->mask.row_begin.push_back(i / 2);
         c->mask.row_end.push_back(i < 3 ? i / 2 : i / 2 + 45);
       }
     }},
    {"DenseMask", [](ForwardCase* c) { c->dense_mask = MaskForm::kPlane; }},
    {"DenseMaskOfHeadsThatDropsMost",
     [](ForwardCase* c) {
       c->dense_mask = MaskForm::kPerHead;
       c->dense_mask_share = 0.97;
     }},
    {"Bias",
     [](ForwardCase* c) {
       c->pse = PseForm::kFull;
       c->pse_type = reference::PseType::kScaleThenAdd;
     }},
    {"BiasOfMinusInfinities",
     [](ForwardCase* c) {
       c->pse = PseForm::kFull;
       c->pse_type = reference::PseType::kScaleThenAdd;
       c->pse_minus_inf_share = 0.9;
     }},
    {"Slopes",
     [](ForwardCase* c) {
       c->pse = PseForm::kSlopes;
       c->pse_type = reference::PseType::kSlopes;
       c->mask.mode = 3;
     }},
    {"Softcap", [](ForwardCase* c) { c->softcap = 5; }},
    {"Sink", [](ForwardCase* c) { c->sink = true; }},
    {"Dropout",
     [](ForwardCase* c) {
       c->dropout = DropoutForm::kSeed;
       c->keep_prob = 0.7F;
     }},
    {"Rope", [](ForwardCase* c) { c->d_rope = 32; }},
    {"NegativeScale", [](ForwardCase* c) { c->scale = -0.3F; }},
    {"ScaleOfZero", [](ForwardCase* c) { c->scale = 0; }},
    {"LongHeads",
     [](ForwardCase* c) {
       c->d = 256;
       c->dv = 224;
     }},
    {"ShortHeads", [](ForwardCase* c) { c->d = c->dv = 32; }},
    {"OtherColumns", [](ForwardCase* c) { c->d = 80; }},
    {"KeysBeyondL2InGroups",  // 2 bytes times 550 keys times 1024 columns are more than 1 MiB
     [](ForwardCase* c) {
       c->d = 512;
       c->dv = 512;
       c->lengths = EqualLengths(1, 33, 550);
     }},
    {"FewKeys", [](ForwardCase* c) { c->lengths = EqualLengths(1, 33, 3); }},
    {"Packed",
     [](ForwardCase* c) {
       c->layout = Layout::kTND;
       c->lengths = {{40, 0, 5, 33}, {70, 9, 40, 0}};
       c->mask.mode = 3;
       c->tail_q = 2;
       c->tail_kv = 3;
     }},
};

class ForwardPackedTiles : public ::testing::TestWithParam<Feature> {
 protected:
  static ForwardCase Case() {
    ForwardCase c = Usual();
    GetParam().change(&c);
    return c;
  }
};
INSTANTIATE_TEST_SUITE_P(Each, ForwardPackedTiles, ::testing::ValuesIn(kFeatures),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ForwardPackedTiles, AgreeWithTheReference) { EXPECT_TRUE(RunsLikeTheReference(Case())); }

TEST_P(ForwardPackedTiles, OutputsHaveTheirBitsWhateverThreadsAndStatistics) {
  ForwardCase c = Case();
  for (const Isa isa : IsaLevels()) {
    c.wants_max = c.wants_sum = c.wants_lse = true;
    const ForwardOutputs all = OutputsOf(c, ContextOf(isa, 1));
    EXPECT_TRUE(SameBits(all, OutputsOf(c, ContextOf(isa, 3)))) << IsaName(isa);
    c.wants_max = c.wants_sum = c.wants_lse = false;
    ForwardOutputs none = OutputsOf(c, ContextOf(isa, 2));
    none.max = all.max;
    none.sum = all.sum;
    none.lse = all.lse;
    none.tail = all.tail;
    EXPECT_TRUE(SameBits(none, all)) << IsaName(isa);
  }
}

/// Returns whether the plan says that the tile unit's loop computes the case.
bool RunsTheLoop(const ForwardCase& c, Isa isa, int threads = 2) {
  const auto plan = ForwardProblem(c).MakePlan(ContextOf(isa, threads));
  EXPECT_TRUE(plan.ok());
  const auto& names = plan->info().kernels;
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.find("_attend_tiles") != std::string::npos; });
}

void ExpectTheLoopForGroupsOf225RowsOrMore(Isa isa) {
  const auto changed = [](const std::function<void(ForwardCase*)>& change) {
    ForwardCase c = Usual();
    change(&c);
    return c;
  };
  EXPECT_TRUE(RunsTheLoop(Usual(), isa, 1));
  EXPECT_TRUE(RunsTheLoop(Usual(), isa, 8));
  const auto rows = [](int64_t heads, int64_t sq) {
    return [heads, sq](ForwardCase* c) {
      c->heads = heads;
      c->lengths = EqualLengths(1, sq, 101);
    };
  };
  EXPECT_TRUE(RunsTheLoop(changed(rows(1, 225)), isa));
  EXPECT_FALSE(RunsTheLoop(changed(rows(1, 224)), isa));
  EXPECT_FALSE(RunsTheLoop(changed(rows(8, 28)), isa));
  EXPECT_TRUE(RunsTheLoop(changed(rows(9, 25)), isa));
  EXPECT_FALSE(RunsTheLoop(changed([](ForwardCase* c) {  // few rows, so their keys are cut into parts
                             c->heads = 60;
                             c->lengths = EqualLengths(1, 4, 3000);
                           }),
                           isa));
  for (const Feature& feature : kFeatures) {
    const std::string name = feature.name;
    const bool other = name == "Bias" || name == "BiasOfMinusInfinities" || name == "Slopes" || name == "Dropout" ||
                       name == "OtherColumns";
    EXPECT_EQ(RunsTheLoop(changed(feature.change), isa), !other) << name;
  }
  EXPECT_FALSE(RunsTheLoop(changed([](ForwardCase* c) { c->dtype = DType::kF16; }), isa));
}

TEST(ForwardPackedTiles, TheTileUnitComputesGroupsOf225RowsOrMoreInTheLoop) {
  for (const Isa isa : IsaLevels()) {
    SCOPED_TRACE(IsaName(isa));
    if (isa == Isa::kAvx512Amx || isa == ParseIsa("amx_emulated")) {
      ExpectTheLoopForGroupsOf225RowsOrMore(isa);
    } else {
      EXPECT_FALSE(RunsTheLoop(Usual(), isa));
    }
  }
}

TEST(ForwardPackedTiles, AgreeWithTheReferenceAtTheFewestRows) {
  for (const auto& [heads, sq] : {std::pair{8, 28}, {1, 224}, {1, 225}, {9, 25}}) {
    ForwardCase c = Usual();
    c.heads = heads;
    c.lengths = EqualLengths(1, sq, 101);
    c.mask.mode = 3;
    EXPECT_TRUE(RunsLikeTheReference(c)) << heads << " heads of " << sq << " rows";
  }
}

/// Makes the scores of head 1, rows 3 to 5, rise by `step` per key. The loop subtracts a reference from scores before
/// exp: the largest score of the row's first keys. For these rows the reference is far too small.
reference::Problem WithRisingScores(const ForwardCase& c, double step) {
  reference::Problem values = MakeReferenceProblem(c);
  for (int64_t j = 0; j < c.lengths.sk[0]; ++j) {
    values.k[static_cast<size_t>(values.KeyRow(0, 0, j, c.d))] = static_cast<double>(j);
  }
  for (int64_t n = 0; n < c.heads; ++n) {
    for (int64_t i = 0; i < c.lengths.sq[0]; ++i) {
      const bool rises = n == 1 && i >= 3 && i <= 5;
      values.q[static_cast<size_t>(values.QueryRow(0, n, i, c.d))] = rises ? step : static_cast<double>(i % 5) / 64;
    }
  }
  return values;
}

// Products rise by 8 per key, and the scale is 1/8. So after 70 keys, exponentials are e^70 times as large as at the
// first keys. With 512 per key they overflow f32.
TEST(ForwardPackedTiles, RowsWhoseScoresRiseAreComputedAnewAndTheOthersKeepTheirBits) {
  const ForwardCase c = Usual();
  const ForwardProblem usual(c, WithRisingScores(c, 0));
  for (const double step : {1.0, 8.0, 64.0, 512.0, 65536.0}) {
    const ForwardProblem rising(c, WithRisingScores(c, step));
    EXPECT_TRUE(RunsLikeTheReference(rising)) << step;
    for (const Isa isa : IsaLevels()) {
      const ForwardOutputs got = OutputsOf(rising, ContextOf(isa)), want = OutputsOf(usual, ContextOf(isa));
      for (size_t x = 0; x < got.out.size(); ++x) {
        const int64_t row = static_cast<int64_t>(x) / c.dv;
        if (row >= 35 + 3 && row <= 35 + 5) continue;
        ASSERT_EQ(got.out[x], want.out[x]) << IsaName(isa) << " step " << step << " element " << x;
      }
    }
  }
}

TEST(ForwardPackedTiles, ValuesThatAreNotFiniteSpoilTheRowsThatSeeThem) {
  for (const double value : {static_cast<double>(NAN), static_cast<double>(INFINITY), 0x1p127}) {
    for (const int mode : {1, 3}) {
      ForwardCase c = Usual();
      c.mask.mode = mode;
      reference::Problem values = MakeReferenceProblem(c);
      values.v[static_cast<size_t>(values.KeyRow(0, 0, 80, c.dv) + 7)] = value;
      EXPECT_TRUE(RunsLikeTheReference(ForwardProblem(c, values))) << value << " mode " << mode;
      values = MakeReferenceProblem(c);
      values.k[static_cast<size_t>(values.KeyRow(0, 0, 80, c.d) + 7)] = value == 0x1p127 ? 0x1p100 : value;
      EXPECT_TRUE(RunsLikeTheReference(ForwardProblem(c, values))) << value << " mode " << mode;
    }
  }
}

// Only rows from 16 on see the key whose value is not finite. The number of threads decides which of the earlier rows
// share a strip with a row that sees the key.
TEST(ForwardPackedTiles, RowsThatDoNotSeeSuchAValueKeepTheirBitsWhateverTheThreads) {
  ForwardCase c = Usual();
  c.d = 32;
  c.lengths = EqualLengths(1, 40, 1024);
  c.mask.mode = 3;
  c.wants_max = c.wants_sum = c.wants_lse = true;
  for (const float value : {NAN, INFINITY}) {
    reference::Problem values = MakeReferenceProblem(c);
    const ForwardProblem clean(c, values);
    values.v[static_cast<size_t>(values.KeyRow(0, 0, 1000, c.dv) + 7)] = static_cast<double>(value);
    const ForwardProblem spoiled(c, values);
    for (const Isa isa : IsaLevels()) {
      const ForwardOutputs want = OutputsOf(clean, ContextOf(isa, 1)), one = OutputsOf(spoiled, ContextOf(isa, 1));
      for (size_t x = 0; x < want.out.size(); ++x) {
        const auto row = static_cast<int64_t>(x) / c.dv;
        if (row % 40 < 16) {
          ASSERT_EQ(one.out[x], want.out[x]) << IsaName(isa) << " row " << row;
        } else if (static_cast<int64_t>(x) % c.dv == 7) {
          ASSERT_FALSE(std::isfinite(one.out[x])) << IsaName(isa) << " row " << row;
        }
      }
      for (const int threads : {2, 3, 4, 8}) {
        EXPECT_TRUE(SameBits(one, OutputsOf(spoiled, ContextOf(isa, threads)))) << IsaName(isa) << ' ' << threads;
        EXPECT_TRUE(SameBits(want, OutputsOf(clean, ContextOf(isa, threads)))) << IsaName(isa) << ' ' << threads;
      }
    }
  }
}

// Scores are 0 for the first 32 keys, which give the reference, and 40 for the 69 others. The sink is 100, so the
// output is 69 e^-60.
TEST(ForwardPackedTiles, ASinkFarAboveTheReferenceLeavesTheOutputItsDigits) {
  ForwardCase c = Usual();
  c.sink = true;
  reference::Problem values = MakeReferenceProblem(c);
  for (int64_t j = 0; j < 101; ++j) {
    for (int64_t x = 0; x < c.d; ++x) {
      values.k[static_cast<size_t>(values.KeyRow(0, 0, j, c.d) + x)] = x == 0 && j >= 32 ? 1 : 0;
    }
  }
  for (int64_t n = 0; n < c.heads; ++n) {
    values.sink[static_cast<size_t>(n)] = 100;
    for (int64_t i = 0; i < 35; ++i) values.q[static_cast<size_t>(values.QueryRow(0, n, i, c.d))] = 320;
  }
  std::fill(values.v.begin(), values.v.end(), 1);
  const ForwardProblem problem(c, values);
  const double want = 69 * std::exp(-60);
  for (const Isa isa : IsaLevels()) {
    // The f32 exponent has an error of 2^-18 here, and the output is rounded to bf16.
    for (const double got : OutputsOf(problem, ContextOf(isa)).out) {
      ASSERT_NEAR(got, want, 0x1p-7 * want) << IsaName(isa);
    }
  }
}

TEST(ForwardPackedTiles, OneKeyWithAllTheWeightGivesItsRowOfV) {
  ForwardCase c = Usual();
  reference::Problem values = MakeReferenceProblem(c);
  for (const int64_t key : {5, 77}) {
    for (int64_t x = 0; x < c.d; ++x) {
      for (int64_t j = 0; j < 101; ++j) {
        values.k[static_cast<size_t>(values.KeyRow(0, 0, j, c.d) + x)] = x > 0 ? 0 : j == key ? 300 : -20;
      }
    }
    for (int64_t n = 0; n < c.heads; ++n) {
      for (int64_t i = 0; i < 35; ++i) values.q[static_cast<size_t>(values.QueryRow(0, n, i, c.d))] = 1.0 + i % 3;
    }
    const ForwardProblem problem(c, values);
    for (const Isa isa : IsaLevels()) {
      const ForwardOutputs got = OutputsOf(problem, ContextOf(isa));
      for (size_t x = 0; x < got.out.size(); ++x) {
        const int64_t column = static_cast<int64_t>(x) % c.dv;
        ASSERT_EQ(got.out[x], values.v[static_cast<size_t>(values.KeyRow(0, 0, key, c.dv) + column)])
            << IsaName(isa) << " key " << key << " element " << x;
      }
    }
  }
}

}  // namespace
}  // namespace fa::test
