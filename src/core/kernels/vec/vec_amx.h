// The functions of the tile unit (AMX), by its instructions. The unit has eight tiles of 16 rows of 64 bytes.
// vec_amx_emulated.h has the same functions for any CPU.
//
// The instructions are written as inline assembly, because g++ 12's intrinsics have two faults. They take tile numbers
// only as literals, and they do not say that tileloadd reads memory.

#pragma once

/// Configures all eight tiles with their full size, once per thread and TileScope.
FA_INLINE void UseTiles() {
  if (tile_use == TileUse::kInstructions) return;
  // This is palette 1. Bytes 16 and up hold the number of bytes per row for each tile. Bytes 48 and up hold the number
  // of rows for each tile.
  alignas(64) static constexpr uint8_t kConfiguration[64] = {
      1,  0,  0,  0,  0,  0,  0,  0,  0,  0, 0,  0, 0,  0, 0,  0,  // NOLINT
      64, 0,  64, 0,  64, 0,  64, 0,  64, 0, 64, 0, 64, 0, 64, 0,  // NOLINT
      0,  0,  0,  0,  0,  0,  0,  0,  0,  0, 0,  0, 0,  0, 0,  0,  // NOLINT
      16, 16, 16, 16, 16, 16, 16, 16, 0,  0, 0,  0, 0,  0, 0,  0};
  asm volatile("ldtilecfg %0" ::"m"(kConfiguration));
  tile_use = TileUse::kInstructions;
}
template <int Tile>
FA_INLINE void TileZero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(Tile));
}
/// Loads 16 rows of 64 bytes, which lie `step` bytes apart. The first row lies `Offset` bytes after p. The offset is
/// part of the instruction, because otherwise the compiler would keep sums of addresses in vector registers.
template <int Tile, int Offset = 0>
FA_INLINE void TileLoad(const void* p, int64_t step) {
  asm volatile("tileloadd %c3(%0,%1,1), %%tmm%c2" ::"r"(p), "r"(step), "i"(Tile), "i"(Offset) : "memory");
}
/// Does what TileLoad does, with the hint that L1 need not keep the rows.
template <int Tile, int Offset = 0>
FA_INLINE void TileLoadOnce(const void* p, int64_t step) {
  asm volatile("tileloaddt1 %c3(%0,%1,1), %%tmm%c2" ::"r"(p), "r"(step), "i"(Tile), "i"(Offset) : "memory");
}
template <int Tile, int Offset = 0>
FA_INLINE void TileStore(void* p, int64_t step) {
  asm volatile("tilestored %%tmm%c2, %c3(%0,%1,1)" ::"r"(p), "r"(step), "i"(Tile), "i"(Offset) : "memory");
}
/// C[m][n] += sum over k < 16 of the pairs A[m][k] . B[k][n], bf16 to f32. Subnormal numbers count as 0. Lower elements
/// and upper elements are summed separately, each in ascending order. The two sums are added, and the result is added
/// to C.
template <int C, int A, int B>
FA_INLINE void TileDotPairs() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}
/// C[m][n] += sum over k < 16 of four signed bytes A[m][k] times four signed bytes B[k][n], modulo 2^32.
template <int C, int A, int B>
FA_INLINE void TileDotSigned() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}
/// Does what TileDotSigned does, with unsigned bytes of B.
template <int C, int A, int B>
FA_INLINE void TileDotSignedUnsigned() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}
/// Does what TileDotSigned does, with unsigned bytes of A.
template <int C, int A, int B>
FA_INLINE void TileDotUnsignedSigned() {
  asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}
