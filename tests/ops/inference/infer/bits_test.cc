// The bits of a sequence must not depend on the layout, the cache, its other sequences or the number of threads. Left
// padding and a prefix must give the bits of a call on sliced or concatenated tensors.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "fa/flash_attention.h"
#include "fa/pair_mask.h"
#include "fa/view.h"
#include "ops/inference/infer/infer_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

// Without this setting oneTBB would give no more workers than the machine has cores.
const tbb::global_control kSevenThreads(tbb::global_control::max_allowed_parallelism, 7);

class InferBits : public ::testing::TestWithParam<Isa> {};

InferCase Usual(DType dtype) {
  InferCase c = MakeInferCase(4, 1, {1, 90, 6, 1, 17}, {1300, 300, 515, 70, 17}, dtype);
  c.dense.d = c.dense.dv = 64;
  c.dense.mask = {.mode = 3};
  return c;
}

void ExpectBits(const InferCase& c, const ForwardOutputs& want, Context* context) {
  const ForwardOutputs got = OutputsOf(c, context);
  EXPECT_EQ(got.out, want.out) << c;
  EXPECT_EQ(got.lse, want.lse) << c;
}

TEST_P(InferBits, DoNotDependOnLayoutAndCache) {
  for (const DType dtype : kFloats) {
    InferCase c = Usual(dtype);
    const ForwardOutputs want = OutputsOf(c, ContextOf(GetParam(), 2));
    const auto check = [&](Layout layout, Cache cache, int64_t page_rows) {
      c.layout = layout;
      c.cache = cache;
      c.page_rows = page_rows;
      c.page_order = static_cast<uint64_t>(page_rows);
      if (!(c.packed() && cache == Cache::kList)) ExpectBits(c, want, ContextOf(GetParam(), 2));
    };
    for (const Cache cache : kCaches) {
      for (const Layout layout : kPaddedLayouts) check(layout, cache, 16);
      for (const Layout layout : kPackedLayouts) check(layout, cache, 50);
    }
  }
}

/// Replaces the call's dense_mask by an equal PairMask, and expects the same bits. The mask must drop at least one
/// pair.
void ExpectPairMaskBits(const InferProblem& problem, const InferAttentionOptions& options, Context* context) {
  InferAttentionArgs args = problem.args();
  const auto run = [&] {
    const Status status = InferAttention(args, options, context);
    EXPECT_TRUE(status.ok()) << status.message();
    return problem.Outputs();
  };
  const ForwardOutputs want = run();
  const auto pairs = PairMask::FromBytes(args.dense_mask, /*drops=*/true);
  ASSERT_TRUE(pairs.ok()) << pairs.status().message();
  args.dense_mask = {};
  EXPECT_NE(run().out, want.out) << problem.infer_case();
  args.pair_mask = &*pairs;
  const ForwardOutputs got = run();
  EXPECT_EQ(got.out, want.out) << problem.infer_case();
  EXPECT_EQ(got.lse, want.lse) << problem.infer_case();
}

TEST_P(InferBits, OfAPairMaskAreThoseOfADenseMask) {
  int n = 0;
  const auto check = [&](Layout layout, Cache cache, int64_t prefix) {
    InferCase c =
        MakeInferCase(4, 1, {1, 90, 0, 17}, {prefix + 700, prefix + 300, prefix + 5, prefix}, kFloats[n++ % 3]);
    c.dense.dense_mask = MaskForm::kPerBatch;
    c.layout = layout;
    c.cache = cache;
    c.prefix_rows = prefix;
    c.spare_q = n % 2 * 3;  // a mask larger than the longest sequences
    c.spare_k = n % 2 * 140;
    const InferProblem problem(c);
    ExpectPairMaskBits(problem, problem.options(), ContextOf(GetParam(), 2));
  };
  for (const Cache cache : kCaches) {
    check(Layout::kBSND_NBSD, cache, 0);
    if (cache != Cache::kList) check(Layout::kTND, cache, 0);
  }
  for (const Layout layout : {Layout::kBNSD, Layout::kBSH}) check(layout, Cache::kOneTensor, 133);
}

TEST_P(InferBits, OfAPairMaskWithABandAreThoseOfADenseMaskWithIt) {
  InferCase c = MakeInferCase(4, 2, {90, 1, 40}, {300, 200, 33});
  c.dense.dense_mask = MaskForm::kPerBatch;
  for (const Layout layout : {Layout::kBNSD, Layout::kTND}) {
    c.layout = layout;
    const InferProblem problem(c);
    InferAttentionOptions options = problem.options();
    ASSERT_EQ(options.sparse_mode, 0);
    options.pre = 30;
    options.next = 20;
    ExpectPairMaskBits(problem, options, ContextOf(GetParam(), 2));
  }
}

TEST_P(InferBits, DoNotDependOnThreads) {
  for (const Cache cache : {Cache::kOneTensor, Cache::kPagesNz}) {
    InferCase c = Usual(DType::kBF16);
    c.layout = Layout::kTND;
    c.cache = cache;
    const ForwardOutputs want = OutputsOf(c, ContextOf(GetParam(), 1));
    for (const int threads : {2, 7}) ExpectBits(c, want, ContextOf(GetParam(), threads));
  }
}

TEST_P(InferBits, AreThoseOfFlashAttentionAlone) {
  for (const DType dtype : kFloats) {
    InferCase c = Usual(dtype);
    c.layout = Layout::kTND;
    c.cache = Cache::kPagesOfRows;
    const ForwardOutputs together = OutputsOf(c, ContextOf(GetParam(), 2));
    size_t at = 0;
    for (int64_t b = 0; b < c.dense.batch(); ++b) {
      ForwardCase alone = c.dense;
      alone.lengths = {{c.dense.lengths.sq[b]}, {c.dense.lengths.sk[b]}};
      alone.first_sequence = b;
      const ForwardProblem dense(alone);
      ASSERT_TRUE(dense.Run(ContextOf(GetParam(), 2)).ok());
      for (const double value : dense.Outputs().out) ASSERT_EQ(together.out[at++], value) << b << " " << c;
    }
  }
}

TEST_P(InferBits, OfLeftPaddingAreThoseWithoutIt) {
  for (const DType dtype : kFloats) {
    InferCase c = Usual(dtype);
    const ForwardOutputs want = OutputsOf(c, ContextOf(GetParam(), 2));
    c.spare_q = c.spare_k = 5;
    c.padding_q = 2;
    c.padding_kv = 5;
    for (const Layout layout : {Layout::kBSH, Layout::kBNSD_NBSD}) {
      c.layout = layout;
      ExpectBits(c, want, ContextOf(GetParam(), 2));
    }
  }
}

TEST_P(InferBits, OfAPrefixAreThoseOfConcatenatedKeys) {
  for (const DType dtype : kFloats) {
    for (const int64_t prefix : {33, 256, 700}) {
      InferCase c = MakeInferCase(4, 1, {1, 90, 6}, {prefix + 600, prefix + 300, prefix}, dtype);
      c.dense.d = c.dense.dv = 64;
      c.dense.mask = {.mode = 3};
      c.prefix_rows = prefix;
      const InferProblem apart(c);
      InferCase concatenated = c;
      concatenated.prefix_rows = 0;
      const InferProblem whole(concatenated, apart.values());
      ASSERT_TRUE(apart.Run(ContextOf(GetParam(), 2)).ok());
      ASSERT_TRUE(whole.Run(ContextOf(GetParam(), 2)).ok());
      EXPECT_EQ(apart.Outputs().out, whole.Outputs().out) << c;
    }
  }
}

// The first rows of one tensor are the prefix, and its other rows are the keys of the batch elements. An element holds
// eight columns.
TEST_P(InferBits, OfAPrefixOfFourBitsAreThoseOfConcatenatedKeys) {
  constexpr int64_t kHeads = 3, kRows = 2, kPrefix = 7, kKeys = 20, kColumns = 16, kWords = kHeads * kColumns / 8;
  std::vector<float> q(kRows * kHeads * kColumns);
  for (size_t i = 0; i < q.size(); ++i) q[i] = std::sin(0.7F * static_cast<float>(i));
  std::vector<uint32_t> k(kKeys * kWords), v(kKeys * kWords);
  for (size_t i = 0; i < k.size(); ++i) {
    k[i] = 2654435761U * static_cast<uint32_t>(i + 1);
    v[i] = 2246822519U * static_cast<uint32_t>(i + 1);
  }
  const float scale = 0.25F;
  std::vector<uint8_t> dropped(kRows * kKeys);
  for (size_t i = 0; i < dropped.size(); ++i) dropped[i] = i % 3 == 0 ? 1 : 0;
  const TensorView mask = View(dropped, {kRows, kKeys});
  const auto pairs = PairMask::FromBytes(mask, /*drops=*/true);
  ASSERT_TRUE(pairs.ok());
  const auto run = [&](Layout layout, int64_t prefix, const TensorView& dense_mask = {},
                       const PairMask* pair_mask = nullptr) {
    std::vector<float> out(q.size());
    const bool fused = layout == Layout::kBSH;
    const auto rows = [&](const void* data, DType dtype, int64_t count, int64_t columns) {
      return TensorView{data, dtype, fused ? Dims{1, count, kHeads * columns} : Dims{1, count, kHeads, columns},
                        Dims{}};
    };
    const auto keys = [&](const std::vector<uint32_t>& of, int64_t first, int64_t count) {
      return rows(of.data() + first * kWords, DType::kI4x8, count, kColumns / 8);
    };
    const TensorView own_k = keys(k, prefix, kKeys - prefix), own_v = keys(v, prefix, kKeys - prefix);
    InferAttentionArgs args;
    args.q = rows(q.data(), DType::kF32, kRows, kColumns);
    args.k = {&own_k, 1};
    args.v = {&own_v, 1};
    if (prefix > 0) {
      args.k_prefix = keys(k, 0, prefix);
      args.v_prefix = keys(v, 0, prefix);
    }
    args.k_scale = args.v_scale = {&scale, DType::kF32, {1, 1, 1, 1}, {}};
    args.dense_mask = dense_mask;
    args.pair_mask = pair_mask;
    args.out = {out.data(), DType::kF32, args.q.shape, {}};
    const InferAttentionOptions options{.layout = layout, .heads = kHeads, .heads_kv = kHeads, .scale = 0.1F};
    const Status status = InferAttention(args, options, ContextOf(GetParam()));
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  };
  const std::vector<float> want = run(Layout::kBSND, 0);
  const std::vector<float> masked = run(Layout::kBSND, 0, mask);
  EXPECT_NE(masked, want);
  EXPECT_EQ(run(Layout::kBSND, 0, {}, &*pairs), masked);
  for (const Layout layout : {Layout::kBSND, Layout::kBSH}) {
    EXPECT_EQ(run(layout, kPrefix), want) << Name(layout);
    EXPECT_EQ(run(layout, kPrefix, {}, &*pairs), masked) << Name(layout);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, InferBits, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& info) { return IsaName(info.param); });

}  // namespace
}  // namespace fa::test
