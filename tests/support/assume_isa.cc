// A hypervisor may hide features of a CPU, and the tests would then leave out levels. So each test program first tries
// the instruction VDPBF16PS in a child process.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace fa::test {
namespace {

#if defined(__x86_64__)
/// Returns whether VDPBF16PS runs here. On a core without this instruction the child ends by SIGILL.
bool ExecutesPairsOfBf16() {
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    asm volatile("vdpbf16ps %zmm0, %zmm0, %zmm0");
    _exit(0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The constructor has the first priority that programs may use. So it runs before other static objects, which may ask
// for the level.
__attribute__((constructor(101))) void AssumeWhatExecutes() {
  if (std::getenv("FA_ASSUME_ISA") == nullptr && ExecutesPairsOfBf16()) setenv("FA_ASSUME_ISA", "avx512_bf16", 1);
}
#endif

}  // namespace
}  // namespace fa::test
