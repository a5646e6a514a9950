#ifndef FA_OPS_BIND_DECODE_H_
#define FA_OPS_BIND_DECODE_H_

#include <cstdint>
#include <vector>

#include "fa/decode_attention.h"
#include "layout/rows.h"
#include "ops/bind/attention_rows.h"
#include "ops/bind/bind_attention.h"
#include "ops/bind/planned_tensors.h"
#include "ops/inference/output_scales.h"

namespace fa::ops {

/// How the keys and values of a decode lie.
struct KeyStorage {
  std::vector<layout::Rows> k, k_rope, v;  ///< one tensor per batch element; empty: one tensor for all, or pages
  layout::BlockTable table;                ///< pages: all but its entries
  bool quantized = false;                  ///< i8 for queries of a float type, with scales
  bool per_token = false;  ///< one scale and offset per key: f32 [2][B][S]; else one per column: [2][Nkv][D]

  [[nodiscard]] bool paged() const { return table.page_rows > 0; }
};

/// A validated decode: the equivalent dense call, and how the keys lie.
struct BoundDecode {
  BoundAttention attention;  ///< in pages, the batch strides of k and v are those from page to page
  KeyStorage storage;
  BoundOutputScales scales = {};
  std::vector<PlannedTensor> planned;  ///< TensorsOf the planned call
  std::vector<PlannedTensor> planned_k, planned_k_rope, planned_v;
  std::vector<int64_t> lengths_q, lengths_kv;  ///< the planned lengths, as given
};

/// Finds every user error of a decode that does not depend on addresses or contents.
[[nodiscard]] Result<BoundDecode> BindDecode(const DecodeAttentionArgs& args, const DecodeAttentionOptions& options);

/// Checks in Run: the tensors and lengths are the planned ones, no output shares an element with another tensor, and
/// every entry of block_table that is used is a page.
[[nodiscard]] Status CheckDecodeRunArgs(const BoundDecode& bound, const DecodeAttentionArgs& args);

/// The rows of checked arguments, without scales and offsets of i8 keys and values; they point into `bound` and `args`.
[[nodiscard]] ForwardRows RowsOf(const BoundDecode& bound, const DecodeAttentionArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_DECODE_H_
