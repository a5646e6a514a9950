#ifndef FA_TESTS_REFERENCE_ATTENTION_H_
#define FA_TESTS_REFERENCE_ATTENTION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "reference/half.h"
#include "reference/mask.h"

namespace reference {

/// Values that depend on batch element b, head n, row i and key j. The value is values[offset[b] + n*head[b] + i*row[b]
/// + j]. Batch elements, heads or rows may share values.
template <typename T>
struct PairValues {
  std::vector<T> values;
  /// offset[b] is the index at which the values of batch element b begin. head[b] and row[b] are the distances between
  /// its heads and between its rows.
  std::vector<int64_t> offset, head, row;

  [[nodiscard]] bool empty() const { return offset.empty(); }
  [[nodiscard]] int64_t Index(int64_t b, int64_t n, int64_t i, int64_t j) const {
    return offset[b] + n * head[b] + i * row[b] + j;
  }
};

enum class PseType : int8_t { kNone = -1, kScaleThenAdd = 0, kAddThenScale = 1, kSlopes = 2, kSlopesSqrt = 3 };

struct Seed {
  uint64_t seed = 0, offset = 0;
};

/// What has a sink of its own: a head, a row of a head (shared by all batch elements), or a row of one batch element.
enum class SinkForm : uint8_t { kPerHead, kPerRowOfAll, kPerRow };

/// One dense attention call. Each tensor has one batch element after another, each of shape [heads, rows, size]. Values
/// are double for every tested type.
struct Problem {
  int64_t heads = 1, heads_kv = 1, d = 1, d_rope = 0, dv = 1;
  Lengths lengths = {};
  std::vector<double> q = {}, k = {}, v = {}, q_rope = {}, k_rope = {};

  double scale = 1;
  double softcap = 0;
  MaskRule mask = {};
  PairValues<uint8_t> dense_mask = {};  ///< per pair: 1 means drop
  PseType pse_type = PseType::kNone;
  PairValues<double> pse = {};  ///< the bias if pse_type is 0 or 1
  /// pse has only the last 1024 query rows. A pair of an earlier row reads an element of pse that is equally far from
  /// the diagonal.
  bool pse_compressed = false;
  std::vector<double> slopes = {};  ///< slopes if pse_type is 2 or 3: [B, N]
  int64_t q_start = 0, kv_start = 0;
  double keep_prob = 1;
  std::vector<uint8_t> drop_bits = {};  ///< one bit per pair, 1 = keep; a byte's lowest bit is first
  std::optional<Seed> seed = {};
  SinkForm sink_form = SinkForm::kPerHead;
  std::vector<double> sink = {};  ///< [N], [N, longest Sq], one per row in the order of the statistics, or empty

  /// Returns the index of a row's sink.
  [[nodiscard]] int64_t SinkIndex(int64_t b, int64_t n, int64_t i) const;
  [[nodiscard]] int64_t batch() const { return static_cast<int64_t>(lengths.sq.size()); }
  /// Returns the sum of the rows of all batch elements before b. A tensor of `size` columns and `n` heads has n * size
  /// times this many elements before b.
  [[nodiscard]] int64_t RowsBefore(const std::vector<int64_t>& rows, int64_t b) const;
  /// Returns the index at which row i of (b, n) begins: in q or out with `columns` = d or dv, or in a statistic with
  /// `columns` = 1.
  [[nodiscard]] int64_t QueryRow(int64_t b, int64_t n, int64_t i, int64_t columns) const;
  /// Returns the index at which key j of (b, n_kv) begins in k or v.
  [[nodiscard]] int64_t KeyRow(int64_t b, int64_t n_kv, int64_t j, int64_t columns) const;
};

/// Returns whether both `mask` and `dense_mask` let query i of head n see key j.
[[nodiscard]] bool Keeps(const Problem& problem, int64_t b, int64_t n, int64_t i, int64_t j);

/// Returns the index at which pair (i, j) reads pse.values. The mask must keep the pair.
[[nodiscard]] int64_t PseIndex(const Problem& problem, int64_t b, int64_t n, int64_t i, int64_t j);

/// Sums of magnitudes for the analysis of rounding errors (support/compare/tolerance.h). P is normalised, and z is the
/// factor of dropout. Each sum has the shape of out or of max.
struct Magnitudes {
  std::vector<double> abs_out;     ///< the sum over keys j of P z |v|
  std::vector<double> rms_out;     ///< the root of the sum over keys j of (P z v)^2
  std::vector<double> score_out;   ///< sum_j P A z |v|, where A is the sum of the magnitudes of a score's terms
  std::vector<double> score;       ///< sum_j P A, with A as for score_out
  std::vector<double> score_near;  ///< the largest sum of magnitudes of a score's terms, among scores within 1 of the
                                   ///< maximum
  std::vector<double> keys;        ///< the number of keys that the row sees
  std::vector<double> largest_v;   ///< the largest |z v| among the keys that the row sees
};

struct ForwardResult {
  std::vector<double> out;            ///< the output, in the order of q with dv columns
  std::vector<double> max, sum, lse;  ///< the statistics: [N, Sq_b] for one batch element after another
  Magnitudes magnitudes;              ///< only Forward writes these sums
};

/// Computes attention in double by plain loops.
[[nodiscard]] ForwardResult Forward(const Problem& problem);

/// Computes a naive forward in f32 from inputs of `format`, with whose error the library's error is compared. Each row
/// is computed as a whole. P is rounded to a 16-bit format before the product with V, and the output is rounded once.
[[nodiscard]] ForwardResult NaiveForward(const Problem& problem, Format format);

struct Gradients {
  /// The gradients of q, k, v, q_rope and k_rope, in the order of these tensors.
  std::vector<double> dq, dk, dv, dq_rope, dk_rope;
  std::vector<double> dpse;  ///< the gradient of the bias, in the order of pse.values, summed over broadcast dimensions
  std::vector<double> dslopes;  ///< the gradients of the slopes [B, N]
  std::vector<double> dsink;    ///< the gradients of the sinks, in the order of sink
};

/// Computes the gradients of sum(out * d_out) in double. `forward` gives out, max and sum: exact ones from Forward, or
/// rounded ones from a library.
[[nodiscard]] Gradients Backward(const Problem& problem, const ForwardResult& forward,
                                 const std::vector<double>& d_out);

/// Computes a naive backward in f32, with whose error the library's error is compared. P and dS are rounded to a 16-bit
/// format before their products. Gradients are rounded once.
[[nodiscard]] Gradients NaiveBackward(const Problem& problem, const ForwardResult& forward,
                                      const std::vector<double>& d_out, Format format);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_ATTENTION_H_
