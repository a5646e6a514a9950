#ifndef FA_OPS_KEY_STORAGE_H_
#define FA_OPS_KEY_STORAGE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "fa/tensor.h"
#include "layout/rows.h"

namespace fa::ops {

/// How the keys and values of a decode lie. A plan keeps this.
struct KeyStorage {
  std::vector<layout::Rows> k, v;  ///< one tensor per batch element; empty: one tensor for all
  int64_t page_rows = 0;           ///< > 0: pages of so many rows
  int64_t pages = 0;               ///< of k and of v
  int64_t k_page = 0, v_page = 0;  ///< elements from page to page
  int64_t table_row = 0;           ///< entries of block_table from batch element to batch element
  bool quantized = false;          ///< i8
  bool per_token = false;          ///< one scale and offset per key: f32 [2][B][S]; else one per column: [2][Nkv][D]

  [[nodiscard]] bool listed() const { return !k.empty(); }
  [[nodiscard]] bool paged() const { return page_rows > 0; }
};

/// The same in a run, with addresses.
struct KeySource {
  const KeyStorage& storage;
  std::span<const TensorView> k, v;
  const int32_t* block_table = nullptr;
  /// i8: f32 scales and offsets of keys, of values; [Nkv][D] or [B][S] with rows `antiquant_row` apart.
  const float *k_scale = nullptr, *k_offset = nullptr, *v_scale = nullptr, *v_offset = nullptr;
  int64_t antiquant_row = 0;
};

}  // namespace fa::ops

#endif  // FA_OPS_KEY_STORAGE_H_
