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

/// The description of one prompt call.
struct PromptCase {
  uint64_t seed = 1;
  DType dtype = DType::kF32, out_dtype = DType::kF32;
  Layout layout = Layout::kBNSD;
  int64_t heads = 2, heads_kv = 1, d = 16, dv = 16;
  int64_t batch = 1, sq = 16, sk = 16;  ///< sizes of the tensors; with TND the lengths give the sizes
  /// The rows in use of each sequence; an empty list means all rows. With TND the lists must be given.
  std::vector<int64_t> lengths_q = {}, lengths_kv = {};
  bool one_length = false;  ///< all sequences have the same length, which is passed only once

  reference::MaskRule mask = {};
  bool sparse_mode = false;  ///< Mask::FromSparseMode makes the mask; otherwise the constructor of its kind does
  PromptMask dense_mask = PromptMask::kNone;
  int64_t wider = 0;  ///< rows and columns by which the dense mask and pse are larger than needed
  bool pse = false;
  bool pse_broadcast = false;
  /// Features that only float inputs have. If pse_type is 2 or 3, the bias comes from slopes instead of pse.
  reference::PseType pse_type = reference::PseType::kScaleThenAdd;
  FA_PROMPT_NUMBERS(FA_NUMBER_MEMBER)
  int64_t d_rope = 0;
  bool sink = false;
  bool statistics = false;
  std::optional<float> scale = {};

  /// The scales of int8 inputs. They are chosen so that a change of one unit in an int8 probability changes an int8
  /// output by at most one.
  float deq1 = 1.0F / 512, quant1 = 127, deq2 = 1.0F / 16384;
  bool packed_deq = false;         ///< whether the deq scales are passed as u64
  float quant2 = 20, offset2 = 0;  ///< means of the scales and offsets of an int8 output
  bool per_column = false, with_offset = false, bf16_scales = false;
  bool heads_by_columns = false;  ///< whether scales per column are passed as [N, Dv]

  Padding padding = {};
  Placement placement = {};

  [[nodiscard]] bool packed() const { return layout == Layout::kTND; }
};

std::ostream& operator<<(std::ostream& out, const PromptCase& c);

/// Returns the case's lengths, options, q, k and v as the reference takes them.
[[nodiscard]] reference::Problem DrawPromptValues(const PromptCase& c);

/// The tensors of a case in guarded buffers.
class PromptProblem {
 public:
  explicit PromptProblem(const PromptCase& c) : PromptProblem(c, DrawPromptValues(c)) {}
  /// Takes these values of q, k and v instead of the case's, for example poisoned ones.
  PromptProblem(const PromptCase& c, reference::Problem values);
  PromptProblem(const PromptProblem&) = delete;
  PromptProblem& operator=(const PromptProblem&) = delete;

  [[nodiscard]] PromptAttentionArgs args() const;
  [[nodiscard]] PromptAttentionOptions options() const;
  [[nodiscard]] const PromptCase& prompt_case() const { return case_; }
  [[nodiscard]] const reference::Problem& values() const { return values_; }
  [[nodiscard]] Status Run(Context* context) const { return PromptFlashAttention(args(), options(), context); }

  /// Returns the outputs as [sequence][head][row in use][column].
  [[nodiscard]] std::vector<double> Outputs() const;
  [[nodiscard]] bool has_slopes() const { return case_.pse_type >= reference::PseType::kSlopes; }
  /// Returns softmax_max, softmax_sum and lse of the rows in use, in this order, each as [sequence][head][row].
  [[nodiscard]] std::vector<double> Statistics() const;
  /// Returns every element of the outputs in rows that are not in use.
  [[nodiscard]] std::vector<double> UnusedOutputs() const;
  /// The expected outputs and how far each may be off. An int8 output of int8 inputs may be off by 1. An int8 output of
  /// float inputs may be off by as much as the float before quantization.
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

/// Compares the results of a call. Every output lies within its tolerance of the reference, and is NaN or inf where the
/// reference is. If inputs and outputs are int8, at least 99.9 % of the elements are equal, or all but one of fewer
/// than 1000 elements. Unused rows are 0.
[[nodiscard]] ::testing::AssertionResult MatchesExpected(const PromptProblem& problem,
                                                         const PromptProblem::Expected& expected);

/// Runs the case and compares its results. Only the outputs may be written.
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const PromptProblem& problem, Context* context);
[[nodiscard]] ::testing::AssertionResult RunsLikeTheReference(const PromptCase& c, Context* context);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_PROMPT_PROMPT_CASE_H_
