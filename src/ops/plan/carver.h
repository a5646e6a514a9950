#ifndef FA_OPS_CARVER_H_
#define FA_OPS_CARVER_H_

#include <cstddef>
#include <cstdint>

#include "core/saturating.h"

namespace fa::ops {

/// Hands out 64-byte aligned pieces of a block of memory, in order. With null memory the carver only counts the bytes.
/// A count beyond 63 bits saturates.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}

  /// Takes as many floats as the product of `sizes`.
  template <typename... Sizes>
  float* Floats(Sizes... sizes) {
    return Array<float>(sizes...);
  }
  template <typename T, typename... Sizes>
  T* Array(Sizes... sizes) {
    const size_t offset = used_;
    const int64_t bytes = core::SaturatedProduct(static_cast<int64_t>(sizeof(T)), static_cast<int64_t>(sizes)...);
    const int64_t rounded = core::SaturatedRoundUp(bytes, 64);
    used_ = static_cast<size_t>(core::SaturatedSum(static_cast<int64_t>(used_), rounded));
    return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + offset);
  }
  [[nodiscard]] size_t used() const { return used_; }

 private:
  std::byte* memory_;
  size_t used_ = 0;
};

}  // namespace fa::ops

#endif  // FA_OPS_CARVER_H_
