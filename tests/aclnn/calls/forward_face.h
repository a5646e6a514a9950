#ifndef FA_TESTS_ACLNN_FORWARD_FACE_H_
#define FA_TESTS_ACLNN_FORWARD_FACE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "aclnn/calls/face_call.h"
#include "support/cases/forward_problem.h"

namespace fa::test {

/// Returns the parameters of a case without its tensors.
[[nodiscard]] AttentionParameters ParametersOf(const ForwardCase& c, Handles& handles);
/// Returns the attenMask of a case, which is its dense mask or the compressed mask of its sparse mode.
[[nodiscard]] aclTensor* AttenMaskOf(const ForwardCase& c, const TensorView& dense_mask, Handles& handles);

/// Removes from a case what the device's interface cannot express. @return whether a case is left
[[nodiscard]] bool AsOnTheDevice(ForwardCase* c, bool version4 = false);

/// The device's statistics [B,N,Sq,8] or [T,N,8], stored in the order that the constructor is given.
class Statistics {
 public:
  Statistics(const ForwardCase& c, std::string softmax_layout);

  [[nodiscard]] aclTensor* Tensor(Handles& handles);
  void Fill(float value) { values_.assign(values_.size(), value); }
  /// Writes each of `values` eight times to its place, and 0 elsewhere. `values` are ordered by sequence, then head,
  /// then row.
  void Set(const std::vector<double>& values);
  /// Returns whether the statistics are exactly what Set(values) would write.
  [[nodiscard]] ::testing::AssertionResult Holds(const std::vector<double>& values) const;

 private:
  /// Returns the index at which the eight copies of (b, n, i) begin.
  [[nodiscard]] size_t Offset(int64_t b, int64_t n, int64_t i) const;
  [[nodiscard]] std::vector<float> Placed(const std::vector<double>& values) const;

  ForwardCase case_;
  bool like_input_;
  std::vector<int64_t> shape_;
  std::vector<float> values_;
};

/// The call of a forward case through the interface. The tensors are those of a ForwardProblem, except the statistics,
/// which this object makes itself.
class ForwardFace {
 public:
  explicit ForwardFace(const ForwardCase& c, const std::string& softmax_layout = "");

  [[nodiscard]] ForwardParameters& parameters() { return parameters_; }
  [[nodiscard]] Handles& handles() { return handles_; }
  [[nodiscard]] const ForwardProblem& problem() const { return problem_; }
  [[nodiscard]] Statistics& max() { return max_; }
  [[nodiscard]] Statistics& sum() { return sum_; }

  [[nodiscard]] aclError Run(ForwardVersion version) { return RunFace(version, parameters_); }

 private:
  ForwardProblem problem_;
  Statistics max_, sum_;
  Handles handles_;
  ForwardParameters parameters_;
};

/// Runs the case through C++ and through the interface. Both must give equal bits in every output, or both must refuse
/// the case. The interface refuses with the code 161002.
[[nodiscard]] ::testing::AssertionResult SameAsCpp(const ForwardCase& c, ForwardVersion version,
                                                   const std::string& softmax_layout = "");

}  // namespace fa::test

#endif  // FA_TESTS_ACLNN_FORWARD_FACE_H_
