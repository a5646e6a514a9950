#ifndef FA_OPS_ATTENTION_ROWS_H_
#define FA_OPS_ATTENTION_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "fa/flash_attention.h"
#include "layout/rows_view.h"
#include "layout/stored_rows.h"
#include "ops/bind/bind_attention.h"
#include "tiling/row_interval.h"

namespace fa::ops {

// The tensors of a dense call in a run, as its tiles read and write them. They join what a plan keeps (BoundAttention)
// with the addresses of the arguments; below here no code sees argument structs. An absent tensor has null data.

/// A tensor of (row, key) pairs. Row i of head n of sequence b is at Of(b).At(0, n, i).
struct PairView {
  const std::byte* data = nullptr;
  const PairRows* where = nullptr;

  [[nodiscard]] layout::RowsView Of(int64_t b) const {
    return {data + where->Offset(b) * static_cast<int64_t>(SizeOf(where->dtype)), where->Of(b)};
  }
};

/// The gradient of a bias, addressed likewise.
struct MutablePseView {
  std::byte* data = nullptr;
  const PseRows* where = nullptr;

  [[nodiscard]] layout::MutableRowsView Of(int64_t b) const {
    return {data + where->Offset(b) * static_cast<int64_t>(SizeOf(where->dtype)), where->Of(b)};
  }
};

/// What the scores of a call pass through before they are multiplied with V.
struct ScoreInputs : ScoreNumbers {
  PairView pse = {};                                     ///< pse types 0 and 1
  bool compressed_pse = false;                           ///< as in PseRows
  PairView slopes = {};                                  ///< pse types 2 and 3: f32, one per (b, n, 0)
  std::span<const int64_t> q_start = {}, kv_start = {};  ///< one per sequence; empty: all 0
  PairView dense_mask = {};                              ///< one byte per pair
  const uint8_t* keep_bits = nullptr;                    ///< one bit per pair, least significant bit first
  const PhiloxState* philox = nullptr;                   ///< draws the bits instead
  std::span<const int64_t> dropout_offset = {};          ///< per sequence, the number of its first pair

  [[nodiscard]] bool has_pse() const { return pse.data != nullptr; }
  [[nodiscard]] bool has_slopes() const { return slopes.data != nullptr; }
  [[nodiscard]] bool has_dense_mask() const { return dense_mask.data != nullptr; }
  [[nodiscard]] bool has_dropout() const { return keep_bits != nullptr || philox != nullptr; }
};

/// Scales and offsets of i8 keys or values, f32: [heads_kv][columns], or with per_token [batch][keys].
struct Antiquants {
  const float *scale = nullptr, *offset = nullptr;
  int64_t row = 0;  ///< floats from head to head, or with per_token from batch element to batch element
  bool per_token = false;
};

/// The tensors of a forward.
struct ForwardRows {
  layout::RowsView q = {}, q_rope = {};
  layout::StoredRows k = {}, k_rope = {}, v = {};
  Antiquants k_antiquants = {}, v_antiquants = {};  ///< for i8 keys and values
  const float* sink = nullptr;                      ///< one value per head
  ScoreInputs scores = {};

  layout::MutableRowsView out = {};
  layout::MutableStatsView softmax_max = {}, softmax_sum = {}, lse = {};
  bool selected_keys = false;         ///< whether a row without keys has statistics 0 instead of those of a masked row
  tiling::Interval unused_rows = {};  ///< rows of packed tensors that belong to no sequence; they are written as 0
  int64_t padded_rows = 0;            ///< as in BoundAttention
};

/// The addresses of the tensors that change scores; null: absent.
struct ScoreAddresses {
  const void *pse = nullptr, *dense_mask = nullptr, *drop_mask = nullptr;
};

/// The addresses of the tensors of a forward; null: absent.
struct ForwardAddresses {
  const void *q, *k, *v;
  const void *q_rope = nullptr, *k_rope = nullptr, *sink = nullptr;
  ScoreAddresses scores = {};
  void *out, *softmax_max = nullptr, *softmax_sum = nullptr, *lse = nullptr;
};

[[nodiscard]] ScoreInputs ScoreInputsOf(const BoundAttention& bound, const ScoreAddresses& data);

/// The tensors of a checked call. They point into `bound`.
[[nodiscard]] ForwardRows RowsOf(const BoundAttention& bound, const ForwardAddresses& data);
[[nodiscard]] ForwardRows RowsOf(const BoundAttention& bound, const AttentionArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_ATTENTION_ROWS_H_
