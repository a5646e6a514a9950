#include "ops/token/gathered_keys.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "core/integer.h"

namespace fa::ops {
namespace {

using core::kernels::RowBlock;

using core::kernels::kLineBytes;

// While a row is copied, the row that comes this many rows later is prefetched. Copying a row of 1152 bytes takes about
// 50 ns, and a line from L3 or memory takes 70 to 150 ns to arrive.
constexpr size_t kRowsAhead = 3;

/// Returns the elements from row to row of a panel. A row fills an odd number of cache lines, so that the elements of a
/// column spread over all sets of L1.
int64_t PanelStride(int64_t columns, int64_t element) {
  const int64_t lines = core::CeilDiv(columns * element, kLineBytes);
  return (lines | 1) * kLineBytes / element;
}

int64_t ElementBytes(const GatherShape& shape) {
  return shape.form == KeyForm::kF32 ? 4 : static_cast<int64_t>(SizeOf(shape.dtype));
}

DType PanelType(const GatherShape& shape) { return shape.form == KeyForm::kF32 ? DType::kF32 : shape.dtype; }

/// Lists the addresses of the first `count` rows of a panel.
RowBlock Listed(const RowBlock& rows, int64_t count, const void** to) {
  const auto* at = static_cast<const std::byte*>(rows.data);
  for (int64_t i = 0; i < count; ++i, at += rows.stride * static_cast<int64_t>(SizeOf(rows.dtype))) to[i] = at;
  return {.dtype = rows.dtype, .rows = to};
}

int64_t KStride(const GatherShape& shape) { return PanelStride(shape.columns(), ElementBytes(shape)); }
int64_t VStride(const GatherShape& shape) { return PanelStride(shape.dv, ElementBytes(shape)); }

}  // namespace

KeyForm KeyFormOf(const core::kernels::StripKernels& kernels, DType dtype) {
  if (kernels.operands == core::kernels::Operands::kBF16Pairs) return KeyForm::kPairs;
  return kernels.any_dtype || dtype == DType::kF32 ? KeyForm::kNatural : KeyForm::kF32;
}

KeyForm WidenedFormOf(const core::kernels::StripKernels& kernels, DType dtype) {
  return dtype == DType::kF16 ? KeyForm::kF32 : KeyFormOf(kernels, dtype);
}

GatherPanels::GatherPanels(Carver& carver, const GatherShape& shape)
    : addresses(carver, shape, shape.by_address || shape.listed ? shape.block : 0) {
  const int64_t element = ElementBytes(shape);
  const int64_t paired_rows = core::RoundUp(shape.block, core::kernels::kMostPairGroup);
  const bool pairs = shape.form == KeyForm::kPairs;
  const int64_t copies = shape.by_address ? 0 : shape.block;
  k = carver.Array<std::byte>(copies, KStride(shape), element);
  v = carver.Array<std::byte>(shape.shared_v ? 0 : copies * VStride(shape) * element);
  v_pairs = carver.Floats(pairs && !shape.natural_v && !shape.listed ? paired_rows / 2 * shape.dv : 0);
  k_pairs = carver.Floats(pairs && shape.pair_k ? paired_rows / 2 * shape.columns() : 0);
  widening = carver.Floats(shape.quantized ? shape.quantized->ScratchFloats() : 0);
}

KeyAddresses::KeyAddresses(Carver& carver, const GatherShape& shape, int64_t max_keys) {
  most = max_keys;
  const int64_t count = max_keys == 0 ? 0 : max_keys + GatheredKeys::kFetchAhead;
  k = carver.Array<const void*>(count);
  k_rope = carver.Array<const void*>(shape.d_rope > 0 ? count : 0);
  v = shape.shared_v ? k : carver.Array<const void*>(count);
}

/// Copies the rows of `keys` to rows of a panel, which are `stride` elements apart.
void GatheredKeys::Copy(const RowsInTensors& rows, int64_t columns, std::span<const int32_t> keys,
                        const GatherPanels& panels, std::byte* to, int64_t stride) const {
  const int64_t element = ElementBytes(shape_);
  const bool widens = shape_.form == KeyForm::kF32;
  const int64_t bytes =
      shape_.quantized ? shape_.quantized->Bytes() : columns * static_cast<int64_t>(SizeOf(rows.dtype()));
  for (size_t i = 0; i < keys.size(); ++i) {
    assert(keys[i] >= 0);
    const std::byte* from = rows.At(keys[i]);
    if (i + kRowsAhead < keys.size()) {
      const std::byte* ahead = rows.At(keys[i + kRowsAhead]);
      for (int64_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(ahead + at, 0, 3);
    }
    if (shape_.quantized) {
      WidenRow(kernels_, *shape_.quantized, from, columns, panels.widening, PanelType(shape_), to, shape_.pairs);
    } else if (widens) {
      kernels_.widen({from, rows.dtype(), columns}, 1, columns, reinterpret_cast<float*>(to), columns);
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
  assert(count <= shape.block);
  if (shape.by_address) return ByAddress(place, keys, panels);
  const int64_t k_stride = KStride(shape), element = ElementBytes(shape);
  Copy(KeysAt(place), shape.d, keys, panels, panels.k, k_stride);
  if (shape.d_rope > 0) {
    Copy({place.RowsOf(sources_.k_rope)}, shape.d_rope, keys, panels, panels.k + shape.d * element, k_stride);
  }

  GatheredBlock block;
  block.rows.k = {panels.k, type, k_stride};
  block.rows.k_rope = {panels.k + shape.d * element, type, k_stride};
  block.rows.rope_behind = true;
  block.k_of_product = block.rows.k;
  if (shape.form == KeyForm::kPairs && shape.pair_k) {
    kernels_.pair_rows(block.rows.k, count, shape.columns(), panels.k_pairs, shape.columns());
    block.k_of_product = kernels_.Paired(panels.k_pairs, shape.columns());
  }
  if (shape.dv == 0) return block;

  RowBlock& v = block.rows.v;
  v = block.rows.k;
  if (!shape.shared_v) {
    Copy({place.RowsOf(sources_.v)}, shape.dv, keys, panels, panels.v, VStride(shape));
    v = {panels.v, type, VStride(shape)};
  }
  if (shape.listed) {
    block.rows.k = Listed(block.rows.k, count, panels.addresses.k);
    block.rows.v = Listed(v, count, panels.addresses.v);
  } else if (shape.form == KeyForm::kPairs && !shape.natural_v) {
    kernels_.pair_rows(v, count, shape.dv, panels.v_pairs, shape.dv);
    v = kernels_.Paired(panels.v_pairs, shape.dv);
  }
  return block;
}

GatheredBlock GatheredKeys::ByAddress(const KeyPlace& place, std::span<const int32_t> keys,
                                      const GatherPanels& panels) const {
  assert(shape_.form == KeyForm::kPairs && !shape_.pair_k);
  GatheredBlock block;
  block.rows = InPlace(place, keys, panels.addresses);
  for (RowBlock* rows : {&block.rows.k, &block.rows.k_rope, &block.rows.v}) rows->fetch_ahead = 0;
  if (shape_.dv > 0 && !shape_.natural_v) {
    kernels_.pair_rows(block.rows.v, std::ssize(keys), shape_.dv, panels.v_pairs, shape_.dv);
    block.rows.v = kernels_.Paired(panels.v_pairs, shape_.dv);
  }
  return block;
}

KeyRows GatheredKeys::InPlace(const KeyPlace& place, std::span<const int32_t> keys,
                              const KeyAddresses& addresses) const {
  const auto rows = [&](const RowsInTensors& of, const void** to) -> RowBlock {
    assert(std::ssize(keys) <= addresses.most);
    const void** at = to;
    for (const int32_t key : keys) *at++ = of.At(key);
    if (!keys.empty()) std::fill_n(at, kFetchAhead, at[-1]);
    return {.dtype = of.dtype(), .fetch_ahead = kFetchAhead, .rows = to};
  };
  KeyRows block;
  block.k = rows(KeysAt(place), addresses.k);
  if (shape_.d_rope > 0) block.k_rope = rows({place.RowsOf(sources_.k_rope)}, addresses.k_rope);
  if (!shape_.shared_v) {
    block.v = rows({place.RowsOf(sources_.v)}, addresses.v);
  } else {
    block.v = block.k;
  }
  assert(shape_.values_ahead <= kFetchAhead);
  block.v.fetch_ahead = shape_.values_ahead;
  return block;
}

void GatheredKeys::FetchFirst(const KeyRows& rows, int64_t count) const {
  const auto fetch = [](const RowBlock& of, int64_t columns, int64_t row) {
    const auto* at = static_cast<const std::byte*>(of.rows[row]);
    const int64_t bytes = columns * static_cast<int64_t>(SizeOf(of.dtype));
    for (int64_t byte = 0; byte < bytes; byte += kLineBytes) __builtin_prefetch(at + byte, 0, 2);
  };
  for (int64_t row = 0; row < std::min(count, kFetchAhead); ++row) {
    fetch(rows.k, shape_.d, row);
    if (shape_.d_rope > 0) fetch(rows.k_rope, shape_.d_rope, row);
    if (!shape_.shared_v) fetch(rows.v, shape_.dv, row);
  }
}

void GatheredKeys::AddRows(const KeyPlace& place, std::span<const int32_t> keys, FetchRuns& runs) const {
  const RowsInTensors k = KeysAt(place);
  const layout::HeadRows k_rope = place.RowsOf(sources_.k_rope), v = place.RowsOf(sources_.v);
  const auto bytes = [](DType dtype, int64_t columns) { return columns * static_cast<int64_t>(SizeOf(dtype)); };
  const int64_t row_bytes = shape_.quantized ? shape_.quantized->Bytes() : 0;
  const int64_t k_bytes = shape_.quantized ? row_bytes : bytes(k.dtype(), shape_.d);
  const int64_t rope_bytes = bytes(k_rope.dtype, shape_.d_rope);
  const int64_t v_bytes = shape_.shared_v ? 0 : shape_.quantized ? row_bytes : bytes(v.dtype, shape_.dv);
  for (const int32_t key : keys) {
    runs.Add(k.At(key), k_bytes);
    if (rope_bytes > 0) runs.Add(k_rope.At(key), rope_bytes);
    if (v_bytes > 0) runs.Add(v.At(key), v_bytes);
  }
}

}  // namespace fa::ops
