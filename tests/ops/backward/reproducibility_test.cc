// The bits depend on the inputs, the options and the instruction set; on nothing else.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <atomic>
#include <thread>

#include "support/compare_gradients.h"
#include "support/contexts.h"
#include "support/random_backward_case.h"

namespace fa::test {
namespace {

// oneTBB would give no more workers than the machine has cores.
const tbb::global_control kEightThreads(tbb::global_control::max_allowed_parallelism, 8);

class BackwardReproducibility : public ::testing::TestWithParam<Isa> {
 protected:
  static Context* context(int threads = 2) { return ContextOf(GetParam(), threads); }
  /// Calls `check` on random cases.
  template <typename Check>
  static void ForRandomCases(int first_seed, const Check& check) {
    const int cases = FromEnvironment("FA_TEST_CASES", 240) / 8;
    for (int seed = first_seed; seed < first_seed + cases; ++seed) {
      check(RandomBackwardCase(static_cast<uint64_t>(seed)));
    }
  }
  static void ExpectSameBitsOverThreads(const BackwardCase& c) {
    const BackwardProblem problem(c);
    const BackwardOutputs one = OutputsOf(problem, context(1));
    for (const int threads : {2, 3, 8}) {
      problem.ForgetOutputs();
      EXPECT_TRUE(SameBits(one, OutputsOf(problem, context(threads)))) << threads << " threads" << c;
    }
  }
};

TEST_P(BackwardReproducibility, OverThreads) {
  ForRandomCases(10001, [](const BackwardCase& c) { ExpectSameBitsOverThreads(c); });
}

/// One long head, several heads on one key head: many tiles that add to the same rows and keys.
BackwardCase ManyTiles(DType dtype, int mode) {
  BackwardCase c;
  c.forward.dtype = dtype;
  c.forward.heads = 2;
  c.forward.d = c.forward.dv = 32;
  c.forward.lengths = EqualLengths(1, 700, 700);
  c.forward.mask.mode = mode;
  c.forward.pse = PseForm::kRow;
  c.forward.pse_type = reference::PseType::kScaleThenAdd;
  return c;
}

TEST_P(BackwardReproducibility, OverThreadsWithManyTilesAHead) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int mode : {1, 3}) ExpectSameBitsOverThreads(ManyTiles(dtype, mode));
  }
}

TEST_P(BackwardReproducibility, Over200RunsUnderLoad) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> load;
  for (int t = 0; t < 3; ++t) {
    load.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) std::this_thread::yield();
    });
  }
  BackwardCase c = ManyTiles(DType::kF32, 3);
  c.forward.lengths = EqualLengths(1, 390, 390);
  c.forward.d = c.forward.dv = 8;
  const BackwardProblem problem(c);
  const BackwardOutputs first = OutputsOf(problem, context(3));
  int different = 0;
  for (int run = 0; run < 200; ++run) {
    problem.ForgetOutputs();
    if (!SameBits(first, OutputsOf(problem, context(3)))) ++different;
  }
  stop = true;
  for (std::thread& thread : load) thread.join();
  EXPECT_EQ(different, 0);
}

TEST_P(BackwardReproducibility, OverRepeatedRunsAndOnePlanForAll) {
  ForRandomCases(11001, [](const BackwardCase& c) {
    const BackwardProblem problem(c);
    const BackwardOutputs first = OutputsOf(problem, context());
    const Result<Plan> plan = problem.MakePlan(context());
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

/// Sequence b of a case, alone.
BackwardCase Alone(const BackwardCase& c, int64_t b) {
  BackwardCase alone = c;
  ForwardCase& f = alone.forward;
  f.lengths = {{c.forward.lengths.sq[b]}, {c.forward.lengths.sk[b]}};
  f.first_sequence += b;
  if (!f.mask.prefix.empty()) f.mask.prefix = {c.forward.mask.prefix[b]};
  return alone;
}

std::vector<double> Part(const std::vector<double>& values, int64_t first, int64_t count) {
  if (values.empty()) return {};
  return {values.begin() + first, values.begin() + first + count};
}

/// The gradients of sequence b among those of all; sums over the batch are left out.
BackwardOutputs PartOf(const BackwardOutputs& all, const BackwardProblem& problem, int64_t b) {
  const reference::Problem& p = problem.values().problem;
  const reference::Gradients& g = all.gradients;
  const int64_t q = p.QueryRow(b, 0, 0, 1), k = p.KeyRow(b, 0, 0, 1);
  const int64_t q_rows = p.heads * p.lengths.sq[b], k_rows = p.heads_kv * p.lengths.sk[b];
  reference::Gradients part{.dq = Part(g.dq, q * p.d, q_rows * p.d),
                            .dk = Part(g.dk, k * p.d, k_rows * p.d),
                            .dv = Part(g.dv, k * p.dv, k_rows * p.dv),
                            .dq_rope = Part(g.dq_rope, q * p.d_rope, q_rows * p.d_rope),
                            .dk_rope = Part(g.dk_rope, k * p.d_rope, k_rows * p.d_rope),
                            .dpse = {},
                            .dslopes = {},
                            .dsink = {}};
  if (!problem.backward_case().forward.pse_broadcast_batch) {
    if (!g.dpse.empty()) {
      const int64_t first = p.pse.offset[b];
      const bool last = b + 1 == p.batch();
      part.dpse = Part(g.dpse, first, (last ? static_cast<int64_t>(g.dpse.size()) : p.pse.offset[b + 1]) - first);
    }
    part.dslopes = Part(g.dslopes, b * p.heads, p.heads);
  }
  return {.gradients = part, .tail = {}};
}

TEST_P(BackwardReproducibility, BatchAgainstAlone) {
  ForRandomCases(12001, [](BackwardCase c) {
    ForwardCase& f = c.forward;
    f.tail_q = f.tail_kv = 0;
    // The flat index of dropout by seed counts the sequences before; modes 7 and 8 pick one sequence of the batch.
    if (f.dropout == DropoutForm::kSeed) f.dropout = DropoutForm::kMask;
    if (f.mask.mode >= 7) {
      f.mask = {};
      f.sparse_mode = false;
    }
    const BackwardProblem problem(c);
    const BackwardOutputs all = OutputsOf(problem, context());
    for (int64_t b = 0; b < f.batch(); ++b) {
      const BackwardProblem alone(Alone(c, b));
      const BackwardOutputs outputs = OutputsOf(alone, context(1 + static_cast<int>(b % 2)));
      EXPECT_TRUE(SameBits(PartOf(all, problem, b), PartOf(outputs, alone, 0))) << "sequence " << b << c;
    }
  });
}

TEST_P(BackwardReproducibility, EveryLayoutAlike) {
  ForRandomCases(13001, [](BackwardCase c) {
    ForwardCase& f = c.forward;
    f.lengths = EqualLengths(f.batch(), f.lengths.sq[0], f.lengths.sk[0]);
    f.tail_q = f.tail_kv = 0;
    f.packing = Packing::kApart;
    if (f.mask.mode >= 7) {
      f.mask = {};
      f.sparse_mode = false;
    }
    // What the packed form can express.
    if (f.dense_mask != MaskForm::kNone) f.dense_mask = MaskForm::kPlane;
    if (f.pse == PseForm::kCompressed) f.pse = PseForm::kFull;
    if (f.pse == PseForm::kFull || f.pse == PseForm::kRow) f.pse_broadcast_batch = false;
    f.layout = Layout::kBNSD;
    const BackwardOutputs usual = OutputsOf(c, context());
    for (const Layout layout : {Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kBNSD_BSND, Layout::kTND}) {
      f.layout = layout;
      EXPECT_TRUE(SameBits(usual, OutputsOf(c, context()))) << c;
    }
  });
}

TEST_P(BackwardReproducibility, AlignedOrNotDenseOrStrided) {
  ForRandomCases(14001, [](BackwardCase c) {
    ForwardCase& f = c.forward;
    f.packing = c.packing = Packing::kApart;
    f.padding = c.padding = {};
    f.placement = {};
    const BackwardOutputs usual = OutputsOf(c, context());
    for (const int64_t misalignment : {1, 3}) {
      f.placement.misalignment = misalignment;
      EXPECT_TRUE(SameBits(usual, OutputsOf(c, context()))) << c;
    }
    f.padding = c.padding = {.inner = 3, .middle = 5, .outer = 7};
    EXPECT_TRUE(SameBits(usual, OutputsOf(c, context()))) << c;
    f.packing = c.packing = Packing::kTogether;
    EXPECT_TRUE(SameBits(usual, OutputsOf(c, context()))) << c;
    c.eight_statistics = !c.eight_statistics;
    EXPECT_TRUE(SameBits(usual, OutputsOf(c, context()))) << c;
  });
}

TEST_P(BackwardReproducibility, WhateverGradientsAreAskedFor) {
  ForRandomCases(15001, [](BackwardCase c) {
    c.optional_gradients = true;
    BackwardOutputs all = OutputsOf(c, context());
    all.gradients.dpse = all.gradients.dslopes = all.gradients.dsink = {};
    c.optional_gradients = false;
    EXPECT_TRUE(SameBits(all, OutputsOf(c, context()))) << c;
  });
}

INSTANTIATE_TEST_SUITE_P(Isa, BackwardReproducibility, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& info) { return IsaName(info.param); });

// Levels that differ in 16-bit or int8 dot products only share the f32 kernels of the level below.
TEST(BackwardLevels, F32BitsOfAvx512LevelsAreEqual) {
  if (DetectIsa() < Isa::kAvx512Vnni) GTEST_SKIP() << "this CPU has one AVX-512 level at most";
  for (int seed = 16001; seed < 16021; ++seed) {
    BackwardCase c = RandomBackwardCase(static_cast<uint64_t>(seed));
    c.forward.dtype = DType::kF32;
    EXPECT_TRUE(SameBits(OutputsOf(c, ContextOf(Isa::kAvx512)), OutputsOf(c, ContextOf(DetectIsa())))) << c;
  }
}

class BackwardAtomicFree : public ::testing::TestWithParam<Isa> {};

// Sums may be reordered: every gradient stays within the tolerance, which holds for any order.
TEST_P(BackwardAtomicFree, MatchesTheReference) {
  const int cases = FromEnvironment("FA_TEST_CASES", 240) / 8;
  for (const int threads : {1, 3}) {
    ContextOptions options;
    options.isa = GetParam();
    options.threads = threads;
    options.accumulation = Accumulation::kAtomicFree;
    const auto context = Context::Create(options);
    ASSERT_TRUE(context.ok()) << context.status().message();
    EXPECT_EQ(context.value()->accumulation(), Accumulation::kAtomicFree);
    for (int seed = 17001; seed < 17001 + cases; ++seed) {
      const BackwardCase c = RandomBackwardCase(static_cast<uint64_t>(seed));
      const BackwardProblem problem(c);
      EXPECT_TRUE(RunsLikeTheReference(problem, ExpectGradients(c, problem.values()), context.value().get()));
    }
    const BackwardCase c = ManyTiles(DType::kF32, 3);
    const BackwardProblem problem(c);
    EXPECT_TRUE(RunsLikeTheReference(problem, ExpectGradients(c, problem.values()), context.value().get()));
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, BackwardAtomicFree, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& info) { return IsaName(info.param); });

}  // namespace
}  // namespace fa::test
