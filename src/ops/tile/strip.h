#ifndef FA_OPS_STRIP_H_
#define FA_OPS_STRIP_H_

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "core/integer.h"
#include "core/kernels/kernel_types.h"
#include "layout/rows_view.h"
#include "ops/tile/lane_array.h"
#include "tiling/problem.h"
#include "tiling/row_interval.h"
#include "tiling/sparse/sparse_plan.h"
#include "tiling/tile_shape.h"

namespace fa::ops {

/// The least width of a level's widest strip: KernelTable::ForRows takes no more strips than of that width alone.
inline constexpr int64_t kLeastWidestStrip = 8;
/// Rows of the largest tile of any program, and its strips at most.
inline constexpr int64_t kMaxTileRows = std::max(tiling::kMaxBlockQ, tiling::kMaxTileHeads);
inline constexpr int64_t kMaxTileStrips = core::CeilDiv(kMaxTileRows, kLeastWidestStrip);

/// Lanes that the strips of so many rows take at most, on any level: whole strips of the level's widest kind, 48 lanes
/// or a divisor of 48, or 32 lanes or a divisor of 32 (strip.cc).
[[nodiscard]] constexpr int64_t MostLanes(int64_t rows) {
  return std::max(core::RoundUp(rows, 48), core::RoundUp(rows, 32));
}
/// Keys are clipped in steps of this many: the rows of the widest register block, and even, so that the softmax's even
/// and odd partial sums do not depend on where a strip starts.
inline constexpr int64_t kKeyStep = 8;

/// alpha of a product that only adds.
alignas(64) inline constexpr auto kUnitAlpha = [] {
  std::array<float, kMaxStripWidth> ones{};
  ones.fill(1.0f);
  return ones;
}();

/// Which (row, head) of a sequence each lane of a strip stands for.
struct StripRows {
  int64_t sequence = 0;
  int64_t count = 0;  ///< lanes in use
  int64_t width = 0;
  LaneArray<int64_t> row;
  LaneArray<int64_t> head;

  /// Rows do not decrease along the lanes.
  [[nodiscard]] tiling::Interval rows() const {
    assert(count > 0 && count <= width);
    return {row[0], row[count - 1] + 1};
  }
};

/// A strip of a tile: its rows, the kernels of its width, and the keys its rows keep.
struct Strip {
  StripRows lanes;
  const core::kernels::StripKernels* kernels = nullptr;
  float* panel = nullptr;  ///< packed queries [d][width], then their rope part [d_rope][width]
  tiling::Interval hull;   ///< keys kept by some row
  tiling::Interval full;   ///< keys kept by every row

  /// The keys to visit in a block: the hull, from a multiple of kKeyStep on.
  [[nodiscard]] tiling::Interval KeysIn(tiling::Interval block) const;
};

/// Rows [row_begin, row_end) of `heads` query heads from head_begin on, folded: lane f is row row_begin + f / heads of
/// head head_begin + f % heads.
struct FoldedRows {
  int64_t sequence = 0;
  int64_t head_begin = 0, heads = 1;
  int64_t row_begin = 0, row_end = 0;

  [[nodiscard]] int64_t size() const { return (row_end - row_begin) * heads; }
};

/// Memory for the strips of a tile, which are made one after the other: to initialise as many as a tile may have would
/// take as long as a short sequence's products.
template <typename T, int64_t Most>
class StripArray {
 public:
  static_assert(std::is_trivially_destructible_v<T>);
  StripArray() {}  // not defaulted: `= {}` would clear the memory
  T& Add(const T& strip) {
    assert(count_ < Most);
    return *std::construct_at(data() + count_++, strip);
  }
  [[nodiscard]] T* data() { return reinterpret_cast<T*>(memory_); }
  [[nodiscard]] const T* data() const { return reinterpret_cast<const T*>(memory_); }
  [[nodiscard]] T& operator[](int64_t i) {
    assert(i >= 0 && i < count_);
    return data()[i];
  }
  [[nodiscard]] const T& operator[](int64_t i) const {
    assert(i >= 0 && i < count_);
    return data()[i];
  }
  [[nodiscard]] int64_t size() const { return count_; }

 private:
  alignas(T) std::byte memory_[static_cast<size_t>(Most) * sizeof(T)];
  int64_t count_ = 0;
};

/// The strip of these kernels that starts at folded row `first`; panel is left to the caller.
[[nodiscard]] Strip MakeStrip(const tiling::AttentionProblem& problem, const core::kernels::StripKernels& kernels,
                              const FoldedRows& rows, int64_t first);

/// Addresses of the strip's rows in a tensor.
void RowAddresses(const layout::RowsView& tensor, const Strip& strip, int64_t row_offset, const void** rows);

/// Packs Q and its rope part, if the problem has one, into strip.panel, times `multiplier`.
void PackQueries(const tiling::AttentionProblem& problem, const layout::RowsView& q, const layout::RowsView& q_rope,
                 float multiplier, const Strip& strip);

}  // namespace fa::ops

#endif  // FA_OPS_STRIP_H_
