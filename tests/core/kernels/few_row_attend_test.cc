// Compares `attend` of few rows, one kernel that computes scores, softmax and product, with computations in double.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "core/kernels/kernel_fixture.h"
#include "support/guarded_buffer.h"

namespace fa::core::kernels {
namespace {

/// A level, a type of keys and a number of rows. The level has a kernel `attend` for them.
struct Attending {
  Isa isa;
  int64_t rows;
  DType dtype;
};

constexpr Attending kAttending[] = {
    {Isa::kAvx2, 1, DType::kF32},        {Isa::kAvx2, 2, DType::kF32},        {Isa::kAvx2, 4, DType::kF32},
    {Isa::kAvx2, 8, DType::kF32},        {Isa::kAvx2, 1, DType::kF16},        {Isa::kAvx2, 2, DType::kF16},
    {Isa::kAvx2, 4, DType::kF16},        {Isa::kAvx2, 8, DType::kF16},        {Isa::kAvx2, 1, DType::kBF16},
    {Isa::kAvx2, 2, DType::kBF16},       {Isa::kAvx2, 4, DType::kBF16},       {Isa::kAvx2, 8, DType::kBF16},
    {Isa::kAvx512Bf16, 1, DType::kF32},  {Isa::kAvx512Bf16, 2, DType::kF32},  {Isa::kAvx512Bf16, 4, DType::kF32},
    {Isa::kAvx512Bf16, 1, DType::kF16},  {Isa::kAvx512Bf16, 2, DType::kF16},  {Isa::kAvx512Bf16, 1, DType::kBF16},
    {Isa::kAvx512Bf16, 2, DType::kBF16}, {Isa::kAvx512Bf16, 4, DType::kBF16}, {Isa::kAvx512Bf16, 8, DType::kBF16}};

std::string Name(const Attending& attending) {
  return std::string(Name(attending.isa)) + "_" + std::to_string(attending.rows) + "_" + Name(attending.dtype);
}

/// @return all kernels of a level that have the function `attend` for keys of type `dtype`
std::vector<const StripKernels*> KernelsFor(Isa isa, DType dtype) {
  const KernelTable& table = Kernels(isa, dtype);
  std::vector<const StripKernels*> all;
  for (int i = 0; i < table.few_count; ++i) {
    if (table.few[i].AttendsTo(dtype, 128, 128)) all.push_back(&table.few[i]);
  }
  return all;
}

/// Random rows of numbers that the type holds exactly, with NaN between and around the rows.
struct Rows {
  Rows(int64_t rows, int64_t columns, int64_t row_stride, DType of, uint32_t seed)
      : stride(row_stride), dtype(of), bytes(static_cast<size_t>(rows * stride + 64) * SizeOf(of), std::byte{0xff}) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) Set(r, c, normal(random));
    }
  }
  void Set(int64_t row, int64_t column, float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    uint32_t element = bits;
    if (dtype == DType::kBF16) element = bits >> 16;
    if (dtype == DType::kF16) {
      // Rounds towards zero; a number that would be subnormal becomes 0.
      const uint32_t exponent = bits >> 23 & 0xff, sign = bits >> 16 & 0x8000;
      element = exponent < 113    ? sign
                : exponent == 255 ? sign | 0x7c00
                                  : sign | (exponent - 112) << 10 | (bits >> 13 & 0x3ff);
    }
    std::memcpy(bytes.data() + static_cast<size_t>(row * stride + column) * SizeOf(dtype), &element, SizeOf(dtype));
  }
  [[nodiscard]] double at(int64_t row, int64_t column) const {
    uint32_t element = 0;
    std::memcpy(&element, bytes.data() + static_cast<size_t>(row * stride + column) * SizeOf(dtype), SizeOf(dtype));
    if (dtype == DType::kBF16) element <<= 16;
    if (dtype == DType::kF16) {
      const uint32_t exponent = element >> 10 & 0x1f, sign = (element & 0x8000) << 16;
      element = exponent == 0 ? sign : sign | (exponent + 112) << 23 | (element & 0x3ff) << 13;
    }
    return std::bit_cast<float>(element);
  }
  [[nodiscard]] const std::byte* row(int64_t row) const {
    return bytes.data() + static_cast<size_t>(row * stride) * SizeOf(dtype);
  }
  [[nodiscard]] RowBlock From(int64_t first) const { return {row(first), dtype, stride}; }

  int64_t stride;
  DType dtype;
  std::vector<std::byte> bytes;
};

constexpr float kFactor = 0.125f * 1.44269504f;

/// Numbers of columns of a head. Kernels have specialised loops for some of the pairs. Rows of V are as long as rows of
/// K, longer or shorter.
struct HeadColumns {
  int64_t d, dv;
};
constexpr HeadColumns kHeadColumns[] = {{64, 64},  {128, 128}, {256, 256}, {96, 96}, {64, 96},
                                        {96, 160}, {128, 32},  {64, 32},   {96, 32}, {256, 128}};

class FewRowAttendTest : public testing::TestWithParam<Attending> {
 protected:
  void SetUp() override {
    if (!Includes(DetectIsa(), GetParam().isa)) GTEST_SKIP() << "this CPU lacks " << Name(GetParam().isa);
    for (const StripKernels* each : KernelsFor(GetParam().isa, dtype())) {
      if (each->rows == GetParam().rows) kernels_ = each;
    }
    ASSERT_NE(kernels_, nullptr);
  }
  [[nodiscard]] const StripKernels& kernels() const { return *kernels_; }
  static DType dtype() { return GetParam().dtype; }
  static int64_t rows() { return GetParam().rows; }

  [[nodiscard]] std::vector<float> Pack(const Rows& q, int64_t d, float sign) const {
    std::vector<const void*> at;
    for (int64_t row = 0; row < rows(); ++row) at.push_back(q.row(row));
    std::vector<float> panel(static_cast<size_t>(d * kernels().width), kNan);
    kernels().pack_queries({at.data(), dtype(), rows()}, d, sign, panel.data());
    return panel;
  }
  void Attend(const RowBlock& k, const RowBlock& v, int64_t keys, const std::vector<float>& panel, int64_t d,
              int64_t dv, bool started, State& state, bool brings = false) const {
    kernels().few_rows.attend({.k = k,
                               .v = v,
                               .keys = keys,
                               .panel = panel.data(),
                               .d = d,
                               .dv = dv,
                               .factor = kFactor,
                               .row_max = state.row_max.data(),
                               .row_sum = state.row_sum.data(),
                               .o = state.o.data(),
                               .started = started,
                               .brings = brings});
  }

 private:
  const StripKernels* kernels_ = nullptr;
};

/// @return the entries to test. If this CPU lacks a level, only the level's first entry is listed, and its test is
///         skipped.
std::vector<Attending> Tested() {
  std::vector<Attending> tested;
  for (const Attending& each : kAttending) {
    const bool first = tested.empty() || tested.back().isa != each.isa;
    if (first || Includes(DetectIsa(), each.isa)) tested.push_back(each);
  }
  return tested;
}

INSTANTIATE_TEST_SUITE_P(Rows, FewRowAttendTest, testing::ValuesIn(Tested()),
                         [](const auto& info) { return Name(info.param); });

class FewRowAttendLevelTest : public testing::TestWithParam<Isa> {};

INSTANTIATE_TEST_SUITE_P(Levels, FewRowAttendLevelTest, testing::Values(Isa::kAvx2, Isa::kAvx512Bf16),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(FewRowAttendLevelTest, AttendsToTheRowsAndTypesThatAreTested) {
  const Isa isa = GetParam();
  if (!Includes(DetectIsa(), isa)) GTEST_SKIP() << "this CPU lacks " << Name(isa);
  std::vector<std::string> names, expected;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const StripKernels* each : KernelsFor(isa, dtype)) names.push_back(Name({isa, each->rows, dtype}));
  }
  for (const Attending& attending : kAttending) {
    if (attending.isa == isa) expected.push_back(Name(attending));
  }
  EXPECT_EQ(names, expected);
}

TEST_P(FewRowAttendTest, EqualsTheDoubleSoftmaxWhereverTheKeysAreCut) {
  for (const int64_t keys : {1, 2, 3, 5, 8, 9, 31, 32, 33, 63, 64, 65, 160}) {
    for (const int64_t d : {32, 64, 96, 128, 256}) {
      const int64_t dv = d == 96 ? 160 : d == 32 ? 96 : d;
      if (!kernels().AttendsTo(dtype(), d, dv)) continue;
      const bool pairs = kernels().attended.pairs;
      const Rows q(rows(), d, d + 3, dtype(), 2), k(keys, d, d + 5, dtype(), 3), v(keys, dv, dv + 7, dtype(), 4);
      const std::vector<float> panel = Pack(q, d, -1);
      for (const int64_t cut : {int64_t{0}, int64_t{8}}) {
        if (cut >= keys) continue;
        State state(kernels(), dv);
        if (cut > 0) Attend(k.From(0), v.From(0), cut, panel, d, dv, false, state);
        Attend(k.From(cut), v.From(cut), keys - cut, panel, d, dv, cut > 0, state);
        ASSERT_TRUE(state.o.Intact());
        for (int64_t row = 0; row < rows(); ++row) {
          std::vector<double> score(static_cast<size_t>(keys));
          double max = -kInf, magnitude = 0, sum = 0;
          for (int64_t key = 0; key < keys; ++key) {
            double s = 0, size = 0;
            for (int64_t c = 0; c < d; ++c) {
              s -= q.at(row, c) * k.at(key, c);
              size += std::fabs(q.at(row, c) * k.at(key, c));
            }
            score[static_cast<size_t>(key)] = s;
            max = std::max(max, s);
            magnitude = std::max(magnitude, size);
          }
          // Each addition in a score is off by one ulp of a partial sum. If the exponent is off by e, the probability
          // changes by at most e times itself.
          const double score_error = kEps * static_cast<double>(d + 1) * magnitude;
          // Kernels of pairs compute the exponential by a shorter polynomial. The exponential of other kernels is off
          // by 2 ulp, and its argument and its factor are rounded too.
          const double p_error = 2 * kFactor * score_error + (pairs ? 4e-6 : 4 * kEps);
          ASSERT_NEAR(state.row_max[static_cast<size_t>(row)], max, score_error);
          for (double& s : score) sum += s = std::exp2(kFactor * (s - max));
          ASSERT_NEAR(state.row_sum[static_cast<size_t>(row)], sum, (p_error + kEps * static_cast<double>(keys)) * sum);
          for (int64_t c = 0; c < dv; ++c) {
            double want = 0, size = 0;
            for (int64_t key = 0; key < keys; ++key) {
              want += score[static_cast<size_t>(key)] * v.at(key, c);
              size += std::fabs(score[static_cast<size_t>(key)] * v.at(key, c));
            }
            // Kernels of pairs round each probability to bf16, which changes it by at most 2^-8 of itself.
            const double rounding = pairs ? 0x1p-8 : 0;
            ASSERT_NEAR(state.o.at(row, c), want, (rounding + p_error + kEps * static_cast<double>(keys + 2)) * size)
                << "keys " << keys << " cut " << cut << " d " << d << " row " << row << " column " << c;
          }
        }
      }
    }
  }
}

TEST_P(FewRowAttendTest, RowsByAddressHaveTheBitsOfRowsInTheirOrder) {
  for (const HeadColumns& heads : kHeadColumns) {
    const auto [d, dv] = heads;
    if (!kernels().AttendsTo(dtype(), d, dv)) continue;
    for (const int64_t keys : {1, 33, 100}) {
      const Rows q(rows(), d, d, dtype(), 5), k(keys, d, d + 1, dtype(), 6), v(keys, dv, dv + 2, dtype(), 7);
      const std::vector<float> panel = Pack(q, d, 1);
      std::vector<const void*> k_rows, v_rows;
      for (int64_t key = 0; key < keys; ++key) {
        k_rows.push_back(k.row(key));
        v_rows.push_back(v.row(key));
      }
      RowBlock k_by_address{.dtype = dtype()}, v_by_address{.dtype = dtype()};
      constexpr int64_t kAhead = 5;
      k_rows.resize(k_rows.size() + kAhead, k.row(0));
      v_rows.resize(v_rows.size() + kAhead, v.row(0));
      k_by_address.fetch_ahead = v_by_address.fetch_ahead = kAhead;
      k_by_address.rows = k_rows.data();
      v_by_address.rows = v_rows.data();
      State in_order(kernels(), dv), by_address(kernels(), dv);
      Attend(k.From(0), v.From(0), keys, panel, d, dv, false, in_order);
      Attend(k_by_address, v_by_address, keys, panel, d, dv, false, by_address);
      EXPECT_TRUE(in_order == by_address) << keys << " keys of " << d << " and " << dv << " columns";
      State brought(kernels(), dv);
      Attend(k.From(0), v.From(0), keys, panel, d, dv, false, brought, true);
      EXPECT_TRUE(in_order == brought) << keys << " keys of " << d << " and " << dv << " columns";
    }
  }
}

const void* const* ListOf(const test::GuardedBuffer& list) { return reinterpret_cast<const void* const*>(list.data()); }

// Reading the byte after the last row would be a fault. So would reading the rows that kernels only fetch ahead, and
// the bytes after the lists of addresses. Rows of V may be shorter than rows of K.
TEST_P(FewRowAttendTest, ReadsNothingPastTheLastRow) {
  constexpr int64_t kAhead = AttendArgs::kMostStep;
  for (const HeadColumns& heads : kHeadColumns) {
    const auto [d, dv] = heads;
    if (!kernels().AttendsTo(dtype(), d, dv)) continue;
    const Rows q(rows(), d, d, dtype(), 12);
    const std::vector<float> panel = Pack(q, d, 1);
    for (const int64_t keys : {1, 3, 15, 17, 33, 70}) {
      const Rows k(keys, d, d, dtype(), 13), v(keys, dv, dv, dtype(), 14);
      const size_t k_bytes = static_cast<size_t>(keys * d) * SizeOf(dtype()),
                   v_bytes = static_cast<size_t>(keys * dv) * SizeOf(dtype());
      const test::GuardedBuffer k_alone(k_bytes, test::Place::kAtEnd), v_alone(v_bytes, test::Place::kAtEnd);
      std::memcpy(k_alone.data(), k.row(0), k_bytes);
      std::memcpy(v_alone.data(), v.row(0), v_bytes);
      State want(kernels(), dv), in_order(kernels(), dv), by_address(kernels(), dv);
      Attend(k.From(0), v.From(0), keys, panel, d, dv, false, want);
      Attend({k_alone.data(), dtype(), d}, {v_alone.data(), dtype(), dv}, keys, panel, d, dv, false, in_order);
      EXPECT_TRUE(in_order == want) << keys << " keys of " << d << " and " << dv << " columns";
      std::vector<const void*> k_rows, v_rows;
      for (int64_t key = 0; key < keys + kAhead; ++key) {
        k_rows.push_back(k_alone.data() + std::min(static_cast<size_t>(key * d) * SizeOf(dtype()), k_bytes));
        v_rows.push_back(v_alone.data() + std::min(static_cast<size_t>(key * dv) * SizeOf(dtype()), v_bytes));
      }
      const test::GuardedBuffer k_list(k_rows.size() * sizeof(void*), test::Place::kAtEnd),
          v_list(v_rows.size() * sizeof(void*), test::Place::kAtEnd);
      std::memcpy(k_list.data(), k_rows.data(), k_rows.size() * sizeof(void*));
      std::memcpy(v_list.data(), v_rows.data(), v_rows.size() * sizeof(void*));
      const RowBlock k_by_address{.dtype = dtype(), .fetch_ahead = kAhead, .rows = ListOf(k_list)};
      const RowBlock v_by_address{.dtype = dtype(), .fetch_ahead = kAhead, .rows = ListOf(v_list)};
      Attend(k_by_address, v_by_address, keys, panel, d, dv, false, by_address);
      EXPECT_TRUE(by_address == want) << keys << " keys by address of " << d << " and " << dv << " columns";
      State brought(kernels(), dv), brought_by_address(kernels(), dv);
      Attend({k_alone.data(), dtype(), d}, {v_alone.data(), dtype(), dv}, keys, panel, d, dv, false, brought, true);
      EXPECT_TRUE(brought == want) << keys << " keys of " << d << " and " << dv << " columns";
      Attend(k_by_address, v_by_address, keys, panel, d, dv, false, brought_by_address, true);
      EXPECT_TRUE(brought_by_address == want) << keys << " keys by address of " << d << " and " << dv << " columns";
    }
  }
}

TEST_P(FewRowAttendTest, OneKeyGivesItsRowOfV) {
  constexpr int64_t kD = 64;
  for (uint32_t seed = 30; seed < 40; ++seed) {
    const Rows q(rows(), kD, kD, dtype(), seed), k(1, kD, kD, dtype(), 100 + seed), v(1, kD, kD, dtype(), 200 + seed);
    State state(kernels(), kD);
    Attend(k.From(0), v.From(0), 1, Pack(q, kD, 1), kD, kD, false, state);
    // In kernels of pairs, the exponent has a rounding error of half an ulp of the score. All scores are below 64.
    const double error = kernels().attended.pairs ? 64 * kEps : 0;
    for (int64_t row = 0; row < rows(); ++row) {
      ASSERT_LT(std::fabs(state.row_max[static_cast<size_t>(row)]), 64);
      EXPECT_NEAR(state.row_sum[static_cast<size_t>(row)], 1, error);
      for (int64_t c = 0; c < kD; ++c) EXPECT_EQ(state.o.at(row, c), v.at(0, c)) << row << " " << c;
    }
  }
}

TEST_P(FewRowAttendTest, AProbabilityThatWouldBeSubnormalIsZero) {
  constexpr int64_t kD = 32, kKeys = 2;
  Rows q(rows(), kD, kD, dtype(), 15), k(kKeys, kD, kD, dtype(), 16), v(kKeys, kD, kD, dtype(), 17);
  for (int64_t c = 0; c < kD; ++c) {
    for (int64_t row = 0; row < rows(); ++row) q.Set(row, c, c == 0 ? 64.0f : 0.0f);
    k.Set(0, c, 0);
    k.Set(1, c, c == 0 ? -11.0f : 0.0f);  // this key's probability is 2^(kFactor * 64 * -11) = 2^-126.96
    v.Set(0, c, 0);
    v.Set(1, c, 65504.0f);
  }
  State state(kernels(), kD);
  Attend(k.From(0), v.From(0), kKeys, Pack(q, kD, 1), kD, kD, false, state);
  for (int64_t row = 0; row < rows(); ++row) EXPECT_EQ(state.o.at(row, 0), 0.0f);
}

TEST_P(FewRowAttendTest, ARowWithoutFiniteScoresSpoilsNoOther) {
  constexpr int64_t kD = 64, kKeys = 40;
  const Rows q(rows(), kD, kD, dtype(), 18), k(kKeys, kD, kD, dtype(), 19), v(kKeys, kD, kD, dtype(), 20);
  Rows spoiled(rows(), kD, kD, dtype(), 18);
  std::memset(spoiled.bytes.data(), 0xff, SizeOf(dtype()));
  State want(kernels(), kD), state(kernels(), kD);
  Attend(k.From(0), v.From(0), kKeys, Pack(q, kD, 1), kD, kD, false, want);
  Attend(k.From(0), v.From(0), kKeys, Pack(spoiled, kD, 1), kD, kD, false, state);
  EXPECT_TRUE(std::isnan(state.o.at(0, 0)));
  for (int64_t row = 1; row < rows(); ++row) {
    EXPECT_EQ(state.row_sum[static_cast<size_t>(row)], want.row_sum[static_cast<size_t>(row)]);
    for (int64_t c = 0; c < kD; ++c) ASSERT_EQ(state.o.at(row, c), want.o.at(row, c)) << row << " " << c;
  }
}

// Tests scores so large that score - maximum is exact only if the maximum is subtracted before the factor is applied.
// The largest scores have probability 1, and all others 0. Only every other row has such scores, so that one vector has
// rows of both kinds.
TEST_P(FewRowAttendTest, ScoresOfAMillionMillionTakeTheirMaximumOffFirst) {
  constexpr int64_t kD = 64, kKeys = 44, kEqual = 11;
  const bool f16 = dtype() == DType::kF16;  // in f16, scores are at most about 10^9
  Rows q(rows(), kD, kD, dtype(), 21), large(rows(), kD, kD, dtype(), 21), k(kKeys, kD, kD, dtype(), 22);
  const Rows v(kKeys, kD, kD, dtype(), 23);
  const auto is_large = [&](int64_t row) { return row % 2 == 0; };
  for (int64_t row = 0; row < rows(); ++row) {
    q.Set(row, 0, 0);
    large.Set(row, 0, 0);
    for (int64_t c = 0; is_large(row) && c < kD; ++c) large.Set(row, c, c > 0 ? 0.0f : f16 ? 0x1p15f : 0x1p20f);
  }
  // The scores rise or fall with the keys, both within a step of keys and from step to step. Products of a score and
  // the factor need more digits than a float has.
  constexpr float kFactors[] = {5, 7, 11, 13};
  static_assert(std::size(kFactors) * kEqual == kKeys);
  for (int64_t key = 0; key < kKeys; ++key) k.Set(key, 0, kFactors[key / kEqual] * (f16 ? 0x1p12f : 0x1p18f));
  for (const float sign : {1.0f, -1.0f}) {
    State state(kernels(), kD), small(kernels(), kD);
    Attend(k.From(0), v.From(0), 32, Pack(large, kD, sign), kD, kD, false, state);
    Attend(k.From(32), v.From(32), kKeys - 32, Pack(large, kD, sign), kD, kD, true, state);
    Attend(k.From(0), v.From(0), 32, Pack(q, kD, sign), kD, kD, false, small);
    Attend(k.From(32), v.From(32), kKeys - 32, Pack(q, kD, sign), kD, kD, true, small);
    const int64_t first = sign > 0 ? kKeys - kEqual : 0;
    for (int64_t row = 0; row < rows(); ++row) {
      if (!is_large(row)) {
        EXPECT_EQ(state.row_sum[static_cast<size_t>(row)], small.row_sum[static_cast<size_t>(row)]);
        for (int64_t c = 0; c < kD; ++c) ASSERT_EQ(state.o.at(row, c), small.o.at(row, c)) << row << " " << c;
        continue;
      }
      EXPECT_EQ(state.row_sum[static_cast<size_t>(row)], static_cast<float>(kEqual)) << row;
      for (int64_t c = 0; c < kD; ++c) {
        double sum = 0, size = 0;
        for (int64_t key = first; key < first + kEqual; ++key) {
          sum += v.at(key, c);
          size += std::fabs(v.at(key, c));
        }
        ASSERT_NEAR(state.o.at(row, c), sum, kEps * kEqual * size) << row << " " << c;
      }
    }
  }
}

// The last row has only scores of -inf, so it has no probabilities. Or it has one score of +inf, so its results are
// NaN. The other rows are unaffected.
TEST_P(FewRowAttendTest, InfiniteScoresAreThoseOfTheirRow) {
  constexpr int64_t kD = 64, kKeys = 40, kInfinite = 21;
  const Rows q(rows(), kD, kD, dtype(), 24), v(kKeys, kD, kD, dtype(), 26);
  Rows infinite(rows(), kD, kD, dtype(), 24), k(kKeys, kD, kD, dtype(), 25);
  const int64_t last = rows() - 1;
  for (int64_t c = 0; c < kD; ++c) infinite.Set(last, c, c == 0 ? kInf : 0.0f);
  for (int64_t key = 0; key < kKeys; ++key) k.Set(key, 0, -1);
  for (const bool one_is_positive : {false, true}) {
    if (one_is_positive) k.Set(kInfinite, 0, 1);
    State want(kernels(), kD), state(kernels(), kD);
    Attend(k.From(0), v.From(0), kKeys, Pack(q, kD, 1), kD, kD, false, want);
    Attend(k.From(0), v.From(0), kKeys, Pack(infinite, kD, 1), kD, kD, false, state);
    for (int64_t row = 0; row < last; ++row) {
      EXPECT_EQ(state.row_sum[static_cast<size_t>(row)], want.row_sum[static_cast<size_t>(row)]);
      for (int64_t c = 0; c < kD; ++c) ASSERT_EQ(state.o.at(row, c), want.o.at(row, c)) << row << " " << c;
    }
    const float max = state.row_max[static_cast<size_t>(last)], sum = state.row_sum[static_cast<size_t>(last)];
    if (one_is_positive) {
      EXPECT_EQ(max, kInf);
      EXPECT_TRUE(std::isnan(sum)) << sum;
      for (int64_t c = 0; c < kD; ++c) ASSERT_TRUE(std::isnan(state.o.at(last, c))) << c;
    } else {
      EXPECT_EQ(max, kMaskedScore);
      EXPECT_EQ(sum, 0.0f);
      for (int64_t c = 0; c < kD; ++c) ASSERT_EQ(state.o.at(last, c), 0.0f) << c;
    }
  }
}

TEST_P(FewRowAttendTest, ARowHasTheBitsItHasBesideOtherRows) {
  constexpr int64_t kD = 128, kKeys = 70;
  const Rows q(rows(), kD, kD, dtype(), 8), k(kKeys, kD, kD, dtype(), 9), v(kKeys, kD, kD, dtype(), 10);
  Rows others(rows(), kD, kD, dtype(), 11);
  std::memcpy(others.bytes.data(), q.row(0), kD * SizeOf(dtype()));
  State one(kernels(), kD), other(kernels(), kD);
  Attend(k.From(0), v.From(0), kKeys, Pack(q, kD, 1), kD, kD, false, one);
  Attend(k.From(0), v.From(0), kKeys, Pack(others, kD, 1), kD, kD, false, other);
  EXPECT_EQ(one.row_max[0], other.row_max[0]);
  EXPECT_EQ(one.row_sum[0], other.row_sum[0]);
  if (rows() > 1) {
    EXPECT_NE(one.row_sum[1], other.row_sum[1]);
  }
  EXPECT_EQ(std::memcmp(one.o.values(), other.o.values(), kD * sizeof(float)), 0);
}

}  // namespace
}  // namespace fa::core::kernels
