#ifndef FA_OPS_KEY_PANELS_H_
#define FA_OPS_KEY_PANELS_H_

#include <cstddef>
#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "layout/stored_rows.h"
#include "ops/bind/attention_rows.h"
#include "ops/tile/key_rows.h"
#include "ops/tile/tile_scratch.h"
#include "tiling/forward/forward_plan.h"

namespace fa::ops {

/// The three ways in which K and V reach the kernels as rows: in place; packed once per head into a slot of the
/// workspace; or, if a head serves too few tiles to pack it, converted block by block in a tile's own scratch.
class KeyPanels {
 public:
  /// The caller keeps everything except `slots`.
  KeyPanels(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
            const core::kernels::KernelTable& table, const ForwardRows& rows, std::byte* slots);

  /// Bytes of one slot.
  static size_t SlotBytes(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
                          const core::kernels::KernelTable& table);

  /// Runs a pack task.
  void Pack(const tiling::PackItem& item) const;
  /// Rows for the keys of one block of a tile, in the form for `kernels`. If the item has no slot and the kernels
  /// cannot take the caller's rows, they are converted into scratch.
  [[nodiscard]] KeyRows Block(const tiling::ForwardItem& item, tiling::Interval keys,
                              const core::kernels::StripKernels& kernels, const TileScratch& scratch) const;

 private:
  struct Source {
    const layout::StoredRows& rows;
    int64_t columns;
    const Antiquants& antiquants;
  };
  [[nodiscard]] Source K() const { return {rows_.k, problem_.d, rows_.k_antiquants}; }
  [[nodiscard]] Source KRope() const { return {rows_.k_rope, problem_.d_rope, rows_.k_antiquants}; }
  [[nodiscard]] Source V() const { return {rows_.v, problem_.dv, rows_.v_antiquants}; }
  /// The rows of one head, beginning with key 0.
  [[nodiscard]] layout::HeadRows Locate(const Source& source, int32_t sequence, int64_t head_kv) const;
  void Widen(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys, float* to) const;
  void PairRows(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys, float* to) const;
  /// Pointers to key 0 in a slot.
  [[nodiscard]] float* SlotK(int32_t slot) const;
  [[nodiscard]] float* SlotKRope(int32_t slot) const;
  [[nodiscard]] float* SlotV(int32_t slot) const;

  const tiling::AttentionProblem& problem_;
  const tiling::ForwardPlan& plan_;
  const core::kernels::KernelTable& table_;
  const ForwardRows& rows_;
  std::byte* slots_;
  size_t slot_bytes_;
};

}  // namespace fa::ops

#endif  // FA_OPS_KEY_PANELS_H_
