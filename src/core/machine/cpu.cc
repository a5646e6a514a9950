#include "core/machine/cpu.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/amx_emulated.h"
#include "core/level_order.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace fa {
namespace core {
namespace {

// These bits are from Intel's Software Developer's Manual, volume 2, CPUID.
constexpr uint32_t kLeaf1Fma = 1u << 12;
constexpr uint32_t kLeaf1Osxsave = 1u << 27;
constexpr uint32_t kLeaf1F16c = 1u << 29;
constexpr uint32_t kLeaf7Avx2 = 1u << 5;
constexpr uint32_t kLeaf7Avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // F, DQ, BW, VL
constexpr uint32_t kLeaf7Avx512Vnni = 1u << 11;
constexpr uint32_t kLeaf71Avx512Bf16 = 1u << 5;
constexpr uint32_t kLeaf7Amx = 1u << 22 | 1u << 24 | 1u << 25;  // BF16, TILE, INT8
constexpr uint64_t kXcr0Ymm = 0x06;                             // SSE, AVX
constexpr uint64_t kXcr0Zmm = 0xe6;                             // SSE, AVX, opmask, upper halves of zmm0-15, zmm16-31
constexpr uint64_t kXcr0Tiles = 0x60000;                        // tile configuration, tile data

// These bits are from asm/hwcap.h of Linux for aarch64.
constexpr uint64_t kHwcapAsimd = 1u << 1;
constexpr uint64_t kHwcapAsimdDotprod = 1u << 20;
constexpr uint64_t kHwcap2I8mmBf16 = 1u << 13 | 1u << 14;
#if defined(__aarch64__)
constexpr uint64_t kHwcapCpuid = 1u << 11;  // Linux emulates reads of identification registers
#endif

constexpr bool Has(uint64_t word, uint64_t bits) { return (word & bits) == bits; }

bool ReportsTiles(const CpuFeatureWords& words) {
  return Has(words.leaf7_edx, kLeaf7Amx) && Has(words.xcr0, kXcr0Tiles);
}

#if defined(__x86_64__)
/// Returns whether Linux (5.16 or later) lets this process use the tile registers. The first call asks Linux.
bool PermitTiles() {
  constexpr int kUnknown = -1;
  constexpr long kRequestXcompPerm = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  static constinit std::atomic<int> known{kUnknown};
  if (const int permitted = known.load(std::memory_order_relaxed); permitted != kUnknown) return permitted != 0;
  const bool permitted = syscall(SYS_arch_prctl, kRequestXcompPerm, kTileData) == 0;
  known.store(permitted ? 1 : 0, std::memory_order_relaxed);
  return permitted;
}
#endif

}  // namespace

CpuFeatureWords ReadCpuFeatureWords() {
  CpuFeatureWords words;
#if defined(__x86_64__)
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) words.leaf1_ecx = ecx;
  if (Has(words.leaf1_ecx, kLeaf1Osxsave)) {
    uint32_t low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    words.xcr0 = uint64_t{high} << 32 | low;
  }
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    words.leaf7_ebx = ebx;
    words.leaf7_ecx = ecx;
    words.leaf7_edx = edx;
    const uint32_t last_subleaf = eax;
    if (last_subleaf >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) words.leaf7_1_eax = eax;
  }
  words.tiles_permitted = ReportsTiles(words) && PermitTiles();
#elif defined(__aarch64__)
  words.hwcap = getauxval(AT_HWCAP);
  words.hwcap2 = getauxval(AT_HWCAP2);
#endif
  return words;
}

Isa HighestIsa(const CpuFeatureWords& words) {
  if (Has(words.hwcap, kHwcapAsimd)) {
    if (!Has(words.hwcap, kHwcapAsimdDotprod)) return Isa::kNeon;
    return Has(words.hwcap2, kHwcap2I8mmBf16) ? Isa::kNeonBf16 : Isa::kNeonDotprod;
  }
  const bool avx2 = Has(words.xcr0, kXcr0Ymm) && Has(words.leaf1_ecx, kLeaf1Fma | kLeaf1F16c | kLeaf1Osxsave) &&
                    Has(words.leaf7_ebx, kLeaf7Avx2);
  if (!avx2) return Isa::kPortable;
  if (!Has(words.xcr0, kXcr0Zmm) || !Has(words.leaf7_ebx, kLeaf7Avx512)) return Isa::kAvx2;
  if (!Has(words.leaf7_ecx, kLeaf7Avx512Vnni)) return Isa::kAvx512;
  if (!Has(words.leaf7_1_eax, kLeaf71Avx512Bf16)) return Isa::kAvx512Vnni;
  return ReportsTiles(words) && words.tiles_permitted ? Isa::kAvx512Amx : Isa::kAvx512Bf16;
}

bool IsLeftOut(Isa isa) {
  constexpr std::string_view kLeftOut = FA_LEFT_OUT;  // level names, each between spaces
  return kLeftOut.find(' ' + std::string(Name(isa)) + ' ') != std::string_view::npos;
}

const char* TileUnitOf(const CpuFeatureWords& words) {
  if (!ReportsTiles(words)) return "none";
  return words.tiles_permitted ? "bf16, int8" : "not permitted by the operating system";
}

Isa PreferredIsa(Isa highest, bool intel) { return intel && highest == Isa::kAvx512Bf16 ? Isa::kAvx512Vnni : highest; }

bool IsIntel() {
#if defined(__x86_64__)
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(0, &eax, &ebx, &ecx, &edx) != 0 && ebx == signature_INTEL_ebx && ecx == signature_INTEL_ecx &&
         edx == signature_INTEL_edx;
#else
  return false;
#endif
}

#if defined(__aarch64__)
namespace {

// The numbers of implementers and parts in MIDR_EL1 are from the manuals of Arm and of the CPUs' makers.
constexpr struct {
  uint32_t implementer, part;
  const char* name;
} kParts[] = {
    {0x41, 0xd08, "Cortex-A72"},  {0x41, 0xd0c, "Neoverse N1"}, {0x41, 0xd40, "Neoverse V1"},
    {0x41, 0xd49, "Neoverse N2"}, {0x41, 0xd4f, "Neoverse V2"}, {0x48, 0xd01, "TSV110 (Kunpeng 920)"},
};

std::string NameOfPart() {
  if (!Has(getauxval(AT_HWCAP), kHwcapCpuid)) return {};
  uint64_t midr = 0;
  __asm__("mrs %0, MIDR_EL1" : "=r"(midr));
  const auto implementer = static_cast<uint32_t>(midr >> 24 & 0xff), part = static_cast<uint32_t>(midr >> 4 & 0xfff);
  for (const auto& known : kParts) {
    if (known.implementer == implementer && known.part == part) return known.name;
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "aarch64 CPU, implementer 0x%02x part 0x%03x", implementer, part);
  return text.data();
}

}  // namespace
#endif

std::string CpuName() {
  std::string name;
#if defined(__x86_64__)
  std::array<char, 49> text{};  // three leaves of 16 characters, and the terminating 0
  for (uint32_t leaf = 0; leaf < 3; ++leaf) {
    std::array<uint32_t, 4> words{};
    if (__get_cpuid(0x80000002 + leaf, &words[0], &words[1], &words[2], &words[3]) == 0) break;
    std::memcpy(text.data() + 16 * leaf, words.data(), 16);
  }
  name = text.data();
  name.erase(0, name.find_first_not_of(' '));
  name.erase(name.find_last_not_of(' ') + 1);
#elif defined(__aarch64__)
  name = NameOfPart();
#endif
  return name.empty() ? "unknown CPU" : name;
}

}  // namespace core

std::span<const Isa> AllIsas() {
  static constexpr Isa kAll[] = {
    Isa::kPortable,
    Isa::kAvx2,
    Isa::kAvx512,
    Isa::kAvx512Vnni,
    Isa::kAvx512Bf16,
    Isa::kAvx512Amx,
    Isa::kNeon,
    Isa::kNeonDotprod,
    Isa::kNeonBf16,
#if defined(FA_AMX_EMULATED)
    core::kAmxEmulated,
#endif
  };
  return kAll;
}

bool Includes(Isa level, Isa part) {
#if defined(FA_AMX_EMULATED)
  if (part == core::kAmxEmulated) return true;
#endif
  return core::IsPartOf(level, part);
}

const char* Name(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Vnni: return "avx512_vnni";
    case Isa::kAvx512Bf16: return "avx512_bf16";
    case Isa::kAvx512Amx: return "avx512_amx";
    case Isa::kNeon: return "neon";
    case Isa::kNeonDotprod: return "neon_dotprod";
    case Isa::kNeonBf16: return "neon_bf16";
  }
  return isa == core::kAmxEmulated ? "amx_emulated" : "unknown";
}

std::string IsaNames() {
  std::string names;
  for (const Isa isa : AllIsas()) {
    if (!names.empty()) names += isa == AllIsas().back() ? " or " : ", ";
    names += Name(isa);
  }
  return names;
}

std::optional<Isa> ParseIsa(const std::string& name) {
  for (const Isa isa : AllIsas()) {
    if (name == Name(isa)) return isa;
  }
  return std::nullopt;
}

bool CanRun(Isa isa) { return Includes(DetectIsa(), isa) && !core::IsLeftOut(isa); }

Isa DetectIsa() {
  // If a child is forked while another thread initializes a static variable, the compiler's lock for it is held in the
  // child forever. So several threads may compute the level at the same time here, with the same result.
  constexpr int kUnknown = -1;
  static constinit std::atomic<int> known{kUnknown};
  if (const int isa = known.load(std::memory_order_relaxed); isa != kUnknown) return static_cast<Isa>(isa);
  const Isa reported = core::HighestIsa(core::ReadCpuFeatureWords());
  const char* text = std::getenv("FA_ASSUME_ISA");
  const std::optional<Isa> assumed = text == nullptr ? std::nullopt : ParseIsa(text);
  const Isa isa = assumed && Includes(*assumed, reported) ? *assumed : reported;
  known.store(static_cast<int>(isa), std::memory_order_relaxed);
  return isa;
}

}  // namespace fa
