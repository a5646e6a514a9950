#include "core/cpu.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace fa {
namespace core {
namespace {

// Bits of Intel's Software Developer's Manual, volume 2, CPUID.
constexpr uint32_t kLeaf1Fma = 1u << 12;
constexpr uint32_t kLeaf1Osxsave = 1u << 27;
constexpr uint32_t kLeaf1F16c = 1u << 29;
constexpr uint32_t kLeaf7Avx2 = 1u << 5;
constexpr uint32_t kLeaf7Avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // F, DQ, BW, VL
constexpr uint32_t kLeaf7Avx512Vnni = 1u << 11;
constexpr uint32_t kLeaf71Avx512Bf16 = 1u << 5;
constexpr uint64_t kXcr0Ymm = 0x06;  // SSE, AVX
constexpr uint64_t kXcr0Zmm = 0xe6;  // and opmask, upper halves of zmm0-15, zmm16-31

constexpr bool Has(uint64_t word, uint64_t bits) { return (word & bits) == bits; }

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
    const uint32_t last_subleaf = eax;
    if (last_subleaf >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) words.leaf7_1_eax = eax;
  }
#endif
  return words;
}

Isa HighestIsa(const CpuFeatureWords& words) {
  const bool avx2 = Has(words.xcr0, kXcr0Ymm) && Has(words.leaf1_ecx, kLeaf1Fma | kLeaf1F16c | kLeaf1Osxsave) &&
                    Has(words.leaf7_ebx, kLeaf7Avx2);
  if (!avx2) return Isa::kPortable;
  if (!Has(words.xcr0, kXcr0Zmm) || !Has(words.leaf7_ebx, kLeaf7Avx512)) return Isa::kAvx2;
  if (!Has(words.leaf7_ecx, kLeaf7Avx512Vnni)) return Isa::kAvx512;
  if (!Has(words.leaf7_1_eax, kLeaf71Avx512Bf16)) return Isa::kAvx512Vnni;
  return Isa::kAvx512Bf16;
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

std::string CpuName() {
  std::string name;
#if defined(__x86_64__)
  std::array<char, 49> text{};  // three leaves of 16 characters and an end
  for (uint32_t leaf = 0; leaf < 3; ++leaf) {
    std::array<uint32_t, 4> words{};
    if (__get_cpuid(0x80000002 + leaf, &words[0], &words[1], &words[2], &words[3]) == 0) break;
    std::memcpy(text.data() + 16 * leaf, words.data(), 16);
  }
  name = text.data();
  name.erase(0, name.find_first_not_of(' '));
  name.erase(name.find_last_not_of(' ') + 1);
#endif
  return name.empty() ? "unknown CPU" : name;
}

}  // namespace core

const char* Name(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Vnni: return "avx512_vnni";
    case Isa::kAvx512Bf16: return "avx512_bf16";
  }
  return "unknown";
}

std::optional<Isa> ParseIsa(const std::string& name) {
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAvx512Bf16}) {
    if (name == Name(isa)) return isa;
  }
  return std::nullopt;
}

Isa DetectIsa() {
  static const Isa isa = [] {
    const Isa reported = core::HighestIsa(core::ReadCpuFeatureWords());
    const char* text = std::getenv("FA_ASSUME_ISA");
    const std::optional<Isa> assumed = text == nullptr ? std::nullopt : ParseIsa(text);
    return assumed ? std::max(reported, *assumed) : reported;
  }();
  return isa;
}

}  // namespace fa
