#ifndef FA_OPS_KEY_PANELS_H_
#define FA_OPS_KEY_PANELS_H_

#include <cstddef>
#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "fa/flash_attention.h"
#include "ops/bind/bind_attention.h"
#include "ops/tile/key_rows.h"
#include "ops/tile/key_storage.h"
#include "ops/tile/page_table.h"
#include "ops/tile/tile_scratch.h"
#include "tiling/forward_plan.h"

namespace fa::ops {

/// The three ways K and V reach the kernels as the rows these take: where the caller has them; packed once per head
/// into a slot of the workspace; or converted block by block in a tile's own scratch, when a head serves too few tiles
/// to pack it.
class KeyPanels {
 public:
  KeyPanels(const BoundAttention& bound, const tiling::ForwardPlan& plan, const core::kernels::KernelTable& table,
            const AttentionArgs& args, std::byte* slots, const KeySource* keys);

  /// Bytes of one slot.
  static size_t SlotBytes(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
                          const core::kernels::KernelTable& table);

  /// Runs a pack task.
  void Pack(const tiling::PackItem& item) const;
  /// Rows for the keys of one block of a tile, as `kernels` take them; converts into scratch if the item has no slot
  /// and the kernels do not take the caller's rows.
  [[nodiscard]] KeyRows Block(const tiling::ForwardItem& item, tiling::Interval keys,
                              const core::kernels::StripKernels& kernels, const TileScratch& scratch) const;

 private:
  struct Source {
    const void* data;
    layout::Rows rows;
    int64_t columns;
    bool values = false;
  };
  /// The rows of one head from key 0 on; in pages, those of page 0.
  struct HeadRows {
    core::kernels::RowBlock rows;
    PageTable pages;
  };
  [[nodiscard]] Source K() const { return {args_.k.data, bound_.k, bound_.problem.d}; }
  [[nodiscard]] Source KRope() const { return {args_.k_rope.data, bound_.k_rope, bound_.problem.d_rope}; }
  [[nodiscard]] Source V() const { return {args_.v.data, bound_.v, bound_.problem.dv, true}; }
  [[nodiscard]] HeadRows Locate(const Source& source, int32_t sequence, int64_t head_kv) const;
  void Widen(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys, float* to) const;
  void Dequantize(const Source& source, int32_t sequence, int64_t head_kv, int64_t key,
                  const core::kernels::RowBlock& rows, int64_t count, float* to) const;
  void PairRows(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys, float* to) const;
  /// Slot pointers of key 0.
  [[nodiscard]] float* SlotK(int32_t slot) const;
  [[nodiscard]] float* SlotKRope(int32_t slot) const;
  [[nodiscard]] float* SlotV(int32_t slot) const;

  const BoundAttention& bound_;
  const tiling::ForwardPlan& plan_;
  const core::kernels::KernelTable& table_;
  const AttentionArgs& args_;
  std::byte* slots_;
  size_t slot_bytes_;
  const KeySource* keys_;  // null: K and V are those of args_
};

}  // namespace fa::ops

#endif  // FA_OPS_KEY_PANELS_H_
