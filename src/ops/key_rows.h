#ifndef FA_OPS_KEY_ROWS_H_
#define FA_OPS_KEY_ROWS_H_

#include <cstdint>

namespace fa::ops {

/// f32 rows of K, its rope part and V for the keys from `first` on.
struct KeyRows {
  const float* k = nullptr;
  const float* k_rope = nullptr;
  const float* v = nullptr;
  int64_t k_stride = 0, k_rope_stride = 0, v_stride = 0;
  int64_t first = 0;

  [[nodiscard]] const float* K(int64_t key) const { return k + (key - first) * k_stride; }
  [[nodiscard]] const float* KRope(int64_t key) const { return k_rope + (key - first) * k_rope_stride; }
  [[nodiscard]] const float* V(int64_t key) const { return v + (key - first) * v_stride; }
};

}  // namespace fa::ops

#endif  // FA_OPS_KEY_ROWS_H_
