#include "ops/tile/key_panels.h"

#include "core/saturating.h"

namespace fa::ops {
namespace {

// Kernels of few rows read every row once: far enough ahead that it arrives in time, past the end of a block into the
// next. The hardware follows a stream of rows only within a page, and starts anew after every turn from K to V.
constexpr int64_t kFewRowsFetchAhead = 32;

int64_t PackedKColumns(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan) {
  return plan.pack_k ? problem.d + problem.d_rope : 0;
}

}  // namespace

KeyPanels::KeyPanels(const BoundAttention& bound, const tiling::ForwardPlan& plan,
                     const core::kernels::KernelTable& table, const AttentionArgs& args, std::byte* slots,
                     const KeySource* keys)
    : bound_(bound),
      plan_(plan),
      table_(table),
      args_(args),
      slots_(slots),
      slot_bytes_(SlotBytes(bound.problem, plan, table)),
      keys_(keys) {}

size_t KeyPanels::SlotBytes(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
                            const core::kernels::KernelTable& table) {
  const int64_t columns = PackedKColumns(problem, plan) + (plan.pack_v ? problem.dv : 0);
  const int64_t rows = table.pairs() ? plan.slot_rows / 2 : plan.slot_rows;
  return static_cast<size_t>(core::SaturatedProduct(rows, columns, static_cast<int64_t>(sizeof(float))));
}

float* KeyPanels::SlotK(int32_t slot) const {
  return reinterpret_cast<float*>(slots_ + static_cast<size_t>(slot) * slot_bytes_);
}
float* KeyPanels::SlotKRope(int32_t slot) const { return SlotK(slot) + plan_.slot_rows * bound_.problem.d; }
float* KeyPanels::SlotV(int32_t slot) const {
  return SlotK(slot) + plan_.slot_rows * PackedKColumns(bound_.problem, plan_);
}

KeyPanels::HeadRows KeyPanels::Locate(const Source& source, int32_t sequence, int64_t head_kv) const {
  const auto b = static_cast<size_t>(sequence);
  const tiling::Sequence& of_sequence = bound_.problem.sequences[b];
  layout::Rows rows = source.rows;
  const void* data = source.data;
  int64_t batch = sequence;
  PageTable pages;
  if (keys_ != nullptr && keys_->storage.listed()) {
    rows = source.values ? keys_->storage.v[b] : keys_->storage.k[b];
    data = source.values ? keys_->v[b].data : keys_->k[b].data;
    batch = 0;
  } else if (keys_ != nullptr && keys_->storage.paged()) {
    pages = {.table = keys_->block_table + sequence * keys_->storage.table_row,
             .size = keys_->storage.page_rows,
             .stride = source.values ? keys_->storage.v_page : keys_->storage.k_page,
             .rows = of_sequence.sk,
             .pages = keys_->storage.pages};
    batch = 0;
  }
  const auto* first = static_cast<const std::byte*>(data) +
                      rows.Offset(batch, head_kv, of_sequence.k_offset) * static_cast<int64_t>(SizeOf(rows.dtype));
  return {.rows = {.data = first, .dtype = rows.dtype, .stride = rows.row}, .pages = pages};
}

void KeyPanels::Widen(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys, float* to) const {
  const HeadRows head = Locate(source, sequence, head_kv);
  KeyRows rows;
  rows.k = head.rows;
  rows.k.fetch_ahead = kFewRowsFetchAhead;
  rows.k_pages = head.pages;
  for (int64_t key = keys.begin; key < keys.end;) {
    const int64_t end = rows.KRunEnd(key, keys.end);
    if (source.rows.dtype == DType::kI8) {
      Dequantize(source, sequence, head_kv, key, rows.K(key), end - key, to);
    } else {
      table_.rows->widen(rows.K(key), end - key, source.columns, to, source.columns);
    }
    to += (end - key) * source.columns;
    key = end;
  }
}

/// i8 rows of keys from `key` on, as f32.
void KeyPanels::Dequantize(const Source& source, int32_t sequence, int64_t head_kv, int64_t key,
                           const core::kernels::RowBlock& rows, int64_t count, float* to) const {
  const bool per_token = keys_->storage.per_token;
  const int64_t at = per_token ? sequence * keys_->antiquant_row + key : head_kv * keys_->antiquant_row;
  const core::kernels::Antiquantization by{.scale = (source.values ? keys_->v_scale : keys_->k_scale) + at,
                                           .offset = (source.values ? keys_->v_offset : keys_->k_offset) + at,
                                           .row_step = per_token ? 1 : 0};
  table_.rows->dequantize(rows, count, source.columns, by, to, source.columns);
}

void KeyPanels::PairRows(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys,
                         float* to) const {
  table_.rows->pair_rows(RowsFrom(Locate(source, sequence, head_kv).rows, keys.begin), keys.size(), source.columns, to,
                         source.columns);
}

void KeyPanels::Pack(const tiling::PackItem& item) const {
  const auto& problem = bound_.problem;
  const tiling::Interval rows{item.row_begin, item.row_end};
  if (plan_.pack_k) {
    Widen(K(), item.sequence, item.head_kv, rows, SlotK(item.slot) + rows.begin * problem.d);
    if (bound_.has_rope) {
      Widen(KRope(), item.sequence, item.head_kv, rows, SlotKRope(item.slot) + rows.begin * problem.d_rope);
    }
  }
  if (!plan_.pack_v) return;
  if (table_.pairs()) {
    PairRows(V(), item.sequence, item.head_kv, rows, SlotV(item.slot) + rows.begin / 2 * problem.dv);
  } else {
    Widen(V(), item.sequence, item.head_kv, rows, SlotV(item.slot) + rows.begin * problem.dv);
  }
}

KeyRows KeyPanels::Block(const tiling::ForwardItem& item, tiling::Interval keys,
                         const core::kernels::StripKernels& kernels, const TileScratch& scratch) const {
  const auto& problem = bound_.problem;
  const bool pairs = kernels.operands == core::kernels::Operands::kBF16Pairs;
  // Kernels of strips want runs longer than pages.
  const bool scattered = keys_ != nullptr && keys_->storage.paged();
  const bool quantized = keys_ != nullptr && keys_->storage.quantized;
  const bool in_place = !quantized && (kernels.any_dtype || (problem.dtype == DType::kF32 && !scattered));
  const int64_t ahead = kernels.any_dtype ? kFewRowsFetchAhead : plan_.shape.block_k;
  const auto caller = [&](const Source& source, PageTable* pages) {
    HeadRows head = Locate(source, item.sequence, item.head_kv);
    head.rows.fetch_ahead = ahead;
    *pages = head.pages;
    return scattered ? head.rows : RowsFrom(head.rows, keys.begin);
  };
  const auto pick = [&](const Source& source, float* slot, float* block, PageTable* pages) -> core::kernels::RowBlock {
    if (slot != nullptr) return {slot + keys.begin * source.columns, DType::kF32, source.columns, ahead};
    if (in_place) return caller(source, pages);
    Widen(source, item.sequence, item.head_kv, keys, block);
    return {block, DType::kF32, source.columns};
  };
  const auto paired = [&](const Source& source, float* slot, float* block) -> core::kernels::RowBlock {
    if (slot != nullptr) return {slot + keys.begin / 2 * source.columns, DType::kBF16, source.columns, ahead, true};
    PairRows(source, item.sequence, item.head_kv, keys, block);
    return {block, DType::kBF16, source.columns, 0, true};
  };
  KeyRows rows;
  rows.first = keys.begin;
  const bool packed = item.slot >= 0;
  float* slot_v = packed && plan_.pack_v ? SlotV(item.slot) : nullptr;
  if (pairs) {
    rows.k = caller(K(), &rows.k_pages);
    if (bound_.has_rope) rows.k_rope = caller(KRope(), &rows.k_pages);
    rows.v = paired(V(), slot_v, scratch.v_block);
    return rows;
  }
  const bool k_packed = packed && plan_.pack_k;
  rows.k = pick(K(), k_packed ? SlotK(item.slot) : nullptr, scratch.k_block, &rows.k_pages);
  if (bound_.has_rope) {
    rows.k_rope = pick(KRope(), k_packed ? SlotKRope(item.slot) : nullptr, scratch.k_rope_block, &rows.k_pages);
  }
  rows.v = pick(V(), slot_v, scratch.v_block, &rows.v_pages);
  return rows;
}

}  // namespace fa::ops
