#ifndef FA_TESTS_OPS_SPARSE_SPARSE_CASE_H_
#define FA_TESTS_OPS_SPARSE_SPARSE_CASE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <vector>

#include "fa/sparse_flash_attention.h"
#include "fa/sparse_flash_attention_grad.h"
#include "reference/token/sparse_attention.h"
#include "support/cases/token/token_case.h"
#include "support/cases/token/token_outputs.h"

namespace fa::test {

/// The description of one call of sparse attention, forward or backward.
struct SparseCase {
  TokenCase tokens = {};
  int64_t heads = 2, d = 16, d_rope = 0, dv = 16;
  bool merged = false;  ///< the call has no v, and k holds the values too
  std::optional<float> scale = {};
  bool statistics = true, head_mean = true;  ///< wanted outputs of the forward; the head mean needs block size 1
  bool check_indices = true;
  /// Only for expected results: the statistic is lse, and a backward gets lse as the maximum and 1 as the sum.
  bool lse = false;
  bool sink = false;  ///< for both directions; the backward then has dsink
  /// Only in the forward: the type of the numbers in quantised rows of k, and of v if the call has v. If `rows` is set,
  /// d_rope is 0. The last rope_columns of the d columns have no scale.
  std::optional<DType> rows = {};
  int64_t rope_columns = 0, tile = 16;
  /// Whether the products of numbers and scales have few enough bits to be exact in every type of queries.
  bool exact_rows = false;

  /// Returns whether kernels may round the rows that they dequantise.
  [[nodiscard]] bool rounds_rows() const { return rows && !exact_rows && tokens.dtype != DType::kF32; }
};

std::ostream& operator<<(std::ostream& out, const SparseCase& c);
[[nodiscard]] SparseAttentionOptions OptionsOf(const SparseCase& c);
/// Quantised rows of keys, or of values.
struct QuantizedKeys {
  /// The rows [keys, bytes per row]. Each byte is stored as an element of type SparseCase::rows.
  std::vector<double> bytes;
  std::vector<double> numbers;  ///< the dequantised rows [keys, d]
};
[[nodiscard]] QuantizedKeys DrawQuantizedKeys(const SparseCase& c, Tag tag);

/// Returns the problem of the case as the reference takes it. Values are drawn and rounded to their types.
[[nodiscard]] reference::SparseProblem MakeReferenceProblem(const SparseCase& c);

/// The tensors of a forward call. All elements besides the input values are NaN or invalid indices.
class SparseCall {
 public:
  explicit SparseCall(const SparseCase& c) : SparseCall(c, MakeReferenceProblem(c)) {}
  /// Takes `values`, for example poisoned values, instead of the values of the case. Quantised rows come from the case.
  SparseCall(const SparseCase& c, reference::SparseProblem values);
  // An object cannot be copied, because the arguments point into it.
  SparseCall(const SparseCall&) = delete;
  SparseCall& operator=(const SparseCall&) = delete;

  [[nodiscard]] const SparseCase& sparse_case() const { return case_; }
  [[nodiscard]] const reference::SparseProblem& values() const { return values_; }
  [[nodiscard]] SparseAttentionArgs args() const;
  [[nodiscard]] SparseAttentionOptions options() const { return OptionsOf(case_); }
  [[nodiscard]] Status Run(Context* context) const { return SparseFlashAttention(args(), options(), context); }
  [[nodiscard]] TokenOutputs Outputs() const;
  [[nodiscard]] Snapshot TakeSnapshot(bool outputs_may_change = true) const;
  [[nodiscard]] const RowTensor& lists() const { return lists_; }
  [[nodiscard]] const RowTensor& keys() const { return k_; }
  [[nodiscard]] const Tensor& block_table() const { return tensors_.block_table(); }

 private:
  SparseCase case_;
  reference::SparseProblem values_;
  TokenTensors tensors_;
  RowTensor q_, k_, v_, q_rope_, k_rope_, lists_, out_, max_, sum_, head_mean_;
  Tensor sink_;
};

/// The tensors of a backward call. Its forward results come from the reference, rounded as a forward rounds them.
class SparseGradCall {
 public:
  explicit SparseGradCall(const SparseCase& c) : SparseGradCall(c, MakeReferenceProblem(c)) {}
  SparseGradCall(const SparseCase& c, reference::SparseProblem values);
  SparseGradCall(const SparseGradCall&) = delete;
  SparseGradCall& operator=(const SparseGradCall&) = delete;

  [[nodiscard]] const SparseCase& sparse_case() const { return case_; }
  [[nodiscard]] const reference::SparseProblem& values() const { return values_; }
  [[nodiscard]] const reference::SparseResult& forward() const { return forward_; }
  [[nodiscard]] const std::vector<double>& d_out() const { return d_out_values_; }
  [[nodiscard]] SparseAttentionGradArgs args() const;
  [[nodiscard]] SparseAttentionOptions options() const { return OptionsOf(case_); }
  [[nodiscard]] Status Run(Context* context) const { return SparseFlashAttentionGrad(args(), options(), context); }
  [[nodiscard]] TokenOutputs Outputs() const;
  [[nodiscard]] Snapshot TakeSnapshot(bool outputs_may_change = true) const;
  [[nodiscard]] const RowTensor& lists() const { return lists_; }

 private:
  SparseCase case_;
  reference::SparseProblem values_;
  reference::SparseResult forward_;
  std::vector<double> d_out_values_;
  TokenTensors tensors_;
  RowTensor q_, k_, v_, q_rope_, k_rope_, lists_, out_, d_out_, max_, sum_, dq_, dk_, dv_, dq_rope_, dk_rope_;
  Tensor sink_, dsink_;
};

/// Runs the case forward on every level of this machine and compares it with the reference. Only the outputs may be
/// written.
[[nodiscard]] ::testing::AssertionResult ForwardIsTheReference(const SparseCall& call, int threads = 2);
[[nodiscard]] ::testing::AssertionResult ForwardIsTheReference(const SparseCase& c, int threads = 2);
/// Runs the case backward on every level of this machine and compares it with the reference.
[[nodiscard]] ::testing::AssertionResult BackwardIsTheReference(const SparseGradCall& call, int threads = 2);
[[nodiscard]] ::testing::AssertionResult BackwardIsTheReference(const SparseCase& c, int threads = 2);

/// Returns the outputs of a call that must succeed, in fresh tensors.
[[nodiscard]] TokenOutputs ForwardOf(const SparseCase& c, Context* context);
[[nodiscard]] TokenOutputs BackwardOf(const SparseCase& c, Context* context);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_SPARSE_SPARSE_CASE_H_
