#include "ops/tile/key_panels.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "core/integer.h"
#include "core/saturating.h"
#include "ops/tile/antiquant_rows.h"
#include "ops/tile/quantized_products.h"

namespace fa::ops {
namespace {

using core::kernels::TileAttendArgs;

// Kernels of few rows read every row of keys once. These kernels prefetch the row that lies this many rows ahead, also
// beyond the end of a block. The hardware alone would not do: its prefetchers stop at every page of memory, and start
// again whenever the kernel changes from K to V.
constexpr int64_t kFewRowsFetchAhead = 32;

// The fewest rows of a page whose values f32 strips read in place.
constexpr int64_t kFewestRowsOfV = 16;

int64_t PackedKColumns(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan) {
  return plan.pack_k ? problem.d + problem.d_rope : 0;
}

/// Returns the bytes of KeyTiles::replaced.
int64_t ReplacedBytes(int64_t slot_rows) {
  return core::RoundUp(core::CeilDiv(slot_rows, TileAttendArgs::kKeys), core::kernels::kLineBytes);
}

/// Puts 0 in the place of elements of bf16 that are not finite. Returns whether there are any.
bool ReplaceNotFinite(const core::kernels::RowKernels& kernels, float* words, int64_t count) {
  if (kernels.all_finite(words, DType::kBF16, 2 * count)) return false;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t word;
    std::memcpy(&word, words + i, sizeof word);
    for (const uint32_t exponent : {0x7f80u, 0x7f800000u}) {
      if ((word & exponent) == exponent) word &= exponent == 0x7f80u ? 0xffff0000u : 0xffffu;
    }
    std::memcpy(words + i, &word, sizeof word);
  }
  return true;
}

core::kernels::RowBlock BlockOf(const layout::HeadRows& head) { return {head.first, head.dtype, head.stride}; }

constexpr int64_t kCopiedColumns = 64;
constexpr int64_t kMostCopiedRows = std::max(core::kernels::kMostPairGroup, TileAttendArgs::kKeys);

/// Visits keys in runs that kernels of groups of `group` keys can read. `keys` begins with a whole group.
/// @param whole  called with rows that lie evenly spaced, and with their first key: whole groups of a page at once, or
///               all keys of a tensor
/// @param part   called for a group that lies on several pages, a few columns at a time, with a copy of these columns,
///               the group's first key, the number of its keys, the first column and the number of columns
template <typename Whole, typename Part>
void VisitGroups(const layout::HeadRows& head, tiling::Interval keys, int64_t group, int64_t columns,
                 const Whole& whole, const Part& part) {
  assert(keys.begin % group == 0 && group <= kMostCopiedRows);
  for (int64_t key = keys.begin; key < keys.end;) {
    int64_t end = head.RunEnd(key, keys.end, 0);
    if (end < keys.end) end = key + (end - key) / group * group;
    if (end > key) {
      whole(core::kernels::RowBlock{head.At(key), head.dtype, head.StrideAt(key)}, key, end - key);
      key = end;
      continue;
    }
    end = std::min(key + group, keys.end);
    assert(head.dtype == DType::kBF16);
    std::array<uint16_t, static_cast<size_t>(kMostCopiedRows * kCopiedColumns)> copy;
    for (int64_t column = 0; column < columns; column += kCopiedColumns) {
      const int64_t count = std::min(kCopiedColumns, columns - column);
      for (int64_t row = key; row < end; ++row) {
        std::memcpy(&copy[static_cast<size_t>((row - key) * kCopiedColumns)],
                    head.At(row) + column * static_cast<int64_t>(sizeof(uint16_t)),
                    static_cast<size_t>(count) * sizeof(uint16_t));
      }
      part(core::kernels::RowBlock{copy.data(), DType::kBF16, kCopiedColumns}, key, end - key, column, count);
    }
    key = end;
  }
}

}  // namespace

KeyPanels::KeyPanels(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
                     const core::kernels::KernelTable& table, const ForwardRows& rows, std::byte* slots)
    : problem_(problem),
      plan_(plan),
      table_(table),
      rows_(rows),
      slots_(slots),
      slot_bytes_(SlotBytes(problem, plan, table)) {}

size_t KeyPanels::SlotBytes(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
                            const core::kernels::KernelTable& table) {
  const int64_t columns = PackedKColumns(problem, plan) + (plan.pack_v ? problem.dv : 0);
  const int64_t rows = table.pairs() ? table.rows->PairedRows(plan.slot_rows) / 2 : plan.slot_rows;
  const int64_t bytes = core::SaturatedProduct(rows, columns, static_cast<int64_t>(sizeof(float)));
  return static_cast<size_t>(core::SaturatedSum(bytes, problem.packs_tiles ? ReplacedBytes(plan.slot_rows) : 0));
}

float* KeyPanels::SlotK(int32_t slot) const {
  assert(slot >= 0 && slot < plan_.kv_slots);
  return reinterpret_cast<float*>(slots_ + static_cast<size_t>(slot) * slot_bytes_);
}
float* KeyPanels::SlotKRope(int32_t slot) const { return SlotK(slot) + plan_.slot_rows * problem_.d; }
float* KeyPanels::SlotV(int32_t slot) const { return SlotK(slot) + plan_.slot_rows * PackedKColumns(problem_, plan_); }

layout::HeadRows KeyPanels::Locate(const Source& source, int32_t sequence, int64_t head_kv) const {
  assert(sequence >= 0 && sequence < std::ssize(problem_.sequences) && head_kv >= 0 && head_kv < problem_.heads_kv);
  return source.rows.Head(sequence, head_kv, problem_.sequences[static_cast<size_t>(sequence)].k_offset);
}

/// Copies rows that lie in pieces to consecutive rows at `to`, one column of pieces after the other. Returns the copied
/// rows, which only hold `keys`.
layout::HeadRows JoinPieces(const layout::HeadRows& head, tiling::Interval keys, int64_t columns, std::byte* to) {
  const auto size = static_cast<int64_t>(SizeOf(head.dtype));
  const int64_t row_bytes = columns * size;
  for (int64_t key = keys.begin; key < keys.end;) {
    const int64_t end = head.RunEnd(key, keys.end, 0);
    const std::byte* from = head.At(key);
    for (int64_t column = 0; column < row_bytes; column += layout::kPieceBytes, from += head.piece_stride * size) {
      std::byte* at = to + (key - keys.begin) * row_bytes + column;
      const std::byte* row = from;
      for (int64_t i = key; i < end; ++i, at += row_bytes, row += head.stride * size) {
        std::memcpy(at, row, layout::kPieceBytes);
      }
    }
    key = end;
  }
  return {.first = to, .dtype = head.dtype, .stride = columns, .prefix_rows = keys.begin};
}

/// Calls visit(rows, keys) for all of `keys`. Rows that lie in pieces are joined first, in steps, in `memory`.
template <typename Visit>
void KeyPanels::VisitWhole(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys,
                           std::byte* memory, const Visit& visit) const {
  const layout::HeadRows head = Locate(source, sequence, head_kv);
  if (head.piece_stride == layout::kWholeRows) return visit(head, keys);
  static_assert(kJoinedRows % kMostCopiedRows == 0);
  for (tiling::Interval part = keys; part.begin < keys.end; part.begin = part.end) {
    part.end = std::min(part.begin + kJoinedRows, keys.end);
    visit(JoinPieces(head, part, source.columns, memory), part);
  }
}

/// Copies rows of K or V, of any type, as f32 to consecutive rows at `to`.
/// @param memory  room for kJoinedRows rows, if rows lie in pieces
void KeyPanels::Widen(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys, std::byte* memory,
                      float* to) const {
  VisitWhole(source, sequence, head_kv, keys, memory, [&](const layout::HeadRows& head, tiling::Interval part) {
    WidenRows(source, head, sequence, head_kv, part, to + (part.begin - keys.begin) * source.columns);
  });
}

void KeyPanels::WidenRows(const Source& source, const layout::HeadRows& head, int32_t sequence, int64_t head_kv,
                          tiling::Interval keys, float* to) const {
  KeyRows rows;
  rows.k = BlockOf(head);
  rows.k.fetch_ahead = kFewRowsFetchAhead;
  rows.k_runs = head;
  rows.end = problem_.sequences[static_cast<size_t>(sequence)].sk;
  assert(keys.begin >= 0 && keys.end <= rows.end);
  const bool compressed = core::kernels::IsCompressed(head.dtype);
  for (int64_t key = keys.begin; key < keys.end;) {
    int64_t end = rows.KRunEnd(key, keys.end);
    if (compressed) {
      end = std::min(end, key + MostAntiquantRows(source.antiquants));
      float numbers[2 * kMostNumbers];
      const core::kernels::Antiquantization by =
          ScalesProducts(rows_.quantized, source.antiquants)
              ? core::kernels::Antiquantization{.scale = &kUnitScale}
              : ReadAntiquants(source.antiquants, *table_.rows, sequence, head_kv, {key, end}, source.columns, false,
                               numbers);
      table_.rows->dequantize(rows.K(key), end - key, source.columns, by, to, source.columns);
    } else {
      table_.rows->widen(rows.K(key), end - key, source.columns, to, source.columns);
    }
    to += (end - key) * source.columns;
    key = end;
  }
}

/// Writes rows of V as pair_rows groups them. `keys` begins with a whole group.
void KeyPanels::PairRows(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys,
                         std::byte* memory, float* to) const {
  const core::kernels::RowKernels& kernels = *table_.rows;
  const auto words = [&](int64_t key) { return to + (key - keys.begin) / 2 * source.columns; };
  VisitWhole(source, sequence, head_kv, keys, memory, [&](const layout::HeadRows& head, tiling::Interval whole) {
    VisitGroups(
        head, whole, kernels.pair_group, source.columns,
        [&](const core::kernels::RowBlock& rows, int64_t key, int64_t count) {
          kernels.pair_rows(rows, count, source.columns, words(key), source.columns);
        },
        [&](const core::kernels::RowBlock& rows, int64_t key, int64_t count, int64_t column, int64_t columns) {
          kernels.pair_rows(rows, count, columns, words(key) + kernels.PairedColumn(column), source.columns);
        });
  });
}

int64_t KeyPanels::SlotChunks() const { return core::CeilDiv(plan_.slot_rows, TileAttendArgs::kKeys); }
int64_t KeyPanels::KeyChunkFloats() const { return (problem_.d + problem_.d_rope) * TileAttendArgs::kKeys / 2; }

bool* KeyPanels::SlotReplaced(int32_t slot) const {
  std::byte* end = slots_ + static_cast<size_t>(slot + 1) * slot_bytes_;
  return reinterpret_cast<bool*>(end - ReplacedBytes(plan_.slot_rows));
}

void KeyPanels::PackTiles(const tiling::PackItem& item, std::byte* memory) const {
  constexpr int64_t kStepFloats = TileAttendArgs::kStepBytes / static_cast<int64_t>(sizeof(float));
  const int64_t rows = item.row_end - item.row_begin, chunk = item.row_begin / TileAttendArgs::kKeys;
  assert(item.row_begin % TileAttendArgs::kKeys == 0);
  // `pack` gets rows, their number, the number of columns, the first column, and the chunk of the first row.
  const auto visit = [&](const Source& source, const auto& pack) {
    const auto chunk_of = [&](int64_t key) { return (key - item.row_begin) / TileAttendArgs::kKeys; };
    const auto visit_keys = [&](const layout::HeadRows& head, tiling::Interval keys) {
      VisitGroups(
          head, keys, TileAttendArgs::kKeys, source.columns,
          [&](const core::kernels::RowBlock& block, int64_t key, int64_t count) {
            pack(block, count, source.columns, 0, chunk_of(key));
          },
          [&](const core::kernels::RowBlock& block, int64_t key, int64_t count, int64_t column, int64_t columns) {
            pack(block, count, columns, column, chunk_of(key));
          });
    };
    VisitWhole(source, item.sequence, item.head_kv, {item.row_begin, item.row_end}, memory, visit_keys);
  };
  const auto pack_keys = [&](const Source& source, float* to) {
    visit(
        source, [&](const core::kernels::RowBlock& block, int64_t count, int64_t columns, int64_t column, int64_t at) {
          table_.rows->pack_key_tiles(
              block, count, columns, to + at * KeyChunkFloats() + column * TileAttendArgs::kKeys / 2, KeyChunkFloats());
        });
  };
  float* k = SlotK(item.slot) + chunk * KeyChunkFloats();
  pack_keys(K(), k);
  if (problem_.d_rope > 0) pack_keys(KRope(), k + problem_.d * TileAttendArgs::kKeys / 2);
  float* v = SlotValueTiles(item.slot) + chunk * kStepFloats;
  const int64_t column_floats = SlotChunks() * kStepFloats;
  visit(V(), [&](const core::kernels::RowBlock& block, int64_t count, int64_t columns, int64_t column, int64_t at) {
    table_.rows->pack_value_tiles(
        block, count, columns, v + at * kStepFloats + column / TileAttendArgs::kColumns * column_floats, column_floats);
  });
  for (int64_t i = 0; i < core::CeilDiv(rows, TileAttendArgs::kKeys); ++i) {
    bool replaced = false;
    for (int64_t c = 0; c < problem_.dv / TileAttendArgs::kColumns; ++c) {
      replaced = ReplaceNotFinite(*table_.rows, v + c * column_floats + i * kStepFloats, kStepFloats) || replaced;
    }
    SlotReplaced(item.slot)[chunk + i] = replaced;
  }
}

KeyTiles KeyPanels::Tiles(const tiling::ForwardItem& item) const {
  assert(problem_.packs_tiles && item.slot >= 0);
  return {.k = reinterpret_cast<const char*>(SlotK(item.slot)),
          .v = reinterpret_cast<const char*>(SlotValueTiles(item.slot)),
          .value_chunks = SlotChunks(),
          .replaced = SlotReplaced(item.slot)};
}

void KeyPanels::Pack(const tiling::PackItem& item, const TileScratch& scratch) const {
  const tiling::Interval rows{item.row_begin, item.row_end};
  std::byte* memory = scratch.joined_k;  // shared by K, its rope part and V, which are packed one after the other
  assert(rows.begin >= 0 && rows.end <= plan_.slot_rows);
  if (problem_.packs_tiles) return PackTiles(item, memory);
  if (plan_.pack_k) {
    Widen(K(), item.sequence, item.head_kv, rows, memory, SlotK(item.slot) + rows.begin * problem_.d);
    if (problem_.d_rope > 0) {
      Widen(KRope(), item.sequence, item.head_kv, rows, memory, SlotKRope(item.slot) + rows.begin * problem_.d_rope);
    }
  }
  if (!plan_.pack_v) return;
  if (table_.pairs()) {
    assert(rows.begin % table_.rows->pair_group == 0);
    PairRows(V(), item.sequence, item.head_kv, rows, memory, SlotV(item.slot) + rows.begin / 2 * problem_.dv);
  } else {
    Widen(V(), item.sequence, item.head_kv, rows, memory, SlotV(item.slot) + rows.begin * problem_.dv);
  }
}

KeyRows KeyPanels::Block(const tiling::ForwardItem& item, tiling::Interval keys,
                         const core::kernels::StripKernels& kernels, const TileScratch& scratch, bool attended) const {
  const bool pairs = kernels.operands == core::kernels::Operands::kBF16Pairs;
  const bool quantized = core::kernels::IsCompressed(rows_.k.view.rows.dtype);
  const bool k_in_place = attended || (!quantized && (kernels.any_dtype || problem_.dtype == DType::kF32));
  // With short pages V is copied, because a strip loads and stores its output state once per run of rows, and so per
  // page.
  const bool short_pages = rows_.v.paged() && rows_.v.table.page_rows < kFewestRowsOfV && !kernels.any_dtype;
  const bool v_in_place = attended || (k_in_place && !short_pages);
  const int64_t ahead = kernels.any_dtype ? kFewRowsFetchAhead : plan_.shape.block_k;
  const auto caller = [&](const Source& source, std::byte* joined, layout::HeadRows* runs) {
    layout::HeadRows head = Locate(source, item.sequence, item.head_kv);
    if (head.piece_stride != layout::kWholeRows) head = JoinPieces(head, keys, source.columns, joined);
    core::kernels::RowBlock rows = BlockOf(head);
    rows.fetch_ahead = ahead;
    if (!head.in_runs()) return RowsFrom(rows, keys.begin);
    *runs = head;
    return rows;
  };
  const auto pick = [&](const Source& source, float* slot, bool in_place, std::byte* joined, float* block,
                        layout::HeadRows* runs) -> core::kernels::RowBlock {
    if (slot != nullptr) return {slot + keys.begin * source.columns, DType::kF32, source.columns, ahead};
    if (in_place) return caller(source, joined, runs);
    Widen(source, item.sequence, item.head_kv, keys, joined, block);
    return {block, DType::kF32, source.columns};
  };
  const auto paired = [&](const Source& source, float* slot, std::byte* joined,
                          float* block) -> core::kernels::RowBlock {
    if (slot != nullptr) return RowsFrom(table_.rows->Paired(slot, source.columns, ahead), keys.begin);
    // Packing begins at a whole group, so that the same keys form pairs whatever the first key of the block is.
    const tiling::Interval whole{keys.begin / table_.rows->pair_group * table_.rows->pair_group, keys.end};
    PairRows(source, item.sequence, item.head_kv, whole, joined, block);
    return RowsFrom(table_.rows->Paired(block, source.columns), keys.begin - whole.begin);
  };
  KeyRows rows;
  rows.first = keys.begin;
  rows.end = problem_.sequences[static_cast<size_t>(item.sequence)].sk;
  assert(keys.begin >= 0 && keys.begin < keys.end && keys.end <= rows.end);
  assert(problem_.whole_rows || keys.size() <= (attended ? kJoinedRows : plan_.shape.block_k));
  const bool packed = item.slot >= 0 && !problem_.packs_tiles;  // `kernels` cannot read a slot that holds tiles
  float* slot_v = packed && plan_.pack_v ? SlotV(item.slot) : nullptr;
  if (pairs) {
    rows.k = caller(K(), scratch.joined_k, &rows.k_runs);
    if (problem_.d_rope > 0) rows.k_rope = caller(KRope(), scratch.joined_k_rope, &rows.k_rope_runs);
    rows.v = paired(V(), slot_v, scratch.joined_v, scratch.v_block);
    return rows;
  }
  const bool k_packed = packed && plan_.pack_k;
  rows.k =
      pick(K(), k_packed ? SlotK(item.slot) : nullptr, k_in_place, scratch.joined_k, scratch.k_block, &rows.k_runs);
  if (problem_.d_rope > 0) {
    float* slot = k_packed ? SlotKRope(item.slot) : nullptr;
    rows.k_rope = pick(KRope(), slot, k_in_place, scratch.joined_k_rope, scratch.k_rope_block, &rows.k_rope_runs);
  }
  rows.v = pick(V(), slot_v, v_in_place, scratch.joined_v, scratch.v_block, &rows.v_runs);
  return rows;
}

}  // namespace fa::ops
