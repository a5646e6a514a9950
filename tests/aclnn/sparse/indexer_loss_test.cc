// Tests aclnnSparseLightningIndexerGradKLLoss and aclnnDenseLightningIndexerGradKLLoss. They give the bits of the C++
// functions, and an error code for each refused call. Indices are read only when the stream runs the operator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "aclnn/calls/sparse_face.h"
#include "ops/indexer/loss_case.h"
#include "support/each_case.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

LossCase Usual(bool dense, DType dtype = DType::kF32) {
  LossCase c{.tokens = UsualTokens(dtype)};
  c.dense = dense;
  c.heads_kv = dense ? 2 : 1;
  c.d_rope = 8;
  c.scale = 0.3F;
  return c;
}

SparseOperator OperatorOf(const LossCall& call) {
  return call.loss_case().dense ? SparseOperator::kDenseLoss : SparseOperator::kSparseLoss;
}

SparseParameters ParametersOf(const LossCall& call, Handles& handles) {
  return call.loss_case().dense ? ParametersOf(call.dense_args(), call.dense_options(), handles)
                                : ParametersOf(call.sparse_args(), call.options(), handles);
}

TEST(AclnnIndexerLoss, EveryCaseGivesTheBitsOfCpp) {
  const auto check = [&](bool dense, Layout layout, DType dtype) {
    LossCase c = Usual(dense, dtype);
    c.tokens.layout = layout;
    c.f32_weights = layout == Layout::kTND;
    c.tokens.causal = dtype != DType::kF16;
    const LossCall cpp(c), face(c);
    ASSERT_TRUE(cpp.Run(nullptr).ok()) << c;
    Handles handles;
    ASSERT_EQ(RunFace(OperatorOf(face), ParametersOf(face, handles)), ACL_SUCCESS)
        << aclGetRecentErrMsg() << "\n " << c;
    EXPECT_TRUE(SameBits(face.Outputs(), cpp.Outputs())) << c;
  };
  ForEachCase(check, Axis{"dense", {false, true}}, Axis{"layout", {Layout::kBSND, Layout::kTND}},
              Axis{"dtype", {DType::kF32, DType::kF16, DType::kBF16}});
}

TEST(AclnnIndexerLoss, Version2TakesSinks) {
  for (const bool sink : {false, true}) {
    LossCase c = Usual(false, DType::kBF16);
    c.sink = sink;
    const LossCall cpp(c), face(c);
    ASSERT_TRUE(cpp.Run(nullptr).ok()) << c;
    Handles handles;
    const SparseParameters p = ParametersOf(face, handles);
    ASSERT_EQ(RunFace(SparseOperator::kSparseLossV2, p), ACL_SUCCESS) << aclGetRecentErrMsg();
    EXPECT_TRUE(SameBits(face.Outputs(), cpp.Outputs())) << c;
  }
}

TEST(AclnnIndexerLoss, SinksOfOtherHeadsAreNamed) {
  const LossCall call(Usual(false));
  Handles handles;
  SparseParameters p = ParametersOf(call, handles);
  std::vector<float> sinks(5);
  p.sinks = handles.Tensor(sinks.data(), ACL_FLOAT, {5});
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(GetWorkspaceSize(SparseOperator::kSparseLossV2, p, &size, &executor), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("sinks.shape[0]=5, want 4 (query.shape[2])"));
}

struct Mistake {
  const char* name;
  bool dense;
  aclnnStatus code;
  const char* message;
  std::function<void(SparseParameters*, Handles*)> make;
};

void* Anything() {
  static double memory[4096];
  return memory;
}

const Mistake kMistakes[] = {
    {"NoQueryIndex", false, ACLNN_ERR_PARAM_NULLPTR, "queryIndex: null",
     [](auto* p, auto*) { p->query_index = nullptr; }},
    {"NoIndices", false, ACLNN_ERR_PARAM_NULLPTR, "sparseIndices: null", [](auto* p, auto*) { p->indices = nullptr; }},
    {"NoIndexSum", true, ACLNN_ERR_PARAM_NULLPTR, "softmaxSumIndex: null",
     [](auto* p, auto*) { p->sum_index = nullptr; }},
    {"NoLoss", true, ACLNN_ERR_PARAM_NULLPTR, "loss: null", [](auto* p, auto*) { p->loss = nullptr; }},
    {"NoLayout", false, ACLNN_ERR_PARAM_NULLPTR, "layout: null", [](auto* p, auto*) { p->no_layout = true; }},
    {"UnknownMode", true, ACLNN_ERR_PARAM_INVALID, "sparseMode=5, want 0 or 3",
     [](auto* p, auto*) { p->sparse_mode = 5; }},
    {"LengthBeyondTheTensor", false, ACLNN_ERR_PARAM_INVALID,
     "actualSeqLengthsKey[1]=41, want 0..40 (keyIndex.shape[1])",
     [](auto* p, Handles* h) {
       p->kv_array = h->Array({40, 41});
     }},
    {"GradientOfAnotherShape", false, ACLNN_ERR_PARAM_INVALID, "dQueryIndex.shape[2]=2, want 3",
     [](auto* p, Handles* h) {
       p->dq_index = h->Tensor(Anything(), ACL_FLOAT, {2, 7, 2, 16});
     }},
    {"LossOfTwo", false, ACLNN_ERR_PARAM_INVALID, "loss.shape",
     [](auto* p, Handles* h) { p->loss = h->Tensor(Anything(), ACL_FLOAT, {2}); }},
};

TEST(AclnnIndexerLoss, MistakesAreNamedInTheFirstPhase) {
  for (const Mistake& mistake : kMistakes) {
    const LossCall call(Usual(mistake.dense));
    Handles handles;
    SparseParameters p = ParametersOf(call, handles);
    mistake.make(&p, &handles);
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    EXPECT_EQ(GetWorkspaceSize(OperatorOf(call), p, &size, &executor), mistake.code) << mistake.name;
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(mistake.message)) << mistake.name;
    EXPECT_EQ(executor, nullptr) << mistake.name;
  }
}

TEST(AclnnIndexerLoss, AnIndexThatIsNoKeyIsFoundOnTheStream) {
  const LossCall call(Usual(false));
  call.lists().tensor.Set(call.lists().Offset(0, 0, 6) + 2, 40);
  Handles handles;
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  EXPECT_EQ(RunFace(OperatorOf(call), ParametersOf(call, handles)), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("sparseIndices[0][6][0][2]=40, want -1..39"));
  EXPECT_EQ(before.FirstChange(), -1) << "nothing was written";
}

}  // namespace
}  // namespace fa::test
