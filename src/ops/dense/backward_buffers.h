#ifndef FA_OPS_BACKWARD_BUFFERS_H_
#define FA_OPS_BACKWARD_BUFFERS_H_

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/integer.h"
#include "core/kernels/kernel_types.h"
#include "core/saturating.h"
#include "ops/bind/bind_attention_grad.h"
#include "ops/plan/carver.h"
#include "ops/tile/grad_strip.h"
#include "tiling/backward/backward_plan.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// The f32 memory of one slot. A slot serves one (sequence, kv head) at a time. Row r of query head g of the group has
/// number g * rows_per_head + r in the slot; key j has number j.
struct BackwardSlot {
  float* q_panel = nullptr;   ///< strips of packed queries, [d + d_rope][width] each
  float* do_panel = nullptr;  ///< strips of packed d_out, [dv][width]
  float* dq_panel = nullptr;  ///< strips of dQ, [d + d_rope][width]
  float* shift = nullptr;     ///< base-2 logarithm of the row's softmax denominator; +inf for a row without keys
  float* delta = nullptr;     ///< rowsum(d_out * out)
  float* q = nullptr;         ///< Q as pack_rows writes it, one panel per tile of rows
  float* q_rope = nullptr;    ///< panels of pack_rows
  float* d_out = nullptr;     ///< panels of pack_rows
  float* dk = nullptr;        ///< rows [d + d_rope], which lie as KeyColumns says
  float* dv = nullptr;        ///< rows [dv], which lie as KeyColumns says
  /// K as rows [d + d_rope] or, for kernels of pairs, in the form that BackwardBuffers::KeyOffset describes. Unused if
  /// kernels read the caller's rows.
  float* k = nullptr;
  float* v = nullptr;  ///< rows [dv]; unused if kernels read the caller's rows
};

/// How rows of dK or dV lie: one after the other, or in groups of 32 columns, [group][key][32]. In groups, a block of
/// 32 keys by 32 columns is contiguous, as the products of the tile unit need it.
struct KeyColumns {
  static constexpr int64_t kGroup = 32;
  int64_t row = 0;    ///< floats from a key to the next key
  int64_t group = 0;  ///< floats from a group of 32 columns to the next group

  [[nodiscard]] bool grouped() const { return group != kGroup; }
  /// Returns the offset of a key's column, which is a multiple of 32 if columns are grouped.
  [[nodiscard]] int64_t Offset(int64_t key, int64_t column) const {
    return key * row + (grouped() ? column / kGroup * group : column);
  }
};

/// A worker's own memory for one tile.
struct BackwardScratch {
  GradTiles tiles;
  float* capped = nullptr;  ///< one strip's capped scores
  float* bias = nullptr;    ///< staged rows of a compressed pse
  char* loop = nullptr;     ///< memory for GradientColumn::memory
};

/// The sizes of the sums of a bias gradient that batch elements or heads share.
struct PairBiasSizes {
  int64_t batch = 0, heads = 0, rows = 0, keys = 0;

  explicit PairBiasSizes(const BoundAttentionGrad& bound);

  [[nodiscard]] int64_t count() const { return core::SaturatedProduct(batch, heads, rows, keys); }
  /// Returns the offset of the values of row `row`.
  [[nodiscard]] int64_t Offset(int64_t b, int64_t n, int64_t row) const {
    return ((std::min(b, batch - 1) * heads + std::min(n, heads - 1)) * rows + row) * keys;
  }
};

/// The offsets of a backward plan's buffers in its workspace.
class BackwardBuffers {
 public:
  /// Adds the buffers to the layout of `workspace`.
  BackwardBuffers(const BoundAttentionGrad& bound, const tiling::BackwardPlan& plan,
                  const core::kernels::KernelTable& table, tiling::WorkspacePlan& workspace);

  /// Returns the bytes of the sums over rows, keys and the batch in the workspace, which are known before the plan is
  /// made.
  [[nodiscard]] static size_t SumBytes(const BoundAttentionGrad& bound);

  [[nodiscard]] std::byte* RunState(std::byte* workspace) const { return workspace + run_state_; }
  [[nodiscard]] BackwardSlot Slot(std::byte* workspace, int32_t slot) const;
  [[nodiscard]] BackwardScratch Scratch(std::byte* workspace, int worker) const;

  /// Returns the most floats, at any level, that a row takes in a panel that pack_rows writes.
  [[nodiscard]] static int64_t PanelColumns(int64_t columns) { return core::RoundUp(columns, 16); }
  [[nodiscard]] bool copies_k() const { return copies_k_; }
  [[nodiscard]] bool copies_v() const { return copies_v_; }
  /// Returns how rows of dK or dV with so many columns lie in a slot. @param own  whether the sums are in the slot
  [[nodiscard]] KeyColumns SumsOfKeys(int64_t columns, bool own) const {
    if (own && groups_sums_) return {KeyColumns::kGroup, slot_keys_ * KeyColumns::kGroup};
    return {columns, KeyColumns::kGroup};
  }
  /// Returns whether the kernels' loop `gradient_tiles` computes strips.
  [[nodiscard]] bool loops() const { return loops_; }
  /// Returns the name of the kernels in the text that describes a plan.
  [[nodiscard]] std::string KernelName(const core::kernels::KernelTable& table) const {
    return std::string(table.widest().name) + (loops_ ? "_gradient_tiles" : "");
  }
  /// Returns the offset, in floats, of key `begin` in BackwardSlot::k or KeySums::k. With kernels of pairs, `begin`
  /// must be the first key of a column. The memory of a column then has pairs of rows of K and, for `gradient_tiles`,
  /// after them tiles of K and tiles of V.
  [[nodiscard]] int64_t KeyOffset(int64_t begin) const {
    assert(begin >= 0 && (!pairs_ || begin % 2 == 0));
    if (!pairs_) return begin * columns_qk_;
    return begin / 2 * (columns_qk_ + (loops_ ? columns_qk_ + columns_v_ : 0));
  }
  /// Return the offsets, in floats, of a column's tiles of K and tiles of V from the column's pairs of K.
  [[nodiscard]] int64_t KeyTiles() const { return block_k_ / 2 * columns_qk_; }
  [[nodiscard]] int64_t ValueTiles() const { return 2 * KeyTiles(); }

  /// Return f32 sums to which tiles of several slots add, or null if the call does not need the sum.
  [[nodiscard]] float* RowDelta(std::byte* workspace) const { return At(workspace, row_delta_); }  ///< [b][n][sq]
  [[nodiscard]] float* RowSlope(std::byte* workspace) const { return At(workspace, row_slope_); }  ///< [b][n][sq]
  [[nodiscard]] float* KeyBias(std::byte* workspace) const { return At(workspace, key_bias_); }    ///< [b][n][sk]
  [[nodiscard]] float* PairBias(std::byte* workspace) const { return At(workspace, pair_bias_); }
  /// Returns the layout of PairBias: [b][n][sq][sk], with a size of 1 if batch elements or heads share a bias.
  [[nodiscard]] const PairBiasSizes& pair_bias() const { return pair_bias_sizes_; }
  /// RowBase returns the offset of sequence b in RowDelta and RowSlope; KeyBase returns its offset in KeyBias. The
  /// heads of the sequence follow one another from there on, each with the sequence's own number of rows or keys.
  [[nodiscard]] int64_t RowBase(int64_t b) const { return row_base_[static_cast<size_t>(b)]; }
  [[nodiscard]] int64_t KeyBase(int64_t b) const { return key_base_[static_cast<size_t>(b)]; }

 private:
  [[nodiscard]] BackwardSlot LaySlot(Carver& carver) const;
  [[nodiscard]] BackwardScratch LayScratch(Carver& carver) const;

  static constexpr size_t kAbsent = static_cast<size_t>(-1);
  [[nodiscard]] static float* At(std::byte* workspace, size_t offset) {
    return offset == kAbsent ? nullptr : reinterpret_cast<float*>(workspace + offset);
  }

  int64_t columns_q_, columns_rope_, columns_qk_, columns_v_;
  int64_t slot_count_, workers_;
  int64_t slot_rows_, slot_keys_, tile_lanes_, block_k_;
  int64_t paired_keys_;  ///< number of keys of a slot, rounded up to a whole group of pairs
  bool pairs_, loops_, copies_k_, copies_v_, caps_, stage_bias_;
  bool groups_sums_;  ///< whether dK and dV in slots have grouped columns
  size_t run_state_, slots_, slot_bytes_, scratch_, scratch_bytes_;
  size_t row_delta_ = kAbsent, row_slope_ = kAbsent, key_bias_ = kAbsent, pair_bias_ = kAbsent;
  PairBiasSizes pair_bias_sizes_;
  std::vector<int64_t> row_base_, key_base_;
};

}  // namespace fa::ops

#endif  // FA_OPS_BACKWARD_BUFFERS_H_
