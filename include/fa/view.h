#ifndef FA_VIEW_H_
#define FA_VIEW_H_

/// @file
/// Short ways to write a tensor.
/// @code{.cpp}
/// std::vector<float> values(2 * 8 * 128 * 64);
/// std::vector<uint16_t> bits(values.size());
/// const fa::Dims shape = {2, 8, 128, 64};
/// const fa::MutableTensorView f32 = fa::View(values, shape);
/// const fa::TensorView bf16 = fa::View(bits, fa::DType::kBF16, shape);
/// const fa::TensorView every_second = fa::View(values.data(), {2, 8, 64, 64}, {8 * 128 * 64, 128 * 64, 128, 1});
/// @endcode

#include <cassert>
#include <cstdint>
#include <ranges>
#include <type_traits>

#include "fa/tensor.h"

namespace fa {

/// Returns the element type that a C++ type stands for: float, bool, and the integers that DType has. f16 and bf16 have
/// no C++ type here; their 16 bits are passed together with a DType.
template <typename T>
[[nodiscard]] consteval DType DTypeOf() {
  using Plain = std::remove_cv_t<T>;
  constexpr bool kSigned = std::is_integral_v<Plain> && std::is_signed_v<Plain>;
  constexpr bool kUnsigned = std::is_integral_v<Plain> && std::is_unsigned_v<Plain>;
  static_assert(
      std::is_same_v<Plain, float> || (kSigned && sizeof(T) != 2) || (kUnsigned && (sizeof(T) == 1 || sizeof(T) == 8)),
      "want float, bool, int8_t, uint8_t, int32_t, int64_t or uint64_t; of 16 bits, say which DType they are");
  if (std::is_same_v<Plain, float>) return DType::kF32;
  if (std::is_same_v<Plain, bool>) return DType::kBool;
  if (kUnsigned) return sizeof(T) == 1 ? DType::kU8 : DType::kU64;
  return sizeof(T) == 1 ? DType::kI8 : sizeof(T) == 4 ? DType::kI32 : DType::kI64;
}

/// Makes a view of the caller's memory: `fa::View(q.data(), {2, 8, 1024, 64})`. Writable memory gives a
/// MutableTensorView, which also serves where a TensorView is wanted. The parameter is a reference to a pointer and so
/// takes no array. Arrays go to the overload for vectors and arrays, which checks their size.
/// @param shape   the shape of the layout
/// @param stride  elements from one index to the next; empty: dense, row-major
template <typename T>
[[nodiscard]] TensorView View(const T* const& data, const Dims& shape, const Dims& stride = {}) {
  return {data, DTypeOf<T>(), shape, stride};
}
/// Makes a writable view of the caller's memory, with the arguments of the read-only View.
template <typename T>
requires(!std::is_const_v<T>) [[nodiscard]] MutableTensorView
    View(T* const& data, const Dims& shape, const Dims& stride = {}) {
  return {data, DTypeOf<T>(), shape, stride};
}

/// Makes a view of elements whose type C++ does not know, such as the bits of f16 or bf16.
[[nodiscard]] inline TensorView View(const void* data, DType dtype, const Dims& shape, const Dims& stride = {}) {
  return {data, dtype, shape, stride};
}
/// Makes a writable view of elements whose type C++ does not know.
[[nodiscard]] inline MutableTensorView View(void* data, DType dtype, const Dims& shape, const Dims& stride = {}) {
  return {data, dtype, shape, stride};
}

/// Returns the number of elements in memory from the first to the last element of a view, both included. The number
/// must be below 2^63. Returns 0 if there are no elements, for more than 8 dimensions, and for strides of another rank.
[[nodiscard]] constexpr int64_t Reach(const Dims& shape, const Dims& stride = {}) {
  if (shape.rank() > Dims::kMaxRank || (!stride.empty() && stride.rank() != shape.rank())) return 0;
  int64_t reach = 1, dense = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] <= 0) return 0;
    reach += (shape[i] - 1) * (stride.empty() ? dense : stride[i]);
    dense *= shape[i];
  }
  return reach;
}

/// Makes a view of a vector, an array or a span. An assertion checks that the shape stays inside these elements.
template <std::ranges::contiguous_range Elements>
[[nodiscard]] auto View(Elements&& elements, const Dims& shape, const Dims& stride = {}) {
  static_assert(std::ranges::borrowed_range<Elements>, "the elements would not outlive the view");
  assert(Reach(shape, stride) <= std::ranges::ssize(elements));
  return View(std::ranges::data(elements), shape, stride);
}
/// Makes a view of a vector, an array or a span of elements whose type C++ does not know. Each of them must have the
/// size of one element of `dtype`.
template <std::ranges::contiguous_range Elements>
[[nodiscard]] auto View(Elements&& elements, DType dtype, const Dims& shape, const Dims& stride = {}) {
  static_assert(std::ranges::borrowed_range<Elements>, "the elements would not outlive the view");
  assert(sizeof(std::ranges::range_value_t<Elements>) == SizeOf(dtype));
  assert(Reach(shape, stride) <= std::ranges::ssize(elements));
  return View(std::ranges::data(elements), dtype, shape, stride);
}

}  // namespace fa

#endif  // FA_VIEW_H_
