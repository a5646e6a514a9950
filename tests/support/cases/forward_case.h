#ifndef FA_TESTS_SUPPORT_FORWARD_CASE_H_
#define FA_TESTS_SUPPORT_FORWARD_CASE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fa/flash_attention.h"
#include "reference/attention.h"
#include "support/tensor.h"

namespace fa::test {

/// The form of a dense mask. In TND there is one mask [maxSq, maxSk] for all sequences.
enum class MaskForm : uint8_t { kNone, kPlane, kPlane4d, kPerBatch, kPerHead };
enum class PseForm : uint8_t { kNone, kFull, kRow, kCompressed, kSlopes };
enum class DropoutForm : uint8_t { kNone, kMask, kSeed };
/// The buffers in which q, k, v and out lie.
enum class Packing : uint8_t {
  kApart,  ///< each has its own buffer, padded as `padding` says
  /// All tensors share one buffer (B,S,slot,N,D), in which each has one slot. A slot has as many heads as the tensor
  /// with the most heads, and rows as long as the longest rows.
  kTogether
};

/// The description of one dense forward call with its tensors. An element's value depends only on its logical index,
/// not on layout and strides.
struct ForwardCase {
  uint64_t seed = 1;
  DType dtype = DType::kF32;
  Layout layout = Layout::kBNSD;
  int64_t heads = 1, heads_kv = 1, d = 16, d_rope = 0, dv = 16;
  reference::Lengths lengths = {{16}, {16}};  ///< one entry per sequence; all equal unless TND
  /// The number with which the values of the first sequence are drawn. Later sequences take the next numbers.
  int64_t first_sequence = 0;
  int64_t tail_q = 0, tail_kv = 0;  ///< unused rows after the last sequence, in TND

  reference::MaskRule mask = {};
  /// Whether Mask::FromSparseMode makes the mask, and not the function of its kind, such as Mask::Causal.
  bool sparse_mode = false;
  MaskForm dense_mask = MaskForm::kNone;
  double dense_mask_share = 0.3;  ///< share of pairs that the dense mask drops
  DType dense_mask_dtype = DType::kU8;

  PseForm pse = PseForm::kNone;
  reference::PseType pse_type = reference::PseType::kNone;
  bool pse_broadcast_batch = false;  ///< all batch elements share the bias: shape [1,N,..], or [N] for slopes
  bool pse_f32 = false;              ///< pse is f32 although q has a 16-bit type
  double pse_minus_inf_share = 0;    ///< the share of elements of pse that are -inf, as in a float mask
  FA_DENSE_NUMBERS(FA_NUMBER_MEMBER)
  std::optional<float> scale = {};
  DropoutForm dropout = DropoutForm::kNone;
  bool sink = false;
  reference::SinkForm sink_form = reference::SinkForm::kPerHead;
  bool wants_max = true, wants_sum = true, wants_lse = true;

  Packing packing = Packing::kApart;
  Padding padding = {};
  Placement placement = {};

  [[nodiscard]] int64_t batch() const { return static_cast<int64_t>(lengths.sq.size()); }
  [[nodiscard]] bool packed() const { return layout == Layout::kTND; }
  [[nodiscard]] int64_t max_sq() const;
  [[nodiscard]] int64_t max_sk() const;
  [[nodiscard]] float scale_value() const;
  /// Returns the rows of the q or the k tensor: rows per sequence, or in TND the rows of all sequences.
  [[nodiscard]] int64_t tensor_rows_q() const;
  [[nodiscard]] int64_t tensor_rows_k() const;

  bool operator==(const ForwardCase&) const = default;
};

/// Returns `batch` sequences of equal lengths.
[[nodiscard]] reference::Lengths EqualLengths(int64_t batch, int64_t sq, int64_t sk);

/// Returns the tensor of a case's sinks with its values, or an absent one. Sinks per row have gaps between them.
/// @param spare  unused rows of the tensor of queries, after the longest sequence, or after all packed sequences
[[nodiscard]] Tensor SinkTensor(const ForwardCase& c, const reference::Problem& values, int64_t spare = 0);
/// Returns the elements of a tensor that SinkTensor has made, in the order of the reference.
[[nodiscard]] std::vector<double> SinksOf(const ForwardCase& c, const reference::Problem& values, const Tensor& sinks);

/// Returns the fields that differ from a default case as text, the seed first.
[[nodiscard]] std::string ToString(const ForwardCase& c);
std::ostream& operator<<(std::ostream& out, const ForwardCase& c);

[[nodiscard]] AttentionOptions OptionsOf(const ForwardCase& c);

/// Returns the problem of the case as the reference takes it. Values are drawn and rounded to their types.
[[nodiscard]] reference::Problem MakeReferenceProblem(const ForwardCase& c);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_FORWARD_CASE_H_
