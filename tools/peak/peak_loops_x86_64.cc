// Each loop is one asm block, so that no compiler and no optimisation level removes or spills anything. Twelve
// accumulators (but for VDPBF16PS): two FMA units of latency four need eight, and twelve leave registers for the two
// operands on every level. Every accumulator converges to 1 (x = x/2 + 1/2), so that no NaN, infinity or denormal slows
// a unit down.

#include "peak/peak_loops.h"

namespace fa::bench {
namespace {

constexpr double kAccumulators = 12;
constexpr float kHalf = 0.5F;

#define FA_CLOBBERS                                                                                                \
  "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", \
      "xmm13", "xmm14", "xmm15"
#define FA_TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

#define FA_CLEAR_SSE(n) "xorps %%xmm" #n ", %%xmm" #n "\n\t"
#define FA_MUL_ADD_SSE(n) "mulps %%xmm15, %%xmm" #n "\n\taddps %%xmm15, %%xmm" #n "\n\t"
void RunSse(int64_t iterations) {
  asm volatile("movss %[half], %%xmm15\n\tshufps $0, %%xmm15, %%xmm15\n\t" FA_TWELVE(FA_CLEAR_SSE)  //
               "1:\n\t" FA_TWELVE(FA_MUL_ADD_SSE) "decq %[n]\n\tjnz 1b"
               : [n] "+r"(iterations)
               : [half] "m"(kHalf)
               : FA_CLOBBERS);
}

#define FA_CLEAR_AVX(n) "vxorps %%xmm" #n ", %%xmm" #n ", %%xmm" #n "\n\t"
#define FA_FMA_YMM(n) "vfmadd213ps %%ymm15, %%ymm15, %%ymm" #n "\n\t"
void RunAvx2(int64_t iterations) {
  asm volatile("vbroadcastss %[half], %%ymm15\n\t" FA_TWELVE(FA_CLEAR_AVX)  //
               "1:\n\t" FA_TWELVE(FA_FMA_YMM) "decq %[n]\n\tjnz 1b\n\tvzeroupper"
               : [n] "+r"(iterations)
               : [half] "m"(kHalf)
               : FA_CLOBBERS);
}

#define FA_FMA_ZMM(n) "vfmadd213ps %%zmm15, %%zmm15, %%zmm" #n "\n\t"
void RunAvx512(int64_t iterations) {
  asm volatile("vbroadcastss %[half], %%zmm15\n\t" FA_TWELVE(FA_CLEAR_AVX)  //
               "1:\n\t" FA_TWELVE(FA_FMA_ZMM) "decq %[n]\n\tjnz 1b\n\tvzeroupper"
               : [n] "+r"(iterations)
               : [half] "m"(kHalf)
               : FA_CLOBBERS);
}

// A dot product only adds: factors of 2^-40 keep the sums normal for any number of iterations. Two units of latency six
// need twelve accumulators, and on a Zen 5 twelve reach 93 % of the rate of more: there are 24. No compiler of code
// without AVX-512 uses the registers from 16 on.
#define FA_TWELVE_MORE(X) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27)
constexpr double kBf16Accumulators = 2 * kAccumulators;
#define FA_CLEAR_ZMM(n) "vpxord %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n\t"
#define FA_DOT_ZMM(n) "vdpbf16ps %%zmm15, %%zmm15, %%zmm" #n "\n\t"
void RunBf16Dot(int64_t iterations) {
  constexpr uint32_t kTwoTinyBf16 = 0x2b802b80;
  asm volatile("vpbroadcastd %[tiny], %%zmm15\n\t" FA_TWELVE(FA_CLEAR_ZMM) FA_TWELVE_MORE(FA_CLEAR_ZMM)  //
               "1:\n\t" FA_TWELVE(FA_DOT_ZMM) FA_TWELVE_MORE(FA_DOT_ZMM) "decq %[n]\n\tjnz 1b\n\tvzeroupper"
               : [n] "+r"(iterations)
               : [tiny] "r"(kTwoTinyBf16)
               : FA_CLOBBERS);
}

// Sums of int32 wrap, which costs nothing.
#define FA_DOT_INT8(n) "vpdpbusd %%zmm15, %%zmm15, %%zmm" #n "\n\t"
void RunInt8Dot(int64_t iterations) {
  constexpr uint32_t kFourBytes = 0x01020304;
  asm volatile("vpbroadcastd %[bytes], %%zmm15\n\t" FA_TWELVE(FA_CLEAR_AVX)  //
               "1:\n\t" FA_TWELVE(FA_DOT_INT8) "decq %[n]\n\tjnz 1b\n\tvzeroupper"
               : [n] "+r"(iterations)
               : [bytes] "r"(kFourBytes)
               : FA_CLOBBERS);
}

// Six accumulators of the tile unit: its products start every 16 cycles and take 52. Zeros are multiplied as fast as
// anything else. DetectIsa, which says that the level is there, has asked for the permission.
constexpr double kTileAccumulators = 6;
struct TileConfiguration {
  alignas(64) uint8_t palette = 1;
  uint8_t start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfiguration) == 64);
constexpr TileConfiguration kWholeTiles;

#define FA_SIX(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define FA_DOT_TILES_BF16(n) "tdpbf16ps %%tmm7, %%tmm6, %%tmm" #n "\n\t"
#define FA_DOT_TILES_INT8(n) "tdpbusd %%tmm7, %%tmm6, %%tmm" #n "\n\t"
#define FA_TILE_LOOP(DOT)                                                                      \
  asm volatile("ldtilecfg %[tiles]\n\t1:\n\t" FA_SIX(DOT) "decq %[n]\n\tjnz 1b\n\ttilerelease" \
               : [n] "+r"(iterations)                                                          \
               : [tiles] "m"(kWholeTiles)                                                      \
               : "cc")
void RunBf16Tiles(int64_t iterations) { FA_TILE_LOOP(FA_DOT_TILES_BF16); }
void RunInt8Tiles(int64_t iterations) { FA_TILE_LOOP(FA_DOT_TILES_INT8); }

// Plain loads, four cache lines per step. Without other instructions a core issues loads faster than memory answers.

void ReadSse(const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kReadStep) {
    for (size_t j = 0; j < kReadStep; j += 16) asm volatile("movaps %0, %%xmm0" : : "m"(data[i + j]) : "xmm0");
  }
}

void ReadAvx(const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kReadStep) {
    for (size_t j = 0; j < kReadStep; j += 32) asm volatile("vmovaps %0, %%ymm0" : : "m"(data[i + j]) : "xmm0");
  }
  asm volatile("vzeroupper");
}

void ReadAvx512(const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kReadStep) {
    for (size_t j = 0; j < kReadStep; j += 64) asm volatile("vmovaps %0, %%zmm0" : : "m"(data[i + j]) : "xmm0");
  }
  asm volatile("vzeroupper");
}

}  // namespace

PeakLoop F32Loop(Isa isa) {
  if (Includes(isa, Isa::kAvx512)) return {RunAvx512, kAccumulators * 16 * 2};
  if (Includes(isa, Isa::kAvx2)) return {RunAvx2, kAccumulators * 8 * 2};
  return {RunSse, kAccumulators * 4 * 2};
}

PeakLoop Bf16Loop(Isa isa) {
  if (Includes(isa, Isa::kAvx512Amx)) return {RunBf16Tiles, kTileAccumulators * 16 * 16 * 32 * 2};
  return Includes(isa, Isa::kAvx512Bf16) ? PeakLoop{RunBf16Dot, kBf16Accumulators * 32 * 2} : F32Loop(isa);
}

PeakLoop Int8Loop(Isa isa) {
  if (Includes(isa, Isa::kAvx512Amx)) return {RunInt8Tiles, kTileAccumulators * 16 * 16 * 64 * 2};
  return Includes(isa, Isa::kAvx512Vnni) ? PeakLoop{RunInt8Dot, kAccumulators * 64 * 2} : F32Loop(isa);
}

void ReadLines(Isa isa, const std::byte* data, size_t bytes) {
  if (Includes(isa, Isa::kAvx512)) return ReadAvx512(data, bytes);
  if (Includes(isa, Isa::kAvx2)) return ReadAvx(data, bytes);
  ReadSse(data, bytes);
}

}  // namespace fa::bench
