// Tests sequences whose keys fit into one block: which kernels they use, and that longer sequences give the same bits.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "fa/flash_attention.h"
#include "reference/half.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

class ShortSequencesTest : public testing::TestWithParam<Isa> {};

INSTANTIATE_TEST_SUITE_P(Levels, ShortSequencesTest, testing::ValuesIn(IsaLevels()),
                         [](const auto& info) { return IsaName(info.param); });

/// A buffer of f32 or bf16 elements, filled with random normal numbers.
class Values {
 public:
  Values(int64_t n, uint32_t seed, DType dtype) : bytes_(static_cast<size_t>(n) * SizeOf(dtype)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < n; ++i) {
      const float x = normal(random);
      const uint16_t half = reference::Encode16(reference::Format::kBF16, x);
      const size_t size = SizeOf(dtype);
      std::memcpy(bytes_.data() + static_cast<size_t>(i) * size,
                  dtype == DType::kBF16 ? static_cast<const void*>(&half) : &x, size);
    }
  }
  [[nodiscard]] void* data() { return bytes_.data(); }
  bool operator==(const Values&) const = default;

 private:
  std::vector<std::byte> bytes_;
};

constexpr int64_t kHeads = 3, kD = 40, kDv = 56;

/// Operands of one call. k and v have memory for `room` keys, of which a call may use fewer.
struct Operands {
  Operands(int64_t sq, int64_t room, DType dtype)
      : dtype(dtype),
        sq(sq),
        room(room),
        q(kHeads * sq * kD, 1, dtype),
        k(kHeads * room * kD, 2, dtype),
        v(kHeads * room * kDv, 3, dtype),
        out(kHeads * sq * kDv, 4, dtype),
        lse(kHeads * sq, 5, DType::kF32) {}
  AttentionArgs Args(int64_t keys) {
    AttentionArgs args;
    args.q = {q.data(), dtype, {1, kHeads, sq, kD}, {}};
    args.k = {k.data(), dtype, {1, kHeads, keys, kD}, {kHeads * room * kD, room * kD, kD, 1}};
    args.v = {v.data(), dtype, {1, kHeads, keys, kDv}, {kHeads * room * kDv, room * kDv, kDv, 1}};
    args.out = {out.data(), dtype, {1, kHeads, sq, kDv}, {}};
    args.lse = {lse.data(), DType::kF32, {1, kHeads, sq}, {}};
    return args;
  }
  DType dtype;
  int64_t sq, room;
  Values q, k, v, out, lse;
};

PlanInfo InfoOf(int64_t sk, Isa isa, DType dtype = DType::kF32) {
  Operands operands(100, sk, dtype);
  return PlanFlashAttention(operands.Args(sk), {}, ContextOf(isa))->info();
}

bool NamesRowStates(const PlanInfo& info) {
  for (const std::string& name : info.kernels) {
    if (name.find("row_state") != std::string::npos) return true;
  }
  return false;
}

TEST_P(ShortSequencesTest, OneBlockOfKeysHasItsStateByRows) {
  const int64_t block_k = InfoOf(100, GetParam()).block_k;
  EXPECT_TRUE(NamesRowStates(InfoOf(block_k, GetParam())));
  EXPECT_FALSE(NamesRowStates(InfoOf(block_k + 1, GetParam())));
  if (GetParam() == Isa::kAvx512Bf16) {
    EXPECT_TRUE(NamesRowStates(InfoOf(100, GetParam(), DType::kBF16)));
  }
}

// Masked keys change no bit. The long sequence has several blocks of keys, so kernels keep the state of its rows as
// [dv][lane] instead of [row][dv]. It must give the bits of the short sequence, which has only the kept keys.
TEST_P(ShortSequencesTest, HaveTheBitsOfALongSequenceWhoseOtherKeysAreMasked) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t sq : {17, 33, 100, 129}) {
      const int64_t sk = InfoOf(100, GetParam(), dtype).block_k - 5, long_sk = 3 * sk;
      std::vector<uint8_t> mask(static_cast<size_t>(sq * long_sk), 1);
      for (int64_t row = 0; row < sq; ++row) std::memset(mask.data() + row * long_sk, 0, static_cast<size_t>(sk));
      Operands alone(sq, long_sk, dtype), among(sq, long_sk, dtype);
      ASSERT_TRUE(FlashAttention(alone.Args(sk), {}, ContextOf(GetParam())).ok());
      AttentionArgs args = among.Args(long_sk);
      args.dense_mask = {mask.data(), DType::kU8, {sq, long_sk}, {}};
      ASSERT_TRUE(FlashAttention(args, {}, ContextOf(GetParam())).ok());
      EXPECT_TRUE(alone.out == among.out) << Name(dtype) << " " << sq;
      EXPECT_TRUE(alone.lse == among.lse) << Name(dtype) << " " << sq;
    }
  }
}

}  // namespace
}  // namespace fa::test
