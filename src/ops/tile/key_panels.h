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

/// Gives the kernels rows of K and V. The kernels read the caller's rows, or each head is packed once into a slot of
/// the workspace. If too few tiles read a head, each tile converts the blocks that it needs in its own scratch.
class KeyPanels {
 public:
  /// All arguments except `slots`, which is copied, must outlive the object.
  KeyPanels(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
            const core::kernels::KernelTable& table, const ForwardRows& rows, std::byte* slots);

  /// Returns the number of bytes of one slot.
  static size_t SlotBytes(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
                          const core::kernels::KernelTable& table);

  /// Runs a pack task.
  void Pack(const tiling::PackItem& item) const;
  /// Returns the rows of K and V for one block of a tile, as `kernels` take them. If the item has no slot and the
  /// kernels cannot take the caller's rows, the rows are converted into scratch.
  /// @param attended  whether the rows are for ForwardStrips::Attend, which takes every type in place
  [[nodiscard]] KeyRows Block(const tiling::ForwardItem& item, tiling::Interval keys,
                              const core::kernels::StripKernels& kernels, const TileScratch& scratch,
                              bool attended = false) const;

 private:
  struct Source {
    const layout::StoredRows& rows;
    int64_t columns;
    const Antiquants& antiquants;
  };
  [[nodiscard]] Source K() const { return {rows_.k, problem_.d, rows_.k_antiquants}; }
  [[nodiscard]] Source KRope() const { return {rows_.k_rope, problem_.d_rope, rows_.k_antiquants}; }
  [[nodiscard]] Source V() const { return {rows_.v, problem_.dv, rows_.v_antiquants}; }
  /// Returns the rows of one head, beginning with key 0.
  [[nodiscard]] layout::HeadRows Locate(const Source& source, int32_t sequence, int64_t head_kv) const;
  void Widen(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys, float* to) const;
  void PairRows(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys, float* to) const;
  /// Return the address of key 0 in a slot.
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
