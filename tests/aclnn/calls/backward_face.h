#ifndef FA_TESTS_ACLNN_BACKWARD_FACE_H_
#define FA_TESTS_ACLNN_BACKWARD_FACE_H_

#include <gtest/gtest.h>

#include <string>

#include "aclnn/calls/face_call.h"
#include "aclnn/calls/forward_face.h"
#include "support/cases/backward_problem.h"

namespace fa::test {

/// The call of a backward case through the interface. The tensors are those of a BackwardProblem, except the
/// statistics, which this object makes itself.
class BackwardFace {
 public:
  explicit BackwardFace(const BackwardCase& c, const std::string& softmax_layout = "");

  [[nodiscard]] BackwardParameters& parameters() { return parameters_; }
  [[nodiscard]] Handles& handles() { return handles_; }
  [[nodiscard]] const BackwardProblem& problem() const { return problem_; }

  [[nodiscard]] aclError Run(BackwardVersion version) { return RunFace(version, parameters_); }

 private:
  BackwardProblem problem_;
  Statistics max_, sum_;
  Handles handles_;
  BackwardParameters parameters_;
};

/// Runs the case through C++ and through the interface. Both must give equal bits in every gradient, or both must
/// refuse the case. The interface refuses with the code 161002.
[[nodiscard]] ::testing::AssertionResult SameAsCpp(const BackwardCase& c, BackwardVersion version,
                                                   const std::string& softmax_layout = "");

}  // namespace fa::test

#endif  // FA_TESTS_ACLNN_BACKWARD_FACE_H_
