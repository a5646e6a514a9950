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

/// K and V of a head as pack_key_tiles and pack_value_tiles write them, beginning with key 0.
struct KeyTiles {
  const char *k = nullptr, *v = nullptr;
  int64_t value_chunks = 0;  ///< number of chunks from a group of 32 columns of V to the next group
  /// Per chunk of 32 keys: whether the chunk's rows of V have elements that are not finite. The tiles have 0 instead of
  /// such elements. So a masked pair adds 0 whatever its value is, and rows that see such an element have to be
  /// computed from V itself.
  const bool* replaced = nullptr;
};

/// Gives the kernels rows of K and V in one of three ways. The kernels read the caller's rows, or each head is packed
/// once into a slot of the workspace. If too few tiles read a head, each tile converts the blocks that it needs in its
/// own scratch.
class KeyPanels {
 public:
  /// All arguments except `slots`, which is copied, must outlive the object.
  KeyPanels(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
            const core::kernels::KernelTable& table, const ForwardRows& rows, std::byte* slots);

  /// Returns the number of bytes of one slot.
  static size_t SlotBytes(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
                          const core::kernels::KernelTable& table);

  /// Runs a pack task.
  void Pack(const tiling::PackItem& item, const TileScratch& scratch) const;
  /// Returns the tiles of K and V of an item with a slot, if the plan packs tiles.
  [[nodiscard]] KeyTiles Tiles(const tiling::ForwardItem& item) const;
  /// Returns the rows of K and V for one block of a tile, as `kernels` take them. If the item has no slot and the
  /// kernels cannot take the caller's rows, the rows are converted into scratch. Rows that lie in pieces are joined
  /// there.
  /// @param attended  whether the rows are for ForwardStrips::Attend, which takes every type in place. There may then
  ///                  be more keys than in a block
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
  template <typename Visit>
  void VisitWhole(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys, std::byte* memory,
                  const Visit& visit) const;
  void Widen(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys, std::byte* memory,
             float* to) const;
  void WidenRows(const Source& source, const layout::HeadRows& head, int32_t sequence, int64_t head_kv,
                 tiling::Interval keys, float* to) const;
  void PairRows(const Source& source, int32_t sequence, int64_t head_kv, tiling::Interval keys, std::byte* memory,
                float* to) const;
  /// Return the address of key 0 in a slot.
  [[nodiscard]] float* SlotK(int32_t slot) const;
  [[nodiscard]] float* SlotKRope(int32_t slot) const;
  [[nodiscard]] float* SlotV(int32_t slot) const;
  void PackTiles(const tiling::PackItem& item, std::byte* memory) const;
  /// Return the number of chunks of keys in a slot with tiles, and the number of floats of a chunk of K.
  [[nodiscard]] int64_t SlotChunks() const;
  [[nodiscard]] int64_t KeyChunkFloats() const;
  [[nodiscard]] float* SlotValueTiles(int32_t slot) const { return SlotK(slot) + SlotChunks() * KeyChunkFloats(); }
  [[nodiscard]] bool* SlotReplaced(int32_t slot) const;

  const tiling::AttentionProblem& problem_;
  const tiling::ForwardPlan& plan_;
  const core::kernels::KernelTable& table_;
  const ForwardRows& rows_;
  std::byte* slots_;
  size_t slot_bytes_;
};

}  // namespace fa::ops

#endif  // FA_OPS_KEY_PANELS_H_
