#ifndef FA_OPS_BIND_DECODE_H_
#define FA_OPS_BIND_DECODE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "fa/decode_attention.h"
#include "layout/bind_layout.h"
#include "layout/rows.h"
#include "ops/bind/attention_rows.h"
#include "ops/bind/bind_attention.h"
#include "ops/bind/call_tensors.h"
#include "ops/bind/planned_tensors.h"
#include "ops/inference/output_scales.h"

namespace fa::ops {

/// The layout of the scales or offsets of compressed keys or values. `rows` has a stride of 0 where one number holds
/// for all batch elements, heads or rows.
struct BoundNumbers {
  int64_t begin = 0;  ///< number of elements before the first scale or offset
  layout::Rows rows;
  int64_t group = 0;  ///< elements from one group of columns to the next
};
/// The layout of the scales and offsets of keys or of values.
struct BoundAntiquants {
  BoundNumbers scale, offset;
  int64_t groups = 1;  ///< number of scales per row
  bool per_row = false;
  bool paged = false;  ///< whether rows.batch leads from page to page
};

/// The layout of a decode's keys and values.
struct KeyStorage {
  /// The layouts of the tensors, if each batch element has its own tensors. Otherwise, and with pages, the lists are
  /// empty.
  std::vector<layout::Rows> k, k_rope, v;
  layout::BlockTable table;  ///< layout of the pages, without the table's entries
  /// In NZ pages a row lies in pieces of 32 bytes: elements from piece to piece, as HeadRows::piece_stride.
  int64_t k_pieces = layout::kWholeRows, k_rope_pieces = layout::kWholeRows, v_pieces = layout::kWholeRows;
  bool quantized = false;  ///< whether keys are compressed, and so widened
  BoundAntiquants k_antiquants, v_antiquants;

  [[nodiscard]] bool paged() const { return table.page_rows > 0; }
};

/// The layout of the scales of 8-bit queries, and the factor that multiplies probabilities if quant_scale1 is absent.
struct BoundQueryScale {
  bool used = false;  ///< whether queries of 8 bits have scales
  layout::Stats scale;
  float p_factor = 1;
};

/// A validated decode: the equivalent dense call, and the layout of its keys.
struct BoundDecode {
  BoundAttention attention;  ///< the dense call; with pages, the batch strides of k and v lead from page to page
  KeyStorage storage;
  BoundQueryScale query_scale = {};
  BoundOutputScales scales = {};
  std::vector<PlannedTensor> planned;  ///< the tensors of the planned call, as TensorsOf lists them
  std::vector<PlannedTensor> planned_k, planned_k_rope, planned_v;
  std::vector<int64_t> lengths_q, lengths_kv;  ///< the planned lengths, as the caller gave them
};

/// What fused inference adds to a decode. With packed queries, keys need not lie in pages. Every layout is served, and
/// pages may have the NZ form.
struct FusedDecode {
  std::span<const int64_t> cu_kv = {};
  int64_t prefix_rows = 0;               ///< as Inference::prefix_rows
  int64_t block_size = 0, heads_kv = 0;  ///< options that tell the form of pages with four dimensions; 0: not given
  TensorView q_scale = {};
};

/// Finds every user error of a decode that does not depend on addresses or contents.
/// @param fused  null for a decode. Otherwise the caller sets BoundDecode::planned
[[nodiscard]] Result<BoundDecode> BindDecode(const DecodeAttentionArgs& args, const DecodeAttentionOptions& options,
                                             const FusedDecode* fused = nullptr);

/// Returns the rows of a checked tensor of keys or values, as layout::RowsOf. A head of i4x8 has fewer elements than
/// its `head_size` columns.
[[nodiscard]] layout::Rows KeyRowsOf(const TensorView& tensor, const layout::Axes& axes, int64_t head_size);

/// Checks in Run that the tensors and lengths are the planned ones, and that no output shares an element with another
/// tensor. Also checks that every used entry of block_table is a page.
/// @param tensors  the result of TensorsOf for the arguments of the call
[[nodiscard]] Status CheckDecodeRunArgs(const BoundDecode& bound, const DecodeAttentionArgs& args,
                                        const CallTensors& tensors);

/// Returns the tensors of checked arguments. The tensors point into `bound` and `args`.
[[nodiscard]] ForwardRows RowsOf(const BoundDecode& bound, const DecodeAttentionArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_DECODE_H_
