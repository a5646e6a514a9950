// Attention over original and compressed keys against the reference in double, on every instruction-set level.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "ops/sparse/shared_kv_case.h"
#include "support/cases/random_values.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

void CheckShared(const SharedKvCase& c) {
  EXPECT_TRUE(ForwardIsTheReference(c));
  if (c.tokens.paged() || c.cmp_page_rows > 0) return;  // gradients have no pages
  EXPECT_TRUE(BackwardIsTheReference(c));
  if (!c.lists_ori() && !c.lists_cmp()) return;
  EXPECT_TRUE(BackwardIsTheReference(c, /*only_l1=*/true));
}

/// Returns the problem with lists of the keys that are read, followed by -1.
reference::SparseProblem Compact(reference::SparseProblem p) {
  reference::Selection& s = p.selection;
  const reference::Selection before = s;
  std::fill(s.indices.begin(), s.indices.end(), -1);
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      auto to = s.indices.begin() + (s.FirstToken(b) + t) * s.slots;
      for (const reference::SelectedKey& at : before.KeysOf(b, t)) *to++ = at.key;
    }
  }
  return p;
}

/// Returns a case with several sequences. Among them are sequences with more queries than keys, without queries,
/// without original keys, and without any keys.
SharedKvCase MixedRanges() {
  SharedKvCase c{.heads = 3, .d = 40};
  c.tokens.lengths = {{5, 0, 7, 3, 2}, {41, 9, 4, 0, 0}};
  c.tokens.lists = ListForm::kMessy;
  c.cmp_lengths = {10, 2, 1, 0, 3};
  return c;
}

TEST(SharedKv, EveryTypeLayoutAndFormOfKeys) {
  const auto check = [&](DType dtype, Layout layout, int64_t page_rows, bool sink) {
    SharedKvCase c = MixedRanges();
    c.tokens.dtype = dtype;
    c.tokens.layout = layout;
    c.tokens.page_rows = page_rows;
    c.cmp_page_rows = page_rows == 0 ? 0 : 3;
    c.tokens.spare_q = c.tokens.spare_k = 2;
    c.sink = sink;
    CheckShared(c);
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"layout", {Layout::kBSND, Layout::kTND}},
              Axis{"page_rows", {0, 7}}, Axis{"sink", {false, true}});
}

TEST(SharedKv, EveryMaskAndWindow) {
  const auto check = [&](SparseMask ori, SparseMask cmp, int64_t left, int64_t right) {
    SharedKvCase c = MixedRanges();
    c.ori_mask = ori;
    c.cmp_mask = cmp;
    c.left = left;
    c.right = right;
    CheckShared(c);
  };
  ForEachCase(check, Axis{"ori", {SparseMask::kNone, SparseMask::kRightDownCausal, SparseMask::kBand}},
              Axis{"cmp", {SparseMask::kNone, SparseMask::kRightDownCausal}}, Axis{"left", {-1, 0, 3, 1000}},
              Axis{"right", {-1, 0, 2}});
}

TEST(SharedKv, EveryChoiceOfListsAndRanges) {
  const auto check = [&](bool ori_listed, bool cmp_listed, bool topk, int64_t has) {
    SharedKvCase c = MixedRanges();
    c.has_ori = has != 1;
    c.has_cmp = has != 0;
    c.ori_listed = ori_listed;
    c.cmp_listed = cmp_listed;
    c.topk_lengths = topk;
    c.tokens.slots = 9;
    if (has == 1) c.residual = {3, 0, 2, 1, 0};
    CheckShared(c);
  };
  ForEachCase(check, Axis{"ori_listed", {false, true}}, Axis{"cmp_listed", {false, true}}, Axis{"topk", {false, true}},
              Axis{"has", {0, 1, 2}});
}

TEST(SharedKv, EveryRatio) {
  for (const int64_t ratio : {1, 2, 7, 128}) {
    SharedKvCase c = MixedRanges();
    c.ratio = ratio;
    c.cmp_listed = false;
    CheckShared(c);
  }
}

// There are more keys than a block has, and the largest cases have more heads than a tile has. Lists have more entries
// than there are compressed keys.
TEST(SharedKv, EveryNumberOfHeadsWithSeveralBlocksOfKeys) {
  for (const int64_t heads : {1, 2, 8, 16, 17, 64, 150}) {
    for (const DType dtype : kTokenDTypes) {
      SharedKvCase c{.heads = heads, .d = 32, .left = 99, .sink = true};
      c.tokens.dtype = dtype;
      c.tokens.lengths = {{3}, {200}};
      c.tokens.lists = ListForm::kMessy;
      c.cmp_lengths = {50};
      c.cmp_slots = 150;
      CheckShared(c);
    }
  }
}

TEST(SharedKv, SizesOfTheDevice) {
  SharedKvCase c{.heads = 64, .d = 512, .left = 127, .sink = true};
  c.tokens.dtype = DType::kBF16;
  c.tokens.lengths = {{2}, {1030}};
  c.cmp_lengths = {257};
  c.cmp_slots = 200;
  CheckShared(c);
}

TEST(SharedKv, LseOfRowsWithoutKeysIsTheOne) {
  SharedKvCase c = MixedRanges();
  c.tokens.spare_q = 2;
  c.lse_without_keys = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(ForwardIsTheReference(c));
  c.sink = true;
  EXPECT_TRUE(ForwardIsTheReference(c));
}

/// Writes -1 into the entries [begin, end) of row b of a block table.
void FreePages(const TensorView& table, int64_t b, int64_t begin, int64_t end) {
  auto* entries = static_cast<int32_t*>(const_cast<void*>(table.data)) + b * table.stride[0];
  std::fill(entries + begin, entries + end, -1);
}

// A cache may free the pages before the first token's window. Pages of compressed keys at or above the last token's
// limit need not exist either.
TEST(SharedKv, PagesThatNoTokenReadsNeedNotExist) {
  for (const bool listed : {false, true}) {
    SharedKvCase c{.cmp_listed = listed, .heads = 3};
    c.tokens.lengths = {{5, 3}, {40, 33}};
    c.tokens.page_rows = c.cmp_page_rows = 4;
    c.cmp_lengths = {20, 20};
    const SharedKvCall call(c);
    const SharedKvArgs args = call.args();
    // The windows of 8 keys begin at keys 28 and 23. The limits are 10 and 8.
    FreePages(args.ori_block_table, 0, 0, 7);
    FreePages(args.ori_block_table, 1, 0, 5);
    FreePages(args.cmp_block_table, 0, 3, 5);
    FreePages(args.cmp_block_table, 1, 2, 5);
    for (const Isa isa : IsaLevels()) {
      const Status status = call.Run(ContextOf(isa));
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(MatchesExpected(call.Outputs(), call.Expected())) << IsaName(isa);
    }
  }
}

SharedKvCase CaseOfSlots(Layout layout, uint64_t page_order) {
  SharedKvCase c{.ori_listed = true, .heads = 3, .d = 24, .sink = true};
  c.tokens.layout = layout;
  c.tokens.lengths = {{5, 3}, {40, 21}};
  c.tokens.page_rows = c.cmp_page_rows = 4;
  c.tokens.page_order = page_order;
  c.tokens.slots = 12;
  c.tokens.lists = ListForm::kMessy;
  c.cmp_lengths = {10, 5};
  return c;
}

/// Replaces each key in the lists of original keys by its slot, the index of its row among all rows of the pages. Then
/// runs the call.
Status RunWithSlots(const SharedKvCase& c, const SharedKvCall& call, Context* context) {
  const SharedKvArgs args = call.args();
  const auto* table = static_cast<const int32_t*>(args.ori_block_table.data);
  auto* lists = static_cast<int32_t*>(const_cast<void*>(args.ori_indices.data));
  const bool packed = c.tokens.packed();
  int64_t first = 0;
  for (int64_t b = 0; b < c.tokens.batch(); first += c.tokens.lengths.sq[static_cast<size_t>(b++)]) {
    for (int64_t t = 0; t < c.tokens.lengths.sq[static_cast<size_t>(b)]; ++t) {
      const Dims& stride = args.ori_indices.stride;
      int32_t* list = lists + (packed ? (first + t) * stride[0] : b * stride[0] + t * stride[1]);
      for (int32_t* entry = list; entry != list + c.tokens.slots; ++entry) {
        if (*entry < 0) continue;
        const int64_t rows = c.tokens.page_rows, page = table[b * args.ori_block_table.stride[0] + *entry / rows];
        *entry = static_cast<int32_t>(page * rows + *entry % rows);
      }
    }
  }
  SharedKvOptions options = call.options();
  options.ori_indices_are_slots = true;
  return SharedKvAttention(args, options, context);
}

TEST(SharedKv, RowsOfPagesStandForOriginalKeys) {
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    for (const Isa isa : IsaLevels()) {
      const SharedKvCase c = CaseOfSlots(layout, 1);
      const SharedKvCall call(c);
      const Status status = RunWithSlots(c, call, ContextOf(isa));
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(MatchesExpected(call.Outputs(), call.Expected())) << IsaName(isa) << " " << c;
    }
  }
}

// In TND, used_q, used_ori and used_cmp say how many rows of a sequence are in use.
TEST(SharedKv, GradientsOfRowsInUseOfPackedSequencesAreThoseOfBsnd) {
  SharedKvCase c{.heads = 3, .d = 24, .sink = true};
  c.tokens.lengths = {{5, 3}, {40, 21}};
  c.tokens.spare_q = c.tokens.spare_k = 2;
  c.cmp_lengths = {10, 5};
  const SharedKvGradCall bsnd(c), tnd(c);
  ASSERT_TRUE(bsnd.Run(nullptr).ok());
  SharedKvGradArgs args = tnd.args();
  std::vector<int64_t> sums[3];
  const TensorView rows[] = {args.q, args.ori_kv, args.cmp_kv};
  for (size_t i = 0; i < std::size(rows); ++i) sums[i] = {rows[i].shape[1], 2 * rows[i].shape[1]};
  args.cu_q = sums[0], args.cu_ori = sums[1], args.cu_cmp = sums[2];
  // The tensors [B, S, ...] lie in memory like packed tensors [B * S, ...].
  const auto pack = [](auto* tensor, int at) {
    Dims shape;
    for (int i = 0; i < tensor->shape.rank(); ++i) {
      if (i != at) shape.push_back(i == at + 1 ? tensor->shape[at] * tensor->shape[i] : tensor->shape[i]);
    }
    tensor->shape = shape;
    tensor->stride = {};
  };
  for (TensorView* tensor : {&args.q, &args.ori_kv, &args.cmp_kv, &args.cmp_indices, &args.out, &args.d_out}) {
    pack(tensor, 0);
  }
  for (MutableTensorView* tensor : {&args.dq, &args.d_ori_kv, &args.d_cmp_kv, &args.cmp_l1_norm}) pack(tensor, 0);
  args.lse.shape = {1, args.q.shape[0], c.heads};
  args.lse.stride = {};
  SharedKvOptions options = tnd.options();
  options.layout = Layout::kTND;
  const Status status = SharedKvAttentionGrad(args, options);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(SameBits(tnd.Outputs(), bsnd.Outputs()));
}

/// The L1 norms of one call of random numbers, with or without lists of all keys.
class AllNorms {
 public:
  static constexpr int64_t kRows = 9, kKeys = 40, kRatio = 4, kHeads = 3, kD = 24, kColumns = kKeys + 3;

  AllNorms() {
    int64_t i = 0;
    for (std::vector<float>* to : {&q_, &ori_, &cmp_, &lse_}) {
      for (float& x : *to) x = static_cast<float>(RandomNormal(5, Tag::kQ, {++i}));
    }
    for (float& x : lse_) x += 6;
    for (int64_t entry = 0; entry < kRows * kKeys; ++entry) {
      ori_list_[static_cast<size_t>(entry)] = static_cast<int32_t>(entry % kKeys);
    }
    for (int64_t entry = 0; entry < kRows * kKeys / kRatio; ++entry) {
      cmp_list_[static_cast<size_t>(entry)] = static_cast<int32_t>(entry % (kKeys / kRatio));
    }
  }
  /// Returns both norms, [rows][kColumns] without lists.
  [[nodiscard]] std::vector<float> Run(bool listed, SparseMask ori_mask, Context* context) {
    std::vector<float> norms(2 * kRows * kColumns, 7);
    const int64_t ori_columns = listed ? kKeys : kColumns, cmp_columns = listed ? kKeys / kRatio : kColumns;
    SharedKvGradArgs args;
    args.q = {q_.data(), DType::kF32, {1, kRows, kHeads, kD}, {}};
    args.ori_kv = {ori_.data(), DType::kF32, {1, kKeys, 1, kD}, {}};
    args.cmp_kv = {cmp_.data(), DType::kF32, {1, kKeys / kRatio, 1, kD}, {}};
    args.lse = {lse_.data(), DType::kF32, {1, 1, kRows, kHeads}, {}};
    if (listed) {
      args.ori_indices = {ori_list_.data(), DType::kI32, {1, kRows, 1, kKeys}, {}};
      args.cmp_indices = {cmp_list_.data(), DType::kI32, {1, kRows, 1, kKeys / kRatio}, {}};
    }
    const auto norm = [&](float* data, int64_t columns) {
      return MutableTensorView{data, DType::kF32, {1, kRows, 1, columns}, {kRows * kColumns, kColumns, kColumns, 1}};
    };
    args.ori_l1_norm = norm(norms.data(), ori_columns);
    args.cmp_l1_norm = norm(norms.data() + kRows * kColumns, cmp_columns);
    const Status status = SharedKvAttentionGrad(
        args, {.cmp_ratio = kRatio, .ori_mask = ori_mask, .window_left = 7, .window_right = 0}, context);
    EXPECT_TRUE(status.ok()) << status.message();
    return norms;
  }

 private:
  std::vector<float> q_ = std::vector<float>(kRows * kHeads * kD), ori_ = std::vector<float>(kKeys * kD);
  std::vector<float> cmp_ = std::vector<float>(kKeys / kRatio * kD), lse_ = std::vector<float>(kRows * kHeads);
  std::vector<int32_t> ori_list_ = std::vector<int32_t>(kRows * kKeys);
  std::vector<int32_t> cmp_list_ = std::vector<int32_t>(kRows * kKeys / kRatio);
};

TEST(SharedKvNorms, WithoutListsHaveOneColumnPerKey) {
  for (const Isa isa : IsaLevels()) {
    AllNorms call;
    const std::vector<float> listed = call.Run(true, SparseMask::kNone, ContextOf(isa, 2));
    const std::vector<float> all = call.Run(false, SparseMask::kNone, ContextOf(isa, 2));
    const std::vector<float> window = call.Run(false, SparseMask::kBand, ContextOf(isa, 2));
    for (int64_t at = 0; at < std::ssize(all); ++at) {
      const int64_t row = at / AllNorms::kColumns % AllNorms::kRows, column = at % AllNorms::kColumns;
      const bool of_cmp = at >= AllNorms::kRows * AllNorms::kColumns;
      const int64_t t = AllNorms::kKeys - AllNorms::kRows + row + 1;
      const auto i = static_cast<size_t>(at);
      const bool key = column < (of_cmp ? AllNorms::kKeys / AllNorms::kRatio : AllNorms::kKeys);
      EXPECT_EQ(all[i], key ? listed[i] : 0.0F) << IsaName(isa) << " " << at;
      const bool seen = of_cmp || (column >= t - 8 && column < t);
      EXPECT_EQ(window[i], seen ? all[i] : 0.0F) << IsaName(isa) << " " << at;
    }
    EXPECT_GT(*std::max_element(all.begin(), all.end()), 0);
  }
}

TEST(SharedKvNorms, AloneTakeOneOfTheFiveProducts) {
  const SharedKvCase c{.heads = 3, .d = 24};
  const SharedKvGradCall all(c), norms(c, /*only_l1=*/true);
  const auto flops = [](const SharedKvGradCall& call) {
    const auto plan = PlanSharedKvAttentionGrad(call.args(), call.options());
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return plan.ok() ? plan->info().flops : 0;
  };
  EXPECT_GT(flops(norms), 0);
  EXPECT_EQ(flops(all), 5 * flops(norms));
}

class SharedKvBits : public ::testing::TestWithParam<Isa> {};

TEST_P(SharedKvBits, OfRowsOfPagesDoNotDependOnThePages) {
  const SharedKvCase c = CaseOfSlots(Layout::kBSND, 1), other = CaseOfSlots(Layout::kBSND, 2);
  const SharedKvCall call(c), same(other);
  ASSERT_TRUE(RunWithSlots(c, call, ContextOf(GetParam())).ok());
  ASSERT_TRUE(RunWithSlots(other, same, ContextOf(GetParam())).ok());
  EXPECT_TRUE(SameBits(call.Outputs(), same.Outputs()));
}

TEST_P(SharedKvBits, DoNotDependOnThreads) {
  for (const DType dtype : kTokenDTypes) {
    for (const int64_t heads : {2, 24}) {
      SharedKvCase c{.heads = heads, .d = 40, .left = 60, .sink = true};
      c.tokens.dtype = dtype;
      c.tokens.lengths = {{40, 0, 14}, {300, 3, 70}};
      c.tokens.lists = ListForm::kMessy;
      c.cmp_lengths = {75, 1, 17};
      c.cmp_slots = 80;
      const auto outputs = [&](int threads) {
        const SharedKvCall forward(c);
        const SharedKvGradCall backward(c), l1(c, /*only_l1=*/true);
        TokenOutputs all;
        const auto add = [&](const auto& call) {
          const Status status = call.Run(ContextOf(GetParam(), threads));
          EXPECT_TRUE(status.ok()) << status.message();
          for (TokenOutput& output : call.Outputs()) all.push_back(std::move(output));
        };
        add(forward);
        add(backward);
        add(l1);
        return all;
      };
      const TokenOutputs want = outputs(1);
      for (const int threads : {1, 2, 7, 8}) EXPECT_TRUE(SameBits(outputs(threads), want)) << threads << " " << c;
    }
  }
}

// With ratio 1, no original keys, and all keys below the limit in every list, the call is the same as a call of
// SparseFlashAttention.
TEST_P(SharedKvBits, AreThoseOfSparseAttentionWithOneRange) {
  for (const DType dtype : kTokenDTypes) {
    SharedKvCase c{.heads = 5, .d = 24, .ratio = 1};
    c.tokens.dtype = dtype;
    c.tokens.lengths = {{6, 4}, {50, 150}};
    c.has_ori = false;
    c.cmp_lengths = {50, 150};
    c.cmp_slots = 150;
    c.tokens.lists = ListForm::kEveryKey;
    const SharedKvCall call(c);
    ASSERT_TRUE(call.Run(ContextOf(GetParam())).ok());
    SparseCase sparse = call.values().joined;
    sparse.tokens.causal = true;
    const SparseCall same(sparse, Compact(call.values().problem));
    SparseAttentionOptions options = same.options();
    options.check_indices = false;
    ASSERT_TRUE(SparseFlashAttention(same.args(), options, ContextOf(GetParam())).ok());
    EXPECT_EQ(ValuesOf(call.Outputs(), "out"), ValuesOf(same.Outputs(), "out"));
  }
}

// Attention over two tensors of keys has the bits of attention over one tensor that joins the keys, with one list per
// token.
TEST_P(SharedKvBits, AreThoseOfSparseAttentionOverTheJoinedKeys) {
  for (const int64_t heads : {1, 12, 40}) {
    SharedKvCase c{.heads = heads, .d = 24, .left = 30};
    c.tokens.dtype = DType::kBF16;
    c.tokens.lengths = {{6, 4}, {100, 180}};
    c.cmp_lengths = {25, 45};
    c.cmp_slots = 40;
    const SharedKvCall call(c);
    ASSERT_TRUE(call.Run(ContextOf(GetParam())).ok());
    const SparseCall same(call.values().joined, Compact(call.values().problem));
    SparseAttentionOptions options = same.options();
    options.check_indices = false;
    ASSERT_TRUE(SparseFlashAttention(same.args(), options, ContextOf(GetParam())).ok());
    EXPECT_EQ(ValuesOf(call.Outputs(), "out"), ValuesOf(same.Outputs(), "out"));
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, SharedKvBits, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& param) { return IsaName(param.param); });

}  // namespace
}  // namespace fa::test
