#include "ops/gathered_keys.h"

#include <algorithm>
#include <cstring>

namespace fa::ops {
namespace {

using core::kernels::RowBlock;

constexpr int64_t kLineBytes = 64;

// So many rows ahead of the one that is copied: a row of 1152 bytes takes some 50 ns, a line from L3 or memory 70 to
// 150.
constexpr size_t kRowsAhead = 3;

/// Elements from row to row of a panel: an odd number of cache lines, so that a column of rows falls on all sets of L1.
int64_t PanelStride(int64_t columns, int64_t element) {
  const int64_t lines = (columns * element + kLineBytes - 1) / kLineBytes;
  return (lines | 1) * kLineBytes / element;
}

int64_t ElementBytes(const GatherShape& shape) {
  return shape.form == KeyForm::kF32 ? 4 : static_cast<int64_t>(SizeOf(shape.dtype));
}

DType PanelType(const GatherShape& shape) { return shape.form == KeyForm::kF32 ? DType::kF32 : shape.dtype; }

int64_t KStride(const GatherShape& shape) { return PanelStride(shape.columns(), ElementBytes(shape)); }
int64_t VStride(const GatherShape& shape) { return PanelStride(shape.dv, ElementBytes(shape)); }

}  // namespace

KeyForm KeyFormOf(const core::kernels::StripKernels& kernels, DType dtype) {
  if (kernels.operands == core::kernels::Operands::kBF16Pairs) return KeyForm::kPairs;
  return kernels.any_dtype || dtype == DType::kF32 ? KeyForm::kNatural : KeyForm::kF32;
}

GatherPanels::GatherPanels(Carver& carver, const GatherShape& shape) {
  const int64_t element = ElementBytes(shape);
  const bool pairs = shape.form == KeyForm::kPairs;
  k = carver.Array<std::byte>(shape.block * KStride(shape) * element);
  v = carver.Array<std::byte>(shape.shared_v ? 0 : shape.block * VStride(shape) * element);
  v_pairs = carver.Floats(pairs && !shape.natural_v ? shape.block / 2 * shape.dv : 0);
  k_pairs = carver.Floats(pairs && shape.pair_k ? shape.block / 2 * shape.columns() : 0);
}

const std::byte* GatheredKeys::Row(const KeySide& side, const KeyPlace& place, int64_t key) const {
  const layout::Rows& rows = side.rows;
  const auto element = static_cast<int64_t>(SizeOf(rows.dtype));
  int64_t at = place.batch * rows.batch + (place.offset + key) * rows.row;
  if (sources_.block_table != nullptr) {
    const int64_t page = sources_.block_table[place.batch * sources_.table_row + key / sources_.page_rows];
    at = page * rows.batch + key % sources_.page_rows * rows.row;
  }
  return static_cast<const std::byte*>(side.data) + at * element;
}

/// The rows of `keys` to rows of a panel, `stride` elements apart.
void GatheredKeys::Copy(const KeySide& side, int64_t columns, const KeyPlace& place, std::span<const int32_t> keys,
                        std::byte* to, int64_t stride) const {
  const int64_t element = ElementBytes(shape_);
  const bool widens = shape_.form == KeyForm::kF32;
  const int64_t bytes = columns * static_cast<int64_t>(SizeOf(side.rows.dtype));
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::byte* from = Row(side, place, keys[i]);
    if (i + kRowsAhead < keys.size()) {
      const std::byte* ahead = Row(side, place, keys[i + kRowsAhead]);
      for (int64_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(ahead + at, 0, 3);
    }
    if (widens) {
      kernels_.widen({from, side.rows.dtype, columns}, 1, columns, reinterpret_cast<float*>(to), columns);
    } else {
      std::memcpy(to, from, static_cast<size_t>(columns * element));
    }
    to += stride * element;
  }
}

GatheredBlock GatheredKeys::Gather(const KeyPlace& place, std::span<const int32_t> keys,
                                   const GatherPanels& panels) const {
  const GatherShape& shape = shape_;
  const DType type = PanelType(shape);
  const auto count = static_cast<int64_t>(keys.size());
  const int64_t k_stride = KStride(shape), element = ElementBytes(shape);
  Copy(sources_.k, shape.d, place, keys, panels.k, k_stride);
  if (shape.d_rope > 0) Copy(sources_.k_rope, shape.d_rope, place, keys, panels.k + shape.d * element, k_stride);

  GatheredBlock block;
  block.rows.k = {panels.k, type, k_stride};
  block.rows.k_rope = {panels.k + shape.d * element, type, k_stride};
  block.rows.rope_behind = true;
  block.k_of_product = block.rows.k;
  if (shape.form == KeyForm::kPairs && shape.pair_k) {
    kernels_.pair_rows(block.rows.k, count, shape.columns(), panels.k_pairs, shape.columns());
    block.k_of_product = {panels.k_pairs, DType::kBF16, shape.columns(), 0, true};
  }
  if (shape.dv == 0) return block;

  RowBlock& v = block.rows.v;
  v = block.rows.k;
  if (!shape.shared_v) {
    Copy(sources_.v, shape.dv, place, keys, panels.v, VStride(shape));
    v = {panels.v, type, VStride(shape)};
  }
  if (shape.form == KeyForm::kPairs && !shape.natural_v) {
    kernels_.pair_rows(v, count, shape.dv, panels.v_pairs, shape.dv);
    v = {panels.v_pairs, DType::kBF16, shape.dv, 0, true};
  }
  return block;
}

KeyFetch::KeyFetch(const GatheredKeys& gathered, const KeyPlace& place, std::span<const int32_t> keys)
    : gathered_(&gathered), place_(place), keys_(keys) {
  const GatherShape& shape = gathered.shape_;
  const auto element = static_cast<int64_t>(SizeOf(shape.dtype));
  const int64_t columns = shape.columns() + (shape.shared_v ? 0 : shape.dv);
  lines_ = static_cast<int64_t>(keys.size()) * ((columns * element + kLineBytes - 1) / kLineBytes);
  if (!keys_.empty()) OpenRow();
}

void KeyFetch::OpenRow() {
  const GatherShape& shape = gathered_->shape_;
  const KeySources& sources = gathered_->sources_;
  const KeySide* const sides[] = {&sources.k, &sources.k_rope, &sources.v};
  const int64_t columns[] = {shape.d, shape.d_rope, shape.shared_v ? 0 : shape.dv};
  at_ = end_ = nullptr;
  if (columns[side_] == 0) return;
  at_ = gathered_->Row(*sides[side_], place_, keys_[key_]);
  end_ = at_ + columns[side_] * static_cast<int64_t>(SizeOf(shape.dtype));
}

void KeyFetch::Fetch(int64_t lines) {
  while (lines > 0 && key_ < keys_.size()) {
    for (; lines > 0 && at_ < end_; --lines, at_ += kLineBytes) __builtin_prefetch(at_, 0, 2);
    if (at_ < end_) return;
    side_ = (side_ + 1) % 3;
    if (side_ == 0 && ++key_ == keys_.size()) return;
    OpenRow();
  }
}

}  // namespace fa::ops
