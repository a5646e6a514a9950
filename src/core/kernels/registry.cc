// The kernels of each level. A level's table is made once per process: its facts for any level, and its functions if
// this CPU and this build have the level.

#include <algorithm>
#include <cassert>
#include <iterator>

#include "core/amx_emulated.h"
#include "core/kernels/indexer/indexer_kernel_types.h"
#include "core/kernels/kernel_facts.h"
#include "core/kernels/kernel_set.h"
#include "core/once_per_level.h"

namespace fa::core::kernels {

// Declares functions for every level; the sources of a level define the ones that it needs. The Set functions set
// functions in a KernelSet that already has its facts. At a level that multiplies pairs, SetFunctions gets a KernelSet
// that already has the f32 functions.
#define FA_EVERY_LEVEL
#define FA_LEVEL(level, isa)                              \
  namespace level {                                       \
  void SetFunctions(KernelSet& set) noexcept;             \
  void SetAttending(KernelSet& set) noexcept;             \
  void SetCompressed(KernelSet& set) noexcept;            \
  void SetIntegerWords(KernelSet& set) noexcept;          \
  void SetByteFloatWords(KernelSet& set) noexcept;        \
  void SetByteFloatWordsByBytes(KernelSet& set) noexcept; \
  void SetInt8Functions(Int8Set& set) noexcept;           \
  const IndexerFunctions& Indexer() noexcept;             \
  }
#include "core/kernels/levels/kernels.inc"
#undef FA_EVERY_LEVEL

namespace {

/// The functions that a level's own sources define. A member is null where the level uses the kernels of a lower level.
struct OwnKernels {
  Isa isa;
  void (*f32)(KernelSet&) noexcept = nullptr;
  const IndexerFunctions& (*indexer)() noexcept = nullptr;
  void (*pairs)(KernelSet&) noexcept = nullptr;
  void (*attending)(KernelSet&) noexcept = nullptr;
  void (*int8)(Int8Set&) noexcept = nullptr;
  void (*compressed)(KernelSet&) noexcept = nullptr;                 ///< sets attend_compressed of f32 kernels
  void (*integer_words)(KernelSet&) noexcept = nullptr;              ///< sets attend_integers
  void (*byte_float_words)(KernelSet&) noexcept = nullptr;           ///< sets attend_byte_floats, for kernels of pairs
  void (*byte_float_words_by_bytes)(KernelSet&) noexcept = nullptr;  ///< replaces attend_byte_floats if PermutesBytes()
};

// CMake defines FA_HAS_<LEVEL> for each level whose sources are in the build (FA_LEVELS), and FA_ONLY_VBMI if the build
// lacks the kernels for CPUs without AVX512_VBMI.
constexpr OwnKernels kOwnKernels[] = {
    {.isa = Isa::kPortable,
     .f32 = portable::SetFunctions,
     .indexer = portable::Indexer,
     .int8 = portable::SetInt8Functions,
     .compressed = portable::SetCompressed},
#ifdef FA_HAS_AVX2
    {.isa = Isa::kAvx2,
     .f32 = avx2::SetFunctions,
     .indexer = avx2::Indexer,
     .int8 = avx2::SetInt8Functions,
     .compressed = avx2::SetCompressed},
#endif
#ifdef FA_HAS_AVX512
    {.isa = Isa::kAvx512, .f32 = avx512::SetFunctions, .indexer = avx512::Indexer, .compressed = avx512::SetCompressed},
#endif
#ifdef FA_HAS_AVX512_VNNI
    {.isa = Isa::kAvx512Vnni, .int8 = avx512_vnni::SetInt8Functions, .integer_words = avx512_vnni::SetIntegerWords},
#endif
#ifdef FA_HAS_AVX512_BF16
    {.isa = Isa::kAvx512Bf16,
     .pairs = avx512_bf16::SetFunctions,
     .attending = avx512_bf16::SetAttending,
#ifndef FA_ONLY_VBMI
     .byte_float_words = avx512_bf16::SetByteFloatWords,
#endif
     .byte_float_words_by_bytes = avx512_bf16::SetByteFloatWordsByBytes},
#endif
#ifdef FA_HAS_AVX512_AMX
    {.isa = Isa::kAvx512Amx, .pairs = avx512_amx::SetFunctions, .int8 = avx512_amx::SetInt8Functions},
#endif
#ifdef FA_HAS_NEON
    {.isa = Isa::kNeon,
     .f32 = neon::SetFunctions,
     .indexer = neon::Indexer,
     .int8 = neon::SetInt8Functions,
     .compressed = neon::SetCompressed},
#endif
#ifdef FA_HAS_NEON_DOTPROD
    {.isa = Isa::kNeonDotprod, .int8 = neon_dotprod::SetInt8Functions},
#endif
#ifdef FA_HAS_NEON_BF16
    {.isa = Isa::kNeonBf16, .pairs = neon_bf16::SetFunctions, .int8 = neon_bf16::SetInt8Functions},
#endif
#ifdef FA_AMX_EMULATED
    {.isa = kAmxEmulated, .pairs = amx_emulated::SetFunctions, .int8 = amx_emulated::SetInt8Functions},
#endif
};

/// Returns a level's own kernels, or null if this CPU or this build lacks the level.
const OwnKernels* OwnKernelsOf(Isa isa) {
  if (!Includes(DetectIsa(), isa)) return nullptr;
  const auto* own =
      std::find_if(std::begin(kOwnKernels), std::end(kOwnKernels), [&](const OwnKernels& of) { return of.isa == isa; });
  return own == std::end(kOwnKernels) ? nullptr : own;
}

const KernelSet& F32Kernels(Isa isa) {
  static constinit OncePerLevel<KernelSet> sets;
  const Isa level = F32LevelOf(isa);
  return sets.Of(level, [&](KernelSet& set) {
    SetFacts(FactsOf(level, DType::kF32), set);
    if (const OwnKernels* own = OwnKernelsOf(level); own != nullptr) {
      own->f32(set);
      own->compressed(set);
    }
  });
}

/// Returns whether this CPU has AVX512_VBMI. AVX512_VBMI is no level of its own, because kernels give the same bits
/// with and without it.
bool PermutesBytes() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512vbmi") != 0;
#else
  return false;
#endif
}

/// Calls a member of OwnKernels with `set`, for every level that is part of `isa` and whose member is not null.
void SetFromLevels(Isa isa, void (*OwnKernels::*member)(KernelSet&) noexcept, KernelSet& set) {
  if (!Includes(DetectIsa(), isa)) return;
  for (const OwnKernels& of : kOwnKernels) {
    if (of.*member != nullptr && IsPartOf(isa, of.isa)) (of.*member)(set);
  }
}

/// Returns the f32 kernels of a level. A level above its f32 level has the kernels of that f32 level, except for its
/// own kernels of few rows.
const KernelSet& FloatKernels(Isa isa) {
  static constinit OncePerLevel<KernelSet> sets;
  if (isa == F32LevelOf(isa)) return F32Kernels(isa);
  return sets.Of(isa, [&](KernelSet& set) {
    const KernelSet& f32 = F32Kernels(isa);
    SetFacts(FactsOf(isa, DType::kF32), set);
    TakeFunctions(f32, set);
    const OwnKernels* own = OwnKernelsOf(isa);
    if (own != nullptr && ReplacesFewRows(isa)) own->attending(set);
    SetFromLevels(isa, &OwnKernels::integer_words, set);
    set.table = f32.table;
    set.table.few = set.few;
  });
}

const KernelSet& PairKernels(Isa isa) {
  static constinit OncePerLevel<KernelSet> sets;
  return sets.Of(isa, [&](KernelSet& set) {
    SetFacts(FactsOf(isa, DType::kBF16), set);
    const OwnKernels* own = OwnKernelsOf(isa);
    if (own == nullptr) return;
    TakeFunctions(FloatKernels(isa), set);
    own->pairs(set);
    SetFromLevels(isa, &OwnKernels::byte_float_words, set);
    if (PermutesBytes()) SetFromLevels(isa, &OwnKernels::byte_float_words_by_bytes, set);
  });
}

}  // namespace

const KernelTable& Kernels(Isa isa, DType dtype) {
  static constinit OncePerLevel<const KernelTable*> floats, bf16;
  return *(dtype == DType::kBF16 ? bf16 : floats).Of(isa, [&](const KernelTable*& table) {
    const bool pairs = dtype == DType::kBF16 && MultipliesPairs(isa);
    table = &(pairs ? PairKernels(isa) : FloatKernels(isa)).table;
    // If this fails, uses_<level> in CMake does not name the level of these kernels.
    assert(table->strips[0].scores != nullptr || !CanRun(isa));
  });
}

const Int8Table& Int8KernelsFor(Isa isa) {
  static constinit OncePerLevel<Int8Set> sets;
  const Isa level = Int8LevelOf(isa);
  const Int8Set& of_level = sets.Of(level, [&](Int8Set& set) {
    const Int8LevelFacts facts = Int8FactsOf(level);
    for (int i = 0; i < facts.strip_count; ++i) static_cast<Int8Facts&>(set.strips[i]) = facts.strips[i];
    set.table.isa = level;
    set.table.strips = set.strips;
    set.table.strip_count = facts.strip_count;
    set.table.group = facts.strips[0].group;
    set.table.columns = facts.strips[0].columns;
    if (const OwnKernels* own = OwnKernelsOf(level); own != nullptr) own->int8(set);
  });
  // If this fails, uses_<level> in CMake does not name the level of these kernels.
  assert(of_level.table.pack_keys != nullptr || !CanRun(isa));
  return of_level.table;
}

const IndexerKernels& IndexerKernelsFor(Isa isa) {
  static constinit OncePerLevel<IndexerKernels> kernels;
  const Isa level = F32LevelOf(isa);
  return kernels.Of(level, [&](IndexerKernels& of) {
    of.name = IndexerNameOf(level);
    const OwnKernels* own = OwnKernelsOf(level);
    if (own != nullptr) static_cast<IndexerFunctions&>(of) = own->indexer();
  });
}

}  // namespace fa::core::kernels
