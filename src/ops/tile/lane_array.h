#ifndef FA_OPS_LANE_ARRAY_H_
#define FA_OPS_LANE_ARRAY_H_

#include <cassert>
#include <cstdint>

namespace fa::ops {

/// The width of the widest strip of any level (strip.cc compares it with the registry).
inline constexpr int64_t kMaxStripWidth = 48;

/// One value per lane of a strip, in whole vectors, as kernels take them. With `= {}` all values are 0. Without `= {}`
/// the values are uninitialised, which saves time if a strip does not use all lanes.
template <typename T>
struct alignas(64) LaneArray {
  T values[kMaxStripWidth];

  [[nodiscard]] T* data() { return values; }
  [[nodiscard]] const T* data() const { return values; }
  operator T*() { return values; }              // NOLINT(google-explicit-constructor): arguments of kernels
  operator const T*() const { return values; }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] T& operator[](int64_t lane) {
    assert(lane >= 0 && lane < kMaxStripWidth);
    return values[lane];
  }
  [[nodiscard]] const T& operator[](int64_t lane) const {
    assert(lane >= 0 && lane < kMaxStripWidth);
    return values[lane];
  }
};

}  // namespace fa::ops

#endif  // FA_OPS_LANE_ARRAY_H_
