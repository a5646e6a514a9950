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
      slot_bytes_(SlotBytes(bound.problem, plan)) {}

size_t KeyPanels::SlotBytes(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan) {
  const int64_t columns = PackedKColumns(problem, plan) + (plan.pack_v ? problem.dv : 0);
  return static_cast<size_t>(plan.slot_rows * columns) * sizeof(float);
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

void KeyPanels::Pack(const tiling::PackItem& item) const {
  const auto& problem = bound_.problem;
  const tiling::Interval rows{item.row_begin, item.row_end};
  if (plan_.pack_k) {
    Widen(K(), item.sequence, item.head_kv, rows, SlotK(item.slot) + rows.begin * problem.d);
    if (bound_.has_rope) {
      Widen(KRope(), item.sequence, item.head_kv, rows, SlotKRope(item.slot) + rows.begin * problem.d_rope);
    }
  }
  if (plan_.pack_v) Widen(V(), item.sequence, item.head_kv, rows, SlotV(item.slot) + rows.begin * problem.dv);
}

KeyRows KeyPanels::Block(const tiling::ForwardItem& item, tiling::Interval keys, bool any_dtype,
                         const TileScratch& scratch) const {
  const auto& problem = bound_.problem;
  const bool packed = item.slot >= 0, in_place = any_dtype || problem.dtype == DType::kF32;
  const int64_t ahead = any_dtype ? kFewRowsFetchAhead : plan_.shape.block_k;
  const auto pick = [&](const Source& source, float* slot, float* block) -> core::kernels::RowBlock {
    if (slot != nullptr) return {slot + keys.begin * source.columns, DType::kF32, source.columns, ahead};
    if (in_place) {
      return {RowOf(source, item.sequence, item.head_kv, keys.begin), source.rows.dtype, source.rows.row, ahead};
    }
    Widen(source, item.sequence, item.head_kv, keys, block);
    return {block, DType::kF32, source.columns};
  };
  const bool k_packed = packed && plan_.pack_k, v_packed = packed && plan_.pack_v;
  KeyRows rows;
  rows.first = keys.begin;
  rows.k = pick(K(), k_packed ? SlotK(item.slot) : nullptr, scratch.k_block);
  if (bound_.has_rope) rows.k_rope = pick(KRope(), k_packed ? SlotKRope(item.slot) : nullptr, scratch.k_rope_block);
  rows.v = pick(V(), v_packed ? SlotV(item.slot) : nullptr, scratch.v_block);
  return rows;
}

}  // namespace fa::ops
