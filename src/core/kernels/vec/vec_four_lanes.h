// The operations on compressed rows for vocabularies of four lanes. F is a vector type of the compiler, whose lanes can
// be indexed. Only these operations are written lane by lane.

#pragma once

// The next functions take vectors of 4 / R keys by R rows, where R is 1, 2 or 4.

/// Lane i of the result is lane i % R of x.
template <int R>
FA_INLINE F RepeatLanes(F x) {
  static_assert(R == 1 || R == 2 || R == 4);
  return F{x[0], x[1 % R], x[2 % R], x[3 % R]};
}
/// Lane i of the result combines all lanes of its row by `join`, which takes two operands.
template <int R, typename Join>
FA_INLINE F JoinGroups(F x, const Join& join) {
  static_assert(R == 1 || R == 2 || R == 4);
  if constexpr (R <= 2) x = join(x, F{x[2], x[3], x[0], x[1]});
  if constexpr (R == 1) x = join(x, F{x[1], x[0], x[3], x[2]});
  return x;
}
/// Lane i of the result is p[i / R], for n <= 4 / R numbers. Further lanes are 0.
template <int R>
FA_INLINE F SpreadKeys(const float* p, int64_t n) {
  static_assert(R == 1 || R == 2 || R == 4);
  const F x = LoadN(p, n);
  return F{x[0], x[1 / R], x[2 / R], x[3 / R]};
}

// The next functions load 4 columns of compressed rows.

/// The numbers of all codes of e4m3.
struct E4M3Numbers {
  float of[256];
  constexpr E4M3Numbers() : of() {
    for (int code = 0; code < 256; ++code) {
      const int exponent = code >> 3 & 15, fraction = code & 7;
      float x = static_cast<float>(exponent == 0 ? fraction : 8 + fraction) * 0x1p-9f;
      for (int i = 1; i < exponent; ++i) x *= 2;
      if ((code & 0x7f) == 0x7f) x = __builtin_nanf("");
      of[code] = code >= 128 ? -x : x;
    }
  }
};
inline constexpr E4M3Numbers kE4M3Numbers;

/// LoadE4M3 returns numbers divided by this power of 2.
inline constexpr float kE4M3Unit = 1.0f;
FA_INLINE F LoadE4M3(const uint8_t* p) {
  const float(&number)[256] = kE4M3Numbers.of;
  return F{number[p[0]], number[p[1]], number[p[2]], number[p[3]]};
}
/// LoadFiniteE4M3 loads NaN, so nobody needs to find it.
inline constexpr int kE4M3AtOnce = 1;
FA_INLINE void LoadFiniteE4M3(const uint8_t* p, F (&x)[1]) { x[0] = LoadE4M3(p); }
template <typename RowAt>
FA_INLINE bool HasE4M3Nan(int64_t /*rows*/, int64_t /*columns*/, const RowAt& /*row*/) {
  return false;
}
/// The codes of e5m2 are the upper bytes of 16-bit floats.
FA_INLINE F LoadE5M2(const uint8_t* p) {
  uint16_t words[4];
  for (int i = 0; i < 4; ++i) words[i] = static_cast<uint16_t>(p[i] << 8);
  return LoadF16(words);
}
/// Loads 4 numbers of 4 bits from 2 bytes. The lower half of a byte comes first.
FA_INLINE F LoadI4(const uint8_t* p) {
  float x[4];
  for (int i = 0; i < 4; ++i) x[i] = static_cast<float>(((p[i / 2] >> (i % 2 * 4) & 15) ^ 8) - 8);
  return Load(x);
}
