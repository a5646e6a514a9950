#ifndef FA_CORE_KERNELS_KERNEL_FACTS_H_
#define FA_CORE_KERNELS_KERNEL_FACTS_H_

#include <cstdint>

#include "core/amx_emulated.h"
#include "core/kernels/int8/int8_kernel_types.h"
#include "core/kernels/kernel_types.h"

/// What the registries (kernels.inc, int8_kernels.inc) say of the kernels of every level, this machine's or not: plain
/// data, known while compiling. A plan needs no more; the functions are set for levels that this CPU has (KernelSet).
namespace fa::core::kernels {

/// A line of kernels.inc.
struct RegisteredKernels {
  enum class Kind : uint8_t { kStrip, kPairs, kFewRows, kFewPairs, kFewFloats };
  Kind kind;
  Isa isa;
  int64_t rows, width;  ///< width: of strips
  const char *name, *row_state_name = nullptr, *in_place_name = nullptr;
};

namespace registry {

// The registries name levels by these words.
inline constexpr Isa portable = Isa::kPortable, avx2 = Isa::kAvx2, avx512 = Isa::kAvx512,
                     avx512_vnni = Isa::kAvx512Vnni, avx512_bf16 = Isa::kAvx512Bf16, avx512_amx = Isa::kAvx512Amx,
                     neon = Isa::kNeon, neon_dotprod = Isa::kNeonDotprod, neon_bf16 = Isa::kNeonBf16,
                     amx_emulated = kAmxEmulated;

#define FA_EVERY_LEVEL
#define FA_STRIP_KERNELS(level, type, rows, width, vectors) \
  {RegisteredKernels::Kind::kStrip,                         \
   level,                                                   \
   width,                                                   \
   width,                                                   \
   #type "_" #rows "x" #width "_" #level,                   \
   #type "_" #rows "x" #width "_row_state_" #level},
#define FA_PAIR_KERNELS(level, rows, width, vectors) \
  {RegisteredKernels::Kind::kPairs,                  \
   level,                                            \
   width,                                            \
   width,                                            \
   "bf16_" #rows "x" #width "_" #level,              \
   "bf16_" #rows "x" #width "_row_state_" #level,    \
   "bf16_" #rows "x" #width "_in_place_" #level},
#define FA_FEW_ROW_KERNELS(level, rows) {RegisteredKernels::Kind::kFewRows, level, rows, 0, "few_" #rows "_" #level},
#define FA_FEW_PAIR_KERNELS(level, rows) {RegisteredKernels::Kind::kFewPairs, level, rows, 0, "few_" #rows "_" #level},
#define FA_FEW_FLOAT_KERNELS(level, rows) \
  {RegisteredKernels::Kind::kFewFloats, level, rows, 0, "few_" #rows "_floats_" #level},
inline constexpr RegisteredKernels kKernels[] = {
#include "core/kernels/levels/kernels.inc"
};

#define FA_INT8_KERNELS(level, rows, width, vectors) {"i8_" #rows "x" #width "_" #level, level, width, rows},
inline constexpr Int8Facts kInt8[] = {
#include "core/kernels/int8/int8_kernels.inc"
};
#undef FA_EVERY_LEVEL

}  // namespace registry

/// The kernels of a level for operands of a type.
struct LevelFacts {
  Isa isa = Isa::kPortable;
  int strip_count = 0, few_count = 0;
  bool has_row_state = false, has_in_place = false;
  StripFacts strips[kMostStrips] = {}, row_state[kMostStrips] = {}, few[kMostFewRows] = {}, in_place = {};
  RowFacts rows = {};

  /// Rows whose products an instruction of an outer product adds.
  [[nodiscard]] constexpr int64_t RowsSummedAtOnce() const {
    return strips[0].operands == Operands::kBF16Pairs ? rows.pair_group : 1;
  }
};

/// Whether a level multiplies pairs of bf16.
[[nodiscard]] constexpr bool MultipliesPairs(Isa isa) {
  return isa == Isa::kAvx512Bf16 || isa == Isa::kAvx512Amx || isa == Isa::kNeonBf16 || isa == kAmxEmulated;
}
/// The level whose f32 strips, few rows and row kernels a level has.
[[nodiscard]] constexpr Isa F32LevelOf(Isa isa) {
  for (const Isa level : {Isa::kAvx512, Isa::kAvx2}) {
    if (isa >= level && isa <= Isa::kAvx512Amx) return level;
  }
  return isa >= Isa::kNeon && isa <= Isa::kNeonBf16 ? Isa::kNeon : Isa::kPortable;
}
/// Few rows that attend in f32: of 16 registers and of one or two rows, rows of every type. Four rows of 32 registers
/// take f32 with heads of up to 128 columns: more products take longer than the keys take from memory.
[[nodiscard]] constexpr AttendedHeads HeadsOfFloats(Isa isa, int64_t rows) {
  const bool any = isa == Isa::kAvx2 || rows <= 2;
  return {.most_columns = any ? AttendArgs::kMostColumns : 128, .any_float = any};
}

/// The f32 kernels of a level's family.
[[nodiscard]] constexpr LevelFacts F32FactsOf(Isa isa) {
  LevelFacts facts{.isa = F32LevelOf(isa), .has_row_state = true};
  facts.rows.panel_lanes = facts.isa == Isa::kAvx512 ? 16 : facts.isa == Isa::kAvx2 ? 8 : 4;
  for (const RegisteredKernels& line : registry::kKernels) {
    StripFacts strip{.name = line.name, .isa = line.isa, .width = line.width, .rows = line.rows};
    if (line.isa == facts.isa && line.kind == RegisteredKernels::Kind::kStrip) {
      facts.strips[facts.strip_count] = strip;
      strip.name = line.row_state_name;
      strip.state_by_row = true;
      facts.row_state[facts.strip_count++] = strip;
    } else if (line.isa == facts.isa && line.kind == RegisteredKernels::Kind::kFewRows) {
      strip.width = facts.strips[facts.strip_count - 1].width;
      strip.any_dtype = true;
      if (line.isa == Isa::kAvx2) strip.attended = HeadsOfFloats(line.isa, line.rows);
      facts.few[facts.few_count++] = strip;
    }
  }
  return facts;
}

/// Few rows of `isa` that attend, of one kind, in place of those of the f32 level.
constexpr void SetAttending(LevelFacts& facts, Isa isa, RegisteredKernels::Kind kind) {
  for (const RegisteredKernels& line : registry::kKernels) {
    if (line.isa != isa || line.kind != kind) continue;
    for (int i = 0; i < facts.few_count; ++i) {
      if (facts.few[i].rows != line.rows) continue;
      facts.few[i].name = line.name;
      facts.few[i].isa = isa;
      facts.few[i].attended = kind == RegisteredKernels::Kind::kFewPairs
                                  ? AttendedHeads{.most_columns = AttendArgs::kMostColumns, .pairs = true}
                                  : HeadsOfFloats(isa, line.rows);
    }
  }
}

/// The pairs of a level that multiplies them, over the f32 kernels of its family.
[[nodiscard]] constexpr LevelFacts PairFactsOf(Isa isa) {
  LevelFacts facts = F32FactsOf(isa);
  if (isa == Isa::kAvx512Bf16) {
    SetAttending(facts, isa, RegisteredKernels::Kind::kFewFloats);
    SetAttending(facts, isa, RegisteredKernels::Kind::kFewPairs);
  }
  const bool dots = isa == Isa::kAvx512Bf16, blocks = isa == Isa::kNeonBf16;
  facts.isa = isa;
  facts.strip_count = 0;
  facts.has_row_state = facts.has_in_place = dots;
  facts.rows = dots ? RowFacts{16, 2} : blocks ? RowFacts{4, 4} : RowFacts{16, kMostPairGroup};
  for (const RegisteredKernels& line : registry::kKernels) {
    if (line.isa != isa || line.kind != RegisteredKernels::Kind::kPairs) continue;
    StripFacts strip{.name = line.name,
                     .isa = isa,
                     .width = line.width,
                     .rows = line.rows,
                     .operands = Operands::kBF16Pairs,
                     .panel_group = blocks ? 4 : 2,
                     .scores_by_address = dots};
    facts.strips[facts.strip_count] = strip;
    strip.state_by_row = true;
    strip.name = line.row_state_name;
    facts.row_state[facts.strip_count++] = strip;
    strip.in_place = true;
    strip.name = line.in_place_name;
    facts.in_place = strip;  // the narrowest
  }
  return facts;
}

/// What a level, this machine's or not, has for operands of a type.
[[nodiscard]] constexpr LevelFacts FactsOf(Isa isa, DType dtype) {
  if (dtype == DType::kBF16 && MultipliesPairs(isa)) return PairFactsOf(isa);
  LevelFacts facts = F32FactsOf(isa);
  if (isa == Isa::kAvx512Bf16) SetAttending(facts, isa, RegisteredKernels::Kind::kFewFloats);
  return facts;
}

/// The name of the indexer's kernels, which are those of the f32 level.
[[nodiscard]] constexpr const char* IndexerNameOf(Isa isa) {
  switch (F32LevelOf(isa)) {
    case Isa::kAvx2: return "indexer_avx2";
    case Isa::kAvx512: return "indexer_avx512";
    case Isa::kNeon: return "indexer_neon";
    default: return "indexer_portable";
  }
}

/// The level whose int8 kernels a level has.
[[nodiscard]] constexpr Isa Int8LevelOf(Isa isa) {
  switch (isa) {
    case Isa::kAvx512: return Isa::kAvx2;
    case Isa::kAvx512Bf16: return Isa::kAvx512Vnni;
    default: return isa;
  }
}

/// The int8 kernels of a level.
struct Int8LevelFacts {
  int strip_count = 0;
  Int8Facts strips[kMostInt8Strips] = {};
};
[[nodiscard]] constexpr Int8LevelFacts Int8FactsOf(Isa isa) {
  Int8LevelFacts facts;
  for (const Int8Facts& line : registry::kInt8) {
    if (line.isa == Int8LevelOf(isa)) facts.strips[facts.strip_count++] = line;
  }
  return facts;
}

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_KERNEL_FACTS_H_
