#ifndef FA_TESTS_SUPPORT_FORWARD_PROBLEM_H_
#define FA_TESTS_SUPPORT_FORWARD_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "fa/flash_attention.h"
#include "support/cases/forward_case.h"
#include "support/tensor.h"

namespace fa::test {

/// The results of a call, ordered as the reference orders them: [sequence][head][row][column].
struct ForwardOutputs {
  std::vector<double> out, max, sum, lse;  ///< an output that was not asked for is empty
  std::vector<double> tail;                ///< TND: all elements of all outputs in rows after the last sequence
};

/// The tensors of a case in guarded buffers. Every byte that is no input value is NaN.
class ForwardProblem {
 public:
  explicit ForwardProblem(const ForwardCase& c) : ForwardProblem(c, MakeReferenceProblem(c)) {}
  /// Makes the tensors of the case with these values instead of the case's, for example poisoned ones.
  ForwardProblem(const ForwardCase& c, reference::Problem values);
  // The arguments point into the object, so it is not copied.
  ForwardProblem(const ForwardProblem&) = delete;
  ForwardProblem& operator=(const ForwardProblem&) = delete;

  [[nodiscard]] const ForwardCase& forward_case() const { return case_; }
  [[nodiscard]] const reference::Problem& values() const { return values_; }
  [[nodiscard]] AttentionArgs args() const;
  [[nodiscard]] AttentionOptions options() const { return OptionsOf(case_); }

  [[nodiscard]] Status Run(Context* context) const { return FlashAttention(args(), options(), context); }
  [[nodiscard]] Result<PlanFor<AttentionArgs>> MakePlan(Context* context) const {
    return PlanFlashAttention(args(), options(), context);
  }
  [[nodiscard]] ForwardOutputs Outputs() const;
  /// Sets every element of every output to NaN.
  void ForgetOutputs() const;
  /// Returns a copy of every byte of every buffer, for a comparison with later contents. With `outputs_may_change`,
  /// elements of outputs may differ then.
  [[nodiscard]] Snapshot TakeSnapshot(bool outputs_may_change = true) const;

 private:
  void PlaceHeads();
  void PlacePairs();
  void PlaceStatistics();
  [[nodiscard]] HeadTensor PlaceHead(DType dtype, Layout layout, HeadSizes sizes, int64_t slot);
  /// The batch index and the row index under which a tensor holds row s of sequence b.
  struct Row {
    int64_t batch, row;
  };
  [[nodiscard]] Row RowOf(const std::vector<int64_t>& lengths, int64_t b, int64_t s) const;
  void Scatter(const HeadTensor& to, const std::vector<double>& from, const std::vector<int64_t>& rows, int64_t heads,
               int64_t size) const;
  [[nodiscard]] std::vector<double> Gather(const HeadTensor& from, int64_t size) const;
  [[nodiscard]] std::vector<const HeadTensor*> OutputTensors() const;

  ForwardCase case_;
  reference::Problem values_;
  std::shared_ptr<GuardedBuffer> together_;
  std::vector<int64_t> cu_q_, cu_kv_;
  HeadTensor q_, k_, v_, q_rope_, k_rope_, out_, max_, sum_, lse_;
  Tensor pse_, dense_mask_, drop_mask_, sink_;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_FORWARD_PROBLEM_H_
