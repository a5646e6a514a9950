#ifndef FA_OPS_ATTENTION_ROWS_H_
#define FA_OPS_ATTENTION_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "fa/flash_attention.h"
#include "layout/rows_view.h"
#include "layout/stored_rows.h"
#include "ops/bind/bind_attention.h"
#include "tiling/row_interval.h"

namespace fa::ops {

// The structs below hold the tensors of a dense call during one run, as tiles read and write them. Each struct joins
// layouts that a plan keeps (BoundAttention) with addresses in the arguments. An absent tensor has null data.

/// A tensor with a value per pair of a row and a key. Row i of head n of sequence b lies at Of(b).At(0, n, i).
struct PairView {
  const std::byte* data = nullptr;
  const PairRows* where = nullptr;

  [[nodiscard]] layout::RowsView Of(int64_t b) const {
    return {data + where->Offset(b) * static_cast<int64_t>(SizeOf(where->dtype)), where->Of(b)};
  }
};

/// The gradient of a bias, addressed like a PairView.
struct MutablePseView {
  std::byte* data = nullptr;
  const PseRows* where = nullptr;

  [[nodiscard]] layout::MutableRowsView Of(int64_t b) const {
    return {data + where->Offset(b) * static_cast<int64_t>(SizeOf(where->dtype)), where->Of(b)};
  }
};

/// The tensors and numbers that change scores or choose what dropout keeps.
struct ScoreInputs : ScoreNumbers {
  PairView pse = {};            ///< bias of pse types 0 and 1
  bool compressed_pse = false;  ///< whether pse has the compressed form (PseRows::compressed)
  /// Pse types 2 and 3: one f32 slope per sequence b and head n, at (b, n, 0).
  PairView slopes = {};
  std::span<const int64_t> q_start = {}, kv_start = {};  ///< position of row 0 and key 0 per sequence; empty: all 0
  PairView dense_mask = {};                              ///< one mask byte per pair
  PairTiles mask_tiles = {};                             ///< used instead of dense_mask: tiles with one bit per pair
  const uint8_t* keep_bits = nullptr;                    ///< one dropout bit per pair, least significant bit first
  /// Generator that draws the dropout bits if there are no keep_bits.
  const PhiloxState* philox = nullptr;
  std::span<const int64_t> dropout_offset = {};  ///< flat index of each sequence's first pair

  [[nodiscard]] bool has_pse() const { return pse.data != nullptr; }
  [[nodiscard]] bool has_slopes() const { return slopes.data != nullptr; }
  [[nodiscard]] bool has_mask_tiles() const { return mask_tiles.where != nullptr; }
  /// Returns whether there is a mask with one value per pair, as bytes or as tiles.
  [[nodiscard]] bool has_dense_mask() const { return dense_mask.data != nullptr || has_mask_tiles(); }
  [[nodiscard]] bool has_dropout() const { return keep_bits != nullptr || philox != nullptr; }
};

/// Scales and offsets of compressed keys or values, in the caller's tensors. The scale of column c lies c / (columns
/// per group) * scale_group elements after At(b, n, row). If all batch elements, heads or rows share a number, the
/// stride of that dimension is 0.
struct Antiquants {
  layout::StoredRows scale, offset;  ///< `offset` has null data if there are no offsets
  int64_t scale_group = 0, offset_group = 0;
  int64_t groups = 1;  ///< number of scales per row
  bool per_row = false;
};

/// How a forward multiplies queries, keys and values of 8 bits. A scale that a query row or a KV head has as a whole
/// multiplies the products instead of their factors. Probabilities are multiplied by p_factor and rounded to the type
/// of V.
struct QuantizedProducts {
  layout::StatsView q_scale = {};  ///< one scale per row and head; null data: no queries of 8 bits
  float scale = 1;                 ///< factor of all scores
  float p_factor = 1;

  [[nodiscard]] bool used() const { return q_scale.data != nullptr; }
};

/// The tensors of a dense forward in a run, with their layouts and addresses.
struct ForwardRows {
  layout::RowsView q = {}, q_rope = {};
  layout::StoredRows k = {}, k_rope = {}, v = {};
  Antiquants k_antiquants = {}, v_antiquants = {};  ///< scales and offsets of compressed keys and values
  QuantizedProducts quantized = {};
  layout::StatsView sink = {};
  ScoreInputs scores = {};

  layout::MutableRowsView out = {};
  layout::MutableStatsView softmax_max = {}, softmax_sum = {}, lse = {};
  /// Whether softmax_max and softmax_sum of a row without keys are 0. If not, they are -FLT_MAX and +FLT_MAX, or the
  /// row's sink and 1.
  bool selected_keys = false;
  tiling::Interval unused_rows =
      {};                   ///< rows of packed tensors that belong to no sequence; these rows are written as 0
  int64_t padded_rows = 0;  ///< as BoundAttention::padded_rows
  /// The number of the first row of each batch element. With left padding of queries, the addresses of q, out and lse
  /// are moved back by this many rows. Otherwise the number is 0.
  int64_t first_row = 0;
  /// The lse of rows without keys, -inf or +inf. If it is +inf, rows past a length have the lse +inf too, otherwise 0.
  float lse_without_keys = -std::numeric_limits<float>::infinity();
};

/// The addresses of the tensors that change scores; null: absent.
struct ScoreAddresses {
  const void *pse = nullptr, *dense_mask = nullptr, *drop_mask = nullptr;
  const PairMask* pair_mask = nullptr;
};

/// The addresses of the tensors of a forward; null: absent.
struct ForwardAddresses {
  const void *q, *k, *v;
  const void *q_rope = nullptr, *k_rope = nullptr, *sink = nullptr;
  ScoreAddresses scores = {};
  void *out, *softmax_max = nullptr, *softmax_sum = nullptr, *lse = nullptr;
};

[[nodiscard]] ScoreInputs ScoreInputsOf(const BoundAttention& bound, const ScoreAddresses& data);

/// Returns the tensors of a checked call, whose layouts point into `bound`.
[[nodiscard]] ForwardRows RowsOf(const BoundAttention& bound, const ForwardAddresses& data);
[[nodiscard]] ForwardRows RowsOf(const BoundAttention& bound, const AttentionArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_ATTENTION_ROWS_H_
