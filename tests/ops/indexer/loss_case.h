#ifndef FA_TESTS_OPS_INDEXER_LOSS_CASE_H_
#define FA_TESTS_OPS_INDEXER_LOSS_CASE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <vector>

#include "fa/indexer_loss.h"
#include "reference/token/indexer_loss.h"
#include "support/cases/token/token_case.h"
#include "support/cases/token/token_outputs.h"

namespace fa::test {

/// The description of one call of the KL loss, sparse or dense.
struct LossCase {
  TokenCase tokens = {};
  bool dense = false;
  int64_t heads = 4, heads_kv = 1, d = 16, d_rope = 0;  ///< sizes of the attention
  int64_t heads_index = 3, d_index = 16;
  bool f32_weights = false;  ///< whether weights are f32; otherwise they have the type of q
  bool sink = false;         ///< whether the attention has sinks, in the sparse loss only
  bool head_mean = false;    ///< whether p_head_mean is given, in the sparse loss only
  /// The statistics belong to another selection, so the probabilities of a row do not add up to 1.
  bool foreign_statistics = false;
  bool l1 = false, mean = false;
  std::optional<float> scale = {};
  bool check_indices = true;

  [[nodiscard]] DType weights_dtype() const { return f32_weights ? DType::kF32 : tokens.dtype; }
};

std::ostream& operator<<(std::ostream& out, const LossCase& c);
[[nodiscard]] SparseIndexerLossOptions OptionsOf(const LossCase& c);
[[nodiscard]] DenseIndexerLossOptions DenseOptionsOf(const LossCase& c);
/// Returns the problem of the case, with statistics in f32, in the form of the reference.
[[nodiscard]] reference::LossProblem MakeReferenceProblem(const LossCase& c);

/// The tensors of a call. Every byte that is no input value is NaN or invalid.
class LossCall {
 public:
  explicit LossCall(const LossCase& c) : LossCall(c, MakeReferenceProblem(c)) {}
  LossCall(const LossCase& c, reference::LossProblem values);
  // An object cannot be copied, because the arguments point into it.
  LossCall(const LossCall&) = delete;
  LossCall& operator=(const LossCall&) = delete;

  [[nodiscard]] const LossCase& loss_case() const { return case_; }
  [[nodiscard]] const reference::LossProblem& values() const { return values_; }
  [[nodiscard]] SparseIndexerLossArgs sparse_args() const;
  [[nodiscard]] DenseIndexerLossArgs dense_args() const;
  [[nodiscard]] SparseIndexerLossOptions options() const { return OptionsOf(case_); }
  [[nodiscard]] DenseIndexerLossOptions dense_options() const { return DenseOptionsOf(case_); }
  [[nodiscard]] Status Run(Context* context) const;
  // Returns a plan of sparse_args(); MakeDensePlan returns a plan of dense_args().
  [[nodiscard]] Result<PlanFor<SparseIndexerLossArgs>> MakeSparsePlan(Context* context) const;
  [[nodiscard]] Result<PlanFor<DenseIndexerLossArgs>> MakeDensePlan(Context* context) const;
  [[nodiscard]] TokenOutputs Outputs() const;
  [[nodiscard]] Snapshot TakeSnapshot(bool outputs_may_change = true) const;
  [[nodiscard]] const RowTensor& lists() const { return lists_; }

 private:
  template <typename Args>
  void FillShared(Args* args) const;

  LossCase case_;
  reference::LossProblem values_;
  TokenTensors tensors_;
  RowTensor q_, k_, q_rope_, k_rope_, q_index_, k_index_, weights_, lists_, max_, sum_, head_mean_, max_index_,
      sum_index_, dq_index_, dk_index_, dweights_;
  Tensor sink_, loss_;
};

/// Returns the reference's outputs and how far f32 results may be off. Let e be the error of a score of the attention
/// or of the indexer (support/compare/tolerance.h, ScoreTolerance), and u = 2^-24:
/// - p is a weighted sum of exponentials, computed from given statistics. Each is off by e + exp's error + 4 u (|max| +
///   |ln sum| + |score|). A p that is given as a tensor is exact. kL1 divides p by the sum of its row, whose terms have
///   these errors.
/// - ln y is off by e of its score, by the mean of e weighted with y, and by the rounding of the shift.
/// - dI = y - p is off by the sum of both errors. The errors of the gradients follow (IndexerGradientTolerance).
/// - Write p' and y' for p and y, clamped from below, and l = ln p' - ln y'. If p_j has the relative error r_j, the
///   loss of the row changes by sum_j p_j (l_j - L + 1) r_j. For kL1, L = sum p (l + 1), because a common factor of p
///   has no influence. Otherwise L = 0.
/// - If the indexer's score of key j has the error d_j, the loss of the row changes by sum_j (p'_j - P y_j) d_j, where
///   P = sum p', because a common shift of the scores has no influence. For the dense loss, P = 0.
/// - Errors of different keys, heads and rows are independent, so their squares add up. The errors of exp may all have
///   one sign. Logarithms and sums are computed in double.
[[nodiscard]] std::vector<ExpectedOutput> ExpectLoss(const LossCall& call);

/// Runs the case on every level of this machine and compares it with the reference. Only the outputs may be written.
[[nodiscard]] ::testing::AssertionResult LossIsTheReference(const LossCall& call, int threads = 2);
[[nodiscard]] ::testing::AssertionResult LossIsTheReference(const LossCase& c, int threads = 2);

/// Returns the outputs of a call that must succeed, in fresh tensors.
[[nodiscard]] TokenOutputs LossOf(const LossCase& c, Context* context);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_INDEXER_LOSS_CASE_H_
