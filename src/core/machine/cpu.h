#ifndef FA_CORE_CPU_H_
#define FA_CORE_CPU_H_

#include <cstdint>
#include <string>

#include "fa/context.h"

namespace fa::core {

/// The numbers that decide the instruction-set level. On x86-64 they come from cpuid and xgetbv, on aarch64 from Linux.
/// The numbers of the other processor family are 0.
struct CpuFeatureWords {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0;
  uint32_t leaf7_ecx = 0;
  uint32_t leaf7_edx = 0;
  uint32_t leaf7_1_eax = 0;
  uint64_t xcr0 = 0;             ///< register states that the operating system saves; 0 without OSXSAVE
  bool tiles_permitted = false;  ///< Linux lets this process use the tile unit (AMX)
  uint64_t hwcap = 0;            ///< AT_HWCAP of aarch64
  uint64_t hwcap2 = 0;           ///< AT_HWCAP2 of aarch64
};

/// Reads these numbers. If the CPU and the operating system support the tile unit, also asks Linux for the permission
/// to use it, which the process then keeps.
[[nodiscard]] CpuFeatureWords ReadCpuFeatureWords();

/// Returns the highest level of a CPU with these features. A level counts only if the operating system saves its
/// registers.
[[nodiscard]] Isa HighestIsa(const CpuFeatureWords& words);

/// Returns the level that is used unless the caller asks for another. It is the highest level, except that Intel's CPUs
/// with avx512_bf16 get avx512_vnni. These CPUs start two FMAs per cycle, but only one VDPBF16PS every other cycle
/// (docs/kernels.md).
[[nodiscard]] Isa PreferredIsa(Isa highest, bool intel);
[[nodiscard]] bool IsIntel();

/// Returns whether the library was built without the level (CMake's FA_LEVELS). Levels of other processor families
/// count as built.
[[nodiscard]] bool IsLeftOut(Isa isa);

/// Returns the types that the tile unit of a CPU with these features multiplies, as text: "bf16, int8", "none" or "not
/// permitted by the operating system".
[[nodiscard]] const char* TileUnitOf(const CpuFeatureWords& words);

/// Returns the CPU's own name, or "unknown CPU" if it has none.
[[nodiscard]] std::string CpuName();

}  // namespace fa::core

#endif  // FA_CORE_CPU_H_
