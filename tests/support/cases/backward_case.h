#ifndef FA_TESTS_SUPPORT_BACKWARD_CASE_H_
#define FA_TESTS_SUPPORT_BACKWARD_CASE_H_

#include <string>
#include <vector>

#include "reference/attention.h"
#include "support/cases/forward_case.h"

namespace fa::test {

/// The description of one dense backward call. It includes the forward call, and says how the backward's own tensors
/// lie in memory.
struct BackwardCase {
  /// The forward call; the backward always gets statistics, even if this case does not ask for them.
  ForwardCase forward;
  bool optional_gradients = true;  ///< asks for dpse, dslopes and dsink if the call has pse, slopes and sinks
  bool eight_statistics = false;   ///< each statistic has eight copies, as on the device
  /// With kTogether, out, d_out, dq, dk and dv share one buffer, in which their rows alternate.
  Packing packing = Packing::kApart;
  Padding padding = {};  ///< padding of out, d_out, the statistics and the gradients

  [[nodiscard]] bool wants_dpse() const {
    return optional_gradients && (forward.pse == PseForm::kFull || forward.pse == PseForm::kRow);
  }
  [[nodiscard]] bool wants_dslopes() const { return optional_gradients && forward.pse == PseForm::kSlopes; }
  [[nodiscard]] bool wants_dsink() const { return optional_gradients && forward.sink; }
  [[nodiscard]] DType pse_dtype() const { return forward.pse_f32 ? DType::kF32 : forward.dtype; }
};

std::ostream& operator<<(std::ostream& out, const BackwardCase& c);

/// The inputs of a backward call as the reference takes them. out has the type of q, and statistics are f32.
struct BackwardValues {
  reference::Problem problem;
  reference::ForwardResult forward;
  std::vector<double> d_out;  ///< the gradient of out, in the order of out
};

/// Returns the values of a case. The reference computes the results of the forward.
[[nodiscard]] BackwardValues MakeBackwardValues(const BackwardCase& c);
/// Returns the values of a case with this problem instead of the case's, for example a poisoned one.
[[nodiscard]] BackwardValues MakeBackwardValues(const BackwardCase& c, const reference::Problem& problem);

/// The gradients in double, and how far a computation may be from each of them (gradient_tolerance.h).
struct ExpectedGradients {
  reference::Gradients want, allowed;
};

/// Returns the expected gradients of a case. dslopes and dpse have the shapes of the case's tensors. For example,
/// dslopes is summed over the batch if the slopes are [N].
[[nodiscard]] ExpectedGradients ExpectGradients(const BackwardCase& c, const BackwardValues& values);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_BACKWARD_CASE_H_
