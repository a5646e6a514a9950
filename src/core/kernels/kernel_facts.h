#ifndef FA_CORE_KERNELS_KERNEL_FACTS_H_
#define FA_CORE_KERNELS_KERNEL_FACTS_H_

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "core/amx_emulated.h"
#include "core/kernels/int8/int8_kernel_types.h"
#include "core/kernels/kernel_types.h"
#include "core/level_order.h"

/// What a plan must know about the kernels of every level, even of levels that this machine lacks. These facts are
/// constants, computed from the lines of kernels.inc. KernelSet has the functions, for the levels that this CPU has.
namespace fa::core::kernels {

/// A line of kernels.inc about kernels of f32 or bf16.
struct RegisteredKernels {
  enum class Kind : uint8_t { kStrip, kPairs, kPairBlocks, kTiles, kFewRows, kFewPairs, kFewFloats };
  Kind kind;
  Isa isa;
  const char* name;
  int64_t rows = 0;   ///< for kernels of few rows: the most query rows; 0 for strips
  int64_t width = 0;  ///< lanes of a strip
  int64_t lanes = 0;  ///< lanes of a vector, for strips only
  const char *row_state_name = nullptr, *in_place_name = nullptr, *indexer_name = nullptr;
  AttendedHeads attended = {};
};

namespace registry {

#define FA_EVERY_LEVEL
#define FA_LEVEL(level, isa) inline constexpr Isa level = isa;
#include "core/kernels/levels/kernels.inc"

#define FA_STRIP_KERNELS(level, type, strip_rows, strip_width, vectors)           \
  {.kind = RegisteredKernels::Kind::kStrip,                                       \
   .isa = level,                                                                  \
   .name = #type "_" #strip_rows "x" #strip_width "_" #level,                     \
   .width = strip_width,                                                          \
   .lanes = strip_width / vectors,                                                \
   .row_state_name = #type "_" #strip_rows "x" #strip_width "_row_state_" #level, \
   .indexer_name = "indexer_" #level},
#define FA_PAIRS(pair_kind, level, strip_rows, strip_width, vectors)            \
  {.kind = RegisteredKernels::Kind::pair_kind,                                  \
   .isa = level,                                                                \
   .name = "bf16_" #strip_rows "x" #strip_width "_" #level,                     \
   .width = strip_width,                                                        \
   .lanes = strip_width / vectors,                                              \
   .row_state_name = "bf16_" #strip_rows "x" #strip_width "_row_state_" #level, \
   .in_place_name = "bf16_" #strip_rows "x" #strip_width "_in_place_" #level},
#define FA_PAIR_KERNELS(level, strip_rows, strip_width, vectors) \
  FA_PAIRS(kPairs, level, strip_rows, strip_width, vectors)
#define FA_PAIR_BLOCK_KERNELS(level, strip_rows, strip_width, vectors) \
  FA_PAIRS(kPairBlocks, level, strip_rows, strip_width, vectors)
#define FA_TILE_KERNELS(level, strip_rows, strip_width, vectors) \
  FA_PAIRS(kTiles, level, strip_rows, strip_width, vectors)
#define FA_FEW_ROW_KERNELS(level, few) \
  {.kind = RegisteredKernels::Kind::kFewRows, .isa = level, .name = "few_" #few "_" #level, .rows = few},
#define FA_FEW_PAIR_KERNELS(level, few)        \
  {.kind = RegisteredKernels::Kind::kFewPairs, \
   .isa = level,                               \
   .name = "few_" #few "_" #level,             \
   .rows = few,                                \
   .attended = {.most_columns = AttendArgs::kMostColumns, .pairs = true}},
#define FA_FEW_FLOAT_KERNELS(level, few, columns, any_type) \
  {.kind = RegisteredKernels::Kind::kFewFloats,             \
   .isa = level,                                            \
   .name = "few_" #few "_floats_" #level,                   \
   .rows = few,                                             \
   .attended = {.most_columns = columns, .any_float = any_type}},
inline constexpr RegisteredKernels kKernels[] = {
#include "core/kernels/levels/kernels.inc"
};
#undef FA_PAIRS

#define FA_INT8_KERNELS(level, word_group, block_columns, rows, strip_width, vectors) \
  {.name = "i8_" #rows "x" #strip_width "_" #level,                                   \
   .isa = level,                                                                      \
   .width = strip_width,                                                              \
   .group = word_group,                                                               \
   .columns = block_columns},
inline constexpr Int8Facts kInt8[] = {
#include "core/kernels/levels/kernels.inc"
};
#undef FA_EVERY_LEVEL

/// Returns the highest level that is part of `isa` and has a line for which `counts` is true.
template <typename Lines, typename Counts>
[[nodiscard]] constexpr Isa HighestLevel(const Lines& lines, Isa isa, const Counts& counts) {
  Isa highest = Isa::kPortable;
  for (const auto& line : lines) {
    if (counts(line) && IsPartOf(isa, line.isa)) highest = std::max(highest, line.isa);
  }
  return highest;
}
/// Returns whether a level has lines of a kind.
[[nodiscard]] constexpr bool Has(Isa isa, RegisteredKernels::Kind kind) {
  return std::any_of(std::begin(kKernels), std::end(kKernels),
                     [&](const RegisteredKernels& line) { return line.isa == isa && line.kind == kind; });
}

}  // namespace registry

/// The facts of a level's kernels for operands of a type.
struct LevelFacts {
  Isa isa = Isa::kPortable;
  int strip_count = 0, few_count = 0;
  bool has_row_state = false, has_in_place = false;
  StripFacts strips[kMostStrips] = {}, row_state[kMostStrips] = {}, few[kMostFewRows] = {}, in_place = {};
  RowFacts rows = {};

  /// Returns how many rows one instruction of `outer` adds to a sum over rows.
  [[nodiscard]] constexpr int64_t RowsSummedAtOnce() const {
    return strips[0].operands == Operands::kBF16Pairs ? rows.pair_group : 1;
  }
};

/// Returns whether a level multiplies pairs of bf16.
[[nodiscard]] constexpr bool MultipliesPairs(Isa isa) {
  using enum RegisteredKernels::Kind;
  return registry::Has(isa, kPairs) || registry::Has(isa, kPairBlocks) || registry::Has(isa, kTiles);
}
/// Returns the level whose f32 strips, few rows, row kernels and indexer kernels a level uses.
[[nodiscard]] constexpr Isa F32LevelOf(Isa isa) {
  return registry::HighestLevel(registry::kKernels, isa, [](const RegisteredKernels& line) {
    return line.kind == RegisteredKernels::Kind::kStrip;
  });
}
/// Returns whether a level has f32 functions `attend` of its own. If so, its kernels of few rows replace the kernels of
/// the f32 level below.
[[nodiscard]] constexpr bool ReplacesFewRows(Isa isa) {
  return isa != F32LevelOf(isa) && registry::Has(isa, RegisteredKernels::Kind::kFewFloats);
}
/// Returns the level whose int8 kernels a level uses.
[[nodiscard]] constexpr Isa Int8LevelOf(Isa isa) {
  return registry::HighestLevel(registry::kInt8, isa, [](const Int8Facts& /*line*/) { return true; });
}

/// Sets facts.few[..].attended, which says which heads `attend` takes. It comes from the lines of `isa` that are of
/// kind `kind`.
constexpr void SetAttending(LevelFacts& facts, Isa isa, RegisteredKernels::Kind kind) {
  for (const RegisteredKernels& line : registry::kKernels) {
    if (line.isa != isa || line.kind != kind) continue;
    for (int i = 0; i < facts.few_count; ++i) {
      StripFacts& few = facts.few[i];
      if (few.rows != line.rows) continue;
      few.attended = line.attended;
      if (few.isa == isa && kind == RegisteredKernels::Kind::kFewFloats) continue;
      few.name = line.name;
      few.isa = isa;
    }
  }
}

/// Returns the facts of a level's f32 kernels.
[[nodiscard]] constexpr LevelFacts F32FactsOf(Isa isa) {
  LevelFacts facts{.isa = F32LevelOf(isa), .has_row_state = true};
  for (const RegisteredKernels& line : registry::kKernels) {
    StripFacts strip{.name = line.name, .isa = line.isa, .width = line.width, .rows = line.width};
    if (line.isa == facts.isa && line.kind == RegisteredKernels::Kind::kStrip) {
      facts.rows.panel_lanes = line.lanes;
      facts.strips[facts.strip_count] = strip;
      strip.name = line.row_state_name;
      strip.state_by_row = true;
      facts.row_state[facts.strip_count++] = strip;
    } else if (line.isa == facts.isa && line.kind == RegisteredKernels::Kind::kFewRows) {
      strip.width = facts.strips[facts.strip_count - 1].width;
      strip.rows = line.rows;
      strip.any_dtype = true;
      facts.few[facts.few_count++] = strip;
    }
  }
  SetAttending(facts, facts.isa, RegisteredKernels::Kind::kFewFloats);
  if (ReplacesFewRows(isa)) SetAttending(facts, isa, RegisteredKernels::Kind::kFewFloats);
  return facts;
}

/// Returns the facts of a level's kernels of pairs of bf16. They are the facts of its f32 kernels, changed where the
/// level's lines say so.
[[nodiscard]] constexpr LevelFacts PairFactsOf(Isa isa) {
  using enum RegisteredKernels::Kind;
  LevelFacts facts = F32FactsOf(isa);
  SetAttending(facts, isa, kFewPairs);
  facts.isa = isa;
  facts.strip_count = 0;
  facts.has_row_state = facts.has_in_place = registry::Has(isa, kPairs);
  for (const RegisteredKernels& line : registry::kKernels) {
    if (line.isa != isa || (line.kind != kPairs && line.kind != kPairBlocks && line.kind != kTiles)) continue;
    facts.rows = line.kind == kTiles
                     ? RowFacts{.panel_lanes = kTileLanes, .pair_group = kMostPairGroup, .attends_tiles = true}
                 : line.kind == kPairBlocks ? RowFacts{.panel_lanes = line.lanes, .pair_group = kPairBlockDepth}
                                            : RowFacts{.panel_lanes = line.lanes, .pair_group = 2};
    StripFacts strip{.name = line.name,
                     .isa = isa,
                     .width = line.width,
                     .rows = line.width,
                     .operands = Operands::kBF16Pairs,
                     .panel_group = line.kind == kPairBlocks ? kPairBlockDepth : 2,
                     .scores_by_address = line.kind == kPairs};
    facts.strips[facts.strip_count] = strip;
    strip.state_by_row = true;
    strip.name = line.row_state_name;
    facts.row_state[facts.strip_count++] = strip;
    strip.in_place = true;
    strip.name = line.in_place_name;
    facts.in_place = strip;  // the narrowest strip comes last and remains
  }
  return facts;
}

/// Returns the facts of a level's kernels for operands of a type.
[[nodiscard]] constexpr LevelFacts FactsOf(Isa isa, DType dtype) {
  return dtype == DType::kBF16 && MultipliesPairs(isa) ? PairFactsOf(isa) : F32FactsOf(isa);
}

/// Returns the name of the indexer's kernels of an f32 level.
[[nodiscard]] constexpr const char* IndexerNameOf(Isa isa) {
  return std::find_if(std::begin(registry::kKernels), std::end(registry::kKernels),
                      [&](const RegisteredKernels& line) { return line.isa == isa && line.indexer_name != nullptr; })
      ->indexer_name;
}

/// The facts of a level's int8 kernels.
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
