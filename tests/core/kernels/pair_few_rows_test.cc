// attend of few rows: scores, softmax and product of bf16 rows in one kernel, against double.

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/kernels/kernel_fixture.h"

namespace fa::core::kernels {
namespace {

const KernelTable& Table() { return Kernels(Isa::kAvx512Bf16, DType::kBF16); }

std::vector<int64_t> AttendingRows() {
  std::vector<int64_t> rows;
  for (int i = 0; i < Table().few_count; ++i) {
    if (Table().few[i].attend != nullptr) rows.push_back(Table().few[i].rows);
  }
  return rows;
}

float RoundToBF16(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u); }

/// Random rows of bf16 with NaN between and around them.
struct Rows {
  Rows(int64_t rows, int64_t columns, int64_t stride, uint32_t seed)
      : stride(stride), bits(static_cast<size_t>(rows * stride + 64), 0x7fff) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        bits[static_cast<size_t>(r * stride + c)] =
            static_cast<uint16_t>(std::bit_cast<uint32_t>(RoundToBF16(normal(random))) >> 16);
      }
    }
  }
  [[nodiscard]] double at(int64_t row, int64_t column) const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits[static_cast<size_t>(row * stride + column)]) << 16);
  }
  [[nodiscard]] const uint16_t* row(int64_t row) const { return bits.data() + row * stride; }
  [[nodiscard]] RowBlock From(int64_t first) const { return {row(first), DType::kBF16, stride}; }

  int64_t stride;
  std::vector<uint16_t> bits;
};

constexpr float kFactor = 0.125f * 1.44269504f;

/// Rows of an online softmax, as the kernels keep them.
struct State {
  State(const StripKernels& kernels, int64_t dv)
      : row_max(static_cast<size_t>(kernels.width), kMaskedScore),
        row_sum(static_cast<size_t>(kernels.width), 0.0f),
        o(kernels.rows, dv, dv, 1) {}
  bool operator==(const State& other) const {
    return std::memcmp(row_max.data(), other.row_max.data(), row_max.size() * sizeof(float)) == 0 &&
           std::memcmp(row_sum.data(), other.row_sum.data(), row_sum.size() * sizeof(float)) == 0 &&
           std::memcmp(o.values(), other.o.values(), static_cast<size_t>(o.rows() * o.columns()) * sizeof(float)) == 0;
  }
  std::vector<float> row_max, row_sum;
  Matrix o;
};

class PairFewRowsTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (!Includes(DetectIsa(), Isa::kAvx512Bf16)) GTEST_SKIP() << "this CPU executes no dot products of bf16";
  }
  static const StripKernels& kernels() { return *Table().ForFewRows(GetParam()); }
  static int64_t rows() { return kernels().rows; }

  static std::vector<float> Pack(const Rows& q, int64_t d, float sign) {
    std::vector<const void*> at;
    for (int64_t row = 0; row < rows(); ++row) at.push_back(q.row(row));
    std::vector<float> panel(static_cast<size_t>(d * kernels().width), kNan);
    kernels().pack_queries({at.data(), DType::kBF16, rows()}, d, sign, panel.data());
    return panel;
  }
  static void Attend(const RowBlock& k, const RowBlock& v, int64_t keys, const std::vector<float>& panel, int64_t d,
                     int64_t dv, bool started, State& state) {
    kernels().attend({.k = k,
                      .v = v,
                      .keys = keys,
                      .panel = panel.data(),
                      .d = d,
                      .dv = dv,
                      .factor = kFactor,
                      .row_max = state.row_max.data(),
                      .row_sum = state.row_sum.data(),
                      .o = state.o.data(),
                      .started = started});
  }
};

INSTANTIATE_TEST_SUITE_P(Rows, PairFewRowsTest,
                         testing::ValuesIn(AttendingRows().empty() ? std::vector<int64_t>{4} : AttendingRows()),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(PairFewRowsTest, EqualsTheDoubleSoftmaxWhereverTheKeysAreCut) {
  for (const int64_t keys : {1, 2, 3, 5, 8, 9, 31, 32, 33, 63, 64, 65, 160}) {
    for (const int64_t d : {32, 64, 96, 128, 256}) {
      const int64_t dv = d == 96 ? 160 : d == 32 ? 96 : d;
      const Rows q(rows(), d, d + 3, 2), k(keys, d, d + 5, 3), v(keys, dv, dv + 7, 4);
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
          // A score is off by an ulp of its partial sums per addition, and a probability by that much of its exponent.
          const double score_error = kEps * static_cast<double>(d + 1) * magnitude;
          const double p_error = 2 * kFactor * score_error + 4e-6;
          ASSERT_NEAR(state.row_max[static_cast<size_t>(row)], max, score_error);
          for (double& s : score) sum += s = std::exp2(kFactor * (s - max));
          ASSERT_NEAR(state.row_sum[static_cast<size_t>(row)], sum, (p_error + kEps * static_cast<double>(keys)) * sum);
          for (int64_t c = 0; c < dv; ++c) {
            double want = 0, size = 0;
            for (int64_t key = 0; key < keys; ++key) {
              want += score[static_cast<size_t>(key)] * v.at(key, c);
              size += std::fabs(score[static_cast<size_t>(key)] * v.at(key, c));
            }
            // A probability is rounded by at most 2^-8 of itself.
            ASSERT_NEAR(state.o.at(row, c), want, (0x1p-8 + p_error + kEps * static_cast<double>(keys + 2)) * size)
                << "keys " << keys << " cut " << cut << " d " << d << " row " << row << " column " << c;
          }
        }
      }
    }
  }
}

TEST_P(PairFewRowsTest, RowsByAddressHaveTheBitsOfRowsInTheirOrder) {
  constexpr int64_t kD = 64;
  for (const int64_t keys : {1, 33, 100}) {
    const Rows q(rows(), kD, kD, 5), k(keys, kD, kD + 1, 6), v(keys, kD, kD + 2, 7);
    const std::vector<float> panel = Pack(q, kD, 1);
    std::vector<const void*> k_rows, v_rows;
    for (int64_t key = 0; key < keys; ++key) {
      k_rows.push_back(k.row(key));
      v_rows.push_back(v.row(key));
    }
    RowBlock k_by_address{.dtype = DType::kBF16}, v_by_address{.dtype = DType::kBF16};
    constexpr int64_t kAhead = 5;
    k_rows.resize(k_rows.size() + kAhead, k.row(0));
    v_rows.resize(v_rows.size() + kAhead, v.row(0));
    k_by_address.fetch_ahead = v_by_address.fetch_ahead = kAhead;
    k_by_address.rows = k_rows.data();
    v_by_address.rows = v_rows.data();
    State in_order(kernels(), kD), by_address(kernels(), kD);
    Attend(k.From(0), v.From(0), keys, panel, kD, kD, false, in_order);
    Attend(k_by_address, v_by_address, keys, panel, kD, kD, false, by_address);
    EXPECT_TRUE(in_order == by_address) << keys;
  }
}

TEST_P(PairFewRowsTest, ARowHasTheBitsItHasBesideOtherRows) {
  constexpr int64_t kD = 128, kKeys = 70;
  const Rows q(rows(), kD, kD, 8), k(kKeys, kD, kD, 9), v(kKeys, kD, kD, 10);
  Rows others(rows(), kD, kD, 11);
  std::memcpy(others.bits.data(), q.row(0), kD * sizeof(uint16_t));
  State one(kernels(), kD), other(kernels(), kD);
  Attend(k.From(0), v.From(0), kKeys, Pack(q, kD, 1), kD, kD, false, one);
  Attend(k.From(0), v.From(0), kKeys, Pack(others, kD, 1), kD, kD, false, other);
  EXPECT_EQ(one.row_max[0], other.row_max[0]);
  EXPECT_EQ(one.row_sum[0], other.row_sum[0]);
  EXPECT_NE(one.row_sum[1], other.row_sum[1]);
  EXPECT_EQ(std::memcmp(one.o.values(), other.o.values(), kD * sizeof(float)), 0);
}

}  // namespace
}  // namespace fa::core::kernels
