// Compares `attend_compressed` and its variants on 16-bit words with computations in double. These kernels compute the
// attention of few rows over compressed keys and values.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/kernels/compressed/group_order.h"
#include "core/kernels/compressed_rows.h"
#include "core/kernels/kernel_fixture.h"
#include "core/kernels/kernel_set.h"
#include "support/guarded_buffer.h"

namespace fa::core::kernels {

// Sets the loops for CPUs without AVX512_VBMI. Builds without the level avx512_bf16 lack this function.
namespace avx512_bf16 {
[[gnu::weak]] void SetByteFloatWords(KernelSet& set) noexcept;
}

namespace {

constexpr DType kFormats[] = {DType::kI8, DType::kF8E4M3, DType::kF8E5M2, DType::kI4x8};
constexpr float kFactor = 0.125f * 1.44269504f;

/// The kernels for few rows of one level and one type of queries, with one format of keys and values.
struct Attending {
  Isa isa;
  DType queries;
  int64_t rows;
  DType format;
};

std::string Name(const Attending& of) {
  return std::string(Name(of.isa)) + "_" + std::to_string(of.rows) + "_" + Name(of.queries) + "_" + Name(of.format);
}

const StripKernels* KernelsOf(const Attending& of) {
  const KernelTable& table = Kernels(of.isa, of.queries);
  for (int i = 0; i < table.few_count; ++i) {
    if (table.few[i].rows == of.rows) return &table.few[i];
  }
  return nullptr;
}

auto LoopOf(const Attending& of) { return KernelsOf(of)->few_rows.AttendTo(of.format, of.queries); }

/// Returns all loops of this CPU. A loop that two levels or two types of queries share is listed once.
std::vector<Attending> AllAttending() {
  std::vector<Attending> all;
  for (const DType format : kFormats) {
    std::vector<void (*)(const AttendArgs&)> listed;
    for (const DType queries : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const Isa isa : AllIsas()) {
        if (!Includes(DetectIsa(), isa)) continue;
        for (const int64_t rows : {1, 2, 4, 8}) {
          const Attending of{isa, queries, rows, format};
          if (KernelsOf(of) == nullptr || std::find(listed.begin(), listed.end(), LoopOf(of)) != listed.end()) continue;
          listed.push_back(LoopOf(of));
          all.push_back(of);
        }
      }
    }
  }
  return all;
}

class CompressedAttendTest : public testing::TestWithParam<Attending> {
 protected:
  [[nodiscard]] const StripKernels& kernels() const { return *kernels_; }
  static DType format() { return GetParam().format; }
  static int64_t rows() { return GetParam().rows; }
  static bool is_float() { return format() == DType::kF8E4M3 || format() == DType::kF8E5M2; }

  /// Returns rows of Q with numbers that bf16 holds exactly.
  static Matrix Queries(int64_t d, uint32_t seed) {
    Matrix q(rows(), d, d, seed);
    for (int64_t r = 0; r < rows(); ++r) {
      for (int64_t c = 0; c < d; ++c) {
        q.at(r, c) = std::bit_cast<float>(std::bit_cast<uint32_t>(q.at(r, c)) & 0xffff0000u);
      }
    }
    return q;
  }
  [[nodiscard]] std::vector<float> Pack(const Matrix& q, int64_t d) const {
    std::vector<const void*> at;
    for (int64_t row = 0; row < rows(); ++row) at.push_back(q.values() + row * q.stride());
    std::vector<float> panel(static_cast<size_t>(d * kernels().width), kNan);
    kernels().pack_queries({at.data(), DType::kF32, rows()}, d, 1, panel.data());
    return panel;
  }
  struct Call {
    RowBlock k, v;
    Antiquantization k_numbers, v_numbers;
    int64_t keys, d, dv;
  };
  void Attend(const Call& call, const std::vector<float>& panel, bool started, State& state,
              void (*loop)(const AttendArgs&) = LoopOf(GetParam())) const {
    loop({.k = call.k,
          .v = call.v,
          .keys = call.keys,
          .panel = panel.data(),
          .d = call.d,
          .dv = call.dv,
          .factor = kFactor,
          .row_max = state.row_max.data(),
          .row_sum = state.row_sum.data(),
          .o = state.o.data(),
          .started = started,
          .k_numbers = call.k_numbers,
          .v_numbers = call.v_numbers});
  }
  void ExpectSoftmax(const State& state, const Matrix& q, const CodeRows& k, const CodeRows& v, const Numbers& of_k,
                     const Numbers& of_v, int64_t keys, int64_t d, int64_t dv) const;

 private:
  const StripKernels* kernels_ = KernelsOf(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Levels, CompressedAttendTest, testing::ValuesIn(AllAttending()),
                         [](const auto& info) { return Name(info.param); });

/// How kernels round rows of Q and weights of keys. A kernel in f32 rounds neither.
struct Rounding {
  double relative = 0;     ///< bf16: the error relative to each number
  double of_largest = 0;   ///< integers of at most 2^15 - 1: half a unit, relative to the largest number
  double smallest = 0;     ///< integers: the largest number counts as at least this
  double tiny = 0x1p-140;  ///< the absolute error of a term with subnormal factors or product, for operands of about 1
};
Rounding RoundingOf(const Attending& of) {
  if (LoopOf(of) == KernelsOf(of)->few_rows.attend_compressed) return {};
  if (of.format == DType::kI8 || of.format == DType::kI4x8) return {.of_largest = 0.5 / 32767, .smallest = 0x1p-112};
  return {.relative = 0x1p-8, .tiny = 0x1p-118};  // VDPBF16PS counts subnormal numbers as 0
}

// Checks which loops the calls of each level get.
TEST(CompressedAttendLevels, WordsServeQueriesOf16Bits) {
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa)) continue;
    for (const DType queries : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const DType format : kFormats) {
        const bool integers = format == DType::kI8 || format == DType::kI4x8;
        const bool words = integers ? queries != DType::kF32 && Includes(isa, Isa::kAvx512Vnni)
                                    : queries == DType::kBF16 && Includes(isa, Isa::kAvx512Bf16);
        for (const int64_t rows : {1, 2, 4, 8}) {
          const Attending of{isa, queries, rows, format};
          if (KernelsOf(of) == nullptr) continue;
          EXPECT_EQ(LoopOf(of) != KernelsOf(of)->few_rows.attend_compressed, words) << Name(of);
        }
      }
    }
  }
}

void CompressedAttendTest::ExpectSoftmax(const State& state, const Matrix& q, const CodeRows& k, const CodeRows& v,
                                         const Numbers& of_k, const Numbers& of_v, int64_t keys, int64_t d,
                                         int64_t dv) const {
  const Rounding rounding = RoundingOf(GetParam());
  ASSERT_TRUE(state.o.Intact());
  for (int64_t row = 0; row < rows(); ++row) {
    // The kernel multiplies by the scales of columns before it rounds.
    const bool by_column = of_k.per == Numbers::Per::kColumn, by_group = of_k.per == Numbers::Per::kRowAndGroup;
    std::vector<double> largest_q(static_cast<size_t>(by_group ? d / of_k.group : 1), rounding.smallest);
    const auto group_of = [&](int64_t c) { return static_cast<size_t>(by_group ? c / of_k.group : 0); };
    for (int64_t c = 0; c < d; ++c) {
      double& largest = largest_q[group_of(c)];
      largest = std::max(largest, std::fabs(q.at(row, c) * (by_column ? of_k.Scale(0, c) : 1)));
    }
    std::vector<double> p(static_cast<size_t>(keys));
    double max = -kInf, score_error = 0, sum = 0;
    for (int64_t key = 0; key < keys; ++key) {
      double s = 0, error = 0;
      for (int64_t c = 0; c < d; ++c) {
        const double x = k.at(key, c), offset = of_k.Offset(key, c), scale = of_k.Scale(key, c);
        s += q.at(row, c) * (x + offset) * scale;
        // Each addition is off by an ulp of a partial sum of products with x or with the offset.
        error +=
            std::fabs(q.at(row, c) * scale) * (std::fabs(x) + std::fabs(offset)) * kEps * static_cast<double>(d + 4);
        error +=
            std::fabs(x + offset) * (std::fabs(q.at(row, c) * scale) * rounding.relative +
                                     rounding.of_largest * largest_q[group_of(c)] * (by_column ? 1 : std::fabs(scale)));
        error += rounding.tiny * (1 + std::fabs(x) + std::fabs(offset));
      }
      p[static_cast<size_t>(key)] = s;
      max = std::max(max, s);
      score_error = std::max(score_error, error);
    }
    ASSERT_NEAR(state.row_max[static_cast<size_t>(row)], max, score_error);
    // Kernels on words compute the exponential by a shorter polynomial. The exponential of other kernels is off by 2
    // ulp, and its argument and its factor are rounded too.
    const double p_error = std::expm1(2 * kFactor * score_error) + 4e-6;
    for (double& s : p) sum += s = std::exp2(kFactor * (s - max));
    ASSERT_NEAR(state.row_sum[static_cast<size_t>(row)], sum, (p_error + kEps * static_cast<double>(keys)) * sum);
    const bool v_by_column = of_v.per == Numbers::Per::kColumn;
    double largest = 0;  // the largest weight in the column's group
    for (int64_t c = 0; c < dv; ++c) {
      double want = 0, error = 0;
      const auto weight = [&](int64_t key) {
        return p[static_cast<size_t>(key)] * (v_by_column ? 1 : std::fabs(of_v.Scale(key, c)));
      };
      if (c % of_v.group == 0) {
        largest = rounding.smallest;
        for (int64_t key = 0; key < keys; ++key) largest = std::max(largest, weight(key));
      }
      for (int64_t key = 0; key < keys; ++key) {
        const double x = v.at(key, c), offset = of_v.Offset(key, c), scale = of_v.Scale(key, c);
        const double of_column = v_by_column ? std::fabs(scale) : 1;
        want += p[static_cast<size_t>(key)] * (x + offset) * scale;
        error += weight(key) * of_column * (std::fabs(x) + std::fabs(offset)) *
                 (p_error + kEps * static_cast<double>(keys + 6));
        error += std::fabs(x + offset) * of_column *
                 (weight(key) * rounding.relative + rounding.of_largest * largest * (1 + p_error));
        error += rounding.tiny * (1 + std::fabs(x) + std::fabs(offset));
      }
      ASSERT_NEAR(state.o.at(row, c), want, error)
          << "keys " << keys << " d " << d << " row " << row << " column " << c;
    }
  }
}

/// Numbers of columns of a head. Kernels have specialised loops for some of the pairs. Rows of V are as long as rows of
/// K, longer or shorter.
struct HeadColumns {
  int64_t d, dv;
};
constexpr HeadColumns kHeadColumns[] = {{64, 64},  {128, 128}, {256, 256}, {96, 96},  {64, 96},
                                        {96, 160}, {128, 32},  {32, 32},   {256, 128}};
constexpr Numbers::Per kPer[] = {Numbers::Per::kTensor, Numbers::Per::kRow, Numbers::Per::kColumn,
                                 Numbers::Per::kRowAndGroup};

TEST_P(CompressedAttendTest, EqualsTheDoubleSoftmaxWhereverTheKeysAreCut) {
  uint32_t seed = 0;
  const double size = is_float() ? 1 : format() == DType::kI8 ? 0x1p-6 : 0x1p-2;
  for (const int64_t keys : {1, 2, 3, 9, 15, 16, 17, 31, 33, 64, 65, 160}) {
    for (const HeadColumns& heads : kHeadColumns) {
      const auto [d, dv] = heads;
      ++seed;
      const Numbers of_k(kPer[seed % 4], keys, d, size, seed / 16 % 2 == 0, seed);
      const Numbers of_v(kPer[seed / 4 % 4], keys, dv, size, seed / 32 % 2 == 0, seed + 1);
      const CodeRows k(format(), keys, d, 8, seed + 2), v(format(), keys, dv, 20, seed + 3);
      const Matrix q = Queries(d, seed + 4);
      const std::vector<float> panel = Pack(q, d);
      for (const int64_t cut : {int64_t{0}, int64_t{8}}) {
        if (cut >= keys) continue;
        State state(kernels(), dv);
        const auto part = [&](int64_t first, int64_t count) {
          return Call{k.From(first), v.From(first), of_k.From(first), of_v.From(first), count, d, dv};
        };
        if (cut > 0) Attend(part(0, cut), panel, false, state);
        Attend(part(cut, keys - cut), panel, cut > 0, state);
        ExpectSoftmax(state, q, k, v, of_k, of_v, keys, d, dv);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Scales of groups differ by 2^13, and elements of Q by the inverse. So all groups contribute alike to a score.
TEST_P(CompressedAttendTest, GroupsOfEverySizeKeepTheirBits) {
  const double size = is_float() ? 1 : format() == DType::kI8 ? 0x1p-6 : 0x1p-2;
  int n = 0;
  for (const HeadColumns& heads : kHeadColumns) {
    const auto [d, dv] = heads;
    for (const int64_t keys : {1, 33, 70}) {
      const bool offset = ++n % 2 == 0;
      for (const int64_t group : {32, 64, 128}) {
        if (d % group != 0 || dv % group != 0) continue;
        Numbers of_k(Numbers::Per::kRowAndGroup, keys, d, size, offset, 1, group);
        Numbers of_v(Numbers::Per::kRowAndGroup, keys, dv, size, offset, 2, group);
        const auto enlarge = [&](Numbers& of, int64_t columns) {
          for (int64_t c = group; c < columns; c += 2 * group) {
            for (int64_t key = 0; key < keys; ++key) of.scale[of.Of(key, c)] *= 0x1p13f;
          }
        };
        enlarge(of_k, d);
        enlarge(of_v, dv);
        Matrix q = Queries(d, 3);
        for (int64_t r = 0; r < rows(); ++r) {
          for (int64_t c = 0; c < d; ++c) q.at(r, c) *= c / group % 2 == 0 ? 1 : 0x1p-13f;
        }
        const CodeRows k(format(), keys, d, 4, 4), v(format(), keys, dv, 4, 5);
        State state(kernels(), dv);
        Attend({k.From(0), v.From(0), of_k.From(0), of_v.From(0), keys, d, dv}, Pack(q, d), false, state);
        ExpectSoftmax(state, q, k, v, of_k, of_v, keys, d, dv);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Bytes between rows, and further rows, may hold anything. Reading the byte after the last row would be a fault.
TEST_P(CompressedAttendTest, TheBitsDependOnNothingButTheRows) {
  constexpr int64_t kAhead = AttendArgs::kMostStep;
  for (const HeadColumns& heads : kHeadColumns) {
    const auto [d, dv] = heads;
    for (const int64_t keys : {1, 3, 15, 17, 33, 70}) {
      const std::vector<float> panel = Pack(Queries(d, 12), d);
      const Numbers::Per per = keys % 3 == 0 ? Numbers::Per::kRow : Numbers::Per::kRowAndGroup;
      const Numbers numbers(per, keys, std::max(d, dv), 0.01, true, 15);
      const CodeRows k(format(), keys, d, 0, 13), v(format(), keys, dv, 0, 14);
      const CodeRows k_apart(format(), keys, d, 12, 13, 0xff), v_apart(format(), keys, dv, 4, 14, 0xff);
      State want(kernels(), dv), apart(kernels(), dv), alone(kernels(), dv), by_address(kernels(), dv);
      Call call{k.From(0), v.From(0), numbers.From(0), numbers.From(0), keys, d, dv};
      Attend(call, panel, false, want);
      call.k = k_apart.From(0);
      call.v = v_apart.From(0);
      Attend(call, panel, false, apart);
      EXPECT_TRUE(apart == want) << keys << " keys of " << d << " and " << dv << " columns";
      const auto k_bytes = static_cast<size_t>(keys * k.row_bytes), v_bytes = static_cast<size_t>(keys * v.row_bytes);
      const test::GuardedBuffer k_alone(k_bytes, test::Place::kAtEnd), v_alone(v_bytes, test::Place::kAtEnd);
      std::memcpy(k_alone.data(), k.row(0), k_bytes);
      std::memcpy(v_alone.data(), v.row(0), v_bytes);
      call.k = {k_alone.data(), format(), k.Stride()};
      call.v = {v_alone.data(), format(), v.Stride()};
      Attend(call, panel, false, alone);
      EXPECT_TRUE(alone == want) << keys << " keys of " << d << " and " << dv << " columns";
      std::vector<const void*> k_rows, v_rows;
      for (int64_t key = 0; key < keys + kAhead; ++key) {
        k_rows.push_back(k_alone.data() + std::min(static_cast<size_t>(key * k.row_bytes), k_bytes));
        v_rows.push_back(v_alone.data() + std::min(static_cast<size_t>(key * v.row_bytes), v_bytes));
      }
      call.k = {.dtype = format(), .fetch_ahead = kAhead, .rows = k_rows.data()};
      call.v = {.dtype = format(), .fetch_ahead = kAhead, .rows = v_rows.data()};
      Attend(call, panel, false, by_address);
      EXPECT_TRUE(by_address == want) << keys << " keys by address of " << d << " and " << dv << " columns";
    }
  }
}

TEST_P(CompressedAttendTest, TheBitsDependOnNoOrderOfTheGroups) {
  for (const auto& [d, group] : std::vector<std::pair<int64_t, int64_t>>{{128, 32}, {128, 64}, {256, 32}, {256, 64}}) {
    if (!TakesGroupsOfRows(kernels().few_rows, format(), GetParam().queries, d, group)) continue;
    const std::vector<float> panel = Pack(Queries(d, 12), d);
    for (const int64_t keys : {1, 3, 17, 70}) {
      for (const float one : {0.1f, kInf, kNan}) {
        Numbers of_k(Numbers::Per::kRowAndGroup, keys, d, 0.1, keys % 2 == 0, 15, group), of_v = of_k;
        of_v.scale[static_cast<size_t>((keys - 1) / 4 * 4)] = one;  // a key that begins a vector
        const NumbersByRows k_by_rows(of_k, keys, d / group, keys % 4), v_by_rows(of_v, keys, d / group, 0);
        const CodeRows k(format(), keys, d, 0, 13), v(format(), keys, d, 0, 14);
        State want(kernels(), d), got(kernels(), d);
        Attend({k.From(0), v.From(0), of_k.From(0), of_v.From(0), keys, d, d}, panel, false, want);
        Attend({k.From(0), v.From(0), k_by_rows.by, v_by_rows.by, keys, d, d}, panel, false, got);
        EXPECT_TRUE(got == want) << keys << " keys, groups of " << group << " of " << d << " columns, " << one;
      }
    }
  }
}

// With AVX512_VBMI, kernels look up the bytes of bf16 numbers in tables. CPUs without it must give the same bits.
TEST_P(CompressedAttendTest, TheBitsAreThoseOfACpuWithoutVbmi) {
  if (LoopOf(GetParam()) != kernels().few_rows.attend_byte_floats) return;
  ASSERT_NE(avx512_bf16::SetByteFloatWords, nullptr);
  KernelSet set;
  set.few[0] = kernels();
  set.table.few = set.few;
  set.table.few_count = 1;
  avx512_bf16::SetByteFloatWords(set);
  const auto loop = set.few[0].few_rows.attend_byte_floats;
  for (const HeadColumns& heads : kHeadColumns) {
    const auto [d, dv] = heads;
    for (const int64_t keys : {1, 17, 70}) {
      const std::vector<float> panel = Pack(Queries(d, 12), d);
      const Numbers numbers(Numbers::Per::kRow, keys, 1, 0.5, true, 15);
      CodeRows k(format(), keys, d, 0, 13), v(format(), keys, dv, 0, 14);
      v.Set(keys / 2, 5, 0x7f);
      State want(kernels(), dv), got(kernels(), dv);
      const Call call{k.From(0), v.From(0), numbers.From(0), numbers.From(0), keys, d, dv};
      Attend(call, panel, false, want);
      Attend(call, panel, false, got, loop);
      EXPECT_TRUE(got == want) << keys << " keys of " << d << " and " << dv << " columns";
    }
  }
}

// A single key's score is the number of one of its codes, and its row of V has all codes.
TEST_P(CompressedAttendTest, EveryCodeIsItsNumber) {
  constexpr int64_t kD = 128, kDv = 256;
  const Numbers one(Numbers::Per::kTensor, 1, 1, 0, false, 1);
  for (int code = 0; code < 256; ++code) {
    CodeRows k(format(), 1, kD, 0, 1), v(format(), 1, kDv, 0, 1);
    std::fill(k.bytes.begin(), k.bytes.end(), std::byte{0});
    const int64_t at = code % kD;
    k.Set(0, at, static_cast<uint8_t>(code));
    for (int64_t c = 0; c < kDv; ++c) v.Set(0, c, static_cast<uint8_t>(c));
    Matrix q(rows(), kD, kD, 1);
    for (int64_t r = 0; r < rows(); ++r) {
      for (int64_t c = 0; c < kD; ++c) q.at(r, c) = c == at ? 1 : 0;
    }
    const float scale = 2;
    const Antiquantization by{.scale = &scale};
    State state(kernels(), kDv);
    Attend({k.From(0), v.From(0), by, by, 1, kD, kDv}, Pack(q, kD), false, state);
    const double score = scale * k.at(0, at);
    for (int64_t r = 0; r < rows(); ++r) {
      const auto lane = static_cast<size_t>(r);
      if (!std::isfinite(score)) {  // a score of -infinity counts as masked, and a NaN stays
        ASSERT_EQ(state.row_sum[lane] == 0, score == -kInf) << code;
        ASSERT_EQ(std::isnan(state.row_sum[lane]), score != -kInf) << code;
        continue;
      }
      // Integers are rounded to a unit of which the largest number is a multiple.
      ASSERT_NEAR(state.row_max[lane], score, 4 * kEps * std::fabs(score)) << code;
      ASSERT_NEAR(state.row_sum[lane], 1, 4 * kEps) << code;
      for (int64_t c = 0; c < kDv; ++c) {
        const double want = scale * v.at(0, c);
        if (std::isfinite(want)) {
          ASSERT_NEAR(state.o.at(r, c), want, 4 * kEps * std::fabs(want)) << "key " << code << " value " << c;
        } else {
          ASSERT_FALSE(std::isfinite(state.o.at(r, c))) << "key " << code << " value " << c;
        }
      }
    }
  }
}

// A NaN of K spoils all rows. A NaN of V spoils its column and no other column.
TEST_P(CompressedAttendTest, NaNStaysWhereItBelongs) {
  if (!is_float()) return;
  constexpr int64_t kD = 96, kDv = 160, kKeys = 70;
  const Matrix q = Queries(kD, 3);
  const std::vector<float> panel = Pack(q, kD);
  const Numbers numbers(Numbers::Per::kRow, kKeys, 1, 1, true, 4);
  std::mt19937 random(5);
  for (int n = 0; n < 40; ++n) {
    CodeRows k(format(), kKeys, kD, 4, 6), v(format(), kKeys, kDv, 4, 7);
    const auto call = [&](int64_t first, int64_t count) {
      return Call{k.From(first), v.From(first), numbers.From(first), numbers.From(first), count, kD, kDv};
    };
    const int64_t key = n < 8 ? (n % 4 < 2 ? 0 : kKeys - 1) : random() % kKeys;
    const int64_t column = n < 8 ? (n % 2 == 0 ? 0 : kD - 1) : random() % kD;
    const auto nan = static_cast<uint8_t>(n % 2 == 0 ? 0x7f : 0xff);
    State want(kernels(), kDv), of_v(kernels(), kDv), of_k(kernels(), kDv);
    v.Set(key, column, 0);
    Attend(call(0, 40), panel, false, want);
    Attend(call(40, kKeys - 40), panel, true, want);
    v.Set(key, column, nan);
    Attend(call(0, 40), panel, false, of_v);
    Attend(call(40, kKeys - 40), panel, true, of_v);
    k.Set(key, column, nan);
    Attend(call(0, kKeys), panel, false, of_k);
    for (int64_t r = 0; r < rows(); ++r) {
      ASSERT_TRUE(std::isnan(of_k.row_sum[static_cast<size_t>(r)])) << "key " << key << " column " << column;
      ASSERT_EQ(of_v.row_sum[static_cast<size_t>(r)], want.row_sum[static_cast<size_t>(r)]);
      for (int64_t c = 0; c < kDv; ++c) {
        if (c == column) {
          ASSERT_TRUE(std::isnan(of_v.o.at(r, c))) << "key " << key << " column " << column;
        } else {
          ASSERT_EQ(of_v.o.at(r, c), want.o.at(r, c)) << "key " << key << " column " << column << " at " << c;
        }
      }
    }
  }
}

TEST_P(CompressedAttendTest, ScalesOfEverySize) {
  constexpr int64_t kKeys = 41;
  for (const HeadColumns& heads : {HeadColumns{64, 64}, HeadColumns{128, 96}, HeadColumns{128, 128}}) {
    const auto [d, dv] = heads;
    for (const Numbers::Per per : kPer) {
      for (const double size : {0.0, -0.01, 0x1p-130, 0x1p-148, 0x1p-100}) {
        for (const bool offset : {false, true}) {
          const Numbers of_k(per, kKeys, d, size, offset, 1), of_v(per, kKeys, dv, size, offset, 2);
          const CodeRows k(format(), kKeys, d, 4, 3), v(format(), kKeys, dv, 4, 4);
          const Matrix q = Queries(d, 5);
          State state(kernels(), dv);
          Attend({k.From(0), v.From(0), of_k.From(0), of_v.From(0), kKeys, d, dv}, Pack(q, d), false, state);
          ExpectSoftmax(state, q, k, v, of_k, of_v, kKeys, d, dv);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(CompressedAttendTest, AnInfiniteScaleGivesNoFiniteResult) {
  constexpr int64_t kD = 128, kKeys = 41, kAt = 33;  // the number kAt belongs to a column, or to a key's first columns
  const std::vector<float> panel = Pack(Queries(kD, 1), kD);
  const CodeRows k(format(), kKeys, kD, 4, 3), v(format(), kKeys, kD, 4, 4);
  for (const Numbers::Per per : {Numbers::Per::kRow, Numbers::Per::kColumn, Numbers::Per::kRowAndGroup}) {
    for (const float infinite : {kInf, -kInf, kNan}) {
      for (const bool of_values : {false, true}) {
        Numbers of_k(per, kKeys, kD, 0.01, false, 1), of_v(per, kKeys, kD, 0.01, false, 2);
        (of_values ? of_v : of_k).scale[kAt] = infinite;
        State state(kernels(), kD);
        Attend({k.From(0), v.From(0), of_k.From(0), of_v.From(0), kKeys, kD, kD}, panel, false, state);
        for (int64_t r = 0; r < rows(); ++r) {
          ASSERT_EQ(std::isnan(state.row_sum[static_cast<size_t>(r)]), !of_values);
          for (int64_t c = 0; of_values && c < kD; ++c) {
            const bool finite = of_v.Of(kAt, c) != kAt;
            ASSERT_EQ(std::isfinite(state.o.at(r, c)), finite) << c;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa::core::kernels
