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
#include "tiling/row_cut.h"
#include "tiling/row_interval.h"
#include "tiling/sparse/sparse_plan.h"
#include "tiling/tile_shape.h"

namespace fa::ops {

/// The widest strip of every level has at least this width. So a tile never has more strips than its rows need at this
/// width.
inline constexpr int64_t kLeastWidestStrip = 8;
/// The most rows of any tile, and the most strips of any tile.
inline constexpr int64_t kMaxTileRows = std::max(tiling::kMaxBlockQ, tiling::kMaxTileHeads);
inline constexpr int64_t kMaxTileStrips = core::CeilDiv(kMaxTileRows, kLeastWidestStrip);

/// Returns the most lanes that the strips of `rows` rows have at any level. In the worst case all are the level's
/// widest strips, whose width divides 48 or 32 (strip.cc).
[[nodiscard]] constexpr int64_t MostLanes(int64_t rows) {
  return std::max(core::RoundUp(rows, 48), core::RoundUp(rows, 32));
}
using tiling::kKeyStep;

/// All ones: the alpha of a product that adds to its state without rescaling it.
alignas(64) inline constexpr auto kUnitAlpha = [] {
  std::array<float, kMaxStripWidth> ones{};
  ones.fill(1.0f);
  return ones;
}();

/// The (row, head) of a sequence for each lane of a strip.
struct StripRows {
  int64_t sequence = 0;
  int64_t count = 0;  ///< number of lanes in use
  int64_t width = 0;
  LaneArray<int64_t> row;
  LaneArray<int64_t> head;

  /// Returns the interval of rows in the strip's lanes.
  [[nodiscard]] tiling::Interval rows() const {
    assert(count > 0 && count <= width);
    return {row[0], row[count - 1] + 1};
  }
};

/// A strip of a tile: its rows, the kernels of its width, and the keys that its rows keep.
struct Strip {
  StripRows lanes;
  const core::kernels::StripKernels* kernels = nullptr;
  float* panel = nullptr;  ///< packed queries [d][width], then their rope part [d_rope][width]
  tiling::Interval hull;   ///< keys that some row keeps
  tiling::Interval full;   ///< keys that every row keeps

  /// Returns the keys of the hull that lie in `block`. The begin is moved down to a multiple of kKeyStep.
  [[nodiscard]] tiling::Interval KeysIn(tiling::Interval block) const;
};

/// Rows [row_begin, row_end) of `heads` query heads, beginning with head_begin, numbered as folded rows. Folded row f
/// is row row_begin + f / heads of head head_begin + f % heads.
struct FoldedRows {
  int64_t sequence = 0;
  int64_t head_begin = 0, heads = 1;
  int64_t row_begin = 0, row_end = 0;

  [[nodiscard]] int64_t size() const { return (row_end - row_begin) * heads; }
};

/// The strips of a tile. Only as many are initialised as the tile has: initialising all `Most` would take as long as
/// the products of a short sequence.
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

/// Returns the strip of these kernels that starts at folded row `first` (FoldedRows). The caller sets the strip's
/// panel.
[[nodiscard]] Strip MakeStrip(const tiling::AttentionProblem& problem, const core::kernels::StripKernels& kernels,
                              const FoldedRows& rows, int64_t first);

/// Lists the addresses of the strip's rows in a tensor.
void RowAddresses(const layout::RowsView& tensor, const Strip& strip, int64_t row_offset, const void** rows);

/// Packs Q and its rope part, if the problem has one, into strip.panel, times `multiplier`.
void PackQueries(const tiling::AttentionProblem& problem, const layout::RowsView& q, const layout::RowsView& q_rope,
                 float multiplier, const Strip& strip);

}  // namespace fa::ops

#endif  // FA_OPS_STRIP_H_
