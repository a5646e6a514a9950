// Each loop of vectors is one asm block, so that no compiler, at any optimisation level, removes or spills anything.
// There are twelve sums, except for VDPBF16PS. Two FMA units with a latency of four cycles need eight sums, and twelve
// leave registers for the two operands on every level. The operands are random (random_operands.h).

#include <cmath>
#include <cstring>

#include "core/kernels/levels/kernel_level.h"
#include "core/kernels/tile_use.h"
#include "peak/peak_loops.h"
#include "peak/random_operands.h"

namespace fa::bench {
namespace {

constexpr double kSums = 12;

/// Random operands: two registers for each type. `halves` fills the one register that RunSse needs.
struct VectorOperands {
  alignas(64) float f32[2][16];
  alignas(64) float halves[16];  // random numbers from 1/4 to 3/4
  alignas(64) uint16_t bf16[2][32];
  alignas(64) uint8_t bytes[2][64];

  VectorOperands() {
    FillNormal({f32[0], 32});
    for (int i = 0; i < 16; ++i) halves[i] = 0.25F + 0.5F * std::fabs(f32[0][i]) / (1 + std::fabs(f32[0][i]));
    FillNormalBf16({bf16[0], 64});
    FillBytes({bytes[0], 128});
  }
};
const VectorOperands& Operands() {
  static const VectorOperands operands;
  return operands;
}

#define FA_CLOBBERS                                                                                                \
  "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", \
      "xmm13", "xmm14", "xmm15"
#define FA_TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

// Without FMA the loop computes x = x h + h, which converges.
#define FA_CLEAR_SSE(n) "xorps %%xmm" #n ", %%xmm" #n "\n\t"
#define FA_MUL_ADD_SSE(n) "mulps %%xmm15, %%xmm" #n "\n\taddps %%xmm15, %%xmm" #n "\n\t"
void RunSse(int64_t iterations) {
  asm volatile("movaps (%[halves]), %%xmm15\n\t" FA_TWELVE(FA_CLEAR_SSE)  //
               "1:\n\t" FA_TWELVE(FA_MUL_ADD_SSE) "decq %[n]\n\tjnz 1b"
               : [n] "+r"(iterations)
               : [halves] "r"(Operands().halves)
               : FA_CLOBBERS, "memory");
}

/// Defines a function that runs the loop of `instruction`. The operands are registers 14 and 15, which `load` fills.
#define FA_CLEAR(n) "vxorps %%xmm" #n ", %%xmm" #n ", %%xmm" #n "\n\t"
#define FA_RUN(name, registers, load, operands, instruction)                                                           \
  void name(int64_t iterations) {                                                                                      \
    asm volatile(load " (%[a]), %%" registers "14\n\t" load " (%[b]), %%" registers                                    \
                      "15\n\t" FA_TWELVE(FA_CLEAR) "1:\n\t" FA_TWELVE(instruction) "decq %[n]\n\tjnz 1b\n\tvzeroupper" \
                 : [n] "+r"(iterations)                                                                                \
                 : [a] "r"(Operands().operands[0]), [b] "r"(Operands().operands[1])                                    \
                 : FA_CLOBBERS, "memory");                                                                             \
  }

#define FA_FMA_YMM(n) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #n "\n\t"
FA_RUN(RunAvx2, "ymm", "vmovups", f32, FA_FMA_YMM)
#define FA_FMA_ZMM(n) "vfmadd231ps %%zmm14, %%zmm15, %%zmm" #n "\n\t"
FA_RUN(RunAvx512, "zmm", "vmovups", f32, FA_FMA_ZMM)
// Sums of int32 may wrap around. This does not change the loop's speed.
#define FA_DOT_INT8(n) "vpdpbusd %%zmm14, %%zmm15, %%zmm" #n "\n\t"
FA_RUN(RunInt8Dot, "zmm", "vmovups", bytes, FA_DOT_INT8)

// On a Zen 5, twelve sums reach only 93 % of the peak, so there are 24. Registers from 16 on need not be saved, because
// compilers do not use them in code without AVX-512.
#define FA_TWELVE_MORE(X) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27)
#define FA_CLEAR_ZMM(n) "vpxord %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n\t"
#define FA_DOT_BF16(n) "vdpbf16ps %%zmm14, %%zmm15, %%zmm" #n "\n\t"
constexpr double kBf16Sums = 2 * kSums;
void RunBf16Dot(int64_t iterations) {
  asm volatile("vmovups (%[a]), %%zmm14\n\tvmovups (%[b]), %%zmm15\n\t" FA_TWELVE(FA_CLEAR_ZMM)
                   FA_TWELVE_MORE(FA_CLEAR_ZMM)  //
               "1:\n\t" FA_TWELVE(FA_DOT_BF16) FA_TWELVE_MORE(FA_DOT_BF16) "decq %[n]\n\tjnz 1b\n\tvzeroupper"
               : [n] "+r"(iterations)
               : [a] "r"(Operands().bf16[0]), [b] "r"(Operands().bf16[1])
               : FA_CLOBBERS, "memory");
}

// The loops of the tile unit. These loops may use tiles, because DetectIsa asks Linux for the permission when it
// detects the level.
namespace tiles {
using core::kernels::tile_use;
using core::kernels::TileScope;
using core::kernels::TileUse;
#include "core/kernels/vec/vec_amx.h"
#include "peak/tile_products.inc"
}  // namespace tiles

constexpr double kTileSums = 4;

void RunBf16Tiles(int64_t iterations) {
  static const tiles::TileOperands operands = [] {
    uint16_t numbers[2][1024];
    FillNormalBf16({numbers[0], 2048});
    tiles::TileOperands filled;
    std::memcpy(filled.a, numbers[0], sizeof filled.a);
    std::memcpy(filled.b, numbers[1], sizeof filled.b);
    return filled;
  }();
  tiles::TileSums sums;
  tiles::RunTileProducts<DType::kBF16>(operands, iterations, sums);
}
void RunInt8Tiles(int64_t iterations) {
  static const tiles::TileOperands operands = [] {
    tiles::TileOperands filled;
    FillBytes({filled.a[0], sizeof filled.a + sizeof filled.b});
    return filled;
  }();
  tiles::TileSums sums;
  tiles::RunTileProducts<DType::kI8>(operands, iterations, sums);
}

// The loops below are plain loads of four cache lines per step. There are no other instructions, so a core issues loads
// faster than memory answers.

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
  if (Includes(isa, Isa::kAvx512)) return {RunAvx512, kSums * 16 * 2, "512-bit f32 FMA"};
  if (Includes(isa, Isa::kAvx2)) return {RunAvx2, kSums * 8 * 2, "256-bit f32 FMA"};
  return {RunSse, kSums * 4 * 2, "128-bit f32 multiply and add"};
}

PeakLoop Bf16Loop(Isa isa) {
  if (Includes(isa, Isa::kAvx512Amx)) return {RunBf16Tiles, kTileSums * 16 * 16 * 32 * 2, "bf16 tile products"};
  if (Includes(isa, Isa::kAvx512Bf16)) return {RunBf16Dot, kBf16Sums * 32 * 2, "VDPBF16PS"};
  return F32Loop(isa);
}

PeakLoop Int8Loop(Isa isa) {
  if (Includes(isa, Isa::kAvx512Amx)) return {RunInt8Tiles, kTileSums * 16 * 16 * 64 * 2, "int8 tile products"};
  if (Includes(isa, Isa::kAvx512Vnni)) return {RunInt8Dot, kSums * 64 * 2, "VPDPBUSD"};
  return F32Loop(isa);
}

void ReadLines(Isa isa, const std::byte* data, size_t bytes) {
  if (Includes(isa, Isa::kAvx512)) return ReadAvx512(data, bytes);
  if (Includes(isa, Isa::kAvx2)) return ReadAvx(data, bytes);
  ReadSse(data, bytes);
}

}  // namespace fa::bench
