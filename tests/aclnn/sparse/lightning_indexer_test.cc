// Tests aclnnLightningIndexer, its gradients and the KL losses. They give the bits of the C++ functions, and an error
// code for each refused call. Tensor contents are read only when the stream runs the operator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "aclnn/calls/sparse_face.h"
#include "aclnn/calls/spread.h"
#include "ops/indexer/indexer_case.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

IndexerCase Usual(DType dtype = DType::kF32) { return {.tokens = UsualTokens(dtype)}; }

template <typename Call>
constexpr SparseOperator kOperator = SparseOperator::kIndexer;
template <>
constexpr SparseOperator kOperator<IndexerGradCall> = SparseOperator::kIndexerGrad;

template <typename Call>
void ExpectBitsOfCpp(const IndexerCase& c, aclDataType lengths = ACL_INT64) {
  test::ExpectBitsOfCpp<Call>(kOperator<Call>, c, lengths);
}

std::vector<IndexerCase> Cases() {
  return CasesOf<IndexerCase>(Usual, {[](IndexerCase* c) {
                                c->f32_weights = c->f32_values = true;
                                c->flat_d_values = true;
                                c->tokens.causal = false;
                                c->tokens.index_dtype = DType::kI64;
                              }});
}

TEST(AclnnLightningIndexer, EveryCaseGivesTheBitsOfCpp) {
  for (const IndexerCase& c : Cases()) {
    ExpectBitsOfCpp<IndexerCall>(c);
    ExpectBitsOfCpp<IndexerCall>(c, ACL_INT32);
  }
}

TEST(AclnnLightningIndexer, KeysInPages) {
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    IndexerCase c = Usual(DType::kBF16);
    c.tokens.layout = layout;
    c.tokens.page_rows = 16;
    ExpectBitsOfCpp<IndexerCall>(c);
  }
}

TEST(AclnnLightningIndexer, ValuesAndLayoutsMayBeLeftOut) {
  const IndexerCall cpp(Usual()), face(Usual());
  ASSERT_TRUE(cpp.Run(nullptr).ok());
  Handles handles;
  SparseParameters p = ParametersOf(face.args(), face.options(), handles);
  p.return_values = false;
  p.values = nullptr;
  p.no_layout = true;
  ASSERT_EQ(RunFace(SparseOperator::kIndexer, p), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(ValuesOf(face.Outputs(), "sparse_indices"), ValuesOf(cpp.Outputs(), "sparse_indices"));
}

TEST(AclnnLightningIndexer, WithoutQueriesThereIsOnlyTheGradientOfKeys) {
  IndexerCase c = Usual();
  c.tokens.lengths = {{0, 0}, {4, 9}};
  ExpectBitsOfCpp<IndexerCall>(c);
  ExpectBitsOfCpp<IndexerGradCall>(c);
}

TEST(AclnnLightningIndexerGrad, EveryCaseGivesTheBitsOfCpp) {
  for (const IndexerCase& c : Cases()) {
    ExpectBitsOfCpp<IndexerGradCall>(c);
    ExpectBitsOfCpp<IndexerGradCall>(c, ACL_INT32);
  }
}

TEST(AclnnLightningIndexerGrad, TensorsWithGapsInTheirRows) {
  const IndexerGradCall cpp(Usual());
  ASSERT_TRUE(cpp.Run(nullptr).ok());
  const LightningIndexerGradArgs args = cpp.args();
  const Spread query(args.q), weights(args.weights), dy(args.d_values), dk(args.dk), dweights(args.dweights);
  Handles handles;
  SparseParameters p = ParametersOf(args, cpp.options(), handles);
  p.query = query.tensor();
  p.weights = weights.tensor();
  p.dy = dy.tensor();
  p.dk = dk.tensor();
  p.dweights = dweights.tensor();
  ASSERT_EQ(RunFace(SparseOperator::kIndexerGrad, p), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(dk.Values(), DenseValues(args.dk));
  EXPECT_EQ(dweights.Values(), DenseValues(args.dweights));
}

struct Mistake {
  const char* name;
  aclnnStatus code;
  const char* message;
  std::function<void(SparseParameters*, Handles*)> make;
};

void* Anything() {
  static double memory[4096];
  return memory;
}

const Mistake kForwardMistakes[] = {
    {"NoWeights", ACLNN_ERR_PARAM_NULLPTR, "weights: null", [](auto* p, auto*) { p->weights = nullptr; }},
    {"NoIndices", ACLNN_ERR_PARAM_NULLPTR, "sparseIndices: null", [](auto* p, auto*) { p->indices = nullptr; }},
    {"NoValues", ACLNN_ERR_PARAM_NULLPTR, "sparseValues: null", [](auto* p, auto*) { p->values = nullptr; }},
    {"AnotherCount", ACLNN_ERR_PARAM_INVALID, "sparseCount=8, want 9 (sparseIndices.shape[3])",
     [](auto* p, auto*) { p->count = 8; }},
    {"LayoutsThatDiffer", ACLNN_ERR_PARAM_INVALID, "layoutKey=\"TND\", want \"BSND\" (layoutQuery) or \"PA_BSND\"",
     [](auto* p, auto*) { p->layout_kv = "TND"; }},
    {"PagesWithoutATable", ACLNN_ERR_PARAM_INVALID, "blockTable: missing",
     [](auto* p, auto*) { p->layout_kv = "PA_BSND"; }},
    {"UnknownMode", ACLNN_ERR_PARAM_INVALID, "sparseMode=4, want 0 or 3", [](auto* p, auto*) { p->sparse_mode = 4; }},
    {"LengthsOfAnotherType", ACLNN_ERR_PARAM_INVALID, "actualSeqLengthsKey.dtype=f32, want i32 or i64",
     [](auto* p, Handles* h) { p->kv_lengths = h->Tensor(Anything(), ACL_FLOAT, {2}); }},
    {"WeightsOfAnotherShape", ACLNN_ERR_PARAM_INVALID, "weights.shape[2]=3, want 4",
     [](auto* p, Handles* h) {
       p->weights = h->Tensor(Anything(), ACL_FLOAT, {2, 7, 3});
     }},
};

const Mistake kBackwardMistakes[] = {
    {"NoGradient", ACLNN_ERR_PARAM_NULLPTR, "dy: null", [](auto* p, auto*) { p->dy = nullptr; }},
    {"NoLayout", ACLNN_ERR_PARAM_NULLPTR, "inputLayout: null", [](auto* p, auto*) { p->no_layout = true; }},
    {"NoWeightGradient", ACLNN_ERR_PARAM_NULLPTR, "dweights: null", [](auto* p, auto*) { p->dweights = nullptr; }},
    {"UnknownLayout", ACLNN_ERR_PARAM_INVALID, "inputLayout=\"BSH\", want \"BSND\" or \"TND\"",
     [](auto* p, auto*) { p->layout = "BSH"; }},
    {"LengthsOfAnotherType", ACLNN_ERR_PARAM_INVALID, "actualSeqQLen.dtype=f32, want i32 or i64",
     [](auto* p, Handles* h) { p->q_lengths = h->Tensor(Anything(), ACL_FLOAT, {2}); }},
    {"GradientOfAnotherShape", ACLNN_ERR_PARAM_INVALID, "dy.shape[3]=8, want 9",
     [](auto* p, Handles* h) {
       p->dy = h->Tensor(Anything(), ACL_FLOAT, {2, 7, 1, 8});
     }},
};

template <typename Call>
void ExpectRefused(const Mistake& mistake) {
  const Call call(Usual());
  Handles handles;
  SparseParameters p = ParametersOf(call.args(), call.options(), handles);
  mistake.make(&p, &handles);
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(GetWorkspaceSize(kOperator<Call>, p, &size, &executor), mistake.code) << mistake.name;
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(mistake.message)) << mistake.name;
  EXPECT_EQ(executor, nullptr) << mistake.name;
}

TEST(AclnnLightningIndexer, MistakesAreNamedInTheFirstPhase) {
  for (const Mistake& mistake : kForwardMistakes) ExpectRefused<IndexerCall>(mistake);
}

TEST(AclnnLightningIndexerGrad, MistakesAreNamedInTheFirstPhase) {
  for (const Mistake& mistake : kBackwardMistakes) ExpectRefused<IndexerGradCall>(mistake);
}

TEST(AclnnLightningIndexer, LengthsBeyondTheTensorAreFoundOnTheStream) {
  const IndexerCall call(Usual());
  Handles handles;
  SparseParameters p = ParametersOf(call.args(), call.options(), handles);
  p.kv_lengths = LengthTensor(std::vector<int64_t>{41, 21}, ACL_INT64, handles);
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  EXPECT_EQ(RunFace(SparseOperator::kIndexer, p), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("actualSeqLengthsKey[0]=41, want 0..40 (key.shape[1])"));
  EXPECT_EQ(before.FirstChange(), -1) << "nothing was written";
}

TEST(AclnnLightningIndexerGrad, AnIndexThatIsNoKeyIsFoundOnTheStream) {
  const IndexerGradCall call(Usual());
  call.lists().tensor.Set(call.lists().Offset(0, 0, 6) + 2, -7);
  Handles handles;
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  EXPECT_EQ(RunFace(SparseOperator::kIndexerGrad, ParametersOf(call.args(), call.options(), handles)),
            ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("sparseIndices[0][6][0][2]=-7, want -1..39"));
  EXPECT_EQ(before.FirstChange(), -1) << "nothing was written";
}

}  // namespace
}  // namespace fa::test
