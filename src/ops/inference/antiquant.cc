#include "ops/inference/antiquant.h"

#include <algorithm>

#include "core/saturating.h"
#include "fa/half.h"
#include "layout/bind_layout.h"

namespace fa::ops {
namespace {

/// The size of an f32 table of scales or offsets, for keys or for values: [Nkv][max(D, Dv)] or, with one scale per key,
/// [B][keys of the longest sequence].
struct TableSize {
  int64_t rows = 0, columns = 0;
  [[nodiscard]] int64_t floats() const { return core::SaturatedProduct(rows, columns); }
};

TableSize SizeOfTable(const BoundDecode& bound) {
  const tiling::AttentionProblem& problem = bound.attention.problem;
  if (!bound.storage.per_token) return {problem.heads_kv, std::max(problem.d, problem.dv)};
  TableSize size{.rows = static_cast<int64_t>(problem.sequences.size())};
  for (const tiling::Sequence& sequence : problem.sequences) size.columns = std::max(size.columns, sequence.sk);
  return size;
}

float Load(const TensorView& tensor, int64_t at) {
  switch (tensor.dtype) {
    case DType::kF16: return F32FromF16(static_cast<const uint16_t*>(tensor.data)[at]);
    case DType::kBF16: return F32FromBf16(static_cast<const uint16_t*>(tensor.data)[at]);
    default: return static_cast<const float*>(tensor.data)[at];
  }
}

/// Reads the table of keys (side 0) or values (side 1).
void Read(const TensorView& tensor, int64_t side, const BoundDecode& bound, const TableSize& size, float* to) {
  const Dims stride = layout::FilledStride(tensor.shape, tensor.stride);
  const int rank = tensor.shape.rank();
  const int64_t begin = side * stride[0];
  if (rank == 1) {
    std::fill_n(to, size.floats(), Load(tensor, begin));
    return;
  }
  for (int64_t row = 0; row < size.rows; ++row) {
    const int64_t row_begin = begin + row * (rank == 2 ? size.columns : stride[1]);
    const int64_t columns =
        bound.storage.per_token ? bound.attention.problem.sequences[static_cast<size_t>(row)].sk : size.columns;
    for (int64_t column = 0; column < columns; ++column) {
      to[row * size.columns + column] = Load(tensor, row_begin + column);
    }
  }
}

}  // namespace

size_t AntiquantBytes(const BoundDecode& bound) {
  if (!bound.storage.quantized) return 0;
  constexpr int64_t kTables = 4;  // number of tables: scales and offsets, each for keys and for values
  return static_cast<size_t>(
      core::SaturatedProduct(kTables, static_cast<int64_t>(sizeof(float)), SizeOfTable(bound).floats()));
}

void ReadAntiquant(const BoundDecode& bound, const AntiquantTensors& tensors, float* floats, ForwardRows& rows) {
  const TableSize size = SizeOfTable(bound);
  float* tables[4];
  for (int i = 0; i < 4; ++i) tables[i] = floats + i * size.floats();
  for (int64_t side = 0; side < 2; ++side) {
    Read(tensors.scale, side, bound, size, tables[side]);
    if (tensors.offset.data != nullptr) {
      Read(tensors.offset, side, bound, size, tables[2 + side]);
    } else {
      std::fill_n(tables[2 + side], size.floats(), 0.0f);
    }
  }
  const bool per_token = bound.storage.per_token;
  rows.k_antiquants = {.scale = tables[0], .offset = tables[2], .row = size.columns, .per_token = per_token};
  rows.v_antiquants = {.scale = tables[1], .offset = tables[3], .row = size.columns, .per_token = per_token};
}

}  // namespace fa::ops
