// Which kernels a level has. They are put together once per process and level: the facts of every level, and of a level
// that this CPU has the functions.

#include "core/amx_emulated.h"
#include "core/kernels/indexer/indexer_kernel_types.h"
#include "core/kernels/kernel_facts.h"
#include "core/kernels/kernel_set.h"
#include "core/kernels/levels/kernel_level.h"
#include "core/kernels/once_per_level.h"

namespace fa::core::kernels {
namespace {

void SetF32Functions(Isa isa, KernelSet& set) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2: return avx2::SetFunctions(set);
    case Isa::kAvx512: return avx512::SetFunctions(set);
#elif defined(__aarch64__)
    case Isa::kNeon: return neon::SetFunctions(set);
#endif
    default: return portable::SetFunctions(set);
  }
}

void SetPairFunctions(Isa isa, KernelSet& set) {
#if defined(FA_AMX_EMULATED)
  if (isa == kAmxEmulated) return amx_emulated::SetFunctions(set);
#endif
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512Bf16: return avx512_bf16::SetFunctions(set);
    case Isa::kAvx512Amx: return avx512_amx::SetFunctions(set);
#elif defined(__aarch64__)
    case Isa::kNeonBf16: return neon_bf16::SetFunctions(set);
#endif
    default: break;
  }
}

void SetInt8Functions(Isa isa, Int8Set& set) {
#if defined(FA_AMX_EMULATED)
  if (isa == kAmxEmulated) return amx_emulated::SetInt8Functions(set);
#endif
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2: return avx2::SetInt8Functions(set);
    case Isa::kAvx512Vnni: return avx512_vnni::SetInt8Functions(set);
    case Isa::kAvx512Amx: return avx512_amx::SetInt8Functions(set);
#elif defined(__aarch64__)
    case Isa::kNeon: return neon::SetInt8Functions(set);
    case Isa::kNeonDotprod: return neon_dotprod::SetInt8Functions(set);
    case Isa::kNeonBf16: return neon_bf16::SetInt8Functions(set);
#endif
    default: return portable::SetInt8Functions(set);
  }
}

const IndexerFunctions& IndexerFunctionsOf(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2: return avx2::Indexer();
    case Isa::kAvx512: return avx512::Indexer();
#elif defined(__aarch64__)
    case Isa::kNeon: return neon::Indexer();
#endif
    default: return portable::Indexer();
  }
}

const KernelSet& F32Kernels(Isa isa) {
  static constinit OncePerLevel<KernelSet> sets;
  return sets.Of(F32LevelOf(isa), [&](KernelSet& set) {
    SetFacts(FactsOf(F32LevelOf(isa), DType::kF32), set);
    if (Includes(DetectIsa(), F32LevelOf(isa))) SetF32Functions(F32LevelOf(isa), set);
  });
}

/// avx512_bf16: the f32 kernels of avx512, of which few rows attend.
const KernelSet& AttendingKernels() {
  static constinit OncePerLevel<KernelSet> sets;
  return sets.Of(Isa::kAvx512Bf16, [](KernelSet& set) {
    const KernelSet& f32 = F32Kernels(Isa::kAvx512Bf16);
    SetFacts(FactsOf(Isa::kAvx512Bf16, DType::kF32), set);
    TakeFunctions(f32, set);
#if defined(__x86_64__)
    if (Includes(DetectIsa(), Isa::kAvx512Bf16)) avx512_bf16::SetAttending(set);
#endif
    set.table = f32.table;
    set.table.few = set.few;
  });
}

const KernelSet& PairKernels(Isa isa) {
  static constinit OncePerLevel<KernelSet> sets;
  return sets.Of(isa, [&](KernelSet& set) {
    SetFacts(FactsOf(isa, DType::kBF16), set);
    if (!Includes(DetectIsa(), isa)) return;
    TakeFunctions(isa == Isa::kAvx512Bf16 ? AttendingKernels() : F32Kernels(isa), set);
    SetPairFunctions(isa, set);
  });
}

}  // namespace

const KernelTable& Kernels(Isa isa, DType dtype) {
  if (dtype == DType::kBF16 && MultipliesPairs(isa)) return PairKernels(isa).table;
  return (isa == Isa::kAvx512Bf16 ? AttendingKernels() : F32Kernels(isa)).table;
}

const Int8Table& Int8KernelsFor(Isa isa) {
  static constinit OncePerLevel<Int8Set> sets;
  const Isa level = Int8LevelOf(isa);
  return sets
      .Of(level,
          [&](Int8Set& set) {
            const Int8LevelFacts facts = Int8FactsOf(level);
            for (int i = 0; i < facts.strip_count; ++i) static_cast<Int8Facts&>(set.strips[i]) = facts.strips[i];
            set.table.isa = level;
            set.table.strips = set.strips;
            set.table.strip_count = facts.strip_count;
            set.table.group = Int8GroupOf(level);
            set.table.columns = Int8ColumnsOf(facts.strips[0]);
            if (Includes(DetectIsa(), level)) SetInt8Functions(level, set);
          })
      .table;
}

const IndexerKernels& IndexerKernelsFor(Isa isa) {
  static constinit OncePerLevel<IndexerKernels> kernels;
  const Isa level = F32LevelOf(isa);
  return kernels.Of(level, [&](IndexerKernels& of) {
    of.name = IndexerNameOf(level);
    if (Includes(DetectIsa(), level)) static_cast<IndexerFunctions&>(of) = IndexerFunctionsOf(level);
  });
}

}  // namespace fa::core::kernels
