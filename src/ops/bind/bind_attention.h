#ifndef FA_OPS_BIND_ATTENTION_H_
#define FA_OPS_BIND_ATTENTION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "fa/flash_attention.h"
#include "layout/rows.h"
#include "ops/bind/call_tensors.h"
#include "ops/bind/planned_tensors.h"
#include "tiling/problem.h"

namespace fa::ops {

/// Where a tensor's value for (sequence b, head n, row i, key j) lies: at data + offset[b] + n*head + i*row + j, with
/// strides in elements. If one row stands for all rows, its stride `row` is 0, and so on.
struct PairRows {
  struct PerSequence {
    int64_t offset = 0, head = 0, row = 0;
  };
  DType dtype = DType::kF32;
  std::vector<PerSequence> sequences;  ///< one per sequence

  /// The elements before row (head 0, row 0) of sequence b, and the layout of the rows from there on.
  [[nodiscard]] int64_t Offset(int64_t b) const { return sequences[static_cast<size_t>(b)].offset; }
  [[nodiscard]] layout::Rows Of(int64_t b) const {
    const PerSequence& of = sequences[static_cast<size_t>(b)];
    return {.dtype = dtype, .head = of.head, .row = of.row};
  }
};

/// The position bias, or its gradient.
struct PseRows : PairRows {
  bool shared_batch = false;  ///< one bias for a batch of another size than 1; its gradient is a sum over b
  bool shared_rows = false;   ///< one bias row for all of several rows; its gradient is a sum over i
  /// The form of 1024 rows. The last 1024 rows are stored. Row i < sq - 1024 reads row m = i mod 1024, shifted by sk -
  /// 1024 + m - i columns: the value at the same distance from the diagonal.
  bool compressed = false;
  bool sums = false;  ///< for a gradient: tiles add to f32 sums, which the caller keeps

  /// For a gradient: whether tiles add to what is there.
  [[nodiscard]] bool adds() const { return shared_batch || shared_rows || sums; }
};

/// The numbers that scores and probabilities are changed by.
struct ScoreNumbers {
  float scale = 1;
  PseType pse_type = PseType::kAddThenScale;
  float softcap = 0;
  float keep_prob = 1;
};

/// A validated dense call: sizes, rules and strides, but no pointer and no layout string. A plan keeps it.
struct BoundAttention : ScoreNumbers {
  tiling::AttentionProblem problem;
  layout::Rows q, k, v, q_rope, k_rope, out;
  layout::Stats softmax_max, softmax_sum, lse;
  bool has_rope = false, has_max = false, has_sum = false, has_lse = false, has_sink = false;
  bool has_pse = false, has_slopes = false, has_dense_mask = false, has_drop_mask = false, has_philox = false;

  PseRows pse;                          ///< pse types 0 and 1
  PairRows slopes;                      ///< pse types 2 and 3: one slope per sequence and head
  PairRows dense_mask;                  ///< strides 0 where broadcast
  std::vector<int64_t> dropout_offset;  ///< flat index of (sequence, head 0, row 0, key 0)

  std::vector<int64_t> q_start, kv_start;  ///< per sequence (mode 8: only sequence 0); empty = all 0
  PhiloxState philox;

  int64_t tail_row_begin = 0, tail_row_end = 0;  ///< TND rows past the last prefix sum, written 0
  int64_t padded_rows = 0;  ///< rows of every batch element, if the lengths say that fewer are in use; rows that are
                            ///< not in use are written as 0

  std::vector<PlannedTensor> planned;          ///< TensorsOf the call that was planned
  std::vector<int64_t> cu_q, cu_kv;            ///< the planned prefix sums
  std::vector<int64_t> lengths_q, lengths_kv;  ///< the planned lengths, as the caller gave them
  bool selected_keys = false;                  ///< whether statistics of a row without keys are 0 (else as if masked)
  bool decode = false;                ///< K and V lie as a KeyStorage says, so tiles may have to copy them to f32 rows
  int64_t compressed_mask_mode = -1;  ///< >= 0: dense_mask is the compressed mask of that sparse mode, checked in Run

  /// Whether a tile needs memory for f32 rows of a key block.
  [[nodiscard]] bool converts_keys() const { return problem.dtype != DType::kF32 || decode; }
};

/// Rows in use per batch element of a padded layout, counted from row 0. One entry holds for all elements. No entry
/// means S. Entries past the last batch element are ignored.
struct ActualLengths {
  std::span<const int64_t> q, kv;
};

/// Finds every user error of the dense forward that does not depend on addresses or contents.
[[nodiscard]] Result<BoundAttention> BindAttention(const AttentionArgs& args, const AttentionOptions& options);

/// Checks in Run that the tensors are the planned ones (shape, stride, type, presence, cu arrays), and that no output
/// shares an element with another tensor. It allocates nothing when all is well.
[[nodiscard]] Status CheckRunArgs(const BoundAttention& bound, const AttentionArgs& args);
/// The same for the tensors and prefix sums of any dense call whose forward is `bound`.
[[nodiscard]] Status CheckRunTensors(const BoundAttention& bound, std::span<const CallTensor> tensors,
                                     std::span<const int64_t> cu_q, std::span<const int64_t> cu_kv,
                                     const TensorView& dense_mask);
/// Checks in Run that the lengths are the planned ones.
[[nodiscard]] Status CheckRunLengths(const BoundAttention& bound, const ActualLengths& lengths);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_ATTENTION_H_
