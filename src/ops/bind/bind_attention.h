#ifndef FA_OPS_BIND_ATTENTION_H_
#define FA_OPS_BIND_ATTENTION_H_

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "fa/flash_attention.h"
#include "layout/rows.h"
#include "ops/bind/call_tensors.h"
#include "ops/bind/pair_tiles.h"
#include "ops/bind/planned_tensors.h"
#include "tiling/problem.h"

namespace fa::ops {

/// The layout of a tensor with one value per pair of a row and a key. The value of (sequence b, head n, row i, key j)
/// lies at data + offset[b] + n*head + i*row + j, with strides in elements. A stride is 0 if its dimension is shared:
/// `row` is 0 if one row stands for all rows.
struct PairRows {
  struct PerSequence {
    int64_t offset = 0, head = 0, row = 0;
  };
  DType dtype = DType::kF32;
  std::vector<PerSequence> sequences;  ///< one layout per sequence

  /// Offset returns the number of elements before head 0, row 0 of sequence b. Of returns the layout of the sequence's
  /// rows from there on.
  [[nodiscard]] int64_t Offset(int64_t b) const { return sequences[static_cast<size_t>(b)].offset; }
  [[nodiscard]] layout::Rows Of(int64_t b) const {
    const PerSequence& of = sequences[static_cast<size_t>(b)];
    return {.dtype = dtype, .head = of.head, .row = of.row};
  }
};

/// The layout of the position bias, or of its gradient.
struct PseRows : PairRows {
  bool shared_batch = false;  ///< whether all batch elements share one bias, so that dpse is a sum over b
  bool shared_rows = false;   ///< whether all rows share one row of bias, so that dpse is a sum over i
  bool shared_heads = false;  ///< for a gradient: whether it has one head for all heads, so that it is a sum over n
  /// Whether the bias has its compressed form, in which only the last 1024 rows are stored. A row i < sq - 1024 reads
  /// the stored row m = i mod 1024, shifted by sk - 1024 + m - i columns. So a pair reads the stored value at the same
  /// distance from the diagonal.
  bool compressed = false;
  bool sums = false;  ///< for a gradient: whether tiles add to f32 sums that the caller of the run provides

  /// For a gradient: returns whether tiles add to f32 sums instead of writing values.
  [[nodiscard]] bool adds() const { return shared_batch || shared_rows || shared_heads || sums; }
};

/// The numbers that change scores and probabilities.
struct ScoreNumbers {
  float scale = 1;
  PseType pse_type = PseType::kAddThenScale;
  FA_DECODE_NUMBERS(FA_NUMBER_MEMBER)
  float keep_prob = 1;

  /// Returns whether scores are capped. The gradient then reads the capped scores.
  [[nodiscard]] bool caps() const { return softcap > 0; }
};

/// A validated dense call: its sizes, masks and strides, without addresses. A plan keeps this struct.
struct BoundAttention : ScoreNumbers {
  tiling::AttentionProblem problem;
  layout::Rows q, k, v, q_rope, k_rope, out;
  layout::Stats softmax_max, softmax_sum, lse;
  /// The layout of the sinks, one per (batch element, head, row). A stride is 0 if the sink does not depend on that
  /// index.
  layout::Stats sink;
  bool sink_per_row = false;  ///< whether each row has its own sink
  bool has_rope = false, has_max = false, has_sum = false, has_lse = false, has_sink = false;
  bool has_pse = false, has_slopes = false, has_dense_mask = false, has_drop_mask = false, has_philox = false;

  PseRows pse;                          ///< bias of pse types 0 and 1
  PairRows slopes;                      ///< one slope per sequence and head, for pse types 2 and 3
  PairRows dense_mask;                  ///< layout of the mask; a dimension that is broadcast has stride 0
  PairTileLayout pair_mask;             ///< where the tiles of a PairMask lie
  Dims pair_mask_shape;                 ///< the shape of the planned PairMask, or no dimensions
  std::vector<int64_t> dropout_offset;  ///< flat index of each sequence's first pair

  std::vector<int64_t> q_start, kv_start;  ///< position of row 0 and key 0 per sequence; empty: all 0
  PhiloxState philox;

  int64_t tail_row_begin = 0, tail_row_end = 0;  ///< TND rows past the last prefix sum, whose outputs are written as 0
  /// If the call gives lengths, the number of rows per batch element. Rows beyond an element's length are written as 0.
  /// Without lengths the number is 0.
  int64_t padded_rows = 0;

  std::vector<PlannedTensor> planned;          ///< the tensors of the planned call, as TensorsOf lists them
  std::vector<int64_t> cu_q, cu_kv;            ///< the planned prefix sums
  std::vector<int64_t> lengths_q, lengths_kv;  ///< the planned lengths, as the caller gave them
  /// Whether softmax_max and softmax_sum of a row without keys are 0. If not, they are -FLT_MAX and +FLT_MAX, or the
  /// row's sink and 1.
  bool selected_keys = false;
  float lse_without_keys = -std::numeric_limits<float>::infinity();  ///< as ForwardRows::lse_without_keys
  /// Whether tiles may have to copy K and V to f32 rows, because K and V are stored as a KeyStorage describes.
  bool decode = false;
  /// The sparse mode whose compressed mask dense_mask must be, or -1. Run checks the elements of the mask.
  int64_t compressed_mask_mode = -1;

  /// Returns whether a tile needs memory to convert the rows of a key block to f32.
  [[nodiscard]] bool converts_keys() const { return problem.dtype != DType::kF32 || decode; }
};

/// The number of rows in use per batch element of a padded layout, counted from row 0. A single entry holds for all
/// elements. Without entries, all S rows are in use. Entries past the last batch element are ignored.
struct ActualLengths {
  std::span<const int64_t> q, kv;
};

/// Finds every user error of the dense forward that does not depend on addresses or contents.
[[nodiscard]] Result<BoundAttention> BindAttention(const AttentionArgs& args, const AttentionOptions& options);

/// Checks in Run that the tensors are the planned ones: shape, stride, type, presence and prefix sums. Also checks that
/// no output shares an element with another tensor. The check allocates nothing unless it finds an error.
[[nodiscard]] Status CheckRunArgs(const BoundAttention& bound, const AttentionArgs& args);
/// Does what CheckRunArgs does, for the tensors and prefix sums of any dense call whose forward is `bound`.
[[nodiscard]] Status CheckRunTensors(const BoundAttention& bound, std::span<const CallTensor> tensors,
                                     std::span<const int64_t> cu_q, std::span<const int64_t> cu_kv,
                                     const TensorView& dense_mask, const PairMask* pair_mask);
/// Checks in Run that the PairMask has the planned shape. It may be another object than the planned one.
[[nodiscard]] Status CheckPlannedPairMask(const PairMask* mask, const Dims& planned);
/// Checks in Run that the lengths are the planned ones.
[[nodiscard]] Status CheckRunLengths(const BoundAttention& bound, const ActualLengths& lengths);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_ATTENTION_H_
