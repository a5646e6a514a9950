#ifndef FA_TESTS_OPS_INDEXER_INDEXER_CASE_H_
#define FA_TESTS_OPS_INDEXER_INDEXER_CASE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <utility>
#include <vector>

#include "fa/lightning_indexer.h"
#include "fa/lightning_indexer_grad.h"
#include "reference/token/indexer.h"
#include "support/cases/token/token_case.h"
#include "support/cases/token/token_outputs.h"

namespace fa::test {

/// The values that are drawn for q, k, weights and d_values.
enum class IndexerValues : uint8_t {
  kNormal,
  kSmallIntegers,  ///< -2..2: sums are exact in every type; scores are often equal, 0 or -0
};

/// The description of one call of the lightning indexer, forward or backward.
struct IndexerCase {
  TokenCase tokens = {};
  int64_t heads = 4, d = 16;
  bool f32_weights = false;    ///< whether weights are f32; otherwise they have the type of q
  bool f32_values = false;     ///< whether sparse_values and d_values are f32; otherwise they have the type of q
  bool wants_values = true;    ///< whether the forward returns values
  bool flat_d_values = false;  ///< whether the backward's d_values are [B, S1, K]; otherwise they are [B, S1, 1, K]
  IndexerValues values = IndexerValues::kNormal;
  bool check_indices = true;
  // Only in the forward that selects keys:
  std::optional<DType> codes =
      {};  ///< the type of quantised q and k; weights and values then have the type tokens.dtype, unless they are f32
  DType scale_dtype = DType::kF32;     ///< the type of the scales of quantised q and k
  bool unit_scales = false;            ///< whether all scales are 1
  bool flat_scales = false;            ///< whether k_scale is [B, S2]; otherwise it is [B, S2, 1]
  int64_t ratio = 1;                   ///< cmp_ratio
  std::vector<int64_t> residual = {};  ///< residual_kv
  bool offsets = false;                ///< whether each token has an index_offset

  [[nodiscard]] DType weights_dtype() const { return f32_weights ? DType::kF32 : tokens.dtype; }
  [[nodiscard]] DType values_dtype() const { return f32_values ? DType::kF32 : tokens.dtype; }
};

std::ostream& operator<<(std::ostream& out, const IndexerCase& c);
[[nodiscard]] LightningIndexerOptions OptionsOf(const IndexerCase& c);
[[nodiscard]] LightningIndexerGradOptions GradOptionsOf(const IndexerCase& c);
/// Returns the case's problem, including its lists, in the form of the reference.
[[nodiscard]] reference::IndexerProblem MakeReferenceProblem(const IndexerCase& c);
/// Returns random gradients of the selected values, as [tokens, slots].
[[nodiscard]] std::vector<double> DrawValueGradients(const IndexerCase& c);

/// The tensors of a forward call. Every byte that is no input value is NaN or invalid.
class IndexerCall {
 public:
  explicit IndexerCall(const IndexerCase& c) : IndexerCall(c, MakeReferenceProblem(c)) {}
  IndexerCall(const IndexerCase& c, reference::IndexerProblem values);
  // An object cannot be copied, because the arguments point into it.
  IndexerCall(const IndexerCall&) = delete;
  IndexerCall& operator=(const IndexerCall&) = delete;

  [[nodiscard]] const IndexerCase& indexer_case() const { return case_; }
  [[nodiscard]] const reference::IndexerProblem& values() const { return values_; }
  [[nodiscard]] LightningIndexerArgs args() const;
  [[nodiscard]] LightningIndexerOptions options() const { return OptionsOf(case_); }
  [[nodiscard]] Status Run(Context* context) const { return LightningIndexer(args(), options(), context); }
  [[nodiscard]] TokenOutputs Outputs() const;
  [[nodiscard]] Snapshot TakeSnapshot(bool outputs_may_change = true) const;
  [[nodiscard]] const Tensor& block_table() const { return tensors_.block_table(); }

 private:
  IndexerCase case_;
  reference::IndexerProblem values_;
  TokenTensors tensors_;
  RowTensor q_, k_, weights_, indices_, sparse_values_, q_scale_, k_scale_, index_offset_;
};

/// The tensors of a backward call.
class IndexerGradCall {
 public:
  explicit IndexerGradCall(const IndexerCase& c) : IndexerGradCall(c, MakeReferenceProblem(c)) {}
  IndexerGradCall(const IndexerCase& c, reference::IndexerProblem values)
      : IndexerGradCall(c, std::move(values), DrawValueGradients(c)) {}
  /// Makes the call with these values and value gradients instead of the case's.
  IndexerGradCall(const IndexerCase& c, reference::IndexerProblem values, std::vector<double> d_values);
  IndexerGradCall(const IndexerGradCall&) = delete;
  IndexerGradCall& operator=(const IndexerGradCall&) = delete;

  [[nodiscard]] const IndexerCase& indexer_case() const { return case_; }
  [[nodiscard]] const reference::IndexerProblem& values() const { return values_; }
  [[nodiscard]] const std::vector<double>& d_values() const { return d_values_values_; }
  [[nodiscard]] LightningIndexerGradArgs args() const;
  [[nodiscard]] LightningIndexerGradOptions options() const { return GradOptionsOf(case_); }
  [[nodiscard]] Status Run(Context* context) const { return LightningIndexerGrad(args(), options(), context); }
  [[nodiscard]] TokenOutputs Outputs() const;
  [[nodiscard]] Snapshot TakeSnapshot(bool outputs_may_change = true) const;
  [[nodiscard]] const RowTensor& lists() const { return lists_; }

 private:
  IndexerCase case_;
  reference::IndexerProblem values_;
  std::vector<double> d_values_values_;
  TokenTensors tensors_;
  RowTensor q_, k_, weights_, lists_, d_values_, dq_, dk_, dweights_;
};

/// Runs the case forward on every level of this machine and checks the selection (indexer_expectation.h).
[[nodiscard]] ::testing::AssertionResult ForwardIsTheReference(const IndexerCall& call, int threads = 2);
[[nodiscard]] ::testing::AssertionResult ForwardIsTheReference(const IndexerCase& c, int threads = 2);
/// Runs the case backward on every level of this machine and checks the gradients.
[[nodiscard]] ::testing::AssertionResult BackwardIsTheReference(const IndexerGradCall& call, int threads = 2);
[[nodiscard]] ::testing::AssertionResult BackwardIsTheReference(const IndexerCase& c, int threads = 2);

/// Returns the outputs of a call that must succeed, in fresh tensors.
[[nodiscard]] TokenOutputs ForwardOf(const IndexerCase& c, Context* context);
[[nodiscard]] TokenOutputs BackwardOf(const IndexerCase& c, Context* context);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_INDEXER_INDEXER_CASE_H_
