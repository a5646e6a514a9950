// Tests decode of int8 queries. With keys in one tensor, the result is compared with the formula in double. Keys in a
// list or in pages give the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "fa/decode_attention.h"
#include "ops/inference/decode/int8_decode.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"
#include "support/guarded_buffer.h"
#include "support/sanitizer.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

PromptCase Int8Case(DType out, int64_t sq = 1) {
  PromptCase c;
  c.dtype = DType::kI8;
  c.out_dtype = out;
  c.heads = 4;
  c.heads_kv = 2;
  c.batch = 3;
  c.sq = sq;
  c.sk = 83;
  c.d = c.dv = 32;
  c.lengths_kv = {83, 0, 37};
  c.lengths_q = {sq, sq, sq};
  c.deq1 = 1.0F / 2000;
  c.quant2 = 60;
  return c;
}

/// The arguments of a decode call. Tests may change them.
struct Decode {
  explicit Decode(const Int8DecodeProblem& problem)
      : k(problem.args().k.begin(), problem.args().k.end()),
        v(problem.args().v.begin(), problem.args().v.end()),
        args(problem.args()),
        options(problem.options()) {}
  Status Run(Context* context) {
    args.k = k;
    args.v = v;
    return DecodeAttention(args, options, context);
  }

  std::vector<TensorView> k, v;
  DecodeAttentionArgs args;
  DecodeAttentionOptions options;
};

::testing::AssertionResult DecodesLikeTheReference(const PromptCase& c, Context* context) {
  const Int8DecodeProblem problem(c);
  Decode decode(problem);
  const Snapshot before = problem.TakeSnapshot();
  before.Forget();
  const Status status = decode.Run(context);
  if (!status.ok()) return ::testing::AssertionFailure() << status.message();
  if (before.FirstChange() >= 0) return ::testing::AssertionFailure() << "a buffer was overwritten";
  return MatchesExpected(problem.prompt(), problem.prompt().MakeExpected());
}

class DecodeInt8 : public ::testing::TestWithParam<Isa> {
 protected:
  [[nodiscard]] static Context* context() { return ContextOf(GetParam()); }
};

TEST_P(DecodeInt8, EveryHeadSize) {
  for (const int64_t d : {1, 2, 3, 5, 8, 17, 64, 65, 128, 257}) {
    for (const DType out : {DType::kF16, DType::kI8}) {
      PromptCase c = Int8Case(out);
      c.d = d;
      c.dv = d % 2 == 0 ? d : d + 3;
      c.deq1 = 1.0F / (300 * std::sqrt(static_cast<float>(d)));
      EXPECT_TRUE(DecodesLikeTheReference(c, context())) << "d " << d << ", " << Name(out);
    }
  }
}

TEST_P(DecodeInt8, EveryLayoutAndNumberOfRows) {
  for (const Layout layout : {Layout::kBSH, Layout::kBSND, Layout::kBNSD, Layout::kBNSD_BSND}) {
    for (const int64_t sq : {1, 2, 16, 17}) {
      PromptCase c = Int8Case(DType::kF16, sq);
      c.layout = layout;
      c.lengths_q[2] = 1;
      EXPECT_TRUE(DecodesLikeTheReference(c, context())) << Name(layout) << " Sq " << sq;
    }
  }
}

TEST_P(DecodeInt8, MasksBiasesAndScales) {
  PromptCase c = Int8Case(DType::kI8, 3);
  c.mask.mode = 3;
  EXPECT_TRUE(DecodesLikeTheReference(c, context())) << "mask";
  c = Int8Case(DType::kF16, 2);
  c.dense_mask = PromptMask::kHeads;
  c.pse = true;
  EXPECT_TRUE(DecodesLikeTheReference(c, context())) << "dense mask and bias";
  c = Int8Case(DType::kI8);
  // With an offset, the output of a row without keys would not be 0, so every row needs a key.
  c.lengths_kv[1] = 5;
  c.with_offset = c.per_column = c.packed_deq = true;
  c.offset2 = 5.25F;
  c.quant1 = -127;
  EXPECT_TRUE(DecodesLikeTheReference(c, context())) << "scales";
}

TEST_P(DecodeInt8, RandomCases) {
  for (uint64_t seed = 1; seed <= (Sanitized() ? 15 : 60); ++seed) {
    EXPECT_TRUE(DecodesLikeTheReference(RandomInt8DecodeCase(seed), context())) << "seed " << seed;
  }
}

/// Keys or values of layout BNSD, copied into one tensor per sequence or into pages. Rows beyond the lengths are not
/// copied.
class MovedKeys {
 public:
  MovedKeys(const TensorView& from, const std::vector<int64_t>& lengths) : from_(from), lengths_(lengths) {}

  std::vector<TensorView> List() {
    std::vector<TensorView> list;
    for (size_t b = 0; b < lengths_.size(); ++b) {
      const Dims shape{1, from_.shape[1], lengths_[b], from_.shape[3]};
      int8_t* to = Memory(shape);
      for (int64_t n = 0; n < shape[1]; ++n) {
        for (int64_t j = 0; j < shape[2]; ++j) to = CopyRow(static_cast<int64_t>(b), n, j, to);
      }
      list.push_back({memory_.back().data(), DType::kI8, shape, {}});
    }
    return list;
  }

  /// Returns the pages of all sequences. Page p of sequence b is page `table[b][p]`. Rows beyond the length are -128.
  std::vector<TensorView> Pages(int64_t page_rows, const std::vector<std::vector<int32_t>>& table, int64_t pages,
                                bool heads_apart) {
    const int64_t heads = from_.shape[1], size = from_.shape[3];
    const Dims shape = heads_apart ? Dims{pages, heads, page_rows, size} : Dims{pages, page_rows, heads * size};
    int8_t* data = Memory(shape);
    std::fill_n(data, memory_.back().size(), int8_t{-128});
    for (size_t b = 0; b < lengths_.size(); ++b) {
      for (int64_t n = 0; n < heads; ++n) {
        for (int64_t j = 0; j < lengths_[b]; ++j) {
          const int64_t page = table[b][static_cast<size_t>(j / page_rows)], row = j % page_rows;
          const int64_t at = heads_apart ? ((page * heads + n) * page_rows + row) * size
                                         : ((page * page_rows + row) * heads + n) * size;
          CopyRow(static_cast<int64_t>(b), n, j, data + at);
        }
      }
    }
    return {{data, DType::kI8, shape, {}}};
  }

 private:
  int8_t* Memory(const Dims& shape) {
    int64_t size = 1;
    for (int i = 0; i < shape.rank(); ++i) size *= shape[i];
    return memory_.emplace_back(std::max<int64_t>(size, 1)).data();
  }
  int8_t* CopyRow(int64_t b, int64_t n, int64_t j, int8_t* to) const {
    const int64_t heads = from_.shape[1], rows = from_.shape[2], size = from_.shape[3];
    const int64_t at = from_.stride.empty() ? ((b * heads + n) * rows + j) * size
                                            : b * from_.stride[0] + n * from_.stride[1] + j * from_.stride[2];
    std::memcpy(to, static_cast<const int8_t*>(from_.data) + at, static_cast<size_t>(size));
    return to + size;
  }

  TensorView from_;
  std::vector<int64_t> lengths_;
  std::vector<std::vector<int8_t>> memory_;
};

TEST_P(DecodeInt8, EveryFormOfKeysHasTheSameBits) {
  const auto check = [&](int64_t sq) {
    PromptCase c = Int8Case(DType::kF16, sq);
    c.d = 40;
    c.dv = 24;
    const Int8DecodeProblem problem(c);
    Decode decode(problem);
    ASSERT_TRUE(decode.Run(context()).ok());
    const std::vector<double> want = problem.prompt().Outputs();
    ASSERT_TRUE(MatchesExpected(problem.prompt(), problem.prompt().MakeExpected()));
    const auto same_bits = [&](const char* form) {
      const Snapshot before = problem.TakeSnapshot();
      before.Forget();
      const Status status = decode.Run(context());
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(problem.prompt().Outputs(), want) << form << " Sq " << sq;
    };
    MovedKeys k(decode.k[0], c.lengths_kv), v(decode.v[0], c.lengths_kv);
    decode.k = k.List();
    decode.v = v.List();
    same_bits("list");
    for (const int64_t page_rows : {1, 3, 7, 8, 12, 16, 100}) {
      std::vector<std::vector<int32_t>> table(c.lengths_kv.size());
      const int64_t columns = (c.sk + page_rows - 1) / page_rows;
      auto pages = static_cast<int32_t>(columns * c.batch);
      const int64_t all = pages + 1;
      std::vector<int32_t> entries;
      for (auto& row : table) {
        // Pages are used in descending order, and page 0 is unused.
        for (int64_t p = 0; p < columns; ++p) row.push_back(pages--);
        entries.insert(entries.end(), row.begin(), row.end());
      }
      decode.args.block_table = {entries.data(), DType::kI32, {c.batch, columns}, {}};
      for (const bool heads_apart : {false, true}) {
        decode.k = k.Pages(page_rows, table, all, heads_apart);
        decode.v = v.Pages(page_rows, table, all, heads_apart);
        same_bits("pages");
      }
    }
  };
  ForEachCase(check, Axis{"sq", {1, 17}});
}

TEST_P(DecodeInt8, PackedQueriesOverPagesHaveTheSameBits) {
  const PromptCase c = Int8Case(DType::kF16);
  const Int8DecodeProblem problem(c);
  Decode decode(problem);
  ASSERT_TRUE(decode.Run(context()).ok());
  const std::vector<double> want = problem.prompt().Outputs();
  const Snapshot before = problem.TakeSnapshot();
  before.Forget();
  const auto pack = [](auto* view) {
    const Dims stride = view->stride.empty() ? DenseStride(view->shape) : view->stride;
    view->stride = {stride[0], stride[1], 1};
    view->shape = {view->shape[0], view->shape[1], view->shape[3]};
  };
  pack(&decode.args.q);
  pack(&decode.args.out);
  const std::vector<int64_t> cu_q = {1, 2, 3};
  decode.args.lengths_q = {};
  decode.args.cu_q = cu_q;
  decode.options.layout = Layout::kTND;
  const std::vector<int32_t> entries = {4, 5, 0, 1, 2, 3};
  MovedKeys k(decode.k[0], c.lengths_kv), v(decode.v[0], c.lengths_kv);
  decode.k = k.Pages(50, {{4, 5}, {0, 1}, {2, 3}}, 6, false);
  decode.v = v.Pages(50, {{4, 5}, {0, 1}, {2, 3}}, 6, false);
  decode.args.block_table = {entries.data(), DType::kI32, {3, 2}, {}};
  const Status status = decode.Run(context());
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(problem.prompt().Outputs(), want);
}

// Page 0 is unreadable memory. Pages that end before the window have the table entry 0, because none of their rows may
// be read.
TEST_P(DecodeInt8, PagesBeforeAWindowAreNotRead) {
  PromptCase c = Int8Case(DType::kF16);
  c.sk = 200;
  c.lengths_kv = {200, 0, 190};
  c.mask = {.mode = 4, .pre = 20, .next = 0};
  const Int8DecodeProblem problem(c);
  Decode decode(problem);
  ASSERT_TRUE(decode.Run(context()).ok());
  const std::vector<double> want = problem.prompt().Outputs();
  constexpr int64_t kRows = 16, kPages = 7, kColumns = 13;
  const int64_t page_bytes = c.heads_kv * kRows * c.d;
  std::vector<std::vector<int32_t>> table(3, std::vector<int32_t>(kColumns, 0));
  int32_t next = 1;
  for (const size_t b : {0U, 2U}) {
    const int64_t last = c.lengths_kv[b] - 1, first = last - c.mask.pre;
    for (int64_t page = first / kRows; page <= last / kRows; ++page) table[b][static_cast<size_t>(page)] = next++;
  }
  ASSERT_LE(next, kPages);
  GuardedBuffer keys(static_cast<size_t>((kPages - 1) * page_bytes), Place::kAtStart);
  GuardedBuffer values(static_cast<size_t>((kPages - 1) * page_bytes), Place::kAtStart);
  const auto pages_of = [&](const TensorView& from, const GuardedBuffer& to) {
    MovedKeys moved(from, c.lengths_kv);
    const TensorView pages = moved.Pages(kRows, table, kPages, true)[0];
    std::memcpy(to.data(), static_cast<const std::byte*>(pages.data) + page_bytes, to.size());
    return TensorView{to.data() - page_bytes, DType::kI8, pages.shape, {}};
  };
  decode.k = {pages_of(decode.k[0], keys)};
  decode.v = {pages_of(decode.v[0], values)};
  std::vector<int32_t> entries;
  for (const auto& row : table) entries.insert(entries.end(), row.begin(), row.end());
  decode.args.block_table = {entries.data(), DType::kI32, {3, kColumns}, {}};
  const Snapshot before = problem.TakeSnapshot();
  before.Forget();
  const Status status = decode.Run(context());
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(problem.prompt().Outputs(), want);
}

INSTANTIATE_TEST_SUITE_P(Isa, DecodeInt8, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& info) { return IsaName(info.param); });

TEST(DecodeInt8Threads, BitsDoNotDependOnTheirNumber) {
  PromptCase c = Int8Case(DType::kF16, 5);
  c.sk = 700;
  c.lengths_kv = {700, 0, 333};
  const Int8DecodeProblem problem(c);
  Decode decode(problem);
  ASSERT_TRUE(decode.Run(ContextOf(DetectIsa(), 1)).ok());
  const std::vector<double> want = problem.prompt().Outputs();
  for (const int threads : {2, 3}) {
    const Snapshot before = problem.TakeSnapshot();
    before.Forget();
    ASSERT_TRUE(decode.Run(ContextOf(DetectIsa(), threads)).ok());
    EXPECT_EQ(problem.prompt().Outputs(), want) << threads;
  }
}

TEST(DecodeInt8Errors, NameTheArgument) {
  struct Mistake {
    const char* message;
    std::function<void(Decode*)> make;
  };
  static const float kOne = 1;
  const TensorView scale{&kOne, DType::kF32, {1}, {}};
  std::vector<float> floats(12);
  const Mistake mistakes[] = {
      {"deq_scale1: missing, want it (q.dtype=i8)", [](Decode* d) { d->args.deq_scale1 = {}; }},
      {"quant_scale1: missing, want it (q.dtype=i8)", [](Decode* d) { d->args.quant_scale1 = {}; }},
      {"deq_scale2: missing, want it (q.dtype=i8)", [](Decode* d) { d->args.deq_scale2 = {}; }},
      {"quant_scale1.dtype=f16, want f32", [](Decode* d) { d->args.quant_scale1.dtype = DType::kF16; }},
      {"quant_scale2: missing, want it", [](Decode* d) { d->args.out.dtype = DType::kI8; }},
      {"out.dtype=f32, want f16 or i8 (q.dtype=i8)", [](Decode* d) { d->args.out.dtype = DType::kF32; }},
      {"k.dtype=f16, want i8 (q.dtype)", [](Decode* d) { d->k[0].dtype = DType::kF16; }},
      {"antiquant_scale: given, want none", [&](Decode* d) { d->args.antiquant_scale = scale; }},
      {"sink: given, want none (q.dtype=i8)",
       [&](Decode* d) {
         d->args.sink = {floats.data(), DType::kF32, {4}, {}};
       }},
      {"lse: given, want none (q.dtype=i8)",
       [&](Decode* d) {
         d->args.lse = {floats.data(), DType::kF32, {3, 4, 1}, {}};
       }},
      {"softcap=2, want 0 (q.dtype=i8)", [](Decode* d) { d->options.softcap = 2; }},
      {"q.dtype=u8, want f32, f16, bf16 or i8", [](Decode* d) { d->args.q.dtype = DType::kU8; }},
  };
  const Int8DecodeProblem problem(Int8Case(DType::kF16));
  for (const Mistake& mistake : mistakes) {
    Decode decode(problem);
    mistake.make(&decode);
    const Snapshot before = problem.TakeSnapshot();
    const Status status = decode.Run(nullptr);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << mistake.message;
    EXPECT_THAT(status.message(), HasSubstr(mistake.message));
    EXPECT_LT(before.FirstChange(), 0) << mistake.message;
  }
  PromptCase infinite = Int8Case(DType::kF16);
  infinite.deq2 = INFINITY;
  const Int8DecodeProblem broken(infinite);
  EXPECT_THAT(Decode(broken).Run(nullptr).message(), HasSubstr("deq_scale2=inf, want a finite number"));
}

}  // namespace
}  // namespace fa::test
