#include "ops/key_panels.h"

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
                     const core::kernels::KernelTable& table, const AttentionArgs& args, std::byte* slots)
    : bound_(bound),
      plan_(plan),
      table_(table),
      args_(args),
      slots_(slots),
      slot_bytes_(SlotBytes(bound.problem, plan, table)) {}

size_t KeyPanels::SlotBytes(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
                            const core::kernels::KernelTable& table) {
  const int64_t columns = PackedKColumns(problem, plan) + (plan.pack_v ? problem.dv : 0);
  const int64_t rows = table.pairs() ? plan.slot_rows / 2 : plan.slot_rows;
  return static_cast<size_t>(rows * columns) * sizeof(float);
}

float* KeyPanels::SlotK(int32_t slot) const {
  return reinterpret_cast<float*>(slots_ + static_cast<size_t>(slot) * slot_bytes_);
}
float* KeyPanels::SlotKRope(int32_t slot) const { return SlotK(slot) + plan_.slot_rows * bound_.problem.d; }
float* KeyPanels::SlotV(int32_t slot) const {
  return SlotK(slot) + plan_.slot_rows * PackedKColumns(bound_.problem, plan_);
}

const void* KeyPanels::RowOf(const Source& source, int32_t sequence, int64_t head_kv, int64_t key) const {
  const int64_t row = bound_.problem.sequences[static_cast<size_t>(sequence)].k_offset + key;
  return static_cast<const std::byte*>(source.data) +
         source.rows.Offset(sequence, head_kv, row) * static_cast<int64_t>(SizeOf(source.rows.dtype));
}

void KeyPanels::Widen(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys, float* to) const {
  table_.rows->widen({RowOf(source, sequence, head_kv, keys.begin), source.rows.dtype, source.rows.row}, keys.size(),
                     source.columns, to, source.columns);
}

void KeyPanels::PairRows(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys,
                         float* to) const {
  table_.rows->pair_rows({RowOf(source, sequence, head_kv, keys.begin), source.rows.dtype, source.rows.row},
                         keys.size(), source.columns, to, source.columns);
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
  const bool in_place = kernels.any_dtype || problem.dtype == DType::kF32;
  const int64_t ahead = kernels.any_dtype ? kFewRowsFetchAhead : plan_.shape.block_k;
  const auto caller = [&](const Source& source) -> core::kernels::RowBlock {
    return {RowOf(source, item.sequence, item.head_kv, keys.begin), source.rows.dtype, source.rows.row, ahead};
  };
  const auto pick = [&](const Source& source, float* slot, float* block) -> core::kernels::RowBlock {
    if (slot != nullptr) return {slot + keys.begin * source.columns, DType::kF32, source.columns, ahead};
    if (in_place) return caller(source);
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
    rows.k = caller(K());
    if (bound_.has_rope) rows.k_rope = caller(KRope());
    rows.v = paired(V(), slot_v, scratch.v_block);
    return rows;
  }
  const bool k_packed = packed && plan_.pack_k;
  rows.k = pick(K(), k_packed ? SlotK(item.slot) : nullptr, scratch.k_block);
  if (bound_.has_rope) rows.k_rope = pick(KRope(), k_packed ? SlotKRope(item.slot) : nullptr, scratch.k_rope_block);
  rows.v = pick(V(), slot_v, scratch.v_block);
  return rows;
}

}  // namespace fa::ops
