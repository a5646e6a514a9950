// Tests aclnnDenseLightningIndexerSoftmaxLse. It gives the bits of the C++ function, and an error code for each refused
// call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "aclnn/calls/sparse_face.h"
#include "aclnn/calls/spread.h"
#include "ops/indexer/lse_case.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

IndexerCase Usual(DType dtype = DType::kF32) { return {.tokens = UsualTokens(dtype)}; }

TEST(AclnnIndexerLse, EveryCaseGivesTheBitsOfCpp) {
  const std::vector<IndexerCase> cases = CasesOf<IndexerCase>(Usual, {[](IndexerCase* c) {
                                                                c->f32_weights = true;
                                                                c->tokens.causal = false;
                                                              }});
  for (const IndexerCase& c : cases) {
    const LseCall cpp(c), face(c);
    ASSERT_TRUE(cpp.Run(nullptr).ok()) << c;
    Handles handles;
    const SparseParameters p = ParametersOf(face.args(), face.options(), handles);
    ASSERT_EQ(RunFace(SparseOperator::kIndexerLse, p), ACL_SUCCESS) << aclGetRecentErrMsg() << "\n " << c;
    EXPECT_TRUE(SameBits(face.Outputs(), cpp.Outputs())) << c;
  }
}

TEST(AclnnIndexerLse, TheLayoutMayBeLeftOutAndRowsMayHaveGaps) {
  const LseCall cpp(Usual());
  ASSERT_TRUE(cpp.Run(nullptr).ok());
  const DenseIndexerLseArgs args = cpp.args();
  const Spread query(args.q_index), weight(args.weights), max(args.softmax_max_index), sum(args.softmax_sum_index);
  Handles handles;
  SparseParameters p = ParametersOf(args, cpp.options(), handles);
  p.no_layout = true;
  p.query_index = query.tensor();
  p.weights = weight.tensor();
  p.max = max.tensor();
  p.sum = sum.tensor();
  ASSERT_EQ(RunFace(SparseOperator::kIndexerLse, p), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(max.Values(), DenseValues(args.softmax_max_index));
  EXPECT_EQ(sum.Values(), DenseValues(args.softmax_sum_index));
}

void* Anything() {
  static double memory[4096];
  return memory;
}

struct Mistake {
  aclnnStatus code;
  const char* message;
  std::function<void(SparseParameters*, Handles*)> make;
};

const Mistake kMistakes[] = {
    {ACLNN_ERR_PARAM_NULLPTR, "queryIndex: null", [](auto* p, auto*) { p->query_index = nullptr; }},
    {ACLNN_ERR_PARAM_NULLPTR, "keyIndex: null", [](auto* p, auto*) { p->key_index = nullptr; }},
    {ACLNN_ERR_PARAM_NULLPTR, "weight: null", [](auto* p, auto*) { p->weights = nullptr; }},
    {ACLNN_ERR_PARAM_NULLPTR, "softmaxMax: null", [](auto* p, auto*) { p->max = nullptr; }},
    {ACLNN_ERR_PARAM_NULLPTR, "softmaxSum: null", [](auto* p, auto*) { p->sum = nullptr; }},
    {ACLNN_ERR_PARAM_INVALID, "layout=\"BNSD\", want \"BSND\" or \"TND\"", [](auto* p, auto*) { p->layout = "BNSD"; }},
    {ACLNN_ERR_PARAM_INVALID, "sparseMode=4, want 0 or 3", [](auto* p, auto*) { p->sparse_mode = 4; }},
    {ACLNN_ERR_PARAM_INVALID, "weight.shape[2]=3, want 4 (queryIndex.shape[2])",
     [](auto* p, Handles* h) {
       p->weights = h->Tensor(Anything(), ACL_FLOAT, {2, 7, 3});
     }},
    {ACLNN_ERR_PARAM_INVALID, "softmaxMax.shape[2]=6, want 7 (queryIndex.shape[1])",
     [](auto* p, Handles* h) {
       p->max = h->Tensor(Anything(), ACL_FLOAT, {2, 1, 6});
     }},
    {ACLNN_ERR_PARAM_INVALID, "actualSeqLengthsKey[1]=41, want 0..40 (keyIndex.shape[1])",
     [](auto* p, Handles* h) {
       p->kv_array = h->Array({40, 41});
     }},
};

TEST(AclnnIndexerLse, MistakesAreNamedInTheFirstPhase) {
  for (const Mistake& mistake : kMistakes) {
    const LseCall call(Usual());
    Handles handles;
    SparseParameters p = ParametersOf(call.args(), call.options(), handles);
    mistake.make(&p, &handles);
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    EXPECT_EQ(GetWorkspaceSize(SparseOperator::kIndexerLse, p, &size, &executor), mistake.code) << mistake.message;
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(mistake.message));
    EXPECT_EQ(executor, nullptr) << mistake.message;
  }
}

}  // namespace
}  // namespace fa::test
