// The vocabulary of vec_amx.h in plain C++, after the operation that Intel's Software Developer's Manual, volume 2,
// gives for each instruction. Included inside a level's own namespace.

struct EmulatedTile {
  alignas(64) uint8_t row[16][64];
};
static thread_local constinit EmulatedTile emulated_tiles[8] = {};

/// A tile of the calling thread; without a configuration the instruction is an invalid one.
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
template <int Tile>
FA_INLINE void TileLoad(const void* p, int64_t step) {
  EmulatedTile& tile = TileOf(Tile);
  for (int64_t r = 0; r < 16; ++r) __builtin_memcpy(tile.row[r], static_cast<const char*>(p) + r * step, 64);
}
template <int Tile>
FA_INLINE void TileStore(void* p, int64_t step) {
  const EmulatedTile& tile = TileOf(Tile);
  for (int64_t r = 0; r < 16; ++r) __builtin_memcpy(static_cast<char*>(p) + r * step, tile.row[r], 64);
}

/// Denormals are zeros, with their sign.
FA_INLINE float EmulatedFlush(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7f800000u) != 0) return x;
  bits &= 0x80000000u;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
/// The number whose upper half is the lower or the upper half of a word.
FA_INLINE float EmulatedElement(uint32_t word, bool upper) {
  const uint32_t bits = upper ? word & 0xffff0000u : word << 16;
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return EmulatedFlush(x);
}
/// a * b + c, rounded once to nearest even, of bf16 a and b. A product of two has 16 significant bits: in double it is
/// exact, and where its sum with c is not, the bits that are lost lie so far below f32's that they decide no tie.
FA_INLINE float EmulatedFma(float a, float b, float c) {
  return EmulatedFlush(static_cast<float>(static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c)));
}

static __attribute__((noinline)) void EmulateDotPairs(EmulatedTile& c, const EmulatedTile& a, const EmulatedTile& b) {
  float b_lower[16][16], b_upper[16][16];
  for (int k = 0; k < 16; ++k) {
    uint32_t b_row[16];
    __builtin_memcpy(b_row, b.row[k], 64);
    for (int n = 0; n < 16; ++n) {
      b_lower[k][n] = EmulatedElement(b_row[n], false);
      b_upper[k][n] = EmulatedElement(b_row[n], true);
    }
  }
  for (int m = 0; m < 16; ++m) {
    float lower[16] = {}, upper[16] = {}, sum[16];
    uint32_t a_row[16];
    __builtin_memcpy(a_row, a.row[m], 64);
    for (int k = 0; k < 16; ++k) {
      const float x = EmulatedElement(a_row[k], false), y = EmulatedElement(a_row[k], true);
      for (int n = 0; n < 16; ++n) {
        lower[n] = EmulatedFma(x, b_lower[k][n], lower[n]);
        upper[n] = EmulatedFma(y, b_upper[k][n], upper[n]);
      }
    }
    __builtin_memcpy(sum, c.row[m], 64);
    for (int n = 0; n < 16; ++n) {
      const float both = EmulatedFlush(lower[n] + upper[n]);
      sum[n] = EmulatedFlush(EmulatedFlush(sum[n]) + both);
    }
    __builtin_memcpy(c.row[m], sum, 64);
  }
}

/// @param a_signed, b_signed  how the bytes of A and B are extended
static __attribute__((noinline)) void EmulateDotBytes(EmulatedTile& c, const EmulatedTile& a, const EmulatedTile& b,
                                                      bool a_signed, bool b_signed) {
  const auto extend = [](uint8_t byte, bool is_signed) -> int32_t {
    return is_signed ? static_cast<int8_t>(byte) : static_cast<int32_t>(byte);
  };
  for (int m = 0; m < 16; ++m) {
    uint32_t sum[16];
    __builtin_memcpy(sum, c.row[m], 64);
    for (int k = 0; k < 16; ++k) {
      for (int n = 0; n < 16; ++n) {
        for (int i = 0; i < 4; ++i) {
          sum[n] +=
              static_cast<uint32_t>(extend(a.row[m][4 * k + i], a_signed) * extend(b.row[k][4 * n + i], b_signed));
        }
      }
    }
    __builtin_memcpy(c.row[m], sum, 64);
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
