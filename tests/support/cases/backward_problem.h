#ifndef FA_TESTS_SUPPORT_BACKWARD_PROBLEM_H_
#define FA_TESTS_SUPPORT_BACKWARD_PROBLEM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "fa/flash_attention_grad.h"
#include "support/cases/backward_case.h"
#include "support/cases/forward_problem.h"
#include "support/tensor.h"

namespace fa::test {

/// The results of a call, ordered as the reference orders them. dslopes has the shape of its tensor, [N] or [B, N].
struct BackwardOutputs {
  reference::Gradients gradients;  ///< a gradient that was not asked for is empty
  std::vector<double> tail;        ///< TND: all elements of all gradients in rows after the last sequence
};

/// The tensors of a case in guarded buffers. Every byte that is no input value is NaN.
class BackwardProblem {
 public:
  explicit BackwardProblem(const BackwardCase& c) : BackwardProblem(c, MakeBackwardValues(c)) {}
  BackwardProblem(const BackwardCase& c, BackwardValues values);
  // The arguments point into the object, so it is not copied.
  BackwardProblem(const BackwardProblem&) = delete;
  BackwardProblem& operator=(const BackwardProblem&) = delete;

  [[nodiscard]] const BackwardCase& backward_case() const { return case_; }
  [[nodiscard]] const BackwardValues& values() const { return values_; }
  [[nodiscard]] AttentionGradArgs args() const;
  [[nodiscard]] AttentionOptions options() const { return OptionsOf(case_.forward); }

  [[nodiscard]] Status Run(Context* context) const { return FlashAttentionGrad(args(), options(), context); }
  [[nodiscard]] Result<PlanFor<AttentionGradArgs>> MakePlan(Context* context) const {
    return PlanFlashAttentionGrad(args(), options(), context);
  }
  [[nodiscard]] BackwardOutputs Outputs() const;
  /// Sets every element of every gradient to NaN.
  void ForgetOutputs() const;
  /// Returns a copy of every byte of every buffer, for a comparison with later contents. With `outputs_may_change`,
  /// elements of gradients may differ then.
  [[nodiscard]] Snapshot TakeSnapshot(bool outputs_may_change = true) const;

 private:
  /// A tensor with heads, and what is needed to visit its rows.
  struct Rows {
    HeadTensor at;
    const std::vector<int64_t>* lengths = nullptr;  ///< number of rows of each sequence
    int64_t heads = 0, size = 0;
    int64_t tensor_rows = 0;  ///< rows per batch element; in TND the rows of all sequences and the tail
  };
  [[nodiscard]] Rows PlaceRows(Layout layout, bool of_queries, int64_t size, int64_t slot);
  void PlaceStatistic(const std::vector<double>& values, Tensor* tensor) const;
  template <typename Visit>
  void ForEachRow(const Rows& rows, const Visit& visit) const;
  void Scatter(const std::vector<double>& from, const Rows& to) const;
  [[nodiscard]] std::vector<double> Gather(const Rows& from, std::vector<double>* tail) const;
  [[nodiscard]] std::vector<const Rows*> GradientRows() const;
  [[nodiscard]] std::vector<const Tensor*> ParameterGradients() const;

  BackwardCase case_;
  BackwardValues values_;
  ForwardProblem forward_;  ///< the tensors of the forward, which are inputs here
  std::shared_ptr<GuardedBuffer> together_;
  Rows out_, d_out_, dq_, dk_, dv_, dq_rope_, dk_rope_;
  Tensor max_, sum_, dpse_, dslopes_, dsink_;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_BACKWARD_PROBLEM_H_
