#ifndef FA_CORE_FP_ENVIRONMENT_H_
#define FA_CORE_FP_ENVIRONMENT_H_

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace fa::core {

/// While an object of this class lives, its thread computes as the library does everywhere: it rounds to nearest, keeps
/// denormals and masks floating-point exceptions. The destructor restores the caller's settings and exception flags
/// exactly. The exception flags that the library's own arithmetic sets are dropped, because they would depend on which
/// thread ran which task.
class FpEnvironment {
 public:
  FpEnvironment() noexcept : callers_(Read()) {
    if (!Equal(callers_, kOwn)) Write(kOwn);
  }
  ~FpEnvironment() { Write(callers_); }
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  // All of the library's arithmetic is SSE or wider. It does not use the x87 unit.
  using State = uint32_t;
  static constexpr State kOwn = 0x1f80;  // exceptions masked, no flags, rounding to nearest, neither FTZ nor DAZ
  static bool Equal(State a, State b) { return a == b; }
  static State Read() { return _mm_getcsr(); }
  // The "memory" clobber keeps the compiler from moving loads and stores across this instruction. So arithmetic between
  // a load and a store is not moved across it either.
  static void Write(State state) {
    asm volatile("" ::: "memory");
    _mm_setcsr(state);
    asm volatile("" ::: "memory");
  }
#elif defined(__aarch64__)
  struct State {
    uint64_t control, flags;
  };
  // The value 0 of FPCR means no traps, rounding to nearest, no flushing of denormals, and Arm's usual NaN propagation.
  // The value 0 of FPSR means no flags.
  static constexpr State kOwn = {0, 0};
  static bool Equal(State a, State b) { return a.control == b.control && a.flags == b.flags; }
  static State Read() {
    State state;
    asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(state.control), "=r"(state.flags)::"memory");
    return state;
  }
  static void Write(State state) {
    asm volatile("msr fpcr, %0\n\tmsr fpsr, %1" ::"r"(state.control), "r"(state.flags) : "memory");
  }
#else
  // The settings that standard C can change are rounding and traps.
  struct State {
    std::fenv_t environment;
    bool own = false;
  };
  static inline const State kOwn = {{}, true};
  static bool Equal(const State& /*a*/, const State& /*b*/) { return false; }
  static State Read() {
    State state;
    std::fegetenv(&state.environment);
    return state;
  }
  static void Write(const State& state) { std::fesetenv(state.own ? FE_DFL_ENV : &state.environment); }
#endif

  State callers_;
};

}  // namespace fa::core

#endif  // FA_CORE_FP_ENVIRONMENT_H_
