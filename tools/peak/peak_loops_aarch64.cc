// Each loop is one asm block, so that no compiler, at any optimisation level, removes or spills anything. There are 24
// accumulators: four units with a latency of four cycles need at least 16. The factors are so small that every sum
// stays normal, however many iterations there are. These loops have run under emulation only.

#include "peak/peak_loops.h"

namespace fa::bench {
namespace {

constexpr double kAccumulators = 24;

#define FA_CLOBBERS                                                                                                  \
  "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", \
      "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24"
#define FA_ALL(X) \
  X(0)            \
  X(1)            \
  X(2)            \
  X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
#define FA_CLEAR(n) "movi v" #n ".4s, #0\n\t"
#define FA_LOOP(X) "1:\n\t" FA_ALL(X) "subs %[n], %[n], #1\n\tb.ne 1b"

/// Defines a function that runs the loop of one instruction. Every 32-bit word of the factors is `word`.
#define FA_RUN(name, instruction, word)                                              \
  void name(int64_t iterations) {                                                    \
    asm volatile("dup v24.4s, %w[factors]\n\t" FA_ALL(FA_CLEAR) FA_LOOP(instruction) \
                 : [n] "+r"(iterations)                                              \
                 : [factors] "r"(uint32_t{word})                                     \
                 : FA_CLOBBERS);                                                     \
  }

#define FA_FMLA(n) "fmla v" #n ".4s, v24.4s, v24.4s\n\t"
FA_RUN(RunFmla, FA_FMLA, 0x35800000)                  // each word is 2^-20 in f32
#define FA_BFMMLA(n) ".inst 0x6e58ef00 + " #n "\n\t"  // the instruction bfmmla vN.4s, v24.8h, v24.8h
FA_RUN(RunBfmmla, FA_BFMMLA, 0x2b802b80)              // each word has the bf16 number 2^-40 twice
// The instruction sdot vN.4s, v24.16b, v24.16b. The sums may wrap around, which does not change the speed.
#define FA_SDOT(n) ".inst 0x4e989700 + " #n "\n\t"
FA_RUN(RunSdot, FA_SDOT, 0x01020304)
#define FA_SMMLA(n) ".inst 0x4e98a700 + " #n "\n\t"  // the instruction smmla vN.4s, v24.16b, v24.16b
FA_RUN(RunSmmla, FA_SMMLA, 0x01020304)

}  // namespace

PeakLoop F32Loop(Isa /*isa*/) { return {RunFmla, kAccumulators * 4 * 2, "FMLA"}; }

PeakLoop Bf16Loop(Isa isa) {
  return Includes(isa, Isa::kNeonBf16) ? PeakLoop{RunBfmmla, kAccumulators * 16 * 2, "BFMMLA"} : F32Loop(isa);
}

PeakLoop Int8Loop(Isa isa) {
  if (Includes(isa, Isa::kNeonBf16)) return {RunSmmla, kAccumulators * 32 * 2, "SMMLA"};
  return Includes(isa, Isa::kNeonDotprod) ? PeakLoop{RunSdot, kAccumulators * 16 * 2, "SDOT"} : F32Loop(isa);
}

void ReadLines(Isa /*isa*/, const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kReadStep) {
    for (size_t j = 0; j < kReadStep; j += 32) asm volatile("ldp q0, q1, [%0]" : : "r"(data + i + j) : "v0", "v1");
  }
}

}  // namespace fa::bench
