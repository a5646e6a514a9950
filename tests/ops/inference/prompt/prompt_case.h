#ifndef FA_TESTS_OPS_PROMPT_PROMPT_CASE_H_
#define FA_TESTS_OPS_PROMPT_PROMPT_CASE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <vector>

#include "fa/prompt_flash_attention.h"
#include "ops/inference/int8_output.h"
#include "reference/attention.h"
#include "reference/prompt.h"
#include "support/tensor.h"

namespace fa::test {

enum class PromptMask : uint8_t { kNone, kPlane, kBatch, kBatch4d, kHeads };

/// One prompt call as a value.
struct PromptCase {
  uint64_t seed = 1;
  DType dtype = DType::kF32, out_dtype = DType::kF32;
  Layout layout = Layout::kBNSD;
  int64_t heads = 2, heads_kv = 1, d = 16, dv = 16;
  int64_t batch = 1, sq = 16, sk = 16;  ///< of the tensors; TND: see lengths
  /// Rows in use of each batch element; empty: all. TND: of each sequence, never empty.
  std::vector<int64_t> lengths_q = {}, lengths_kv = {};
  bool one_length = false;  ///< hands over one entry for all (they are equal)

  reference::MaskRule mask = {};
  bool sparse_mode = false;  ///< Mask::FromSparseMode, else the constructor of that rule
  PromptMask dense_mask = PromptMask::kNone;
  int64_t wider = 0;  ///< rows and columns by which dense mask and pse exceed the tensors
  bool pse = false;
  bool pse_broadcast = false;
  /// What the forward has; of floats only. Type 2 or 3 is a bias by slopes, in place of pse.
  reference::PseType pse_type = reference::PseType::kScaleThenAdd;
  int64_t q_start = 0, kv_start = 0;
  int64_t d_rope = 0;
  bool sink = false;
  float softcap = 0;
  bool statistics = false;
  std::optional<float> scale = {};

  /// int8 inputs. With the scale of the output an integer of P8 more or less moves an int8 output by at most one.
  float deq1 = 1.0F / 512, quant1 = 127, deq2 = 1.0F / 16384;
  bool packed_deq = false;         ///< as u64
  float quant2 = 20, offset2 = 0;  ///< int8 output; varied about these per column
  bool per_column = false, with_offset = false, bf16_scales = false;
  bool heads_by_columns = false;  ///< scales per column as [N, Dv]

  Padding padding = {};
  Placement placement = {};

  [[nodiscard]] bool packed() const { return layout == Layout::kTND; }
};

std::ostream& operator<<(std::ostream& out, const PromptCase& c);

/// The case's lengths, options and values of q, k and v in the reference's terms.
[[nodiscard]] reference::Problem DrawPromptValues(const PromptCase& c);

/// The tensors of a case in guarded buffers.
class PromptProblem {
 public:
  explicit PromptProblem(const PromptCase& c) : PromptProblem(c, DrawPromptValues(c)) {}
  /// The case with other values of q, k and v, for example poisoned ones.
  PromptProblem(const PromptCase& c, reference::Problem values);
  PromptProblem(const PromptProblem&) = delete;
  PromptProblem& operator=(const PromptProblem&) = delete;

  [[nodiscard]] PromptAttentionArgs args() const;
  [[nodiscard]] PromptAttentionOptions options() const;
  [[nodiscard]] const PromptCase& prompt_case() const { return case_; }
  [[nodiscard]] const reference::Problem& values() const { return values_; }
  [[nodiscard]] Status Run(Context* context) const { return PromptFlashAttention(args(), options(), context); }

  /// [sequence][head][row in use][column].
  [[nodiscard]] std::vector<double> Outputs() const;
  [[nodiscard]] bool has_slopes() const { return case_.pse_type >= reference::PseType::kSlopes; }
  /// softmax_max, softmax_sum and lse of the rows in use, one after the other, each as [sequence][head][row].
  [[nodiscard]] std::vector<double> Statistics() const;
  /// Every element of the outputs in rows that are not in use.
  [[nodiscard]] std::vector<double> UnusedOutputs() const;
  /// What the outputs should be, and how far each may be from that: 1 for int8 inputs; for an int8 output of other
  /// inputs, as far as the float may be off before it is quantized.
  struct Expected {
    std::vector<double> out, tolerance;
    std::vector<double> statistics, statistics_tolerance;
  };
  [[nodiscard]] Expected MakeExpected() const;
  [[nodiscard]] Snapshot TakeSnapshot() const;

 private:
  void PlaceHeads();
  void PlacePairs();
  void PlaceScales();
  void PlaceStatistics();
  [[nodiscard]] std::vector<const HeadTensor*> StatisticTensors() const { return {&max_, &sum_, &lse_}; }

  PromptCase case_;
  reference::Problem values_;
  std::vector<int64_t> cu_q_, cu_kv_, given_q_, given_kv_;
  HeadTensor q_, k_, v_, q_rope_, k_rope_, out_, max_, sum_, lse_;
  Tensor pse_, dense_mask_, sink_, deq1_, quant1_, deq2_;
  OutputScales output_scales_;
};

/// Compares what a call wrote: every output within its tolerance of the reference, NaN and inf where the reference has
/// them; int8 outputs of int8 inputs equal in 99.9 % of the elements (all but one if there are fewer than 1000); unused
/// rows 0.
[[nodiscard]] ::testing::AssertionResult MatchesExpected(const PromptProblem& problem,
                                                         const PromptProblem::Expected& expected);

/// Runs the case and compares; checks that nothing but the outputs was written.
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const PromptProblem& problem, Context* context);
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const PromptCase& c, Context* context);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_PROMPT_PROMPT_CASE_H_
