// The tables of every level as plain data, out of the same registries, compiled for any CPU. Contents that only a run
// needs, the functions, are null.

#include "core/kernels/described_kernels.h"

#include <algorithm>
#include <cassert>
#include <span>

#include "core/kernels/levels/kernel_level.h"

#define FA_STRIP_KERNELS_AVX512
#define FA_STRIP_KERNELS_AVX2
#define FA_STRIP_KERNELS_NEON
#define FA_STRIP_KERNELS_PORTABLE
#define FA_PAIR_KERNELS_AVX512_BF16
#define FA_PAIR_KERNELS_AVX512_AMX
#define FA_PAIR_KERNELS_AMX_EMULATED
#define FA_PAIR_KERNELS_NEON_BF16
#define FA_INT8_KERNELS_AVX512_VNNI
#define FA_INT8_KERNELS_AVX512_AMX
#define FA_INT8_KERNELS_AMX_EMULATED
#define FA_INT8_KERNELS_AVX2
#define FA_INT8_KERNELS_NEON
#define FA_INT8_KERNELS_NEON_DOTPROD
#define FA_INT8_KERNELS_NEON_BF16
#define FA_INT8_KERNELS_PORTABLE

namespace fa::core::kernels {
namespace {

// The registries name levels by these words.
constexpr Isa kIsa_portable = Isa::kPortable, kIsa_avx2 = Isa::kAvx2, kIsa_avx512 = Isa::kAvx512,
              kIsa_avx512_vnni = Isa::kAvx512Vnni, kIsa_avx512_bf16 = Isa::kAvx512Bf16,
              kIsa_avx512_amx = Isa::kAvx512Amx, kIsa_neon = Isa::kNeon, kIsa_neon_dotprod = Isa::kNeonDotprod,
              kIsa_neon_bf16 = Isa::kNeonBf16, kIsa_amx_emulated = Isa::kAmxEmulated;

constexpr StripKernels Strip(const char* name, Isa isa, int64_t width) {
  StripKernels strip{};
  strip.name = name;
  strip.isa = isa;
  strip.width = strip.rows = width;
  return strip;
}

constexpr StripKernels RowState(const char* name, Isa isa, int64_t width) {
  StripKernels strip = Strip(name, isa, width);
  strip.state_by_row = true;
  return strip;
}

constexpr StripKernels Pairs(const char* name, Isa isa, int64_t width) {
  StripKernels strip = Strip(name, isa, width);
  strip.operands = Operands::kBF16Pairs;
  strip.scores_by_address = isa == Isa::kAvx512Bf16;
  return strip;
}

constexpr StripKernels PairRowState(const char* name, Isa isa, int64_t width) {
  StripKernels strip = Pairs(name, isa, width);
  strip.state_by_row = true;
  return strip;
}

constexpr StripKernels InPlace(const char* name, Isa isa, int64_t width) {
  StripKernels strip = Pairs(name, isa, width);
  strip.state_by_row = strip.in_place = true;
  return strip;
}

/// Their width is that of the level's narrowest strip, which F32Table sets.
constexpr StripKernels FewRows(const char* name, Isa isa, int64_t rows) {
  StripKernels few = Strip(name, isa, 0);
  few.rows = rows;
  few.any_dtype = true;
  return few;
}

constexpr Int8Kernels Int8Strip(const char* name, Isa isa, int64_t width) {
  Int8Kernels strip{};
  strip.name = name;
  strip.isa = isa;
  strip.width = width;
  return strip;
}

#define FA_STRIP_KERNELS(level, type, rows, width, vectors) \
  Strip(FA_STRIP_NAME(level, type, rows, width), kIsa_##level, width),
#define FA_PAIR_KERNELS(level, rows, width, vectors)
#define FA_FEW_ROW_KERNELS(level, rows)
constexpr StripKernels kStrips[] = {
#include "core/kernels/levels/kernels.inc"
};
#undef FA_STRIP_KERNELS
#define FA_STRIP_KERNELS(level, type, rows, width, vectors) \
  RowState(FA_ROW_STATE_NAME(level, type, rows, width), kIsa_##level, width),
constexpr StripKernels kRowState[] = {
#include "core/kernels/levels/kernels.inc"
};
#undef FA_STRIP_KERNELS
#undef FA_PAIR_KERNELS
#define FA_STRIP_KERNELS(level, type, rows, width, vectors)
#define FA_PAIR_KERNELS(level, rows, width, vectors) \
  Pairs(FA_STRIP_NAME(level, bf16, rows, width), kIsa_##level, width),
constexpr StripKernels kPairs[] = {
#include "core/kernels/levels/kernels.inc"
};
#undef FA_PAIR_KERNELS
#define FA_PAIR_KERNELS(level, rows, width, vectors) \
  PairRowState(FA_ROW_STATE_NAME(level, bf16, rows, width), kIsa_##level, width),
constexpr StripKernels kPairRowState[] = {
#include "core/kernels/levels/kernels.inc"
};
#undef FA_PAIR_KERNELS
#define FA_PAIR_KERNELS(level, rows, width, vectors) \
  InPlace(FA_IN_PLACE_NAME(level, bf16, rows, width), kIsa_##level, width),
constexpr StripKernels kInPlace[] = {
#include "core/kernels/levels/kernels.inc"
};
#undef FA_PAIR_KERNELS
#undef FA_FEW_ROW_KERNELS
#define FA_PAIR_KERNELS(level, rows, width, vectors)
#define FA_FEW_ROW_KERNELS(level, rows) FewRows(FA_FEW_ROW_NAME(level, rows), kIsa_##level, rows),
constexpr StripKernels kFewRows[] = {
#include "core/kernels/levels/kernels.inc"
};
#undef FA_FEW_ROW_KERNELS
#define FA_FEW_ROW_KERNELS(level, rows)
#define FA_FEW_PAIR_KERNELS(level, rows) FewRows(FA_FEW_ROW_NAME(level, rows), kIsa_##level, rows),
constexpr StripKernels kFewPairs[] = {
#include "core/kernels/levels/kernels.inc"
};
#undef FA_FEW_PAIR_KERNELS
#define FA_FEW_FLOAT_KERNELS(level, rows) FewRows(FA_FEW_FLOAT_NAME(level, rows), kIsa_##level, rows),
constexpr StripKernels kFewFloats[] = {
#include "core/kernels/levels/kernels.inc"
};
#undef FA_FEW_FLOAT_KERNELS
#define FA_INT8_KERNELS(level, rows, width, vectors) \
  Int8Strip(FA_STRIP_NAME(level, i8, rows, width), kIsa_##level, width),
constexpr Int8Kernels kInt8[] = {
#include "core/kernels/int8/int8_kernels.inc"
};

/// A level's lines follow each other.
template <typename Kernels>
struct Lines {
  const Kernels* first;
  int count;
};
template <typename Kernels>
Lines<Kernels> LinesOf(std::span<const Kernels> all, Isa isa) {
  const auto of_level = [isa](const Kernels& line) { return line.isa == isa; };
  const auto first = std::find_if(all.begin(), all.end(), of_level);
  const auto end = std::find_if_not(first, all.end(), of_level);
  return {first == end ? nullptr : &*first, static_cast<int>(end - first)};
}

/// What planning asks of kernels that do not depend on a strip.
template <int64_t kLanes, int64_t kPairGroup = 2>
constexpr RowKernels kRowsOfLanes = [] {
  RowKernels rows{};
  rows.pair_group = kPairGroup;
  rows.panel_columns = [](int64_t columns) { return RoundUp(columns, kLanes); };
  return rows;
}();

const RowKernels& RowsOf(Isa isa) {
  if (Includes(isa, Isa::kAvx512)) return kRowsOfLanes<16>;
  return Includes(isa, Isa::kAvx2) ? kRowsOfLanes<8> : kRowsOfLanes<4>;
}

/// A level's table of f32 strips and of few rows.
struct F32Table {
  explicit F32Table(Isa isa) {
    const Lines<StripKernels> strips = LinesOf<StripKernels>(kStrips, isa),
                              lines = LinesOf<StripKernels>(kFewRows, isa);
    assert(lines.count <= kMostFewRows);
    std::copy_n(lines.first, lines.count, few);
    for (StripKernels& kernels : few) kernels.width = strips.first[strips.count - 1].width;
    table = {
        isa, strips.first, strips.count, few, lines.count, &RowsOf(isa), LinesOf<StripKernels>(kRowState, isa).first};
  }
  F32Table(const F32Table&) = delete;
  F32Table& operator=(const F32Table&) = delete;

  StripKernels few[kMostFewRows] = {};
  KernelTable table = {};
};

/// The pairs of a level over the few rows of the f32 level below.
KernelTable PairTable(Isa isa, const KernelTable& f32, const RowKernels& rows) {
  const Lines<StripKernels> strips = LinesOf<StripKernels>(kPairs, isa);
  return {isa, strips.first, strips.count, f32.few, f32.few_count, &rows};
}
KernelTable PairTable(Isa isa, const KernelTable& f32) { return PairTable(isa, f32, *f32.rows); }
/// Their products by BFMMLA, of four rows.
KernelTable BlockTable(Isa isa, const KernelTable& f32) { return PairTable(isa, f32, kRowsOfLanes<4, 4>); }
/// The few rows of a level that attend, in place of those of the f32 level below.
struct AttendingRows {
  AttendingRows(const KernelTable& below, const Lines<StripKernels>& own) {
    std::copy_n(below.few, below.few_count, few);
    for (StripKernels& kernels : std::span(few, static_cast<size_t>(below.few_count))) {
      for (const StripKernels& line : std::span(own.first, static_cast<size_t>(own.count))) {
        if (line.rows != kernels.rows) continue;
        kernels.name = line.name;
        kernels.isa = line.isa;
      }
    }
  }
  StripKernels few[kMostFewRows] = {};
};

/// The f32 table of a level on which they attend.
struct AttendingTable : AttendingRows {
  AttendingTable(Isa isa, const KernelTable& f32)
      : AttendingRows(f32, LinesOf<StripKernels>(kFewFloats, isa)), table(f32) {
    table.few = few;
  }
  AttendingTable(const AttendingTable&) = delete;
  AttendingTable& operator=(const AttendingTable&) = delete;

  KernelTable table;
};

/// The pairs of a level whose strips have their state by rows, too, that reads the keys of few heads in place, and
/// whose few rows attend.
struct InPlaceTable : AttendingRows {
  InPlaceTable(Isa isa, const KernelTable& f32)
      : AttendingRows(f32, LinesOf<StripKernels>(kFewPairs, isa)), table(PairTable(isa, f32)) {
    table.row_state = LinesOf<StripKernels>(kPairRowState, isa).first;
    table.heads_in_place = &LinesOf<StripKernels>(kInPlace, isa).first[table.strip_count - 1];
    table.few = few;
  }
  InPlaceTable(const InPlaceTable&) = delete;
  InPlaceTable& operator=(const InPlaceTable&) = delete;

  KernelTable table;
};
/// The strips of the tile unit.
KernelTable TileTable(Isa isa, const KernelTable& f32) { return PairTable(isa, f32, kRowsOfLanes<16, kMostPairGroup>); }

Int8Table Int8TableOf(Isa isa, int64_t group, int64_t columns) {
  const Lines<Int8Kernels> strips = LinesOf<Int8Kernels>(kInt8, isa);
  return {isa, strips.first, strips.count, group, columns, nullptr, nullptr, nullptr};
}

constexpr IndexerKernels Indexer(const char* name, Isa isa) {
  IndexerKernels kernels{};
  kernels.name = name;
  kernels.isa = isa;
  return kernels;
}

}  // namespace

const KernelTable& DescribedKernels(Isa isa, DType dtype) {
  static const F32Table portable(Isa::kPortable), avx2(Isa::kAvx2), avx512(Isa::kAvx512), neon(Isa::kNeon);
  static const AttendingTable avx512_attending(Isa::kAvx512Bf16, avx512.table);
  static const InPlaceTable avx512_bf16(Isa::kAvx512Bf16, avx512_attending.table);
  static const KernelTable avx512_amx = TileTable(Isa::kAvx512Amx, avx512.table),
                           amx_emulated = TileTable(Isa::kAmxEmulated, portable.table),
                           neon_bf16 = BlockTable(Isa::kNeonBf16, neon.table);
  const bool bf16 = dtype == DType::kBF16;
  if (bf16 && Includes(isa, Isa::kAvx512Amx)) return avx512_amx;
  if (bf16 && isa == Isa::kAmxEmulated) return amx_emulated;
  if (isa == Isa::kAvx512Bf16) return bf16 ? avx512_bf16.table : avx512_attending.table;
  if (Includes(isa, Isa::kAvx512)) return avx512.table;
  if (Includes(isa, Isa::kAvx2)) return avx2.table;
  if (Includes(isa, Isa::kNeon)) return bf16 && Includes(isa, Isa::kNeonBf16) ? neon_bf16 : neon.table;
  return portable.table;
}

int64_t RowsSummedAtOnce(Isa isa, DType dtype) {
  const KernelTable& table = DescribedKernels(isa, dtype);
  return table.pairs() ? table.rows->pair_group : 1;
}

const Int8Table& DescribedInt8Kernels(Isa isa) {
  static const Int8Table portable = Int8TableOf(Isa::kPortable, 2, 4), avx2 = Int8TableOf(Isa::kAvx2, 2, 6),
                         avx512_vnni = Int8TableOf(Isa::kAvx512Vnni, 4, 8),
                         avx512_amx = Int8TableOf(Isa::kAvx512Amx, 4, 1),
                         amx_emulated = Int8TableOf(Isa::kAmxEmulated, 4, 1), neon = Int8TableOf(Isa::kNeon, 2, 6),
                         neon_dotprod = Int8TableOf(Isa::kNeonDotprod, 4, 6),
                         neon_bf16 = Int8TableOf(Isa::kNeonBf16, 4, 8);
  if (isa == Isa::kAmxEmulated) return amx_emulated;
  if (Includes(isa, Isa::kAvx512Amx)) return avx512_amx;
  if (Includes(isa, Isa::kAvx512Vnni)) return avx512_vnni;
  if (Includes(isa, Isa::kAvx2)) return avx2;
  if (Includes(isa, Isa::kNeonBf16)) return neon_bf16;
  if (Includes(isa, Isa::kNeonDotprod)) return neon_dotprod;
  return Includes(isa, Isa::kNeon) ? neon : portable;
}

const IndexerKernels& DescribedIndexerKernels(Isa isa) {
  static constexpr IndexerKernels kPortable = Indexer("indexer_portable", Isa::kPortable),
                                  kAvx2 = Indexer("indexer_avx2", Isa::kAvx2),
                                  kAvx512 = Indexer("indexer_avx512", Isa::kAvx512),
                                  kNeon = Indexer("indexer_neon", Isa::kNeon);
  if (Includes(isa, Isa::kAvx512)) return kAvx512;
  if (Includes(isa, Isa::kAvx2)) return kAvx2;
  return Includes(isa, Isa::kNeon) ? kNeon : kPortable;
}

}  // namespace fa::core::kernels
