// The bits depend on the inputs, the options and the instruction set, and on nothing else.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <algorithm>

#include "support/cases/random_forward_case.h"
#include "support/compare/compare.h"
#include "support/execution/contexts.h"
#include "support/sanitizer.h"

namespace fa::test {
namespace {

class ForwardReproducibility : public ::testing::TestWithParam<Isa> {
 protected:
  static Context* context(int threads = 2) { return ContextOf(GetParam(), threads); }
  /// Calls `check` on random cases.
  template <typename Check>
  static void ForRandomCases(int first_seed, const Check& check) {
    // Under a sanitizer fewer cases run, because random_test already runs many.
    const int cases = RandomCases() / (Sanitized() ? 20 : 8);
    for (int seed = first_seed; seed < first_seed + cases; ++seed)
      check(RandomForwardCase(static_cast<uint64_t>(seed)));
  }
};

// Without this setting oneTBB would give no more workers than the machine has cores.
const tbb::global_control kEightThreads(tbb::global_control::max_allowed_parallelism, 8);

TEST_P(ForwardReproducibility, OverThreads) {
  ForRandomCases(10001, [](const ForwardCase& c) {
    const ForwardOutputs one = OutputsOf(c, context(1));
    for (const int threads : {2, 3, 8}) {
      EXPECT_TRUE(SameBits(one, OutputsOf(c, context(threads)))) << threads << " threads" << c;
    }
  });
}

TEST_P(ForwardReproducibility, OverThreadsWithManyTilesAHead) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    ForwardCase c;
    c.dtype = dtype;
    c.heads = 2;
    c.d = c.dv = 64;
    const int64_t length = Sanitized() ? 400 : 1500;
    c.lengths = EqualLengths(1, length, length);
    c.mask.mode = 3;
    const ForwardOutputs one = OutputsOf(c, context(1));
    for (const int threads : {2, 3, 8}) {
      EXPECT_TRUE(SameBits(one, OutputsOf(c, context(threads)))) << threads << " threads" << c;
    }
  }
}

TEST_P(ForwardReproducibility, OverRepeatedRunsAndOnePlanForAll) {
  ForRandomCases(11001, [](const ForwardCase& c) {
    const ForwardProblem problem(c);
    const ForwardOutputs first = OutputsOf(problem, context());
    problem.ForgetOutputs();
    EXPECT_TRUE(SameBits(first, OutputsOf(problem, context()))) << c;

    const auto plan = problem.MakePlan(context());
    ASSERT_TRUE(plan.ok()) << plan.status().message() << c;
    Workspace workspace;
    for (int run = 0; run < 2; ++run) {
      problem.ForgetOutputs();
      const Status status = plan->Run(problem.args(), workspace);
      ASSERT_TRUE(status.ok()) << status.message() << c;
      EXPECT_TRUE(SameBits(first, problem.Outputs())) << c;
    }
    problem.ForgetOutputs();
    ASSERT_TRUE(plan->Run(problem.args()).ok());
    EXPECT_TRUE(SameBits(first, problem.Outputs())) << c;
  });
}

/// Returns a case of sequence b alone.
ForwardCase Alone(const ForwardCase& c, int64_t b) {
  ForwardCase alone = c;
  alone.lengths = {{c.lengths.sq[b]}, {c.lengths.sk[b]}};
  alone.first_sequence = c.first_sequence + b;
  if (!c.mask.prefix.empty()) alone.mask.prefix = {c.mask.prefix[b]};
  return alone;
}

std::vector<double> Part(const std::vector<double>& values, int64_t first, int64_t count) {
  if (values.empty()) return {};
  return {values.begin() + first, values.begin() + first + count};
}

/// Returns the part of all outputs that belongs to sequence b.
ForwardOutputs PartOf(const ForwardOutputs& all, const ForwardProblem& problem, int64_t b) {
  const reference::Problem& p = problem.values();
  const int64_t first = p.QueryRow(b, 0, 0, 1);
  const int64_t rows = p.heads * p.lengths.sq[b];
  return {.out = Part(all.out, first * p.dv, rows * p.dv),
          .max = Part(all.max, first, rows),
          .sum = Part(all.sum, first, rows),
          .lse = Part(all.lse, first, rows),
          .tail = {}};
}

TEST_P(ForwardReproducibility, BatchAgainstAlone) {
  ForRandomCases(12001, [](ForwardCase c) {
    c.tail_q = c.tail_kv = 0;
    // With dropout by seed, the dropped pairs of a sequence depend on the earlier sequences. Modes 7 and 8 treat one
    // sequence of the batch differently.
    if (c.dropout == DropoutForm::kSeed) c.dropout = DropoutForm::kMask;
    if (c.mask.mode >= 7) {
      c.mask = {};
      c.sparse_mode = false;
    }
    const ForwardProblem problem(c);
    const ForwardOutputs all = OutputsOf(problem, context());
    for (int64_t b = 0; b < c.batch(); ++b) {
      EXPECT_TRUE(SameBits(PartOf(all, problem, b), OutputsOf(Alone(c, b), context()))) << "sequence " << b << c;
    }
  });
}

TEST_P(ForwardReproducibility, EveryLayoutAlike) {
  ForRandomCases(13001, [](ForwardCase c) {
    c.lengths = EqualLengths(c.batch(), c.lengths.sq[0], c.lengths.sk[0]);
    c.tail_q = c.tail_kv = 0;
    c.packing = Packing::kApart;
    if (c.mask.mode >= 7) {
      c.mask = {};
      c.sparse_mode = false;
    }
    // Restricts the case to features that packed layouts have.
    if (c.dense_mask != MaskForm::kNone) c.dense_mask = MaskForm::kPlane;
    if (c.sink_form == reference::SinkForm::kPerRowOfAll) c.sink_form = reference::SinkForm::kPerRow;
    if (c.pse == PseForm::kCompressed) c.pse = PseForm::kFull;
    if (c.pse == PseForm::kFull || c.pse == PseForm::kRow) c.pse_broadcast_batch = false;
    c.layout = Layout::kBNSD;
    const ForwardOutputs usual = OutputsOf(c, context());
    for (const Layout layout : {Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kBNSD_BSND, Layout::kTND}) {
      c.layout = layout;
      EXPECT_TRUE(SameBits(usual, OutputsOf(c, context()))) << c;
    }
  });
}

TEST_P(ForwardReproducibility, AlignedOrNotDenseOrStrided) {
  ForRandomCases(14001, [](ForwardCase c) {
    c.packing = Packing::kApart;
    c.padding = {};
    c.placement = {};
    const ForwardOutputs usual = OutputsOf(c, context());
    for (const int64_t misalignment : {1, 3, 8}) {
      c.placement.misalignment = misalignment;
      EXPECT_TRUE(SameBits(usual, OutputsOf(c, context()))) << c;
    }
    c.padding = {.inner = 3, .middle = 5, .outer = 7};
    EXPECT_TRUE(SameBits(usual, OutputsOf(c, context()))) << c;
    c.packing = Packing::kTogether;
    EXPECT_TRUE(SameBits(usual, OutputsOf(c, context()))) << c;
  });
}

TEST_P(ForwardReproducibility, WhateverStatisticsAreAskedFor) {
  ForRandomCases(15001, [](ForwardCase c) {
    c.wants_max = c.wants_sum = c.wants_lse = true;
    const ForwardOutputs all = OutputsOf(c, context());
    c.wants_max = c.wants_sum = c.wants_lse = false;
    EXPECT_TRUE(SameBits({.out = all.out, .max = {}, .sum = {}, .lse = {}, .tail = {}},
                         {.out = OutputsOf(c, context()).out, .max = {}, .sum = {}, .lse = {}, .tail = {}}))
        << c;
  });
}

INSTANTIATE_TEST_SUITE_P(Isa, ForwardReproducibility, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& info) { return IsaName(info.param); });

/// Returns whether some sequence has so few rows that kernels for few rows can compute it.
bool HasFewRows(const ForwardCase& c) {
  constexpr int64_t kFewRows = 8;
  return std::any_of(c.lengths.sq.begin(), c.lengths.sq.end(),
                     [&c](int64_t sq) { return sq * (c.heads / c.heads_kv) <= kFewRows; });
}

// avx512_vnni and avx512_bf16 add only dot products of 16-bit or int8 types. For many rows, their f32 kernels are the
// kernels of avx512. For few rows, avx512_bf16 has the kernel `attend`, which sums in another order.
TEST(ForwardLevels, F32BitsOfAvx512LevelsAreEqual) {
  if (!Includes(DetectIsa(), Isa::kAvx512Vnni)) GTEST_SKIP() << "this CPU has one AVX-512 level at most";
  int compared = 0;
  for (int seed = 16001; seed < 16041; ++seed) {
    ForwardCase c = RandomForwardCase(static_cast<uint64_t>(seed));
    c.dtype = DType::kF32;
    if (HasFewRows(c)) continue;
    ++compared;
    EXPECT_TRUE(SameBits(OutputsOf(c, ContextOf(Isa::kAvx512)), OutputsOf(c, ContextOf(DetectIsa())))) << c;
  }
  EXPECT_GT(compared, 10);
}

}  // namespace
}  // namespace fa::test
