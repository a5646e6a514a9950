// Tests backwards whose head sizes are multiples of 32. On CPUs with a tile unit (AMX), one loop computes P, dS and dQ
// of these heads (docs/kernels.md). The other levels run the same cases.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "support/cases/random_values.h"
#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

/// Returns a case with 2 query heads and one KV head, 110 rows and 150 keys. The rows make strips of 32 and a last
/// strip of 16, and the keys make two blocks.
BackwardCase Usual() {
  BackwardCase c;
  c.forward.dtype = DType::kBF16;
  c.forward.heads = 2;
  c.forward.d = 64;
  c.forward.dv = 32;
  c.forward.lengths = EqualLengths(1, 110, 150);
  return c;
}

struct Feature {
  const char* name;
  bool loops;  ///< whether the tile unit's loop computes the case
  std::function<void(BackwardCase*)> change;
};

const Feature kFeatures[] = {
    {"Plain", true, [](BackwardCase*) {}},
    {"Causal", true, [](BackwardCase* c) { c->forward.mask.mode = 3; }},
    {"ManyRows", true,
     [](BackwardCase* c) {
       c->forward.heads = 1;
       c->forward.lengths = EqualLengths(1, 300, 300);
       c->forward.mask.mode = 3;
     }},
    {"Window", true, [](BackwardCase* c) { c->forward.mask = {.mode = 4, .pre = 20, .next = 3}; }},
    {"DenseMask", true, [](BackwardCase* c) { c->forward.dense_mask = MaskForm::kPlane; }},
    {"DenseMaskThatDropsMost", true,
     [](BackwardCase* c) {
       c->forward.dense_mask = MaskForm::kPerHead;
       c->forward.dense_mask_share = 0.97;
     }},
    {"BiasWithoutItsGradient", true,
     [](BackwardCase* c) {
       c->forward.pse = PseForm::kFull;
       c->forward.pse_type = reference::PseType::kScaleThenAdd;
       c->optional_gradients = false;
     }},
    {"Sink", true, [](BackwardCase* c) { c->forward.sink = true; }},
    {"Rope", true, [](BackwardCase* c) { c->forward.d_rope = 32; }},
    {"NegativeScale", true, [](BackwardCase* c) { c->forward.scale = -0.3F; }},
    {"LongHeads", true,
     [](BackwardCase* c) {
       c->forward.d = 256;
       c->forward.dv = 224;
     }},
    {"ShortHeads", true, [](BackwardCase* c) { c->forward.d = 32; }},
    {"FewKeys", true, [](BackwardCase* c) { c->forward.lengths = EqualLengths(1, 70, 3); }},
    {"FewRows", false, [](BackwardCase* c) { c->forward.lengths = EqualLengths(1, 16, 150); }},
    {"RowsOfOneStrip", true, [](BackwardCase* c) { c->forward.lengths = EqualLengths(1, 17, 150); }},
    {"PackedFewRows", false,
     [](BackwardCase* c) {
       c->forward.layout = Layout::kTND;
       c->forward.lengths = {{4, 0, 5, 16}, {70, 9, 40, 150}};
     }},
    {"Packed", true,
     [](BackwardCase* c) {
       c->forward.layout = Layout::kTND;
       c->forward.lengths = {{40, 0, 5, 70}, {70, 9, 40, 0}};
       c->forward.mask.mode = 3;
       c->forward.tail_q = 2;
       c->forward.tail_kv = 3;
     }},
    {"Softcap", false, [](BackwardCase* c) { c->forward.softcap = 5; }},
    {"Bias", false,
     [](BackwardCase* c) {
       c->forward.pse = PseForm::kFull;
       c->forward.pse_type = reference::PseType::kScaleThenAdd;
     }},
    {"Dropout", false,
     [](BackwardCase* c) {
       c->forward.dropout = DropoutForm::kSeed;
       c->forward.keep_prob = 0.7F;
     }},
    {"OtherColumns", false, [](BackwardCase* c) { c->forward.d = 80; }},
    {"OtherType", false, [](BackwardCase* c) { c->forward.dtype = DType::kF16; }},
};

class BackwardPackedTiles : public ::testing::TestWithParam<Feature> {
 protected:
  static BackwardCase Case() {
    BackwardCase c = Usual();
    GetParam().change(&c);
    return c;
  }
};
INSTANTIATE_TEST_SUITE_P(Each, BackwardPackedTiles, ::testing::ValuesIn(kFeatures),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(BackwardPackedTiles, AgreeWithTheReference) { EXPECT_TRUE(RunsLikeTheReference(Case())); }

TEST_P(BackwardPackedTiles, HaveTheirBitsWhateverThreads) {
  const BackwardProblem problem(Case());
  for (const Isa isa : IsaLevels()) {
    const BackwardOutputs one = OutputsOf(problem, ContextOf(isa, 1));
    problem.ForgetOutputs();
    EXPECT_TRUE(SameBits(OutputsOf(problem, ContextOf(isa, 3)), one)) << IsaName(isa);
  }
}

TEST_P(BackwardPackedTiles, ThePlanNamesTheLoop) {
  const BackwardProblem problem(Case());
  for (const Isa isa : IsaLevels()) {
    const auto plan = problem.MakePlan(ContextOf(isa, 2));
    ASSERT_TRUE(plan.ok());
    const std::string kernels = plan->info().kernels.front();
    const bool has_unit = isa == Isa::kAvx512Amx || isa == ParseIsa("amx_emulated");
    EXPECT_EQ(kernels.find("_gradient_tiles") != std::string::npos, has_unit && GetParam().loops) << kernels;
  }
}

// One element of K, V, Q or dO is not finite, and under mode 3 only some rows see it. If every element were finite, the
// tile unit's loop would compute all strips.
TEST(BackwardPackedTiles, ElementsThatAreNotFiniteSpoilOnlyWhatSeesThem) {
  for (const double value : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    for (const int mode : {1, 3}) {
      BackwardCase c = Usual();
      c.forward.mask.mode = mode;
      for (int part = 0; part < 4; ++part) {
        reference::Problem problem = MakeReferenceProblem(c.forward);
        const int64_t key = problem.KeyRow(0, 0, 100, part == 1 ? c.forward.dv : c.forward.d) + 7;
        const int64_t row = problem.QueryRow(0, 1, 60, c.forward.d) + 7;
        if (part % 2 == 0 && !std::isnan(value)) continue;  // an inf in Q or K can make a score inf - inf
        if (part == 0) problem.k[static_cast<size_t>(key)] = value;
        if (part == 1) problem.v[static_cast<size_t>(key)] = value;
        if (part == 2) problem.q[static_cast<size_t>(row)] = value;
        BackwardValues values = MakeBackwardValues(c, problem);
        if (part == 3) values.d_out[static_cast<size_t>(problem.QueryRow(0, 1, 60, c.forward.dv) + 7)] = value;
        EXPECT_TRUE(RunsLikeTheReference(BackwardProblem(c, values))) << value << " mode " << mode << " part " << part;
      }
    }
  }
}

}  // namespace
}  // namespace fa::test
