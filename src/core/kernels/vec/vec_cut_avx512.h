// What the softmax beside tile products (tile_attend.inc) adds to the functions of vec_avx512_bf16.h.

#pragma once

#include "core/kernels/vec/vec_avx512_bf16.h"

/// Returns x - floor(x).
FA_INLINE F FractionOf(F x) { return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
/// Returns p * 2^floor(x).
FA_INLINE F ScaleByFloor(F p, F x) { return _mm512_scalef_ps(p, x); }

/// Makes words of the upper halves of `even` (the lower elements) and `odd`. What is cut off is lost: 2 cycles less
/// than RoundToPairs takes next to products. The constants stay in registers.
class CutToPairs {
 public:
  __attribute__((always_inline)) CutToPairs() {
    asm("" : "+v"(move_));
    asm("" : "+Yk"(lower_));
  }
  __attribute__((always_inline)) F operator()(F even, F odd) const {
    return AsF(_mm512_mask_shuffle_epi8(AsI(odd), lower_, AsI(even), move_));
  }

 private:
  I move_ = _mm512_set4_epi32(static_cast<int32_t>(0x80800f0eu), static_cast<int32_t>(0x80800b0au),
                              static_cast<int32_t>(0x80800706u), static_cast<int32_t>(0x80800302u));
  __mmask64 lower_ = 0x3333333333333333u;
};

/// While such an object lives, subnormal operands and results of the thread's vectors are zeros.
class SubnormalsAsZeros {
 public:
  __attribute__((always_inline)) SubnormalsAsZeros() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040u); }
  __attribute__((always_inline)) ~SubnormalsAsZeros() { _mm_setcsr(before_); }
  SubnormalsAsZeros(const SubnormalsAsZeros&) = delete;
  SubnormalsAsZeros& operator=(const SubnormalsAsZeros&) = delete;
  /// Calls `call` as if there were no such object.
  template <typename Call>
  __attribute__((always_inline)) void Suspend(const Call& call) const {
    _mm_setcsr(before_);
    call();
    _mm_setcsr(before_ | 0x8040u);
  }

 private:
  unsigned before_;
};
