// The bits depend on the inputs, the options and the instruction set, and on nothing else.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <atomic>
#include <memory>
#include <thread>

#include "support/cases/random_backward_case.h"
#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

// Without this setting oneTBB would give no more workers than the machine has cores.
const tbb::global_control kEightThreads(tbb::global_control::max_allowed_parallelism, 8);

/// Calls `check` on random cases.
template <typename Check>
void ForRandomCases(int first_seed, const Check& check) {
  const int cases = FromEnvironment("FA_TEST_CASES", 240) / 8;
  for (int seed = first_seed; seed < first_seed + cases; ++seed) {
    check(RandomBackwardCase(static_cast<uint64_t>(seed)));
  }
}

/// A case's gradients on every level, with which the gradients of other calls are compared.
class UsualBits {
 public:
  UsualBits(const BackwardProblem& problem, int threads) : case_(problem.backward_case()) {
    for (const Isa isa : IsaLevels()) {
      problem.ForgetOutputs();
      outputs_.push_back(OutputsOf(problem, ContextOf(isa, threads)));
    }
  }
  [[nodiscard]] const BackwardOutputs& of_level(size_t level) const { return outputs_[level]; }
  void ExpectSame(const BackwardProblem& problem, int threads = 2) const {
    for (size_t level = 0; level < outputs_.size(); ++level) {
      const Isa isa = IsaLevels()[level];
      problem.ForgetOutputs();
      EXPECT_TRUE(SameBits(outputs_[level], OutputsOf(problem, ContextOf(isa, threads))))
          << Name(isa) << ", " << threads << " threads, usual" << case_ << "\n other" << problem.backward_case();
    }
  }

 private:
  BackwardCase case_;
  std::vector<BackwardOutputs> outputs_;
};

void ExpectSameBitsOverThreads(const BackwardCase& c) {
  const BackwardProblem problem(c);
  const UsualBits usual(problem, 1);
  for (const int threads : {2, 3, 8}) usual.ExpectSame(problem, threads);
}

TEST(BackwardReproducibility, OverThreads) { ForRandomCases(10001, ExpectSameBitsOverThreads); }

/// Returns a case with many tiles that add to the same rows and keys.
BackwardCase ManyTiles(DType dtype, int mode) {
  BackwardCase c;
  ForwardCase& f = c.forward;
  f.dtype = dtype;
  f.heads = 2;
  f.d = f.dv = 24;
  f.lengths = EqualLengths(1, 600, 600);
  f.mask.mode = mode;
  f.pse = PseForm::kRow;
  f.pse_type = reference::PseType::kScaleThenAdd;
  return c;
}

TEST(BackwardReproducibility, OverThreadsWithManyTilesAHead) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int mode : {1, 3}) ExpectSameBitsOverThreads(ManyTiles(dtype, mode));
  }
}

TEST(BackwardReproducibility, Over200RunsUnderLoad) {
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
  for (const Isa isa : IsaLevels()) {
    const BackwardOutputs first = OutputsOf(problem, ContextOf(isa, 3));
    int different = 0;
    for (int run = 0; run < 200; ++run) {
      problem.ForgetOutputs();
      if (!SameBits(first, OutputsOf(problem, ContextOf(isa, 3)))) ++different;
    }
    EXPECT_EQ(different, 0) << Name(isa);
  }
  stop = true;
  for (std::thread& thread : load) thread.join();
}

TEST(BackwardReproducibility, OfOnePlanForAllRuns) {
  ForRandomCases(11001, [](const BackwardCase& c) {
    const BackwardProblem problem(c);
    const UsualBits usual(problem, 2);
    for (size_t level = 0; level < IsaLevels().size(); ++level) {
      const auto plan = problem.MakePlan(ContextOf(IsaLevels()[level]));
      ASSERT_TRUE(plan.ok()) << plan.status().message() << c;
      Workspace workspace;
      for (int run = 0; run < 3; ++run) {
        problem.ForgetOutputs();
        const Status status = run < 2 ? plan->Run(problem.args(), workspace) : plan->Run(problem.args());
        ASSERT_TRUE(status.ok()) << status.message() << c;
        EXPECT_TRUE(SameBits(usual.of_level(level), problem.Outputs())) << Name(IsaLevels()[level]) << c;
      }
    }
  });
}

/// Returns a case of sequence b alone.
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

/// Returns the part of all gradients that belongs to sequence b. Gradients that are summed over the batch are left out.
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

/// Restricts a case to features that every layout can express and that do not depend on the sequence's place in the
/// batch.
void Simplify(ForwardCase* f) {
  f->tail_q = f->tail_kv = 0;
  if (f->mask.mode < 7) return;  // modes 7 and 8 treat one sequence of the batch differently
  f->mask = {};
  f->sparse_mode = false;
}

TEST(BackwardReproducibility, BatchAgainstAlone) {
  ForRandomCases(12001, [](BackwardCase c) {
    Simplify(&c.forward);
    // With dropout by seed, the dropped pairs of a sequence depend on the earlier sequences.
    if (c.forward.dropout == DropoutForm::kSeed) c.forward.dropout = DropoutForm::kMask;
    const BackwardProblem problem(c);
    const UsualBits all(problem, 2);
    for (int64_t b = 0; b < c.forward.batch(); ++b) {
      const BackwardProblem alone(Alone(c, b));
      for (size_t level = 0; level < IsaLevels().size(); ++level) {
        const Isa isa = IsaLevels()[level];
        const BackwardOutputs outputs = OutputsOf(alone, ContextOf(isa, 1 + static_cast<int>(b % 2)));
        EXPECT_TRUE(SameBits(PartOf(all.of_level(level), problem, b), PartOf(outputs, alone, 0)))
            << Name(isa) << " sequence " << b << c;
      }
    }
  });
}

TEST(BackwardReproducibility, EveryLayoutAlike) {
  ForRandomCases(13001, [](BackwardCase c) {
    ForwardCase& f = c.forward;
    Simplify(&f);
    f.lengths = EqualLengths(f.batch(), f.lengths.sq[0], f.lengths.sk[0]);
    f.packing = Packing::kApart;
    if (f.dense_mask != MaskForm::kNone) f.dense_mask = MaskForm::kPlane;
    if (f.sink_form == reference::SinkForm::kPerRowOfAll) f.sink_form = reference::SinkForm::kPerRow;
    if (f.pse == PseForm::kCompressed) f.pse = PseForm::kFull;
    if (f.pse == PseForm::kFull || f.pse == PseForm::kRow) f.pse_broadcast_batch = false;
    f.layout = Layout::kBNSD;
    const BackwardValues values = MakeBackwardValues(c);
    const UsualBits usual(BackwardProblem(c, values), 2);
    for (const Layout layout : {Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kBNSD_BSND, Layout::kTND}) {
      f.layout = layout;
      usual.ExpectSame(BackwardProblem(c, values));
    }
  });
}

TEST(BackwardReproducibility, AlignedOrNotDenseOrStrided) {
  ForRandomCases(14001, [](BackwardCase c) {
    ForwardCase& f = c.forward;
    f.packing = c.packing = Packing::kApart;
    f.padding = c.padding = {};
    f.placement = {};
    const BackwardValues values = MakeBackwardValues(c);
    const UsualBits usual(BackwardProblem(c, values), 2);
    for (const int64_t misalignment : {1, 3}) {
      f.placement.misalignment = misalignment;
      usual.ExpectSame(BackwardProblem(c, values));
    }
    f.padding = c.padding = {.inner = 3, .middle = 5, .outer = 7};
    usual.ExpectSame(BackwardProblem(c, values));
    f.packing = c.packing = Packing::kTogether;
    c.eight_statistics = !c.eight_statistics;
    usual.ExpectSame(BackwardProblem(c, values));
  });
}

TEST(BackwardReproducibility, WhateverGradientsAreAskedFor) {
  ForRandomCases(15001, [](BackwardCase c) {
    const BackwardValues values = MakeBackwardValues(c);
    c.optional_gradients = true;
    const BackwardProblem with(c, values);
    c.optional_gradients = false;
    const BackwardProblem without(c, values);
    for (const Isa isa : IsaLevels()) {
      BackwardOutputs all = OutputsOf(with, ContextOf(isa));
      all.gradients.dpse = all.gradients.dslopes = all.gradients.dsink = {};
      EXPECT_TRUE(SameBits(all, OutputsOf(without, ContextOf(isa)))) << Name(isa) << c;
    }
  });
}

// avx512_vnni and avx512_bf16 add only dot products of 16-bit or int8 types. Their f32 kernels are the kernels of
// avx512.
TEST(BackwardLevels, F32BitsOfAvx512LevelsAreEqual) {
  if (!Includes(DetectIsa(), Isa::kAvx512Vnni)) GTEST_SKIP() << "this CPU has one AVX-512 level at most";
  for (int seed = 16001; seed < 16021; ++seed) {
    BackwardCase c = RandomBackwardCase(static_cast<uint64_t>(seed));
    c.forward.dtype = DType::kF32;
    const BackwardProblem problem(c);
    const BackwardOutputs outputs = OutputsOf(problem, ContextOf(Isa::kAvx512));
    EXPECT_TRUE(SameBits(outputs, OutputsOf(problem, ContextOf(DetectIsa())))) << c;
  }
}

// kAtomicFree permits sums in another order than the default. The tolerance of the reference holds for any order.
TEST(BackwardAtomicFree, MatchesTheReference) {
  std::vector<std::unique_ptr<Context>> contexts;
  for (const Isa isa : IsaLevels()) {
    for (const int threads : {1, 3}) {
      ContextOptions options;
      options.isa = isa;
      options.threads = threads;
      options.accumulation = Accumulation::kAtomicFree;
      auto context = Context::Create(options);
      ASSERT_TRUE(context.ok()) << context.status().message();
      EXPECT_EQ(context.value()->accumulation(), Accumulation::kAtomicFree);
      contexts.push_back(std::move(*context));
    }
  }
  const auto check = [&](const BackwardCase& c) {
    const BackwardProblem problem(c);
    const ExpectedGradients expected = ExpectGradients(c, problem.values());
    for (const auto& context : contexts) {
      problem.ForgetOutputs();
      EXPECT_TRUE(RunsLikeTheReference(problem, expected, context.get()));
    }
  };
  ForRandomCases(17001, check);
  for (const int mode : {1, 3}) check(ManyTiles(DType::kF32, mode));
}

}  // namespace
}  // namespace fa::test
