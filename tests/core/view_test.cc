#include "fa/view.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace fa::test {
namespace {

static_assert(DTypeOf<float>() == DType::kF32 && DTypeOf<const float>() == DType::kF32);
static_assert(DTypeOf<bool>() == DType::kBool && DTypeOf<uint8_t>() == DType::kU8);
static_assert(DTypeOf<int8_t>() == DType::kI8 && DTypeOf<int32_t>() == DType::kI32);
static_assert(DTypeOf<int64_t>() == DType::kI64 && DTypeOf<uint64_t>() == DType::kU64);
static_assert(DTypeOf<long long>() == DType::kI64);  // NOLINT(google-runtime-int)

static_assert(Reach({2, 3, 4}) == 24 && Reach({2, 3, 4}, {100, 10, 1}) == 124 && Reach({2, 0, 4}) == 0);
static_assert(Reach({}) == 1 && Reach({5, 4}, {0, 1}) == 4);

TEST(View, KnowsTypeShapeAndWhetherItMayBeWritten) {
  std::vector<float> values(24);
  const auto out = View(values.data(), {2, 3, 4});
  static_assert(std::is_same_v<decltype(out), const MutableTensorView>);
  EXPECT_EQ(out.data, values.data());
  EXPECT_EQ(out.dtype, DType::kF32);
  EXPECT_EQ(out.shape, (Dims{2, 3, 4}));
  EXPECT_TRUE(out.stride.empty());
  const auto in = View(std::as_const(values).data(), {2, 3, 4}, {12, 4, 1});
  static_assert(std::is_same_v<decltype(in), const TensorView>);
  EXPECT_EQ(in.stride, (Dims{12, 4, 1}));
  const TensorView both = View(values.data(), {24});
  EXPECT_EQ(both.data, values.data());
}

TEST(View, OfBitsIsOfTheTypeThatIsSaid) {
  std::vector<uint16_t> bits(8);
  EXPECT_EQ(View(bits.data(), DType::kBF16, {2, 4}).dtype, DType::kBF16);
  EXPECT_EQ(View(std::as_const(bits).data(), DType::kF16, {8}, {1}).dtype, DType::kF16);
}

TEST(View, OfAVectorAnArrayOrASpanIsOfItsMemory) {
  std::vector<int32_t> table(6);
  const MutableTensorView of_vector = View(table, {2, 3}, {3, 1});
  EXPECT_EQ(of_vector.data, table.data());
  EXPECT_EQ(of_vector.stride, (Dims{3, 1}));
  const auto of_const = View(std::as_const(table), {6});
  static_assert(std::is_same_v<decltype(of_const), const TensorView>);
  EXPECT_EQ(of_const.data, table.data());
  std::array<uint16_t, 6> bits{};
  const MutableTensorView of_array = View(bits, DType::kF16, {2, 3});
  EXPECT_EQ(of_array.data, bits.data());
  EXPECT_EQ(of_array.dtype, DType::kF16);
  float of_language[6] = {};
  const auto of_c_array = View(of_language, {2, 3});
  static_assert(std::is_same_v<decltype(of_c_array), const MutableTensorView>);
  EXPECT_EQ(of_c_array.data, of_language);
  EXPECT_EQ(View(std::span(table), {2, 3}).data, table.data());
  EXPECT_EQ(View(std::span<const int32_t>(table), {2, 3}).dtype, DType::kI32);
}

TEST(ViewDeathTest, AShapeThatReachesPastTheElementsIsAnAssertion) {
#ifdef NDEBUG
  GTEST_SKIP() << "no assertions in this build";
#else
  std::vector<float> values(5);
  std::vector<uint16_t> bits(5);
  EXPECT_DEATH(static_cast<void>(View(std::span(values), {2, 3})), "Reach");
  EXPECT_DEATH(static_cast<void>(View(values, {2, 3})), "Reach");
  const float of_language[5] = {};
  EXPECT_DEATH(static_cast<void>(View(of_language, {2, 3})), "Reach");
  EXPECT_DEATH(static_cast<void>(View(bits, DType::kBF16, {2, 3})), "Reach");
  EXPECT_DEATH(static_cast<void>(View(values, DType::kBF16, {5})), "SizeOf");
#endif
}

}  // namespace
}  // namespace fa::test
