// The functions of vec_cut_avx512.h for any CPU, element by element, in builds with tests.

#pragma once

#include "core/kernels/vec/vec_pairs_emulated.h"

FA_INLINE F FractionOf(F x) {
  for (int i = 0; i < kLanes; ++i) {
    // The instruction gives 0 for infinite numbers.
    x[i] = __builtin_isinf_sign(x[i]) != 0 ? 0 : x[i] - __builtin_floorf(x[i]);
  }
  return x;
}
FA_INLINE F ScaleByFloor(F p, F x) {
  for (int i = 0; i < kLanes; ++i) {
    if (x[i] != x[i]) {
      p[i] = x[i];
    } else {
      const float most = x[i] < 300 ? x[i] : 300, exponent = __builtin_floorf(most > -300 ? most : -300);
      p[i] = WithoutSubnormal(__builtin_ldexpf(p[i], static_cast<int>(exponent)));
    }
  }
  return p;
}
FA_INLINE M Differ(F a, F b) { return a != b; }
FA_INLINE F ScaleByFloorWhere(M where, F p, F x) { return Select(where, ScaleByFloor(p, x), Zero()); }
FA_INLINE F FmaWhere(M where, F a, F b, F c) { return Select(where, Fma(a, b, c), Zero()); }

class CutToPairs {
 public:
  __attribute__((always_inline)) F operator()(F even, F odd) const {
    const I upper = AndI(AsI(odd), SetI(static_cast<int32_t>(0xffff0000u)));
    return AsF(XorI(upper, AndI(AsI(even) >> 16, SetI(0x0000ffff))));
  }
};

class RoundToRows {
 public:
  struct Rows {
    F even, odd;
    void Store(uint16_t* to_even, uint16_t* to_odd) const {
      StoreRounded(to_even, even);
      StoreRounded(to_odd, odd);
    }
  };
  Rows operator()(F even, F odd) const { return {even, odd}; }
  [[nodiscard]] F Words(const Rows& rows) const { return RoundToPairs(rows.even, rows.odd); }
};

/// This class does nothing: emulated instructions take subnormals as 0 by themselves.
class SubnormalsAsZeros {
 public:
  SubnormalsAsZeros() = default;
  ~SubnormalsAsZeros() {}
  SubnormalsAsZeros(const SubnormalsAsZeros&) = delete;
  SubnormalsAsZeros& operator=(const SubnormalsAsZeros&) = delete;
  template <typename Call>
  void Suspend(const Call& call) const {
    call();
  }
};
