#ifndef FA_OPS_CARVER_H_
#define FA_OPS_CARVER_H_

#include <cstddef>
#include <cstdint>

namespace fa::ops {

/// Hands out 64-byte aligned pieces of a block of memory in order; with null memory it only counts.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}

  float* Floats(int64_t count) { return Array<float>(count); }
  template <typename T>
  T* Array(int64_t count) {
    const size_t offset = used_;
    used_ += (static_cast<size_t>(count) * sizeof(T) + 63) & ~size_t{63};
    return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + offset);
  }
  [[nodiscard]] size_t used() const { return used_; }

 private:
  std::byte* memory_;
  size_t used_ = 0;
};

}  // namespace fa::ops

#endif  // FA_OPS_CARVER_H_
