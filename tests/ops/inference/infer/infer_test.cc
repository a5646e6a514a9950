// Compares fused inference with the reference in double: layouts, caches, lengths, masks, left padding, prefixes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "ops/inference/infer/infer_case.h"
#include "ops/inference/infer/random_infer_case.h"
#include "support/cases/random_token_case.h"
#include "support/execution/contexts.h"
#include "support/guarded_buffer.h"

namespace fa::test {
namespace {

void Check(const InferCase& c) { EXPECT_TRUE(RunsLikeTheReference(c)); }

/// Returns elements of few and of many rows, with gaps in all tensors.
InferCase Mixed(int n) {
  InferCase c = MakeInferCase(6, 2, {1, 40, 0, 17, 3}, {600, 70, 20, 0, 37}, kFloats[n % 3]);
  c.dense.dv = 48;
  c.dense.padding.outer = n % 2 == 0 ? 0 : 16;
  c.page_rows = std::array{16, 7, 128, 33}[n % 4];
  c.page_order = static_cast<uint64_t>(n);
  c.spare_q = n % 3;
  c.spare_k = n % 4;
  c.one_more_dim = n % 2 == 0;
  return c;
}

TEST(Infer, EveryPaddedLayoutInEveryCache) {
  int n = 0;
  for (const Layout layout : kPaddedLayouts) {
    for (const Cache cache : kCaches) {
      InferCase c = Mixed(n++);
      c.layout = layout;
      c.cache = cache;
      if (n % 2 == 0) c.dense.mask = {.mode = 3};
      Check(c);
    }
  }
}

TEST(Infer, EveryPackedLayoutInEveryCache) {
  int n = 0;
  for (const Layout layout : kPackedLayouts) {
    for (const Cache cache : kCaches) {
      if (cache == Cache::kList) continue;
      for (const int mode : {1, 2, 3, 4}) {
        InferCase c = Mixed(n++);
        c.layout = layout;
        c.cache = cache;
        c.dense.mask = {.mode = mode, .pre = 50, .next = mode == 4 ? 3 : 0};
        Check(c);
      }
    }
  }
}

TEST(Infer, LayoutsOfOneElement) {
  for (const DType dtype : kFloats) {
    for (const Cache cache : {Cache::kOneTensor, Cache::kPagesNz}) {
      InferCase c = MakeInferCase(4, 2, {19}, {300}, dtype);
      c.layout = Layout::kNSD;
      c.cache = cache;
      c.dense.mask = {.mode = 3};
      Check(c);
    }
  }
}

// In NZ pages the pieces of a row lie apart. Kernels read keys in several ways, and each way joins the pieces in other
// code.
TEST(Infer, NzPagesOfEveryNumberOfRows) {
  for (const DType dtype : kFloats) {
    for (const int64_t group : {1, 2, 8}) {
      for (const int64_t sq : {1, 2, 16, 17, 200}) {
        for (const int64_t page_rows : {3, 128}) {
          InferCase c = MakeInferCase(2 * group, 2, {sq, 1}, {700, 33}, dtype);
          c.layout = Layout::kBSND;
          c.cache = Cache::kPagesNz;
          c.page_rows = page_rows;
          c.dense.d = 64;
          c.dense.dv = group == 2 ? 32 : 64;
          c.dense.mask = {.mode = 3};
          Check(c);
        }
      }
    }
  }
}

TEST(Infer, SplitHeadsInEveryCache) {
  int n = 0;
  for (const Layout layout : {Layout::kBNSD_NBSD, Layout::kBSND_NBSD, Layout::kTND_NTD, Layout::kNTD_TND}) {
    for (const Cache cache : kCaches) {
      InferCase c = Mixed(n++);
      c.layout = layout;
      c.cache = cache == Cache::kList && c.packed() ? Cache::kPagesNz : cache;
      c.dense.d_rope = 16;
      c.dense.mask = {.mode = 3};
      Check(c);
    }
  }
}

// All query heads share one KV head, as in models with latent attention.
TEST(Infer, SplitHeadsOfLatentAttentionInNzPages) {
  for (const DType dtype : kFloats) {
    InferCase c = MakeInferCase(32, 1, {1, 2}, {700, 129}, dtype);
    c.layout = Layout::kTND_NTD;
    c.cache = Cache::kPagesNz;
    c.page_rows = 128;
    c.dense.d = c.dense.dv = 512;
    c.dense.d_rope = 64;
    c.dense.mask = {.mode = 3};
    Check(c);
  }
}

TEST(Infer, MasksBiasesAndSinks) {
  int n = 0;
  for (const Layout layout : {Layout::kBSH, Layout::kBNSD, Layout::kTND, Layout::kNTD}) {
    for (const Cache cache : {Cache::kOneTensor, Cache::kPagesNz}) {
      InferCase c = Mixed(n++);
      c.layout = layout;
      c.cache = cache;
      c.dense.dense_mask = MaskForm::kPerBatch;
      Check(c);
      c.dense.dense_mask = MaskForm::kNone;
      c.dense.pse = n % 2 == 0 ? PseForm::kFull : PseForm::kRow;
      c.dense.pse_type = reference::PseType::kScaleThenAdd;
      c.dense.sink = true;
      if (n % 2 == 0) c.sink_dtype = c.dense.dtype;
      Check(c);
    }
  }
}

TEST(Infer, TrianglesOfTheDevice) {
  for (const int mode : {2, 3, 4}) {
    InferCase c = Mixed(mode);
    c.layout = Layout::kTND;
    c.dense.mask = {.mode = mode, .pre = 20, .next = mode == 4 ? 2 : 0};
    c.full_mask = true;
    Check(c);
  }
}

// Without split heads, a single row of a padded layout keeps every key in modes 2 and 3.
TEST(Infer, ASingleRowKeepsEveryKey) {
  for (const int mode : {2, 3}) {
    for (const int64_t d_rope : {0, 16}) {
      InferCase c = MakeInferCase(4, 2, {1, 1}, {90, 7});
      c.dense.d_rope = d_rope;
      c.dense.mask = {.mode = d_rope > 0 ? mode : 1};
      const InferProblem problem(c);
      InferAttentionOptions options = problem.options();
      options.sparse_mode = mode;
      ASSERT_TRUE(InferAttention(problem.args(), options, ContextOf(Isa::kPortable)).ok());
      EXPECT_TRUE(MatchesReference(problem, reference::Forward(problem.values()))) << "mode " << mode;
    }
  }
}

// Without split heads, a single row of a padded layout has no band in mode 0 either. A packed row has one.
TEST(Infer, ASingleRowHasNoBandInMode0) {
  for (const Layout layout : {Layout::kBNSD, Layout::kTND}) {
    for (const int64_t d_rope : {0, 16}) {
      InferCase c = MakeInferCase(4, 2, {1, 1}, {90, 7});
      c.layout = layout;
      c.dense.d_rope = d_rope;
      c.dense.dense_mask = MaskForm::kPerBatch;
      const bool band = c.packed() || d_rope > 0;
      c.dense.mask =
          band ? reference::MaskRule{.mode = 0, .band = true, .pre = 0, .next = 3} : reference::MaskRule{.mode = 1};
      const InferProblem problem(c);
      InferAttentionOptions options = problem.options();
      options.pre = 0;
      options.next = 3;
      ASSERT_TRUE(InferAttention(problem.args(), options, ContextOf(Isa::kPortable)).ok());
      EXPECT_TRUE(MatchesReference(problem, reference::Forward(problem.values()))) << c;
    }
  }
}

TEST(Infer, TreesOfDrafts) {
  int n = 0;
  for (const Layout layout : {Layout::kBNSD, Layout::kBSH_NBSD, Layout::kTND, Layout::kNTD_TND}) {
    for (const Cache cache : {Cache::kOneTensor, Cache::kPagesOfHeads, Cache::kPagesNz}) {
      InferCase c = MakeInferCase(4, 2, {5, 1, 0, 40}, {600, 9, 4, 40}, kFloats[n++ % 3]);
      c.layout = layout;
      c.cache = cache;
      c.dense.dense_mask = MaskForm::kPerBatch;
      c.tree = true;
      if (n % 2 == 0) c.dense.placement.place = Place::kAtEnd;
      Check(c);
    }
  }
}

// A sequence without rows and keys has no tree. It does not change how the other sequences' trees are read.
TEST(Infer, TreesOfDraftsBehindAnEmptySequence) {
  InferCase c = MakeInferCase(4, 2, {0, 40}, {0, 100});
  c.layout = Layout::kTND;
  c.dense.dense_mask = MaskForm::kPerBatch;
  c.tree = true;
  Check(c);
}

// The trees of short sequences take less memory than those of the longest one, and nothing behind them is read.
TEST(Infer, TreesOfDraftsInAWorkspaceWithoutRoomBehindIt) {
  InferCase c = MakeInferCase(4, 2, {40, 5}, {600, 600});
  c.layout = Layout::kTND;
  c.dense.dense_mask = MaskForm::kPerBatch;
  c.tree = true;
  const InferProblem problem(c);
  const auto plan = PlanInferAttention(problem.args(), problem.options(), ContextOf(Isa::kPortable));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const GuardedBuffer workspace((plan->workspace_bytes() + 63) / 64 * 64, Place::kAtEnd);
  ASSERT_TRUE(plan->Run(problem.args(), std::span(workspace.data(), workspace.size())).ok());
  EXPECT_TRUE(MatchesReference(problem, reference::Forward(problem.values())));
}

TEST(Infer, LeftPadding) {
  int n = 0;
  for (const Layout layout : kPaddedLayouts) {
    for (const auto& [q, kv] : {std::pair{2, 3}, {-1, 3}, {2, -1}, {0, 0}}) {
      InferCase c = Mixed(n++);
      c.layout = layout;
      c.spare_q = c.spare_k = 4;
      c.padding_q = q;
      c.padding_kv = kv;
      c.dense.mask = {.mode = n % 2 == 0 ? 3 : 1};
      if (c.dense.mask.mode == 1 && n % 3 == 0) {
        c.dense.dense_mask = MaskForm::kPerBatch;
        c.dense.placement.place = Place::kAtEnd;  // the last element has the fewest rows
      }
      if (n % 4 == 0) {
        c.dense.pse = PseForm::kFull;
        c.dense.pse_type = reference::PseType::kScaleThenAdd;
      }
      if (n % 5 == 0) c.dense.d_rope = 16;
      Check(c);
    }
  }
}

// If its keys do not fit in front of the padding, a single row has no keys. The vendor's device does the same.
TEST(Infer, ASingleRowWhoseKeysDoNotFitHasNoKeys) {
  InferCase c = MakeInferCase(4, 2, {1, 1}, {30, 20});
  c.spare_k = 2;
  c.padding_kv = 2;
  const InferProblem problem(c);
  InferAttentionArgs args = problem.args();
  const int64_t padding = 3, lengths[] = {30, 19};  // the second element's last key lies in the padding
  args.kv_padding.data = &padding;
  args.lengths_kv = lengths;
  ASSERT_TRUE(InferAttention(args, problem.options(), ContextOf(Isa::kPortable)).ok());
  const ForwardOutputs got = problem.Outputs();
  for (size_t x = 0; x < 4; ++x) EXPECT_EQ(got.lse[x], std::numeric_limits<double>::infinity());
  for (size_t x = 0; x < 4 * 32; ++x) EXPECT_EQ(got.out[x], 0);
  for (size_t x = 4; x < 8; ++x) EXPECT_TRUE(std::isfinite(got.lse[x]));
}

TEST(Infer, Prefixes) {
  int n = 0;
  for (const Layout layout : kPaddedLayouts) {
    for (const int64_t prefix : {1, 40, 600}) {
      InferCase c = MakeInferCase(6, 2, {1, 40, 3}, {prefix + 600, prefix, prefix + 37}, kFloats[n++ % 3]);
      c.layout = layout;
      c.prefix_rows = prefix;
      c.spare_prefix = n % 3;
      c.dense.padding.outer = n % 2 == 0 ? 0 : 8;
      c.dense.mask = {.mode = n % 2 == 0 ? 3 : 1};
      if (n % 4 == 1) c.dense.dense_mask = MaskForm::kPerBatch;
      Check(c);
    }
  }
}

TEST(Infer, RowsWithoutKeys) {
  for (const float lse : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    for (const bool sink : {false, true}) {
      InferCase c = MakeInferCase(4, 2, {30, 2, 1}, {10, 0, 0});
      c.layout = Layout::kTND;
      c.spare_q = 3;
      c.dense.mask = {.mode = 3};
      c.dense.sink = sink;
      c.lse_without_keys = lse;
      Check(c);
    }
  }
}

TEST(Infer, RandomCalls) {
  for (int seed = 0; seed < RandomCases(200); ++seed) Check(RandomInferCase(static_cast<uint64_t>(seed)));
}

/// Draws the lengths of `count` sequences. If `shared`, the sequences together have at most `all` rows; otherwise each
/// has at most `all` rows.
std::vector<int64_t> DrawLengths(RandomChoices* random, int64_t count, int64_t all, bool shared) {
  std::vector<int64_t> lengths(static_cast<size_t>(count), 0);
  const int64_t same = std::min(random->OneOf<int64_t>({1, 15, 16, 17, 511, 512, 16384, all}), all);
  const int kind = static_cast<int>(random->Pick(0, 3));
  if (kind == 0) lengths[static_cast<size_t>(random->Pick(0, count - 1))] = all;
  int64_t left = all;
  for (int64_t& length : lengths) {
    if (kind == 1) length = random->Pick(0, shared ? left : all);
    if (kind == 2) length = shared ? std::min(same, left) : same;
    if (kind == 3) length = shared ? all / count : random->Pick(0, same);
    left -= length;
  }
  if (kind == 1 && shared) std::reverse(lengths.begin(), lengths.end());
  return lengths;
}

std::vector<int64_t> Sums(std::vector<int64_t> lengths) {
  std::partial_sum(lengths.begin(), lengths.end(), lengths.begin());
  return lengths;
}

std::vector<int64_t> OwnKeys(const InferCase& c) {
  std::vector<int64_t> keys = c.dense.lengths.sk;
  for (int64_t& of : keys) of -= c.prefix_rows;
  return keys;
}

/// Plans calls with the tensors of `c` and other lengths. None may need more than the largest workspace.
void ExpectTheLargestWorkspaceSuffices(const InferCase& c, uint64_t seed) {
  const InferProblem problem(c);
  const InferAttentionArgs args = problem.args();
  const ForwardCase& d = c.dense;
  const int64_t batch = d.batch();
  const auto all = [&](const std::vector<int64_t>& lengths, int64_t spare) {
    return (c.packed() ? std::accumulate(lengths.begin(), lengths.end(), int64_t{0})
                       : *std::max_element(lengths.begin(), lengths.end())) +
           spare;
  };
  const bool paged = IsPaged(c.cache), sums = c.packed() && !paged,
             has_pairs = d.dense_mask != MaskForm::kNone || d.pse != PseForm::kNone;
  const int64_t keys = paged ? args.block_table.shape[1] * c.page_rows : all(OwnKeys(c), c.spare_k);
  for (const Isa isa : IsaLevels()) {
    for (const int threads : {2, 3}) {
      RandomChoices random(seed);
      const auto most = InferAttentionMaxWorkspace(args, problem.options(), ContextOf(isa, threads));
      ASSERT_TRUE(most.ok()) << most.status().message();
      for (int draw = 0; draw < 8; ++draw) {
        std::vector<int64_t> q = DrawLengths(&random, batch, all(d.lengths.sq, c.spare_q), c.packed());
        std::vector<int64_t> kv = DrawLengths(&random, batch, keys, sums);
        for (int64_t b = 0; c.cache == Cache::kList && b < batch; ++b) {
          kv[b] = std::min(kv[b], d.lengths.sk[b] + c.spare_k);
        }
        // The shape of a mask or bias may fix the longest sequence, or the sum of the squares of the lengths. So some
        // draws keep the lengths of `c`, in another order if they are packed.
        if (has_pairs && draw % 2 == 0) q = d.lengths.sq;
        if (has_pairs && draw % 4 == 0) kv = OwnKeys(c);
        if (has_pairs && c.packed()) std::swap(q.front(), q.back());
        if (has_pairs && c.packed()) std::swap(kv.front(), kv.back());
        InferAttentionArgs other = args;
        const std::vector<int64_t> cu_q = Sums(q), cu_kv = Sums(kv);
        (c.packed() ? other.cu_q : other.lengths_q) = c.packed() ? cu_q : q;
        (sums ? other.cu_kv : other.lengths_kv) = sums ? cu_kv : kv;
        const auto plan = PlanInferAttention(other, problem.options(), ContextOf(isa, threads));
        if (has_pairs && draw > 0 && !plan.ok()) continue;
        ASSERT_TRUE(plan.ok()) << plan.status().message() << " " << c;
        EXPECT_LE(plan->workspace_bytes(), *most)
            << c << " threads " << threads << " " << ::testing::PrintToString(q) << " " << ::testing::PrintToString(kv);
      }
    }
  }
}

TEST(Infer, TheLargestWorkspaceSufficesForAnyLengths) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    InferCase c = RandomInferCase(seed);
    if (seed % 4 == 0) c.dense.lengths = {{1, 1, 16}, {16384 + c.prefix_rows, 300 + c.prefix_rows, 17000}};
    ExpectTheLargestWorkspaceSuffices(c, seed);
  }
}

/// The sizes of packed prompts.
struct PackedSizes {
  DType dtype;
  int64_t batch, heads_kv, rows, keys;
  int threads;
  int64_t group = 4, d_rope = 0;
};

/// Returns `batch` lengths with the sum `all`, of which the first `count` are at least `least` and the first is the
/// longest.
std::vector<int64_t> SharesOf(int64_t batch, int64_t all, int64_t count, int64_t least) {
  std::vector<int64_t> lengths(static_cast<size_t>(batch), 0);
  std::fill_n(lengths.begin(), count, least);
  lengths[0] += all - count * least;
  return lengths;
}

/// Expects that the largest workspace is at most `most_ratio` times what some lengths need. The test tries extreme
/// lengths: one sequence has nearly all keys, and as many others as possible have enough rows that their heads are
/// packed or their keys cut; or all have equal shares. With 16 rows, a sequence that is cut has the largest states.
void ExpectTheLargestWorkspaceIsNeeded(const PackedSizes& sizes, double most_ratio) {
  static const float kNumber = 0;
  float written = 0;
  Context* context = ContextOf(DetectIsa(), sizes.threads);
  const InferAttentionOptions options{.layout = Layout::kTND, .sparse_mode = 3};
  const TensorView key{&kNumber, sizes.dtype, {sizes.keys, sizes.heads_kv, 128}, {}};
  InferAttentionArgs args;
  const int64_t heads = sizes.group * sizes.heads_kv;
  args.q = {&kNumber, sizes.dtype, {sizes.rows, heads, 128}, {}};
  const TensorView k_rope{&kNumber, sizes.dtype, {sizes.keys, sizes.heads_kv, sizes.d_rope}, {}};
  if (sizes.d_rope > 0) {
    args.q_rope = {&kNumber, sizes.dtype, {sizes.rows, heads, sizes.d_rope}, {}};
    args.k_rope = {&k_rope, 1};
  }
  args.k = args.v = {&key, 1};
  args.out = {&written, sizes.dtype, args.q.shape, {}};
  size_t needed = 0;
  const auto need = [&](int64_t rows, int64_t keys, int64_t count, int64_t least_rows, int64_t least_keys) {
    if (count * least_rows > rows || count * least_keys > keys) return;
    const std::vector<int64_t> cu_q = Sums(SharesOf(sizes.batch, rows, count, least_rows));
    const std::vector<int64_t> cu_kv = Sums(SharesOf(sizes.batch, keys, count, least_keys));
    args.cu_q = cu_q;
    args.cu_kv = cu_kv;
    const auto plan = PlanInferAttention(args, options, context);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    needed = std::max(needed, plan->workspace_bytes());
  };
  for (int64_t count = 1; count <= sizes.batch; ++count) {
    for (const int64_t rows : {int64_t{1}, int64_t{8}, int64_t{16}, int64_t{66}, int64_t{264}, sizes.rows / count}) {
      for (const int64_t keys : {int64_t{8}, int64_t{513}, sizes.keys / count}) {
        need(sizes.rows, sizes.keys, count, rows, keys);
        need(std::min(sizes.rows, count * rows), sizes.keys, count, rows, keys);
        need(std::min(sizes.rows, (count - 1) * rows + 16), sizes.keys, count, rows, keys);
      }
    }
  }
  const std::vector<int64_t> none(static_cast<size_t>(sizes.batch), 0);
  args.cu_q = args.cu_kv = none;
  const auto most = InferAttentionMaxWorkspace(args, options, context);
  ASSERT_TRUE(most.ok()) << most.status().message();
  EXPECT_GE(*most, needed);
  EXPECT_LE(static_cast<double>(*most) / static_cast<double>(needed), most_ratio)
      << Name(sizes.dtype) << " B " << sizes.batch << " Nkv " << sizes.heads_kv << " G " << sizes.group << " rope "
      << sizes.d_rope << " rows " << sizes.rows << " keys " << sizes.keys << " threads " << sizes.threads;
}

TEST(Infer, TheLargestWorkspaceOfPackedPromptsIsNeeded) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t batch : {1, 2, 8, 32}) {
      for (const int64_t heads_kv : {1, 2, 8}) {
        for (const int64_t rows : {300, 2048, 9600}) {
          for (const int64_t keys : {600, 4096, 16384}) {
            for (const int threads : {2, 4}) {
              ExpectTheLargestWorkspaceIsNeeded({dtype, batch, heads_kv, rows, keys, threads}, 1.5);
            }
          }
        }
      }
    }
  }
}

// The largest workspace counts the most states, the most rows of a state and the largest tiles together, although no
// lengths have all of them. So the largest workspace is up to 3.2 or 2.1 times what these lengths need, rounded up.
TEST(Infer, TheLargestWorkspaceOfOtherPackedCallsIsNeeded) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int threads : {1, 2}) {
      for (const int64_t d_rope : {0, 64}) {
        for (const int64_t group : {4, 16}) {
          for (const auto& [batch, rows] : {std::pair{31, 1944}, {34, 26}, {8, 8}, {3, 40}}) {
            for (const int64_t keys : {3521, 16384}) {
              ExpectTheLargestWorkspaceIsNeeded({dtype, batch, 7, rows, keys, threads, group, d_rope},
                                                rows < 300 ? 3.2 : 2.1);
            }
          }
        }
      }
    }
  }
}

// One sequence with all rows needs more room for packed keys than three sequences do. In packed layouts it has the
// largest mask.
TEST(Infer, TheLargestWorkspaceSufficesForOneSequenceWithAllRows) {
  for (const Layout layout : {Layout::kNTD, Layout::kBSND}) {
    for (const DType dtype : kFloats) {
      for (const bool mask : {false, true}) {
        InferCase c = MakeInferCase(12, 3, {0, 0, 300}, {16, 16, 16}, dtype);
        c.layout = layout;
        c.cache = Cache::kPagesOfHeads;
        c.dense.d = c.dense.dv = 256;
        if (mask) {
          c.dense.lengths = {{1300, 0, 0}, {100, 16, 0}};
          c.dense.dense_mask = MaskForm::kPerBatch;
        }
        ExpectTheLargestWorkspaceSuffices(c, 7);
      }
    }
  }
}

}  // namespace
}  // namespace fa::test
