#ifndef FA_OPS_PAIR_ROWS_H_
#define FA_OPS_PAIR_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "fa/status.h"
#include "fa/tensor.h"
#include "ops/bind/pair_tiles.h"
#include "tiling/row_interval.h"

namespace fa::ops {

/// A tensor of four dimensions.
struct PairSourceView {
  const std::byte* data;
  DType dtype;
  Dims shape, stride;

  /// Returns the address of the first element of a row.
  [[nodiscard]] const std::byte* Row(int64_t batch, int64_t head, int64_t row) const {
    return data + (batch * stride[0] + head * stride[1] + row * stride[2]) * static_cast<int64_t>(SizeOf(dtype));
  }
};

/// Checks a source of a PairMask, and returns it with four dimensions.
/// @param types  the text of the wanted types
/// @param last   the text of the last two dimensions: "Sq,Sk"
[[nodiscard]] Result<PairSourceView> BindPairSource(const char* name, const TensorView& tensor,
                                                    std::initializer_list<DType> dtypes, const char* types,
                                                    const char* last);
/// Checks a mask of bytes.
[[nodiscard]] Result<PairSourceView> BindPairBytes(const TensorView& mask);

/// A source that turns a row of elements into bits, 64 at a time. `dropped(elements, stride, count)` returns the bits
/// of `count` elements as a word.
template <typename Dropped>
class PairRowSource {
 public:
  PairRowSource(const PairSourceView& view, Dropped dropped) : view_(view), dropped_(std::move(dropped)) {}

  void operator()(int64_t batch, int64_t head, tiling::Interval rows, tiling::Interval keys, uint64_t* words,
                  int64_t stride) const {
    const auto element = static_cast<int64_t>(SizeOf(view_.dtype)), apart = view_.stride[3] * element;
    for (int64_t row = rows.begin; row < rows.end; ++row, words += stride) {
      const std::byte* from = view_.Row(batch, head, row);
      for (int64_t key = keys.begin; key < keys.end; key += PairTileLayout::kWordBits) {
        const int64_t count = std::min(PairTileLayout::kWordBits, keys.end - key);
        words[(key - keys.begin) / PairTileLayout::kWordBits] = dropped_(from + key * apart, apart, count);
      }
    }
  }

 private:
  const PairSourceView& view_;
  Dropped dropped_;
};

/// Makes words from bytes. With `drops` a byte that is not 0 drops its pair; otherwise a byte that is 0 drops its pair.
struct DroppedByBytes {
  bool drops;

  [[nodiscard]] uint64_t operator()(const std::byte* from, int64_t apart, int64_t count) const;
};

}  // namespace fa::ops

#endif  // FA_OPS_PAIR_ROWS_H_
