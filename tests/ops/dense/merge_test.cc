#include "fa/merge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "fa/half.h"
#include "layout/bind_layout.h"
#include "ops/bind/bind_call.h"
#include "reference/merge.h"

namespace fa::test {
namespace {

Result<std::unique_ptr<Context>> ContextOfThreads(int threads) {
  ContextOptions options;
  options.threads = threads;
  return Context::Create(options);
}

constexpr float kInf = std::numeric_limits<float>::infinity();

struct MergeShape {
  Layout layout = Layout::kSBH;
  DType dtype = DType::kF32;
  int64_t batch = 2, heads = 3, rows = 5, d = 8;
  int64_t prev_copies = 1, cur_copies = 1, out_copies = 1;
};

Dims OutShape(const MergeShape& s) {
  switch (s.layout) {
    case Layout::kBSH: return {s.batch, s.rows, s.heads * s.d};
    case Layout::kSBH: return {s.rows, s.batch, s.heads * s.d};
    case Layout::kTND: return {s.rows, s.heads, s.d};
    case Layout::kBNSD: return {s.batch, s.heads, s.rows, s.d};
    default: break;
  }
  return {s.batch, s.rows, s.heads, s.d};
}

Dims StatsShape(const MergeShape& s, int64_t copies) {
  Dims shape = s.layout == Layout::kTND ? Dims{s.rows, s.heads} : Dims{s.batch, s.heads, s.rows};
  if (copies > 1) shape.push_back(copies);
  return shape;
}

float ToFloat(DType dtype, const std::byte* at) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return dtype == DType::kF16 ? F32FromF16(bits) : F32FromBf16(bits);
}

void FromFloat(DType dtype, float value, std::byte* at) {
  if (dtype == DType::kF32) {
    std::memcpy(at, &value, sizeof value);
    return;
  }
  const uint16_t bits = dtype == DType::kF16 ? F16FromF32(value) : Bf16FromF32(value);
  std::memcpy(at, &bits, sizeof bits);
}

// A tensor with its memory.
struct Owned {
  Owned(DType type, Dims dims) : view{nullptr, type, dims, {}} {
    memory.resize(static_cast<size_t>(layout::SpanBytes(view)) + 1, std::byte{0xFF});  // 0xFF is NaN in every type
    view.data = memory.data();
  }
  Owned(const Owned&) = delete;
  [[nodiscard]] float Get(int64_t element) const {
    return ToFloat(view.dtype, memory.data() + element * static_cast<int64_t>(SizeOf(view.dtype)));
  }
  void Set(int64_t element, float value) {
    FromFloat(view.dtype, value, memory.data() + element * static_cast<int64_t>(SizeOf(view.dtype)));
  }

  MutableTensorView view;
  std::vector<std::byte> memory;
};

// A merge of two random partial results. Some rows have no keys in one of them, or in both.
class MergeCase {
 public:
  explicit MergeCase(const MergeShape& s)
      : shape(s),
        prev_out(s.dtype, OutShape(s)),
        cur_out(s.dtype, OutShape(s)),
        out(s.dtype, OutShape(s)),
        prev_max(DType::kF32, StatsShape(s, s.prev_copies)),
        prev_sum(DType::kF32, StatsShape(s, s.prev_copies)),
        cur_max(DType::kF32, StatsShape(s, s.cur_copies)),
        cur_sum(DType::kF32, StatsShape(s, s.cur_copies)),
        softmax_max(DType::kF32, StatsShape(s, s.out_copies)),
        softmax_sum(DType::kF32, StatsShape(s, s.out_copies)) {
    std::mt19937 engine(11);
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<int> kind(0, 9);
    ForEachRow([&](int64_t b, int64_t n, int64_t i) {
      FillPartial(prev_out, prev_max, prev_sum, b, n, i, kind(engine), engine, normal);
      FillPartial(cur_out, cur_max, cur_sum, b, n, i, kind(engine), engine, normal);
    });
    options.layout = s.layout;
    args = {prev_out.view, cur_out.view, prev_max.view,    cur_max.view,    prev_sum.view,
            cur_sum.view,  out.view,     softmax_max.view, softmax_sum.view};
  }

  template <typename Visit>
  void ForEachRow(Visit visit) const {
    const int64_t batch = shape.layout == Layout::kTND ? 1 : shape.batch;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t n = 0; n < shape.heads; ++n) {
        for (int64_t i = 0; i < shape.rows; ++i) visit(b, n, i);
      }
    }
  }
  [[nodiscard]] int64_t RowAt(const Owned& tensor, int64_t b, int64_t n, int64_t i) const {
    const layout::Axes axes = layout::AxesOf(layout::OutputLayout(shape.layout));
    return layout::RowsOf(tensor.view, axes, shape.d).Offset(b, n, i);
  }
  [[nodiscard]] layout::Stats StatsOf(const Owned& tensor) const {
    return layout::StatsOf(tensor.view, shape.layout == Layout::kTND);
  }
  [[nodiscard]] float Stat(const Owned& tensor, int64_t b, int64_t n, int64_t i) const {
    return tensor.Get(StatsOf(tensor).Offset(b, n, i));
  }
  [[nodiscard]] Status Merge(Context* context = nullptr) const { return MergePartials(args, options, context); }

  MergeShape shape;
  Owned prev_out, cur_out, out, prev_max, prev_sum, cur_max, cur_sum, softmax_max, softmax_sum;
  MergeArgs args;
  MergeOptions options;

 private:
  void FillPartial(Owned& values, Owned& max, Owned& sum, int64_t b, int64_t n, int64_t i, int kind,
                   std::mt19937& engine, std::normal_distribution<float>& normal) const {
    const float row_max = kind == 0 ? -FLT_MAX : kind == 1 ? 0.0f : 5 * normal(engine);
    const float row_sum = kind == 0 ? FLT_MAX : kind == 1 ? 0.0f : 1 + std::fabs(10 * normal(engine));
    const layout::Stats stats = StatsOf(max);
    for (int64_t copy = 0; copy < stats.copies; ++copy) {
      max.Set(stats.Offset(b, n, i) + copy * stats.copy_stride, row_max);
      sum.Set(stats.Offset(b, n, i) + copy * stats.copy_stride, row_sum);
    }
    for (int64_t d = 0; d < shape.d; ++d) values.Set(RowAt(values, b, n, i) + d, kind <= 1 ? 0.0f : normal(engine));
  }
};

using Row = reference::PartialRow;

Row Partial(const MergeCase& c, const Owned& out, const Owned& max, const Owned& sum, int64_t b, int64_t n, int64_t i) {
  Row row{{}, c.Stat(max, b, n, i), c.Stat(sum, b, n, i)};
  for (int64_t d = 0; d < c.shape.d; ++d) row.out.push_back(out.Get(c.RowAt(out, b, n, i) + d));
  return row;
}

double RoundingUnit(DType dtype) { return dtype == DType::kF32 ? 0x1p-24 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-8; }

// Returns the tolerance of an output that merges the partial outputs op and oc; `magnitude` is |op| + |oc|. Each factor
// exp(x) is off by 2 ulp, and by the rounding of x (|x| <= 50 here). A product, a sum and a quotient follow, so the
// error is under 64 f32 units of `magnitude`. Rounding to the output type adds to this bound, with half the smallest
// subnormal of f16.
double Tolerance(DType dtype, double magnitude, double value) {
  return 64 * 0x1p-24 * magnitude + (dtype == DType::kF32 ? 0 : RoundingUnit(dtype) * std::fabs(value) + 0x1p-25);
}

void ExpectMergedRows(const MergeCase& c, const Owned& prev_out, const Owned& prev_max, const Owned& prev_sum,
                      const Owned& out, const Owned& max, const Owned& sum) {
  int absent = 0;
  c.ForEachRow([&](int64_t b, int64_t n, int64_t i) {
    const Row prev = Partial(c, prev_out, prev_max, prev_sum, b, n, i);
    const Row cur = Partial(c, c.cur_out, c.cur_max, c.cur_sum, b, n, i);
    const Row want = reference::Merge(prev, cur);
    const bool exact = prev.absent() || cur.absent();
    absent += exact;
    const layout::Stats stats = c.StatsOf(max);
    for (int64_t copy = 0; copy < stats.copies; ++copy) {
      const int64_t at = stats.Offset(b, n, i) + copy * stats.copy_stride;
      EXPECT_EQ(max.Get(at), want.max);
      EXPECT_NEAR(sum.Get(at), want.sum, exact ? 0 : 64 * 0x1p-24 * want.sum);
    }
    for (size_t d = 0; d < want.out.size(); ++d) {
      const double got = out.Get(c.RowAt(out, b, n, i) + static_cast<int64_t>(d));
      const double magnitude = std::fabs(prev.out[d]) + std::fabs(cur.out[d]);
      EXPECT_NEAR(got, want.out[d], exact ? 0 : Tolerance(c.shape.dtype, magnitude, want.out[d]))
          << b << " " << n << " " << i << " " << d;
    }
  });
  EXPECT_GT(absent, 0);
}

class EveryLayoutAndType : public ::testing::TestWithParam<std::tuple<Layout, DType>> {
 protected:
  static MergeShape Shape() {
    return {.layout = std::get<0>(GetParam()),
            .dtype = std::get<1>(GetParam()),
            .batch = 3,
            .heads = 4,
            .rows = 9,
            .d = 11};
  }
};

TEST_P(EveryLayoutAndType, AgreesWithTheDoubleReference) {
  const MergeCase c(Shape());
  const Status status = c.Merge();
  ASSERT_TRUE(status.ok()) << status.message();
  ExpectMergedRows(c, c.prev_out, c.prev_max, c.prev_sum, c.out, c.softmax_max, c.softmax_sum);
}

TEST_P(EveryLayoutAndType, EightCopiesAreReadOnceAndAllWritten) {
  MergeShape shape = Shape();
  shape.prev_copies = shape.out_copies = 8;
  const MergeCase c(shape);
  const Status status = c.Merge();
  ASSERT_TRUE(status.ok()) << status.message();
  ExpectMergedRows(c, c.prev_out, c.prev_max, c.prev_sum, c.out, c.softmax_max, c.softmax_sum);
}

TEST_P(EveryLayoutAndType, OutputsMayReplaceThePreviousPartial) {
  MergeCase in_place(Shape());
  const MergeCase apart(Shape());
  in_place.args.out = in_place.prev_out.view;
  in_place.args.softmax_max = in_place.prev_max.view;
  in_place.args.softmax_sum = in_place.prev_sum.view;
  ASSERT_TRUE(in_place.Merge().ok());
  ASSERT_TRUE(apart.Merge().ok());
  EXPECT_EQ(in_place.prev_out.memory, apart.out.memory);
  EXPECT_EQ(in_place.prev_max.memory, apart.softmax_max.memory);
  EXPECT_EQ(in_place.prev_sum.memory, apart.softmax_sum.memory);
}

INSTANTIATE_TEST_SUITE_P(Merge, EveryLayoutAndType,
                         ::testing::Combine(::testing::Values(Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH,
                                                              Layout::kTND, Layout::kBNSD_BSND),
                                            ::testing::Values(DType::kF32, DType::kF16, DType::kBF16)),
                         [](const auto& info) {
                           return std::string(Name(std::get<0>(info.param))) + "_" + Name(std::get<1>(info.param));
                         });

TEST(Merge, BitsDoNotDependOnTheNumberOfThreads) {
  const MergeShape shape = {
      .layout = Layout::kBSND, .dtype = DType::kBF16, .batch = 2, .heads = 7, .rows = 300, .d = 64};
  const MergeCase one(shape);
  const auto serial = ContextOfThreads(1);
  ASSERT_TRUE(serial.ok());
  ASSERT_TRUE(one.Merge(serial->get()).ok());
  for (const int threads : {2, 3, 8}) {
    const MergeCase many(shape);
    const auto context = ContextOfThreads(threads);
    ASSERT_TRUE(context.ok());
    ASSERT_TRUE(many.Merge(context->get()).ok());
    EXPECT_EQ(many.out.memory, one.out.memory);
    EXPECT_EQ(many.softmax_sum.memory, one.softmax_sum.memory);
  }
}

TEST(Merge, StatisticsMayHaveAnyStrides) {
  const MergeShape shape = {.layout = Layout::kSBH, .batch = 2, .heads = 3, .rows = 5, .d = 4};
  const MergeCase plain(shape);
  MergeCase strided(shape);
  std::vector<float> max(100, -1.0f);
  strided.args.softmax_max = {max.data(), DType::kF32, {2, 3, 5}, {1, 2, 10}};
  ASSERT_TRUE(plain.Merge().ok());
  ASSERT_TRUE(strided.Merge().ok()) << strided.Merge().message();
  plain.ForEachRow([&](int64_t b, int64_t n, int64_t i) {
    EXPECT_EQ(max[static_cast<size_t>(b + 2 * n + 10 * i)], plain.Stat(plain.softmax_max, b, n, i));
  });
  EXPECT_EQ(max[6], -1.0f);
}

TEST(Merge, AbsentPartialIsNotLookedAt) {
  // The result has the bits of the other partial, whatever the partial without keys contains.
  MergeCase c({.batch = 1, .heads = 1, .rows = 2, .d = 2});
  for (int64_t i = 0; i < 4; ++i) {
    c.prev_out.Set(i, std::numeric_limits<float>::quiet_NaN());
    c.cur_out.Set(i, 0.1f * static_cast<float>(i));
  }
  c.prev_max.Set(0, -FLT_MAX);
  c.prev_sum.Set(0, FLT_MAX);
  c.prev_max.Set(1, 3);
  c.prev_sum.Set(1, 0);
  for (int64_t i = 0; i < 2; ++i) {
    c.cur_max.Set(i, -2);
    c.cur_sum.Set(i, 1.5f);
  }
  ASSERT_TRUE(c.Merge().ok());
  EXPECT_EQ(c.out.memory, c.cur_out.memory);
  EXPECT_EQ(c.softmax_max.memory, c.cur_max.memory);
  EXPECT_EQ(c.softmax_sum.memory, c.cur_sum.memory);
}

TEST(Merge, NaNAndInfinityPropagate) {
  MergeCase c({.batch = 1, .heads = 1, .rows = 3, .d = 1});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int64_t i = 0; i < 3; ++i) {
    for (Owned* tensor : {&c.prev_out, &c.prev_max, &c.prev_sum, &c.cur_out, &c.cur_max, &c.cur_sum}) {
      tensor->Set(i, 1.0f);
    }
  }
  c.prev_max.Set(0, nan);
  c.cur_max.Set(1, nan);
  c.cur_out.Set(2, kInf);
  ASSERT_TRUE(c.Merge().ok());
  EXPECT_TRUE(std::isnan(c.softmax_max.Get(0)));
  EXPECT_TRUE(std::isnan(c.out.Get(0)));
  EXPECT_TRUE(std::isnan(c.softmax_max.Get(1)));
  EXPECT_TRUE(std::isnan(c.out.Get(1)));
  EXPECT_EQ(c.out.Get(2), kInf);
  EXPECT_EQ(c.softmax_max.Get(2), 1.0f);
}

// A row's infinite sink is the row's maximum and takes all the weight, so the row's output is 0.
TEST(Merge, OfRowsWithAnInfiniteSink) {
  MergeCase c({.batch = 1, .heads = 1, .rows = 4, .d = 1});
  for (Owned* tensor : {&c.prev_out, &c.cur_out}) {
    for (int64_t i = 0; i < 4; ++i) tensor->Set(i, 0.0f);
  }
  for (Owned* tensor : {&c.prev_max, &c.prev_sum, &c.cur_max, &c.cur_sum}) {
    for (int64_t i = 0; i < 4; ++i) tensor->Set(i, 1.0f);
  }
  c.prev_max.Set(0, kInf);
  c.cur_out.Set(0, 5.0f);
  c.cur_max.Set(1, kInf);
  c.prev_out.Set(1, 5.0f);
  c.prev_max.Set(2, kInf);
  c.cur_max.Set(2, kInf);
  c.prev_max.Set(3, -kInf);
  c.cur_max.Set(3, -kInf);
  ASSERT_TRUE(c.Merge().ok());
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(c.out.Get(i), 0.0f) << i;
    EXPECT_EQ(c.softmax_max.Get(i), i == 3 ? -kInf : kInf) << i;
    EXPECT_EQ(c.softmax_sum.Get(i), i < 2 ? 1.0f : 2.0f) << i;
  }
}

TEST(Merge, EmptyTensorsAreMergedToNothing) {
  MergeCase c({.batch = 2, .heads = 3, .rows = 0, .d = 4});
  EXPECT_TRUE(c.Merge().ok()) << c.Merge().message();
}

TEST(Merge, NamesTheWrongTensor) {
  const MergeShape shape = {.batch = 2, .heads = 3, .rows = 5, .d = 4};
  const auto refused = [&](auto spoil, const std::string& text) {
    MergeCase c(shape);
    spoil(c);
    EXPECT_TRUE(Refused(c.Merge(), text));
  };
  refused([](MergeCase& c) { c.args.cur_out = {}; }, "cur_out: missing");
  refused([](MergeCase& c) { c.args.prev_sum.data = nullptr; }, "prev_sum: null data");
  refused([](MergeCase& c) { c.args.softmax_max = {}; }, "softmax_max: missing");
  refused([](MergeCase& c) { c.args.cur_out.dtype = DType::kF16; }, "cur_out.dtype=f16, want f32 (prev_out.dtype)");
  refused([](MergeCase& c) { c.args.prev_out.dtype = DType::kI32; }, "prev_out.dtype=i32, want f32, f16 or bf16");
  refused([](MergeCase& c) { c.args.out.shape[2] = 11; }, "out.shape[2]=11, want 12 (prev_out.shape[2])");
  refused([](MergeCase& c) { c.args.prev_out.shape = {5, 24}; }, "prev_out.shape=[5,24], want 3 dimensions (SBH)");
  refused([](MergeCase& c) { c.options.heads = 5; }, "prev_out.shape[2]=12, want a multiple of 5 (heads)");
  refused([](MergeCase& c) { c.options.heads = 4; }, "prev_max.shape[1]=3, want 4 (heads)");
  refused([](MergeCase& c) { c.options.heads = -1; }, "heads=-1, want >= 1");
  refused([](MergeCase& c) { c.args.cur_sum.shape = {2, 3, 4}; }, "cur_sum.shape[2]=4, want 5 (prev_out.shape[0])");
  refused([](MergeCase& c) { c.args.cur_sum.shape = {2, 3, 5, 4}; }, "cur_sum.shape[3]=4, want 8");
  refused([](MergeCase& c) { c.args.cur_sum.shape = {30}; }, "cur_sum.shape=[30], want [B,N,S] or [B,N,S,8]");
  refused([](MergeCase& c) { c.args.cur_max.dtype = DType::kF16; }, "cur_max.dtype=f16, want f32");
  refused([](MergeCase& c) { c.options.layout = static_cast<Layout>(17); }, "layout=17, want BNSD");
}

TEST(Merge, OutputsShareNothingButWhatTheyReplace) {
  const MergeShape shape = {.batch = 2, .heads = 3, .rows = 5, .d = 4};
  MergeCase c(shape);
  c.args.out.data = c.cur_out.view.data;
  EXPECT_TRUE(Refused(c.Merge(), "out: shares memory with cur_out"));
  c.args.out = c.out.view;
  c.args.softmax_max = c.prev_sum.view;
  EXPECT_TRUE(Refused(c.Merge(), "softmax_max: shares memory with prev_sum"));
  c.args.softmax_max = c.args.softmax_sum;
  EXPECT_TRUE(Refused(c.Merge(), "softmax_sum: shares memory with softmax_max"));
  c.args.softmax_max = c.softmax_max.view;
  c.args.out.stride = {24, 0, 1};
  EXPECT_TRUE(Refused(c.Merge(), "out.stride=[24,0,1], want strides that keep its elements apart"));
  // With these strides, an output row would overwrite previous rows that the merge reads later.
  c.args.out = c.prev_out.view;
  c.args.out.stride = {12, 60, 1};
  EXPECT_TRUE(Refused(c.Merge(), "out: shares memory with prev_out"));
}

}  // namespace
}  // namespace fa::test
