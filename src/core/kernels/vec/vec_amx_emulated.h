// The functions of vec_amx.h for any CPU, written with the compiler's vectors. Each function does the operation that
// Intel's Software Developer's Manual, volume 2, gives for its instruction.

#pragma once

struct EmulatedTile {
  alignas(64) uint8_t row[16][64];
};
static thread_local constinit EmulatedTile emulated_tiles[8] = {};

/// Returns a tile of the calling thread. Without a configuration the function traps, as the tile instruction would.
FA_INLINE EmulatedTile& TileOf(int tile) {
  if (tile_use != TileUse::kEmulated) __builtin_trap();
  return emulated_tiles[tile];
}

FA_INLINE void UseTiles() {
  if (tile_use == TileUse::kEmulated) return;
  tile_use = TileUse::kEmulated;
  __builtin_memset(emulated_tiles, 0, sizeof emulated_tiles);
}
template <int Tile>
FA_INLINE void TileZero() {
  __builtin_memset(&TileOf(Tile), 0, sizeof(EmulatedTile));
}
template <int Tile, int Offset = 0>
FA_INLINE void TileLoad(const void* p, int64_t step) {
  EmulatedTile& tile = TileOf(Tile);
  for (int64_t r = 0; r < 16; ++r) __builtin_memcpy(tile.row[r], static_cast<const char*>(p) + Offset + r * step, 64);
}
template <int Tile, int Offset = 0>
FA_INLINE void TileLoadOnce(const void* p, int64_t step) {
  TileLoad<Tile, Offset>(p, step);
}
template <int Tile, int Offset = 0>
FA_INLINE void TileStore(void* p, int64_t step) {
  const EmulatedTile& tile = TileOf(Tile);
  for (int64_t r = 0; r < 16; ++r) __builtin_memcpy(static_cast<char*>(p) + Offset + r * step, tile.row[r], 64);
}

// Eight columns are computed at a time, because one by one they would take much of the tests' time. Sanitizers need not
// check the inside of an emulated instruction. They do check the memory from which tiles are loaded and to which tiles
// are stored.
#define FA_EMULATED __attribute__((no_sanitize("address", "thread", "undefined")))
typedef float EmulatedFloats __attribute__((vector_size(32)));
typedef uint32_t EmulatedWords __attribute__((vector_size(32)));
typedef double EmulatedDoubles __attribute__((vector_size(64)));

/// Replaces subnormal numbers by zeros of the same sign.
FA_EMULATED FA_INLINE void EmulatedFlush(EmulatedFloats& x) {
  EmulatedWords bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  bits &= ((bits & 0x7f800000u) != 0) | 0x80000000u;
  __builtin_memcpy(&x, &bits, sizeof x);
}
/// Widens the bf16 in the lower and in the upper halves of words.
FA_EMULATED FA_INLINE void EmulatedElements(const uint8_t* p, EmulatedDoubles& lower, EmulatedDoubles& upper) {
  EmulatedWords words[2];
  __builtin_memcpy(&words[0], p, sizeof words[0]);
  words[1] = words[0] & 0xffff0000u;
  words[0] <<= 16;
  EmulatedFloats x[2];
  __builtin_memcpy(x, words, sizeof x);
  EmulatedFlush(x[0]);
  EmulatedFlush(x[1]);
  lower = __builtin_convertvector(x[0], EmulatedDoubles);
  upper = __builtin_convertvector(x[1], EmulatedDoubles);
}
/// Computes sum = a * b + sum for bf16 a and b, rounded once to nearest even. The product of two bf16 has 16
/// significant bits, so it is exact in double. The addition in double may round, but only at bits so far below the last
/// bit of f32 that the result in f32 is the same.
FA_EMULATED FA_INLINE void EmulatedFma(double a, const EmulatedDoubles& b, EmulatedFloats& sum) {
  sum = __builtin_convertvector(a * b + __builtin_convertvector(sum, EmulatedDoubles), EmulatedFloats);
  EmulatedFlush(sum);
}

FA_EMULATED FA_INLINE void EmulateDotPairsOnVectors(EmulatedTile& c, const EmulatedTile& a, const EmulatedTile& b) {
  EmulatedDoubles a_lower[16][2], a_upper[16][2];
  for (int m = 0; m < 16; ++m) {
    for (int half = 0; half < 2; ++half) EmulatedElements(a.row[m] + 32 * half, a_lower[m][half], a_upper[m][half]);
  }
  for (int n = 0; n < 64; n += 32) {  // n counts bytes of a row
    EmulatedDoubles b_lower[16], b_upper[16];
    for (int k = 0; k < 16; ++k) EmulatedElements(b.row[k] + n, b_lower[k], b_upper[k]);
    constexpr int kRows = 4;  // rows whose sums do not wait for each other
    for (int m = 0; m < 16; m += kRows) {
      EmulatedFloats lower[kRows] = {}, upper[kRows] = {};
      for (int k = 0; k < 16; ++k) {
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          EmulatedFma(a_lower[m + r][k / 8][k % 8], b_lower[k], lower[r]);
          EmulatedFma(a_upper[m + r][k / 8][k % 8], b_upper[k], upper[r]);
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        lower[r] += upper[r];
        EmulatedFlush(lower[r]);
        EmulatedFloats sum;
        __builtin_memcpy(&sum, c.row[m + r] + n, sizeof sum);
        EmulatedFlush(sum);
        sum += lower[r];
        EmulatedFlush(sum);
        __builtin_memcpy(c.row[m + r] + n, &sum, sizeof sum);
      }
    }
  }
}
#if defined(__x86_64__)
FA_EMULATED static __attribute__((noinline, target("avx512f,avx512vl"))) void EmulateDotPairsAvx512(
    EmulatedTile& c, const EmulatedTile& a, const EmulatedTile& b) {
  EmulateDotPairsOnVectors(c, a, b);
}
FA_EMULATED static __attribute__((noinline, target("avx2"))) void EmulateDotPairsAvx2(EmulatedTile& c,
                                                                                      const EmulatedTile& a,
                                                                                      const EmulatedTile& b) {
  EmulateDotPairsOnVectors(c, a, b);
}
#endif
/// Computes TileDotPairs with the same operations on every CPU, so every CPU gives the same bits.
FA_EMULATED static __attribute__((noinline)) void EmulateDotPairs(EmulatedTile& c, const EmulatedTile& a,
                                                                  const EmulatedTile& b) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vl")) return EmulateDotPairsAvx512(c, a, b);
  if (__builtin_cpu_supports("avx2")) return EmulateDotPairsAvx2(c, a, b);
#endif
  EmulateDotPairsOnVectors(c, a, b);
}

/// Computes the products of bytes.
/// @param a_signed, b_signed  whether the bytes of A and B are signed
FA_EMULATED static __attribute__((noinline)) void EmulateDotBytes(EmulatedTile& c, const EmulatedTile& a,
                                                                  const EmulatedTile& b, bool a_signed, bool b_signed) {
  for (int n = 0; n < 64; n += 32) {  // n counts bytes of a row
    EmulatedWords b_bytes[16][4];
    for (int k = 0; k < 16; ++k) {
      EmulatedWords words;
      __builtin_memcpy(&words, b.row[k] + n, sizeof words);
      for (int i = 0; i < 4; ++i) {
        b_bytes[k][i] = words >> 8 * i & 255u;
        if (b_signed) b_bytes[k][i] = (b_bytes[k][i] ^ 128u) - 128u;
      }
    }
    for (int m = 0; m < 16; ++m) {
      EmulatedWords sum;
      __builtin_memcpy(&sum, c.row[m] + n, sizeof sum);
      for (int k = 0; k < 16; ++k) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          uint32_t byte = a.row[m][4 * k + i];
          if (a_signed) byte = (byte ^ 128u) - 128u;
          sum += byte * b_bytes[k][i];
        }
      }
      __builtin_memcpy(c.row[m] + n, &sum, sizeof sum);
    }
  }
}

template <int C, int A, int B>
FA_INLINE void TileDotPairs() {
  EmulateDotPairs(TileOf(C), TileOf(A), TileOf(B));
}
template <int C, int A, int B>
FA_INLINE void TileDotSigned() {
  EmulateDotBytes(TileOf(C), TileOf(A), TileOf(B), true, true);
}
template <int C, int A, int B>
FA_INLINE void TileDotSignedUnsigned() {
  EmulateDotBytes(TileOf(C), TileOf(A), TileOf(B), true, false);
}
template <int C, int A, int B>
FA_INLINE void TileDotUnsignedSigned() {
  EmulateDotBytes(TileOf(C), TileOf(A), TileOf(B), false, true);
}

#undef FA_EMULATED
