#ifndef FA_TESTS_SUPPORT_FP_CONTROL_H_
#define FA_TESTS_SUPPORT_FP_CONTROL_H_

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#error "which register holds the floating-point settings here?"
#endif

namespace fa::test {

/// Floating-point settings that a caller may have, in the form of the CPU's control register.
struct FpControl {
  const char* name;
  uint32_t bits;
};

#if defined(__x86_64__)
inline constexpr FpControl kFpControls[] = {
    {"Default", 0x1f80},
    // Flush to zero and denormals are zero, as torch.set_flush_denormal(True) sets them.
    {"FlushToZero", 0x1f80 | 0x8040},
    {"RoundDown", 0x1f80 | 0x2000},                 //
    {"RoundUpAndFlush", 0x1f80 | 0x4000 | 0x8040},  //
    {"TowardsZeroWithFlags", 0x1f80 | 0x6000 | 0x003f},
    {"Unmasked", 0x0000},  // every exception traps
};
inline uint32_t ReadFpControl() { return _mm_getcsr(); }
inline void WriteFpControl(uint32_t bits) {
  asm volatile("" ::: "memory");
  _mm_setcsr(bits);
  asm volatile("" ::: "memory");
}
#else
inline constexpr FpControl kFpControls[] = {
    {"Default", 0},
    {"FlushToZero", 1u << 24},
    {"RoundDown", 2u << 22},
    {"RoundUpAndFlush", 1u << 22 | 1u << 24},
};
inline uint32_t ReadFpControl() {
  uint64_t bits;
  asm volatile("mrs %0, fpcr" : "=r"(bits)::"memory");
  return static_cast<uint32_t>(bits);
}
inline void WriteFpControl(uint32_t bits) { asm volatile("msr fpcr, %0" ::"r"(uint64_t{bits}) : "memory"); }
#endif

/// Sets the caller's floating-point settings while the object lives.
class CallersFpControl {
 public:
  explicit CallersFpControl(const FpControl& control) : before_(ReadFpControl()) { WriteFpControl(control.bits); }
  ~CallersFpControl() { WriteFpControl(before_); }
  CallersFpControl(const CallersFpControl&) = delete;
  CallersFpControl& operator=(const CallersFpControl&) = delete;

 private:
  uint32_t before_;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_FP_CONTROL_H_
