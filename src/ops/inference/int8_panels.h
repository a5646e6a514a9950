#ifndef FA_OPS_INT8_PANELS_H_
#define FA_OPS_INT8_PANELS_H_

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "core/kernels/int8/int8_kernel_types.h"
#include "layout/stored_rows.h"
#include "tiling/forward/forward_plan.h"
#include "tiling/problem.h"

namespace fa::ops {

/// Packs K and V of a head into a slot of the workspace. The slot also has one start per key: the number to which the
/// products of the key are added.
class Int8Panels {
 public:
  /// The tensors that are packed, kept by the caller.
  struct Source {
    const layout::StoredRows &k, &v;
    int sign;  ///< sign of the scale, because the starts differ for negated scores
  };
  Int8Panels(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
             const core::kernels::Int8Table& kernels, const Source& source, std::byte* slots);

  static size_t SlotBytes(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
                          const core::kernels::Int8Table& kernels);

  /// A worker's memory for kKeyStep rows of K and of V. Rows at the border of two pages are copied there, because the
  /// kernels that pack rows need evenly spaced rows.
  struct Staging {
    std::byte *k, *v;
  };
  /// Runs a pack task.
  void Pack(const tiling::PackItem& item, const Staging& staging) const;

  /// Return K, the starts of the scores, and V, from `key` on. For V, `key` must be a multiple of the group.
  [[nodiscard]] const uint32_t* K(int32_t slot, int64_t key) const {
    assert(key >= 0 && key < plan_.slot_rows);
    return SlotK(slot) + key * words();
  }
  [[nodiscard]] const int32_t* Start(int32_t slot, int64_t key) const {
    assert(key >= 0 && key < plan_.slot_rows);
    return SlotStart(slot) + key;
  }
  [[nodiscard]] const uint32_t* V(int32_t slot, int64_t key) const {
    assert(key >= 0 && key < plan_.slot_rows && key % kernels_.group == 0);
    return SlotV(slot) + key / kernels_.group * kernels_.columns;
  }
  /// Returns the number of 32-bit words per row of K.
  [[nodiscard]] int64_t words() const { return kernels_.Words(problem_.d); }
  /// Returns the number of 32-bit words from one block of columns of V to the next.
  [[nodiscard]] int64_t v_stride() const { return BlockWords(plan_.slot_rows, kernels_); }

 private:
  /// Returns the number of 32-bit words of a block of columns of V. A block for the tile unit (AMX) is one column, with
  /// an unused cache line behind it. Without that line, blocks a power of two apart would share a few sets of L1.
  [[nodiscard]] static int64_t BlockWords(int64_t slot_rows, const core::kernels::Int8Table& kernels) {
    constexpr int64_t kLineWords = 16;
    return slot_rows / kernels.group * kernels.columns + (kernels.columns == 1 ? kLineWords : 0);
  }
  [[nodiscard]] uint32_t* SlotK(int32_t slot) const {
    assert(slot >= 0);
    return reinterpret_cast<uint32_t*>(slots_ + static_cast<size_t>(slot) * slot_bytes_);
  }
  [[nodiscard]] int32_t* SlotStart(int32_t slot) const {
    return reinterpret_cast<int32_t*>(SlotK(slot) + plan_.slot_rows * words());
  }
  [[nodiscard]] uint32_t* SlotV(int32_t slot) const {
    return reinterpret_cast<uint32_t*>(SlotStart(slot) + plan_.slot_rows);
  }

  const tiling::AttentionProblem& problem_;
  const tiling::ForwardPlan& plan_;
  const core::kernels::Int8Table& kernels_;
  Source source_;
  std::byte* slots_;
  size_t slot_bytes_;
};

}  // namespace fa::ops

#endif  // FA_OPS_INT8_PANELS_H_
