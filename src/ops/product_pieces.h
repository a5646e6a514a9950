#ifndef FA_OPS_PRODUCT_PIECES_H_
#define FA_OPS_PRODUCT_PIECES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "ops/key_rows.h"
#include "ops/strip.h"

namespace fa::ops {

/// alpha of a product that only adds.
alignas(64) inline constexpr auto kUnitAlpha = [] {
  std::array<float, kMaxStripWidth> ones{};
  ones.fill(1.0f);
  return ones;
}();

/// o = alpha o + rows^T p, as StripKernels::product.
struct PieceProduct {
  core::kernels::RowBlock rows;
  int64_t keys = 0;
  const float* p = nullptr;
  int64_t columns = 0;
  const float* alpha = nullptr;
  float* o = nullptr;
};

/// A product cut into pieces, with between(pieces done, of all) behind each: room to fetch what comes next a few lines
/// at a time. The bits are those of one product: columns do not depend on one another, and further keys go on where
/// those before left off.
template <typename Between>
void ProductInPieces(const core::kernels::StripKernels& kernels, const PieceProduct& x, const Between& between) {
  // Kernels of few rows have no columns apart; 16 keys are what they take at a time at least. 16 columns of 128 keys
  // and 48 lanes take half a microsecond: each the time of some lines from memory.
  constexpr int64_t kPiece = 16;
  const bool by_keys = kernels.any_dtype;
  const int64_t whole = by_keys ? x.keys : x.columns, pieces = (whole + kPiece - 1) / kPiece;
  // Pairs of rows are words.
  const auto element = static_cast<int64_t>(x.rows.paired ? sizeof(float) : SizeOf(x.rows.dtype));
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t first = piece * kPiece, size = std::min(kPiece, whole - first);
    if (by_keys) {
      kernels.product(RowsFrom(x.rows, first), size, x.p + first * kernels.width, x.columns,
                      piece == 0 ? x.alpha : kUnitAlpha.data(), x.o);
    } else {
      core::kernels::RowBlock columns = x.rows;
      columns.data = static_cast<const std::byte*>(x.rows.data) + first * element;
      kernels.product(columns, x.keys, x.p, size, x.alpha, x.o + first * kernels.width);
    }
    between(piece + 1, pieces);
  }
}

}  // namespace fa::ops

#endif  // FA_OPS_PRODUCT_PIECES_H_
