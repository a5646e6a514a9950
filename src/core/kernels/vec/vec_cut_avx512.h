// Functions for the vector work between tile products (tile_queues.inc), in addition to vec_avx512_bf16.h.

#pragma once

#include "core/kernels/vec/vec_avx512_bf16.h"

/// Returns x - floor(x).
FA_INLINE F FractionOf(F x) { return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
/// Returns p * 2^floor(x).
FA_INLINE F ScaleByFloor(F p, F x) { return _mm512_scalef_ps(p, x); }
/// Returns whether two elements differ. A NaN differs from everything.
FA_INLINE M Differ(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ); }
/// These functions return 0 in lanes where `where` is not set.
FA_INLINE F ScaleByFloorWhere(M where, F p, F x) { return _mm512_maskz_scalef_ps(where, p, x); }
FA_INLINE F FmaWhere(M where, F a, F b, F c) { return _mm512_maskz_fmadd_ps(where, a, b, c); }

/// Makes words of the upper halves of `even` (the lower elements) and `odd`. The lower halves are cut off without
/// rounding, which saves 2 cycles compared with RoundToPairs. The constants stay in registers.
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

/// Rounds a vector of row `even` and a vector of row `odd` to bf16 in one operation. The constant stays in a register.
class RoundToRows {
 public:
  struct Rows {
    I halves;
    __attribute__((always_inline)) void Store(uint16_t* even, uint16_t* odd) const {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(even), _mm512_castsi512_si256(halves));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(odd), _mm512_extracti64x4_epi64(halves, 1));
    }
  };
  __attribute__((always_inline)) RoundToRows() { asm("" : "+v"(in_turn_)); }
  __attribute__((always_inline)) Rows operator()(F even, F odd) const {
    return {reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even))};
  }
  /// Returns the same words as RoundToPairs.
  [[nodiscard]] __attribute__((always_inline)) F Words(const Rows& rows) const {
    return AsF(_mm512_permutexvar_epi16(in_turn_, rows.halves));
  }

 private:
  I in_turn_ = _mm512_load_si512(kInTurn);
};

/// While a SubnormalsAsZeros lives, its thread's vector instructions take and give zeros in place of subnormal numbers.
class SubnormalsAsZeros {
 public:
  __attribute__((always_inline)) SubnormalsAsZeros() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040u); }
  __attribute__((always_inline)) ~SubnormalsAsZeros() { _mm_setcsr(before_); }
  SubnormalsAsZeros(const SubnormalsAsZeros&) = delete;
  SubnormalsAsZeros& operator=(const SubnormalsAsZeros&) = delete;
  /// Calls `call` with the settings that the thread had before.
  template <typename Call>
  __attribute__((always_inline)) void Suspend(const Call& call) const {
    _mm_setcsr(before_);
    call();
    _mm_setcsr(before_ | 0x8040u);
  }

 private:
  unsigned before_;
};
