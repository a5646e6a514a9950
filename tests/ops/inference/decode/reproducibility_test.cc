// The bits of a sequence must not depend on the number of threads, on the other sequences of the batch, or on the form
// of the keys: one tensor, a list or pages.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include "fa/flash_attention.h"
#include "ops/inference/decode/decode_case.h"
#include "support/compare/compare.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

// Without this setting oneTBB would give no more workers than the machine has cores.
const tbb::global_control kEightThreads(tbb::global_control::max_allowed_parallelism, 8);

class DecodeBits : public ::testing::TestWithParam<Isa> {};

DecodeCase Usual(int64_t sq, DType dtype, Quantization quantization) {
  DecodeCase c = MakeDecodeCase(4, 1, sq, {1300, 70, 515}, dtype);
  c.quantization = quantization;
  return c;
}

/// Returns a case with one row for each of `heads` heads, so that kernels with the function `attend` may run.
DecodeCase Attending(int64_t heads, DType dtype) {
  DecodeCase c = MakeDecodeCase(heads, 1, 1, {1300, 70, 515}, dtype);
  c.dense.d = c.dense.dv = 64;
  return c;
}
constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr int64_t kAttendingHeads[] = {1, 2, 4, 8};

TEST_P(DecodeBits, OfRunsOfKeysDependOnNeitherPagesNorThreads) {
  const auto check = [&](DType dtype, int64_t heads) {
    DecodeCase c = Attending(heads, dtype);
    const ForwardOutputs want = OutputsOf(c, ContextOf(GetParam(), 1));
    for (const KeyForm form : {KeyForm::kOneTensor, KeyForm::kPages, KeyForm::kPagesOfHeads}) {
      c.keys = form;
      c.page_rows = 50;
      EXPECT_TRUE(SameBits(OutputsOf(c, ContextOf(GetParam(), 3)), want)) << c;
    }
  };
  ForEachCase(check, Axis{"type", kFloats}, Axis{"heads", kAttendingHeads});
}

/// Expects that each batch element has the same bits alone.
void ExpectSameBitsAlone(const DecodeCase& c, Isa isa) {
  const ForwardOutputs together = OutputsOf(c, ContextOf(isa, 2));
  size_t at = 0;
  for (int64_t b = 0; b < 3; ++b) {
    DecodeCase alone = c;
    alone.dense.lengths = {{c.dense.lengths.sq[b]}, {c.dense.lengths.sk[b]}};
    alone.dense.first_sequence = b;
    for (const double value : OutputsOf(alone, ContextOf(isa, 3)).out) ASSERT_EQ(value, together.out[at++]) << b << c;
  }
}

TEST_P(DecodeBits, OfRunsOfKeysDoNotDependOnTheBatch) {
  ForEachCase([](int64_t heads, DType dtype) { ExpectSameBitsAlone(Attending(heads, dtype), GetParam()); },
              Axis{"heads", kAttendingHeads}, Axis{"type", kFloats});
}

TEST_P(DecodeBits, DoNotDependOnWhereKeysLie) {
  const auto check = [](DType dtype, int64_t sq, Quantization quantization) {
    const DecodeCase c = Usual(sq, dtype, quantization);
    const ForwardOutputs want = OutputsOf(c, ContextOf(GetParam(), 2));
    const auto check_form = [&](KeyForm form, int64_t page_rows, uint64_t order) {
      DecodeCase other = c;
      other.keys = form;
      other.page_rows = page_rows;
      other.page_order = order;
      EXPECT_TRUE(SameBits(OutputsOf(other, ContextOf(GetParam(), 2)), want)) << other;
    };
    check_form(KeyForm::kList, 16, 1);
    for (const uint64_t order : {1, 2}) check_form(KeyForm::kPages, 16, order);
    for (const int64_t page_rows : {1, 50}) check_form(KeyForm::kPages, page_rows, 1);
    check_form(KeyForm::kPagesOfHeads, 16, 2);
  };
  ForEachCase(check, Axis{"type", kFloats}, Axis{"sq", {1, 6}},
              Axis{"quantization", {Quantization::kNone, Quantization::kPerToken}});
}

TEST_P(DecodeBits, DoNotDependOnThreads) {
  for (const KeyForm form : {KeyForm::kOneTensor, KeyForm::kPages}) {
    for (const int64_t sq : {1, 6}) {
      DecodeCase c = Usual(sq, DType::kBF16, sq == 1 ? Quantization::kPerChannel : Quantization::kNone);
      c.keys = form;
      const ForwardOutputs want = OutputsOf(c, ContextOf(GetParam(), 1));
      for (const int threads : {2, 3, 8}) {
        EXPECT_TRUE(SameBits(OutputsOf(c, ContextOf(GetParam(), threads)), want)) << threads << " threads " << c;
      }
    }
  }
}

TEST_P(DecodeBits, DoNotDependOnTheBatch) {
  DecodeCase c = Usual(2, DType::kF32, Quantization::kNone);
  c.keys = KeyForm::kPages;
  ExpectSameBitsAlone(c, GetParam());
}

TEST_P(DecodeBits, AreThoseOfFlashAttentionOnOneTensorOfFewRows) {
  for (const DType dtype : kFloats) {
    const DecodeCase c = MakeDecodeCase(4, 1, 1, {1100, 1100}, dtype);
    const ForwardProblem dense(c.dense);
    ASSERT_TRUE(dense.Run(ContextOf(GetParam(), 2)).ok());
    const ForwardOutputs got = OutputsOf(c, ContextOf(GetParam(), 2));
    EXPECT_EQ(got.out, dense.Outputs().out);
    EXPECT_EQ(got.lse, dense.Outputs().lse);
    for (const int64_t heads : kAttendingHeads) {
      DecodeCase runs = MakeDecodeCase(heads, 1, 1, {1100, 1100}, dtype);
      runs.dense.d = runs.dense.dv = 64;
      const ForwardProblem of_runs(runs.dense);
      ASSERT_TRUE(of_runs.Run(ContextOf(GetParam(), 2)).ok());
      EXPECT_EQ(OutputsOf(runs, ContextOf(GetParam(), 2)).out, of_runs.Outputs().out) << runs;
    }
  }
}

/// Returns packed sequences of many rows in pages, of which some have several tiles and some one block of keys.
DecodeCase ManyRows(DType dtype, int64_t page_rows) {
  DecodeCase c = MakeDecodeCase(4, 2, 1, {700, 130, 61, 300, 1, 0}, dtype);
  c.dense.layout = Layout::kTND;
  c.dense.lengths.sq = {200, 130, 33, 40, 5, 2};
  c.dense.d = page_rows == 3 ? 40 : 64;
  c.dense.dv = 72;  // more than 64 columns, which are copied at a time if a group of keys lies on two pages
  c.keys = page_rows % 2 == 0 ? KeyForm::kPages : KeyForm::kPagesOfHeads;
  c.page_rows = page_rows;
  c.page_order = static_cast<uint64_t>(page_rows);
  return c;
}

TEST_P(DecodeBits, OfManyRowsOverPagesAreThoseOfFlashAttention) {
  const auto check = [](DType dtype, int64_t page_rows) {
    const auto expect = [](const DecodeCase& c) {
      const ForwardProblem dense(c.dense);
      const Status status = dense.Run(ContextOf(GetParam(), 2));
      ASSERT_TRUE(status.ok()) << status.message();
      const ForwardOutputs want = dense.Outputs(), got = OutputsOf(c, ContextOf(GetParam(), 3));
      EXPECT_EQ(got.out, want.out) << c;
      EXPECT_EQ(got.lse, want.lse) << c;
    };
    DecodeCase c = ManyRows(dtype, page_rows);
    expect(c);
    c.dense.mask = {.mode = 3};
    expect(c);
    c.dense.d_rope = 8;
    c.dense.sink = true;
    c.dense.mask = {.mode = 4, .pre = 100, .next = 0};
    expect(c);
    c.dense.dense_mask = MaskForm::kPlane;
    c.dense.softcap = 3;
    c.dense.sink_form = reference::SinkForm::kPerRow;
    expect(c);
    // The loop of the tile unit (AMX) computes only calls with at least 225 rows per KV head, and with head sizes such
    // as these.
    c = ManyRows(dtype, page_rows);
    c.dense.d = 64;
    c.dense.dv = 96;
    expect(c);
    c.dense.d_rope = 32;
    c.dense.mask = {.mode = 3};
    expect(c);
  };
  ForEachCase(check, Axis{"type", kFloats}, Axis{"page_rows", {3, 16, 50, 128}});
}

INSTANTIATE_TEST_SUITE_P(Isa, DecodeBits, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& info) { return IsaName(info.param); });

TEST(DecodePlan, RunsOften) {
  for (const Quantization quantization : {Quantization::kNone, Quantization::kPerChannel}) {
    DecodeCase c = Usual(1, DType::kF16, quantization);
    c.keys = KeyForm::kPages;
    const DecodeProblem problem(c);
    const auto plan = PlanDecodeAttention(problem.args(), problem.options(), ContextOf(DetectIsa(), 2));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->info().op, "decode");
    Workspace workspace;
    ASSERT_TRUE(plan->Run(problem.args(), workspace).ok());
    EXPECT_LE(plan->info().workspace_bytes, workspace.size());
    const ForwardOutputs first = problem.Outputs();
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(plan->Run(problem.args(), workspace).ok());
    EXPECT_TRUE(SameBits(problem.Outputs(), first));
  }
}

}  // namespace
}  // namespace fa::test
