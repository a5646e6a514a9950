// Block-sparse attention: fused inference and the dense backward with a mask of blocks, against the reference in
// double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "fa/fa.h"
#include "reference/attention.h"
#include "support/cases/random_values.h"
#include "support/compare/agrees.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct BlockCase {
  Layout layout = Layout::kBNSD;
  DType dtype = DType::kF32;
  int64_t block_rows = 64, block_keys = 64;
  int64_t mask_batch = 3, mask_heads = 4;  ///< the mask's sizes; 1 broadcasts
  int64_t kept_of_8 = 3;                   ///< of 8 blocks, about how many are kept
  std::vector<int64_t> sq = {150, 0, 97}, sk = {300, 40, 129};
};

std::ostream& operator<<(std::ostream& os, const BlockCase& c) {
  return os << Name(c.layout) << " " << Name(c.dtype) << " blocks " << c.block_rows << "x" << c.block_keys << " planes "
            << c.mask_batch << "x" << c.mask_heads;
}

constexpr int64_t kHeads = 4, kHeadsKv = 2, kD = 16, kDv = 24;

/// All results, in the order of the reference. Rows past a length are left out.
struct BlockResults {
  std::vector<double> out, lse, dq, dk, dv;
  bool operator==(const BlockResults&) const = default;
};

/// A tensor of a call in its layout.
class LaidOut {
 public:
  LaidOut(const BlockCase& c, const std::vector<int64_t>& lengths, int64_t heads, int64_t columns)
      : dtype_(c.dtype), layout_(c.layout), lengths_(lengths), heads_(heads), columns_(columns) {
    rows_ = *std::max_element(lengths.begin(), lengths.end());
    const auto batch = static_cast<int64_t>(lengths.size());
    int64_t total = 2;  // a packed tensor has rows behind the last sequence
    for (const int64_t length : lengths) total += length;
    shape_ = layout_ == Layout::kTND    ? Dims{total, heads, columns}
             : layout_ == Layout::kBNSD ? Dims{batch, heads, rows_, columns}
                                        : Dims{batch, rows_, heads, columns};
    int64_t elements = 1;
    for (const int64_t size : shape_) elements *= size;
    floats_.resize(static_cast<size_t>(elements), std::numeric_limits<float>::quiet_NaN());
    halves_.resize(static_cast<size_t>(elements), 0x7FC0);
  }
  /// Calls visit(index in the tensor, index in the order of the reference) for each element in use.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    size_t at = 0;
    int64_t first = 0;
    for (size_t b = 0; b < lengths_.size(); first += lengths_[b++]) {
      for (int64_t n = 0; n < heads_; ++n) {
        for (int64_t i = 0; i < lengths_[b]; ++i) {
          const auto batch = static_cast<int64_t>(b);
          const int64_t row = layout_ == Layout::kTND    ? (first + i) * heads_ + n
                              : layout_ == Layout::kBNSD ? (batch * heads_ + n) * rows_ + i
                                                         : (batch * rows_ + i) * heads_ + n;
          for (int64_t x = 0; x < columns_; ++x) visit(static_cast<size_t>(row * columns_ + x), at++);
        }
      }
    }
  }
  void Set(const std::vector<double>& values) {
    ForEach([&](size_t to, size_t from) {
      floats_[to] = static_cast<float>(values[from]);
      halves_[to] = reference::Encode16(reference::Format::kBF16, values[from]);
    });
  }
  [[nodiscard]] std::vector<double> Get() const {
    std::vector<double> values;
    ForEach([&](size_t from, size_t) { values.push_back(At(from)); });
    return values;
  }
  [[nodiscard]] double At(size_t i) const {
    return dtype_ == DType::kF32 ? static_cast<double>(floats_[i])
                                 : reference::Decode16(reference::Format::kBF16, halves_[i]);
  }
  /// Returns whether every element that is not in use is 0.
  [[nodiscard]] bool RestIsZero() const {
    std::vector<bool> used(floats_.size());
    ForEach([&](size_t at, size_t) { used[at] = true; });
    for (size_t i = 0; i < used.size(); ++i) {
      if (!used[i] && At(i) != 0) return false;
    }
    return true;
  }
  [[nodiscard]] MutableTensorView View() {
    return {dtype_ == DType::kF32 ? static_cast<void*>(floats_.data()) : halves_.data(), dtype_, shape_, {}};
  }

 private:
  DType dtype_;
  Layout layout_;
  std::vector<int64_t> lengths_;
  int64_t heads_, columns_, rows_ = 0;
  Dims shape_;
  std::vector<float> floats_;
  std::vector<uint16_t> halves_;
};

class BlockProblem {
 public:
  explicit BlockProblem(const BlockCase& c) : c_(c) {
    SetSizes();
    for (int64_t i = 0; i < c.mask_batch * c.mask_heads * row_blocks_ * key_blocks_; ++i) {
      const bool kept = static_cast<int64_t>(RandomBits(1, Tag::kDenseMask, {i}) % 8) < c.kept_of_8;
      blocks_.push_back(kept ? 2 : 0);
    }
    reference_ = {.heads = kHeads, .heads_kv = kHeadsKv, .d = kD, .dv = kDv, .lengths = {c.sq, c.sk}, .scale = 0.3};
    reference_.q = Drawn(Tag::kQ, c.sq, kHeads * kD);
    reference_.k = Drawn(Tag::kK, c.sk, kHeadsKv * kD);
    reference_.v = Drawn(Tag::kV, c.sk, kHeadsKv * kDv);
    d_out_ = Drawn(Tag::kDOut, c.sq, kHeads * kDv);
    SetReferenceMask();
  }
  /// Returns the problem of one sequence, with its values and blocks. It has no reference.
  [[nodiscard]] BlockProblem Alone(size_t b) const {
    BlockProblem one = *this;
    one.c_.sq = {c_.sq[b]}, one.c_.sk = {c_.sk[b]};
    one.c_.mask_batch = 1;
    one.SetSizes();
    one.blocks_.clear();
    const int64_t first = c_.mask_batch == 1 ? 0 : static_cast<int64_t>(b) * c_.mask_heads;
    for (int64_t plane = first; plane < first + c_.mask_heads; ++plane) {
      for (int64_t i = 0; i < one.row_blocks_; ++i) {
        for (int64_t j = 0; j < one.key_blocks_; ++j) {
          one.blocks_.push_back(blocks_[static_cast<size_t>((plane * row_blocks_ + i) * key_blocks_ + j)]);
        }
      }
    }
    one.reference_.q = PartOf(reference_.q, c_.sq, b);
    one.reference_.k = PartOf(reference_.k, c_.sk, b);
    one.reference_.v = PartOf(reference_.v, c_.sk, b);
    one.d_out_ = PartOf(d_out_, c_.sq, b);
    return one;
  }
  /// Returns the results of one sequence.
  [[nodiscard]] BlockResults ResultsOf(const BlockResults& all, size_t b) const {
    return {PartOf(all.out, c_.sq, b), PartOf(all.lse, c_.sq, b), PartOf(all.dq, c_.sq, b), PartOf(all.dk, c_.sk, b),
            PartOf(all.dv, c_.sk, b)};
  }
  [[nodiscard]] const reference::Problem& reference() const { return reference_; }
  [[nodiscard]] const std::vector<double>& d_out() const { return d_out_; }
  [[nodiscard]] Result<PairMask> Mask(Context* context) const {
    return PairMaskFromBlocks(View(blocks_, {c_.mask_batch, c_.mask_heads, row_blocks_, key_blocks_}), Sizes(),
                              context);
  }
  [[nodiscard]] PairLists Sizes() const { return {rows_, keys_, c_.block_rows, c_.block_keys}; }
  [[nodiscard]] bool Keeps(int64_t b, int64_t n, int64_t i, int64_t j) const {
    const int64_t plane = (c_.mask_batch == 1 ? 0 : b) * c_.mask_heads + n / (kHeads / c_.mask_heads);
    const int64_t block = (plane * row_blocks_ + i / c_.block_rows) * key_blocks_ + j / c_.block_keys;
    return blocks_[static_cast<size_t>(block)] != 0;
  }
  [[nodiscard]] bool HasKeys(int64_t b, int64_t n, int64_t i) const {
    for (int64_t j = 0; j < c_.sk[static_cast<size_t>(b)]; ++j) {
      if (Keeps(b, n, i, j)) return true;
    }
    return false;
  }

  /// Runs the forward and the backward.
  /// @param empty_lse  the lse of rows without keys
  [[nodiscard]] BlockResults Run(Context* context, float empty_lse = kInfinity) const {
    LaidOut q(c_, c_.sq, kHeads, kD), k(c_, c_.sk, kHeadsKv, kD), v(c_, c_.sk, kHeadsKv, kDv);
    LaidOut out(c_, c_.sq, kHeads, kDv), d_out(c_, c_.sq, kHeads, kDv);
    LaidOut dq(c_, c_.sq, kHeads, kD), dk(c_, c_.sk, kHeadsKv, kD), dv(c_, c_.sk, kHeadsKv, kDv);
    BlockCase of_rows = c_;
    of_rows.dtype = DType::kF32;
    LaidOut lse(of_rows, c_.sq, kHeads, 1);
    q.Set(reference_.q), k.Set(reference_.k), v.Set(reference_.v), d_out.Set(d_out_);
    const auto mask = Mask(context);
    EXPECT_TRUE(mask.ok()) << mask.status().message();
    const bool packed = c_.layout == Layout::kTND;
    const std::vector<int64_t> cu_q = PrefixSums(c_.sq), cu_kv = PrefixSums(c_.sk);
    const TensorView keys = k.View(), values = v.View();
    MutableTensorView rows = lse.View();
    rows.stride = packed                       ? Dims{kHeads, 1}
                  : c_.layout == Layout::kBNSD ? Dims{kHeads * rows_, rows_, 1}
                                               : Dims{rows_ * kHeads, 1, kHeads};
    rows.shape = packed ? Dims{rows.shape[0], kHeads} : Dims{static_cast<int64_t>(c_.sq.size()), kHeads, rows_};

    InferAttentionArgs args;
    args.q = q.View(), args.k = {&keys, 1}, args.v = {&values, 1}, args.out = out.View(), args.lse = rows;
    args.pair_mask = &*mask;
    (packed ? args.cu_q : args.lengths_q) = packed ? cu_q : c_.sq;
    (packed ? args.cu_kv : args.lengths_kv) = packed ? cu_kv : c_.sk;
    const Status forward =
        InferAttention(args, {.layout = c_.layout, .scale = 0.3F, .lse_without_keys = empty_lse}, context);
    EXPECT_TRUE(forward.ok()) << forward.message();

    AttentionGradArgs grads;
    static constexpr float kOne = 1;
    grads.q = q.View(), grads.k = keys, grads.v = values, grads.out = out.View(), grads.d_out = d_out.View();
    grads.softmax_max = rows;
    grads.softmax_sum = {&kOne, DType::kF32, rows.shape, packed ? Dims{0, 0} : Dims{0, 0, 0}};
    grads.dq = dq.View(), grads.dk = dk.View(), grads.dv = dv.View();
    grads.pair_mask = &*mask;
    AttentionOptions options;
    options.layout = c_.layout;
    options.scale = 0.3F;
    if (packed) {
      grads.cu_q = cu_q, grads.cu_kv = cu_kv;
    } else {
      options.mask = RowsInUse();
    }
    const Status backward = FlashAttentionGrad(grads, options, context);
    EXPECT_TRUE(backward.ok()) << backward.message();
    for (const LaidOut* tensor : {&out, &dq, &dk, &dv}) EXPECT_TRUE(tensor->RestIsZero());
    return {out.Get(), lse.Get(), dq.Get(), dk.Get(), dv.Get()};
  }

 private:
  void SetSizes() {
    rows_ = *std::max_element(c_.sq.begin(), c_.sq.end());
    keys_ = *std::max_element(c_.sk.begin(), c_.sk.end());
    row_blocks_ = (rows_ + c_.block_rows - 1) / c_.block_rows;
    key_blocks_ = (keys_ + c_.block_keys - 1) / c_.block_keys;
  }
  /// Returns the values of sequence b.
  static std::vector<double> PartOf(const std::vector<double>& values, const std::vector<int64_t>& lengths, size_t b) {
    const auto at = lengths.begin() + static_cast<std::ptrdiff_t>(b);
    const int64_t each = std::ssize(values) / std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    const int64_t first = each * std::accumulate(lengths.begin(), at, int64_t{0});
    return {values.begin() + first, values.begin() + first + each * *at};
  }
  std::vector<double> Drawn(Tag tag, const std::vector<int64_t>& lengths, int64_t columns) const {
    std::vector<double> values;
    const reference::Format format = c_.dtype == DType::kF32 ? reference::Format::kF32 : reference::Format::kBF16;
    for (const int64_t length : lengths) {
      for (int64_t i = 0; i < length * columns; ++i) {
        const auto place = static_cast<int64_t>(values.size());
        values.push_back(reference::RoundTo(format, RandomNormal(3, tag, {place})));
      }
    }
    return values;
  }
  static std::vector<int64_t> PrefixSums(std::vector<int64_t> lengths) {
    for (size_t b = 1; b < lengths.size(); ++b) lengths[b] += lengths[b - 1];
    return lengths;
  }
  [[nodiscard]] fa::Mask RowsInUse() const {
    std::vector<int64_t> end;
    for (size_t b = 0; b < c_.sq.size(); ++b) {
      for (int64_t i = 0; i < rows_; ++i) end.push_back(i < c_.sq[b] ? c_.sk[b] : 0);
    }
    return fa::Mask::Rows(std::vector<int64_t>(end.size()), end);
  }
  void SetReferenceMask() {
    reference::PairValues<uint8_t>& mask = reference_.dense_mask;
    for (size_t b = 0; b < c_.sq.size(); ++b) {
      mask.offset.push_back(static_cast<int64_t>(mask.values.size()));
      mask.head.push_back(c_.sq[b] * c_.sk[b]);
      mask.row.push_back(c_.sk[b]);
      for (int64_t n = 0; n < kHeads; ++n) {
        for (int64_t i = 0; i < c_.sq[b]; ++i) {
          for (int64_t j = 0; j < c_.sk[b]; ++j) mask.values.push_back(Keeps(static_cast<int64_t>(b), n, i, j) ? 0 : 1);
        }
      }
    }
  }

  BlockCase c_;
  int64_t rows_, keys_, row_blocks_, key_blocks_;
  std::vector<uint8_t> blocks_;
  reference::Problem reference_;
  std::vector<double> d_out_;
};

/// Compares the largest errors with those of a naive computation in f32 that rounds P and results to the type. Outputs
/// may have twice the naive error, and gradients three times the naive error.
void ExpectReference(const BlockCase& c, const BlockProblem& problem, const BlockResults& got) {
  const reference::Format format = c.dtype == DType::kF32 ? reference::Format::kF32 : reference::Format::kBF16;
  reference::ForwardResult want = reference::Forward(problem.reference());
  const reference::ForwardResult naive = reference::NaiveForward(problem.reference(), format);
  // Where a row has no keys, the lse is +inf.
  size_t row = 0, empty = 0;
  for (size_t b = 0; b < c.sq.size(); ++b) {
    for (int64_t n = 0; n < kHeads; ++n) {
      for (int64_t i = 0; i < c.sq[b]; ++i, ++row) {
        if (problem.HasKeys(static_cast<int64_t>(b), n, i)) {
          // Each product and each sum of a score is rounded once. The lse itself is rounded once, and 8 units cover the
          // exponential and the logarithm.
          const double unit = 0x1p-24 * (8 + std::fabs(want.lse[row]) + want.magnitudes.score_near[row] * kD);
          EXPECT_NEAR(got.lse[row], want.lse[row], unit) << row;
          continue;
        }
        ++empty;
        EXPECT_EQ(got.lse[row], static_cast<double>(kInfinity)) << row;
        for (int64_t x = 0; x < kDv; ++x) EXPECT_EQ(got.out[row * kDv + static_cast<size_t>(x)], 0);
        for (int64_t x = 0; x < kD; ++x) EXPECT_EQ(got.dq[row * kD + static_cast<size_t>(x)], 0);
      }
    }
  }
  if (c.kept_of_8 == 0) {
    EXPECT_EQ(empty, row);
  }
  EXPECT_LE(LargestError(got.out, want.out), 2 * LargestError(naive.out, want.out));
  // The library's backward takes the forward's rounded output, so the reference takes this output too.
  want.out = got.out;
  const reference::Gradients exact = reference::Backward(problem.reference(), want, problem.d_out());
  reference::ForwardResult rounded = want;
  rounded.out = naive.out;
  const reference::Gradients simple = reference::NaiveBackward(problem.reference(), naive, problem.d_out(), format);
  const reference::Gradients of_naive = reference::Backward(problem.reference(), rounded, problem.d_out());
  EXPECT_LE(LargestError(got.dq, exact.dq), 3 * LargestError(simple.dq, of_naive.dq));
  EXPECT_LE(LargestError(got.dk, exact.dk), 3 * LargestError(simple.dk, of_naive.dk));
  EXPECT_LE(LargestError(got.dv, exact.dv), 3 * LargestError(simple.dv, of_naive.dv));
}

std::vector<BlockCase> BlockCases() {
  std::vector<BlockCase> cases;
  for (const Layout layout : {Layout::kBNSD, Layout::kBSND, Layout::kTND}) {
    cases.push_back({.layout = layout});
    cases.push_back({.layout = layout, .dtype = DType::kBF16, .block_rows = 128, .block_keys = 128});
    cases.push_back({.layout = layout, .block_rows = 7, .block_keys = 200, .mask_batch = 1});
    cases.push_back({.layout = layout, .block_rows = 96, .block_keys = 30, .mask_heads = 2});
    cases.push_back({.layout = layout, .block_rows = 1000, .block_keys = 1, .mask_heads = 1});
    cases.push_back({.layout = layout, .dtype = DType::kBF16, .kept_of_8 = 0});
    cases.push_back({.layout = layout, .kept_of_8 = 1, .sq = {9, 3, 16}, .sk = {700, 1, 130}});  // kernels for few rows
  }
  return cases;
}

TEST(BlockMask, GivesTheReferenceOnEveryLevel) {
  for (const BlockCase& c : BlockCases()) {
    const BlockProblem problem(c);
    for (const Isa isa : IsaLevels()) {
      SCOPED_TRACE(::testing::Message() << c << " " << Name(isa));
      ExpectReference(c, problem, problem.Run(ContextOf(isa)));
    }
  }
}

TEST(BlockMask, BitsDoNotDependOnThreadsOrOnTheLseOfRowsWithoutKeys) {
  for (const BlockCase& c : BlockCases()) {
    SCOPED_TRACE(::testing::Message() << c);
    const BlockProblem problem(c);
    const BlockResults one = problem.Run(ContextOf(DetectIsa(), 1));
    for (const int threads : {2, 7, 0}) {
      EXPECT_TRUE(problem.Run(ContextOf(DetectIsa(), threads)) == one) << threads;
    }
    BlockResults negative = problem.Run(ContextOf(DetectIsa()), -kInfinity);
    for (double& lse : negative.lse) lse = lse == -static_cast<double>(kInfinity) ? -lse : lse;
    EXPECT_TRUE(negative == one);
  }
}

void ExpectEqual(const BlockResults& got, const BlockResults& want) {
  EXPECT_EQ(got.out, want.out);
  EXPECT_EQ(got.lse, want.lse);
  EXPECT_EQ(got.dq, want.dq);
  EXPECT_EQ(got.dk, want.dk);
  EXPECT_EQ(got.dv, want.dv);
}

// Sequences differ in their numbers of rows and keys. So tensors that are not packed have unused rows after a sequence.
TEST(BlockMask, ASequenceHasItsBitsInEveryLayoutAndAlone) {
  std::vector<BlockCase> cases = BlockCases();
  const size_t each = cases.size() / 3;
  for (size_t i = 0; i < each; ++i) {
    SCOPED_TRACE(::testing::Message() << cases[i]);
    const BlockProblem problem(cases[i]);
    const BlockResults want = problem.Run(ContextOf(DetectIsa()));
    for (const size_t other : {i + each, i + 2 * each}) {
      SCOPED_TRACE(Name(cases[other].layout));
      ExpectEqual(BlockProblem(cases[other]).Run(ContextOf(DetectIsa())), want);
    }
    for (size_t b = 0; b < cases[i].sq.size(); ++b) {
      if (cases[i].sq[b] == 0) continue;
      SCOPED_TRACE(b);
      ExpectEqual(problem.Alone(b).Run(ContextOf(DetectIsa())), problem.ResultsOf(want, b));
    }
  }
}

TEST(BlockMask, BlocksThatNoRowKeepsAreNotRead) {
  // Keys of a block that is dropped everywhere hold NaN.
  const Dims shape{1, 1, 256, 16};
  std::vector<float> q(256 * 16, 0.5F), k(512 * 16, 0.25F), out(q.size()), other(q.size());
  std::vector<float> poisoned = k;
  std::fill(poisoned.begin() + 128 * 16, poisoned.begin() + 256 * 16, std::numeric_limits<float>::quiet_NaN());
  const std::vector<uint8_t> blocks = {1, 0, 1, 1, 0, 0, 0, 1};
  const auto mask = PairMaskFromBlocks(View(blocks, {2, 4}), {256, 512, 128, 128});
  ASSERT_TRUE(mask.ok());
  EXPECT_EQ(mask->tiles().full, 4);
  EXPECT_EQ(mask->tiles().empty, 4);
  EXPECT_EQ(mask->tiles().partial, 0);
  AttentionArgs args;
  args.q = View(q.data(), shape);
  args.pair_mask = &*mask;
  args.k = args.v = View(k.data(), {1, 1, 512, 16});
  args.out = View(out.data(), shape);
  ASSERT_TRUE(FlashAttention(args, {}).ok());
  args.k = args.v = View(poisoned.data(), {1, 1, 512, 16});
  args.out = View(other.data(), shape);
  ASSERT_TRUE(FlashAttention(args, {}).ok());
  EXPECT_EQ(out, other);
}

TEST(BlockMask, FusedInferenceRefusesItWithLeftPaddingAndTrees) {
  std::vector<float> q(2 * 16), out(2 * 16, 7), k(4 * 16);
  const std::vector<uint8_t> blocks = {1};
  const auto mask = PairMaskFromBlocks(View(blocks, {1, 1}), {2, 4, 64, 64});
  ASSERT_TRUE(mask.ok());
  const TensorView keys = View(k.data(), {1, 1, 4, 16});
  InferAttentionArgs args;
  args.q = View(q.data(), {1, 1, 2, 16});
  args.k = args.v = {&keys, 1};
  args.out = View(out.data(), {1, 1, 2, 16});
  args.pair_mask = &*mask;
  const int64_t padding = 0, lengths[] = {2};
  args.lengths_q = args.lengths_kv = lengths;
  args.q_padding = {&padding, DType::kI64, {1}, {}};
  EXPECT_EQ(InferAttention(args, {}).message(), "invalid argument: pair_mask: given, want none (q_padding: given)");
  args.kv_padding = args.q_padding;
  args.q_padding = {};
  EXPECT_EQ(InferAttention(args, {}).message(), "invalid argument: pair_mask: given, want none (kv_padding: given)");
  args.kv_padding = {};
  EXPECT_EQ(InferAttention(args, {.sparse_mode = 9}).message(),
            "invalid argument: pair_mask: given, want none (sparse_mode 9)");
  EXPECT_EQ(out, std::vector<float>(2 * 16, 7));
  EXPECT_TRUE(InferAttention(args, {}).ok());
}

}  // namespace
}  // namespace fa::test
