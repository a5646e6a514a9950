#include "aclnn/calls/backward_face.h"

#include "support/compare/compare_gradients.h"

namespace fa::test {

BackwardFace::BackwardFace(const BackwardCase& c, const std::string& softmax_layout)
    : problem_(c), max_(c.forward, softmax_layout), sum_(c.forward, softmax_layout) {
  max_.Set(problem_.values().forward.max);
  sum_.Set(problem_.values().forward.sum);
  static_cast<AttentionParameters&>(parameters_) = ParametersOf(c.forward, handles_);
  parameters_.softmax_layout = softmax_layout;
  const AttentionGradArgs args = problem_.args();
  parameters_.query = handles_.Tensor(args.q);
  parameters_.query_rope = handles_.Tensor(args.q_rope);
  parameters_.key = handles_.Tensor(args.k);
  parameters_.key_rope = handles_.Tensor(args.k_rope);
  parameters_.value = handles_.Tensor(args.v);
  parameters_.dy = handles_.Tensor(args.d_out);
  parameters_.pse = handles_.Tensor(args.pse);
  parameters_.drop_mask = handles_.Tensor(args.drop_mask);
  parameters_.atten_mask = AttenMaskOf(c.forward, args.dense_mask, handles_);
  parameters_.softmax_max = max_.Tensor(handles_);
  parameters_.softmax_sum = sum_.Tensor(handles_);
  parameters_.attention_in = handles_.Tensor(args.out);
  parameters_.sink = handles_.Tensor(args.sink);
  parameters_.dq = handles_.Tensor(args.dq);
  parameters_.dq_rope = handles_.Tensor(args.dq_rope);
  parameters_.dk = handles_.Tensor(args.dk);
  parameters_.dk_rope = handles_.Tensor(args.dk_rope);
  parameters_.dv = handles_.Tensor(args.dv);
  parameters_.dpse = handles_.Tensor(args.dpse.data != nullptr ? args.dpse : args.dslopes);
  parameters_.dsink = handles_.Tensor(args.dsink);
}

::testing::AssertionResult SameAsCpp(const BackwardCase& c, BackwardVersion version,
                                     const std::string& softmax_layout) {
  const BackwardProblem cpp(c);
  BackwardFace face(c, softmax_layout);
  const Status status = cpp.Run(nullptr);
  const Snapshot snapshot = face.problem().TakeSnapshot(/*outputs_may_change=*/status.ok());
  const aclError error = face.Run(version);
  if (!status.ok() && error != ACLNN_ERR_PARAM_INVALID) {
    return ::testing::AssertionFailure() << "returned " << error << ", want 161002: " << status.message();
  }
  if (status.ok() && error != 0) {
    return ::testing::AssertionFailure() << "returned " << error << ": " << aclGetRecentErrMsg() << "\n" << c;
  }
  if (snapshot.FirstChange() >= 0) return ::testing::AssertionFailure() << "wrote beside its outputs\n" << c;
  if (!status.ok()) return ::testing::AssertionSuccess();
  if (auto same = SameBits(cpp.Outputs(), face.problem().Outputs()); !same) return same << "\n" << c;
  return ::testing::AssertionSuccess();
}

}  // namespace fa::test
