#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "fa/sparse_flash_attention_grad.h"
#include "support/execution/contexts.h"

namespace fa {
namespace {

constexpr int64_t kTokens = 3, kKeys = 9, kColumns = 8;

/// A backward call of three tokens in f32 or bf16. A bf16 number is the upper half of an f32 number.
struct Call {
  Call(DType type, int64_t count) : dtype(type), heads(count) {
    for (int64_t i = 0; i < kTokens * heads * kColumns; ++i) {
      Set(q, i, static_cast<float>(i % 7) - 3);
      Set(d_out, i, static_cast<float>(i % 5) - 2);
    }
    for (int64_t i = 0; i < kKeys * kColumns; ++i) Set(k, i, static_cast<float>(i % 3) - 1);
    for (size_t i = 0; i < lists.size(); ++i) lists[i] = static_cast<int32_t>(i * 5 % kKeys);
  }

  void Set(std::vector<uint8_t>& tensor, int64_t i, float value) const {
    const auto size = SizeOf(dtype);
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value) + sizeof(float) - size;
    std::copy_n(bytes, size, tensor.begin() + i * static_cast<int64_t>(size));
  }
  [[nodiscard]] float Get(const std::vector<uint8_t>& tensor, int64_t i) const {
    const auto size = SizeOf(dtype);
    float value = 0;
    std::copy_n(tensor.begin() + i * static_cast<int64_t>(size), size,
                reinterpret_cast<uint8_t*>(&value) + sizeof(float) - size);
    return value;
  }
  /// Makes the row of this head a row without keys: its sum is 0. Puts NaN and inf into the row's inputs.
  void Skip(int64_t token, int64_t head) {
    const int64_t row = token * heads + head;
    sum[static_cast<size_t>(row)] = 0;
    for (int64_t c = 0; c < kColumns; ++c) {
      Set(q, row * kColumns + c, c % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : 3);
      Set(d_out, row * kColumns + c, std::numeric_limits<float>::infinity());
    }
  }
  /// Sets dO of this head's row to 0, so that the row adds only zeros to the gradients.
  void Silence(int64_t token, int64_t head) {
    for (int64_t c = 0; c < kColumns; ++c) Set(d_out, (token * heads + head) * kColumns + c, 0);
  }
  [[nodiscard]] Status Run(Context* context) {
    const auto in = [&](const std::vector<uint8_t>& tensor, const Dims& shape) {
      return TensorView{tensor.data(), dtype, shape, {}};
    };
    const Dims rows = {1, kTokens, heads, kColumns}, keys = {1, kKeys, 1, kColumns}, statistic = {1, 1, kTokens, heads};
    SparseAttentionGradArgs args;
    args.q = in(q, rows);
    args.k = in(k, keys);
    args.sparse_indices = {lists.data(), DType::kI32, {1, kTokens, 1, 4}, {}};
    args.out = in(out, rows);
    args.d_out = in(d_out, rows);
    args.softmax_max = {max.data(), DType::kF32, statistic, {}};
    args.softmax_sum = {sum.data(), DType::kF32, statistic, {}};
    args.dq = {dq.data(), dtype, rows, {}};
    args.dk = {dk.data(), dtype, keys, {}};
    SparseAttentionOptions options;
    options.mask = SparseMask::kNone;
    return SparseFlashAttentionGrad(args, options, context);
  }

  [[nodiscard]] std::vector<uint8_t> Rows() const {
    return std::vector<uint8_t>(static_cast<size_t>(kTokens * heads * kColumns * 4), 0);
  }
  static std::vector<uint8_t> Keys() { return std::vector<uint8_t>(kKeys * kColumns * 4, 0); }
  [[nodiscard]] std::vector<float> Statistic(float value) const {
    return std::vector<float>(static_cast<size_t>(kTokens * heads), value);
  }

  DType dtype;
  int64_t heads;
  std::vector<uint8_t> q = Rows(), d_out = Rows(), out = Rows(), dq = Rows(), k = Keys(), dk = Keys();
  std::vector<float> max = Statistic(1), sum = Statistic(4);
  std::vector<int32_t> lists = std::vector<int32_t>(kTokens * 4);
};

class SparseSkippedRows : public testing::TestWithParam<std::tuple<Isa, int64_t>> {};

TEST_P(SparseSkippedRows, AddNothingWhateverTheyHold) {
  const auto [isa, heads] = GetParam();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Call skipped(dtype, heads), silent(dtype, heads);
    for (const int64_t head : {int64_t{0}, int64_t{7}, heads - 1}) {
      skipped.Skip(1, head);
      silent.Silence(1, head);
    }
    ASSERT_TRUE(skipped.Run(test::ContextOf(isa)).ok());
    ASSERT_TRUE(silent.Run(test::ContextOf(isa)).ok());
    bool any = false;
    for (int64_t i = 0; i < kKeys * kColumns; ++i) {
      // Adding 0 differs from adding nothing only in the sign of a zero.
      EXPECT_EQ(skipped.Get(skipped.dk, i), silent.Get(silent.dk, i)) << Name(dtype) << " dk " << i;
      any = any || skipped.Get(skipped.dk, i) != 0;
    }
    EXPECT_TRUE(any);
    for (int64_t row = 0; row < kTokens * heads; ++row) {
      const bool skips = skipped.sum[static_cast<size_t>(row)] == 0;
      for (int64_t c = 0; c < kColumns; ++c) {
        const float want = skips ? 0 : silent.Get(silent.dq, row * kColumns + c);
        EXPECT_EQ(skipped.Get(skipped.dq, row * kColumns + c), want) << Name(dtype) << " dq " << row << ", " << c;
      }
    }
  }
}

// With up to 16 heads of bf16, some levels have kernels that read keys in place.
INSTANTIATE_TEST_SUITE_P(Isa, SparseSkippedRows,
                         testing::Combine(testing::ValuesIn(test::IsaLevels()), testing::Values(12, 16, 20)),
                         [](const auto& info) {
                           return test::IsaName(std::get<0>(info.param)) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace fa
