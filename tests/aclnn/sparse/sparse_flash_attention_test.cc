// Tests aclnnSparseFlashAttention and its gradients. They give the bits of the C++ functions, and an error code for
// each refused call. Tensor contents are read only when the stream runs the operator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "aclnn/calls/sparse_face.h"
#include "aclnn/calls/spread.h"
#include "ops/sparse/sparse_case.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

SparseCase Usual(DType dtype = DType::kF32) {
  SparseCase c{.tokens = UsualTokens(dtype)};
  c.heads = 3;
  c.d_rope = 8;
  c.scale = 0.3F;
  c.head_mean = false;  // the device has no such output
  return c;
}

template <typename Call>
constexpr SparseOperator kOperator = SparseOperator::kForward;
template <>
constexpr SparseOperator kOperator<SparseGradCall> = SparseOperator::kBackward;

template <typename Call>
void ExpectBitsOfCpp(const SparseCase& c, aclDataType lengths = ACL_INT64) {
  test::ExpectBitsOfCpp<Call>(kOperator<Call>, c, lengths);
}

/// Returns cases that both the forward and the backward run.
std::vector<SparseCase> Cases() {
  return CasesOf<SparseCase>(Usual, {[](SparseCase* c) {
                                       c->merged = true;
                                       c->tokens.block_size = 8;
                                       c->tokens.lists = ListForm::kMessy;
                                       c->tokens.index_dtype = DType::kI64;
                                     },
                                     [](SparseCase* c) {
                                       c->d_rope = 0;
                                       c->tokens.causal = false;
                                       c->tokens.block_size = 3;
                                     }});
}

TEST(AclnnSparseFlashAttention, EveryCaseGivesTheBitsOfCpp) {
  for (const SparseCase& c : Cases()) {
    ExpectBitsOfCpp<SparseCall>(c);
    ExpectBitsOfCpp<SparseCall>(c, ACL_INT32);
  }
}

SparseCase WithSinks(DType dtype) {
  SparseCase c = Usual(dtype);
  c.sink = true;
  return c;
}

TEST(AclnnSparseFlashAttention, Version2TakesSinks) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    test::ExpectBitsOfCpp<SparseCall>(SparseOperator::kForwardV2, WithSinks(dtype));
    test::ExpectBitsOfCpp<SparseCall>(SparseOperator::kForwardV2, Usual(dtype));
    test::ExpectBitsOfCpp<SparseGradCall>(SparseOperator::kBackwardV2, WithSinks(dtype));
    test::ExpectBitsOfCpp<SparseGradCall>(SparseOperator::kBackwardV2, Usual(dtype));
  }
}

TEST(AclnnSparseFlashAttention, KeysInPages) {
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    for (const int64_t page_rows : {16, 5}) {
      SparseCase c = Usual(DType::kF16);
      c.tokens.layout = layout;
      c.tokens.page_rows = page_rows;
      ExpectBitsOfCpp<SparseCall>(c);
    }
  }
}

TEST(AclnnSparseFlashAttention, StatisticsMayBeLeftOut) {
  const SparseCall cpp(Usual()), face(Usual());
  ASSERT_TRUE(cpp.Run(nullptr).ok());
  Handles handles;
  SparseParameters p = ParametersOf(face.args(), face.options(), handles);
  p.return_lse = false;
  ASSERT_EQ(RunFace(SparseOperator::kForward, p), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(ValuesOf(face.Outputs(), "out"), ValuesOf(cpp.Outputs(), "out"));
  for (const double x : ValuesOf(face.Outputs(), "max")) ASSERT_TRUE(std::isnan(x)) << "not written";
  p.max = p.sum = nullptr;
  EXPECT_EQ(RunFace(SparseOperator::kForward, p), ACL_SUCCESS) << aclGetRecentErrMsg();
}

TEST(AclnnSparseFlashAttention, WithoutQueriesThereIsOnlyTheGradientOfKeys) {
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    SparseCase c = Usual();
    c.tokens.layout = layout;
    c.tokens.lengths = {{0, 0}, {4, 9}};
    ExpectBitsOfCpp<SparseCall>(c);
    ExpectBitsOfCpp<SparseGradCall>(c);
  }
}

// Programs may pass a block table although no layout of the call has pages.
TEST(AclnnSparseFlashAttention, ATableWithoutPagesIsNotLookedAt) {
  const SparseCall cpp(Usual()), face(Usual());
  ASSERT_TRUE(cpp.Run(nullptr).ok());
  Handles handles;
  SparseParameters p = ParametersOf(face.args(), face.options(), handles);
  float anything = 0;
  p.block_table = handles.Tensor(&anything, ACL_FLOAT, {1});
  ASSERT_EQ(RunFace(SparseOperator::kForward, p), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_TRUE(SameBits(face.Outputs(), cpp.Outputs()));
}

TEST(AclnnSparseFlashAttentionGrad, EveryCaseGivesTheBitsOfCpp) {
  for (const SparseCase& c : Cases()) {
    ExpectBitsOfCpp<SparseGradCall>(c);
    ExpectBitsOfCpp<SparseGradCall>(c, ACL_INT32);
  }
}

TEST(AclnnSparseFlashAttentionGrad, WithoutALayoutItIsBsnd) {
  const SparseGradCall cpp(Usual()), face(Usual());
  ASSERT_TRUE(cpp.Run(nullptr).ok());
  Handles handles;
  SparseParameters p = ParametersOf(face.args(), face.options(), handles);
  p.no_layout = true;
  p.deterministic = false;
  ASSERT_EQ(RunFace(SparseOperator::kBackward, p), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_TRUE(SameBits(face.Outputs(), cpp.Outputs()));
}

TEST(AclnnSparseFlashAttention, TensorsWithGapsInTheirRows) {
  const SparseCall cpp(Usual());
  ASSERT_TRUE(cpp.Run(nullptr).ok());
  const SparseAttentionArgs args = cpp.args();
  const Spread query(args.q), key(args.k), value(args.v), rope(args.q_rope);
  const Spread out(args.out), max(args.softmax_max);
  Handles handles;
  SparseParameters p = ParametersOf(args, cpp.options(), handles);
  p.query = query.tensor();
  p.key = key.tensor();
  p.value = value.tensor();
  p.query_rope = rope.tensor();
  p.out = out.tensor();
  p.max = max.tensor();
  ASSERT_EQ(RunFace(SparseOperator::kForward, p), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(out.Values(), DenseValues(args.out));
  EXPECT_EQ(max.Values(), DenseValues(args.softmax_max));
}

TEST(AclnnSparseFlashAttentionGrad, TensorsWithGapsInTheirRows) {
  const SparseGradCall cpp(Usual());
  ASSERT_TRUE(cpp.Run(nullptr).ok());
  const SparseAttentionGradArgs args = cpp.args();
  const Spread d_out(args.d_out), sum(args.softmax_sum), key(args.k);
  const Spread dq(args.dq), dk(args.dk), dv(args.dv), dk_rope(args.dk_rope);
  Handles handles;
  SparseParameters p = ParametersOf(args, cpp.options(), handles);
  p.d_out = d_out.tensor();
  p.sum = sum.tensor();
  p.key = key.tensor();
  p.dq = dq.tensor();
  p.dk = dk.tensor();
  p.dv = dv.tensor();
  p.dk_rope = dk_rope.tensor();
  ASSERT_EQ(RunFace(SparseOperator::kBackward, p), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(dq.Values(), DenseValues(args.dq));
  EXPECT_EQ(dk.Values(), DenseValues(args.dk));
  EXPECT_EQ(dv.Values(), DenseValues(args.dv));
  EXPECT_EQ(dk_rope.Values(), DenseValues(args.dk_rope));
}

TEST(AclnnSparseFlashAttention, DescriptorsMayGoBeforeTheRun) {
  SparseCase c = Usual();
  c.tokens.lengths = {{6}, {30}};
  c.tokens.lengths_given = false;
  const SparseCall cpp(c), face(c);
  ASSERT_TRUE(cpp.Run(nullptr).ok());
  std::optional<Handles> handles(std::in_place);
  SparseParameters p = ParametersOf(face.args(), face.options(), *handles);
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(GetWorkspaceSize(SparseOperator::kForward, p, &size, &executor), ACL_SUCCESS) << aclGetRecentErrMsg();
  handles.reset();
  p.layout = p.layout_kv = "????";
  std::vector<unsigned char> workspace(size);
  ASSERT_EQ(Execute(SparseOperator::kForward, workspace.data(), size, executor, nullptr), ACL_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_TRUE(SameBits(face.Outputs(), cpp.Outputs()));
}

// The stream reads the lengths when it runs the operator. The first phase chooses the workspace size earlier, so the
// size must suffice for any lengths.
TEST(AclnnSparseFlashAttention, LengthsAreReadWhenTheStreamReachesTheOperator) {
  SparseCase c = Usual();
  c.tokens.layout = Layout::kTND;
  c.tokens.lengths.sk = {30, 30};  // with equal lengths, each token's list of keys is valid in both sequences
  const SparseCall face(c);
  std::vector<int64_t> q_lengths = {0, 0}, kv_lengths = {0, 0};
  Handles handles;
  SparseParameters p = ParametersOf(face.args(), face.options(), handles);
  p.q_lengths = handles.Tensor(q_lengths.data(), ACL_INT64, {2});
  p.kv_lengths = handles.Tensor(kv_lengths.data(), ACL_INT64, {2});
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(GetWorkspaceSize(SparseOperator::kForward, p, &size, &executor), ACL_SUCCESS) << aclGetRecentErrMsg();
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), ACL_SUCCESS);
  std::vector<unsigned char> workspace(size);
  for (const int64_t first : {7, 2, 10}) {
    q_lengths = {first, 10};
    kv_lengths = {30, 60};
    const SparseCall cpp(c);
    SparseAttentionArgs args = cpp.args();
    args.lengths_q = q_lengths;
    const Status status = SparseFlashAttention(args, cpp.options());
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(Execute(SparseOperator::kForward, workspace.data(), size, executor, nullptr), ACL_SUCCESS);
    ASSERT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS) << aclGetRecentErrMsg();
    EXPECT_TRUE(SameBits(face.Outputs(), cpp.Outputs())) << first;
  }
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), ACL_SUCCESS);
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
    {"NoQuery", ACLNN_ERR_PARAM_NULLPTR, "query: null", [](auto* p, auto*) { p->query = nullptr; }},
    {"NoKey", ACLNN_ERR_PARAM_NULLPTR, "key: null", [](auto* p, auto*) { p->key = nullptr; }},
    {"NoIndices", ACLNN_ERR_PARAM_NULLPTR, "sparseIndices: null", [](auto* p, auto*) { p->indices = nullptr; }},
    {"NoOut", ACLNN_ERR_PARAM_NULLPTR, "attentionOut: null", [](auto* p, auto*) { p->out = nullptr; }},
    {"NoLayout", ACLNN_ERR_PARAM_NULLPTR, "layoutQuery: null", [](auto* p, auto*) { p->no_layout = true; }},
    {"NoMaximum", ACLNN_ERR_PARAM_NULLPTR, "softmaxMax: null", [](auto* p, auto*) { p->max = nullptr; }},
    {"UnknownLayout", ACLNN_ERR_PARAM_INVALID, "layoutQuery=\"BNSD\", want \"BSND\" or \"TND\"",
     [](auto* p, auto*) { p->layout = "BNSD"; }},
    {"LayoutsThatDiffer", ACLNN_ERR_PARAM_INVALID, "layoutKv=\"TND\", want \"BSND\" (layoutQuery) or \"PA_BSND\"",
     [](auto* p, auto*) { p->layout_kv = "TND"; }},
    {"PagesWithoutATable", ACLNN_ERR_PARAM_INVALID, "blockTable: missing",
     [](auto* p, auto*) { p->layout_kv = "PA_BSND"; }},
    {"UnknownMode", ACLNN_ERR_PARAM_INVALID, "sparseMode=1, want 0 or 3", [](auto* p, auto*) { p->sparse_mode = 1; }},
    {"AttentionModeOfPython", ACLNN_ERR_PARAM_INVALID, "attentionMode=0, want 2",
     [](auto* p, auto*) { p->attention_mode = 0; }},
    {"BlockTooLarge", ACLNN_ERR_PARAM_INVALID, "sparseBlockSize=129, want 1..128",
     [](auto* p, auto*) { p->block_size = 129; }},
    {"ScaleNotFinite", ACLNN_ERR_PARAM_INVALID, "scaleValue=nan",
     [](auto* p, auto*) { p->scale = std::numeric_limits<double>::quiet_NaN(); }},
    {"LengthsOfAnotherType", ACLNN_ERR_PARAM_INVALID, "actualSeqLengthsQuery.dtype=f32, want i32 or i64",
     [](auto* p, Handles* h) { p->q_lengths = h->Tensor(Anything(), ACL_FLOAT, {2}); }},
    {"TooManyLengths", ACLNN_ERR_PARAM_INVALID, "actualSeqLengthsKv has 3 entries, want 2",
     [](auto* p, Handles* h) { p->kv_lengths = h->Tensor(Anything(), ACL_INT64, {3}); }},
    {"RopeOfQueriesAlone", ACLNN_ERR_PARAM_INVALID, "keyRope: missing", [](auto* p, auto*) { p->key_rope = nullptr; }},
    {"IndicesOfAnotherType", ACLNN_ERR_PARAM_INVALID, "sparseIndices.dtype=f32",
     [](auto* p, Handles* h) {
       p->indices = h->Tensor(Anything(), ACL_FLOAT, {2, 7, 1, 9});
     }},
    {"KeyOfAnotherShape", ACLNN_ERR_PARAM_INVALID, "key.shape[3]=15, want 16 (query.shape[3])",
     [](auto* p, Handles* h) {
       p->key = h->Tensor(Anything(), ACL_FLOAT, {2, 40, 1, 15});
     }},
    {"OutOfAnotherType", ACLNN_ERR_PARAM_INVALID, "attentionOut.dtype=f16",
     [](auto* p, Handles* h) {
       p->out = h->Tensor(Anything(), ACL_FLOAT16, {2, 7, 3, 16});
     }},
};

const Mistake kBackwardMistakes[] = {
    {"NoGradientOfTheOutput", ACLNN_ERR_PARAM_NULLPTR, "dOut: null", [](auto* p, auto*) { p->d_out = nullptr; }},
    {"NoOutput", ACLNN_ERR_PARAM_NULLPTR, "out: null", [](auto* p, auto*) { p->out = nullptr; }},
    {"NoSum", ACLNN_ERR_PARAM_NULLPTR, "softmaxSum: null", [](auto* p, auto*) { p->sum = nullptr; }},
    {"NoQueryGradient", ACLNN_ERR_PARAM_NULLPTR, "dQuery: null", [](auto* p, auto*) { p->dq = nullptr; }},
    {"NoKeyGradient", ACLNN_ERR_PARAM_NULLPTR, "dKey: null", [](auto* p, auto*) { p->dk = nullptr; }},
    {"NoValueGradient", ACLNN_ERR_PARAM_NULLPTR, "dValue: null", [](auto* p, auto*) { p->dv = nullptr; }},
    {"NoRopeGradient", ACLNN_ERR_PARAM_NULLPTR, "dKeyRope: null", [](auto* p, auto*) { p->dk_rope = nullptr; }},
    {"ValueGradientOfKeys", ACLNN_ERR_PARAM_INVALID, "dValue: given, want none",
     [](auto* p, auto*) { p->value = nullptr; }},
    {"UnknownLayout", ACLNN_ERR_PARAM_INVALID, "layout=\"PA_BSND\", want \"BSND\" or \"TND\"",
     [](auto* p, auto*) { p->layout = "PA_BSND"; }},
    {"UnknownMode", ACLNN_ERR_PARAM_INVALID, "sparseMode=2, want 0 or 3", [](auto* p, auto*) { p->sparse_mode = 2; }},
    {"GradientOfAnotherShape", ACLNN_ERR_PARAM_INVALID, "dKey.shape[1]=39, want 40 (key.shape[1])",
     [](auto* p, Handles* h) {
       p->dk = h->Tensor(Anything(), ACL_FLOAT, {2, 39, 1, 16});
     }},
};

const Mistake kForwardV2Mistakes[] = {
    {"SinksOfOtherHeads", ACLNN_ERR_PARAM_INVALID, "sinks.shape[0]=2, want 3 (query.shape[2])",
     [](auto* p, Handles* h) { p->sinks = h->Tensor(Anything(), ACL_FLOAT, {2}); }},
    {"SinksOfAnotherType", ACLNN_ERR_PARAM_INVALID, "sinks.dtype=bf16, want f32",
     [](auto* p, Handles* h) { p->sinks = h->Tensor(Anything(), ACL_BF16, {3}); }},
};

const Mistake kBackwardV2Mistakes[] = {
    {"NoGradientOfTheSinks", ACLNN_ERR_PARAM_INVALID, "dSinks: missing, want it with sinks",
     [](auto* p, auto*) { p->d_sinks = nullptr; }},
    {"NoSinks", ACLNN_ERR_PARAM_INVALID, "dSinks: given, want none", [](auto* p, auto*) { p->sinks = nullptr; }},
    {"GradientOfOtherHeads", ACLNN_ERR_PARAM_INVALID, "dSinks.shape[0]=4, want 3 (query.shape[2])",
     [](auto* p, Handles* h) { p->d_sinks = h->Tensor(Anything(), ACL_FLOAT, {4}); }},
};

template <typename Call>
void ExpectRefused(const Mistake& mistake, SparseOperator op = kOperator<Call>, const SparseCase& c = Usual()) {
  const Call call(c);
  Handles handles;
  SparseParameters p = ParametersOf(call.args(), call.options(), handles);
  mistake.make(&p, &handles);
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(GetWorkspaceSize(op, p, &size, &executor), mistake.code) << mistake.name;
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(mistake.message)) << mistake.name;
  EXPECT_EQ(executor, nullptr) << mistake.name;
}

TEST(AclnnSparseFlashAttention, MistakesAreNamedInTheFirstPhase) {
  for (const Mistake& mistake : kForwardMistakes) ExpectRefused<SparseCall>(mistake);
}

TEST(AclnnSparseFlashAttentionGrad, MistakesAreNamedInTheFirstPhase) {
  for (const Mistake& mistake : kBackwardMistakes) ExpectRefused<SparseGradCall>(mistake);
}

TEST(AclnnSparseFlashAttention, MistakesWithSinksAreNamedInTheFirstPhase) {
  const SparseCase c = WithSinks(DType::kF32);
  for (const Mistake& mistake : kForwardV2Mistakes) ExpectRefused<SparseCall>(mistake, SparseOperator::kForwardV2, c);
  for (const Mistake& mistake : kBackwardV2Mistakes) {
    ExpectRefused<SparseGradCall>(mistake, SparseOperator::kBackwardV2, c);
  }
}

/// Expects that the first phase succeeds, that the operator fails on the stream with `message`, and that nothing was
/// written.
template <typename Call>
void ExpectFoundOnTheStream(const Call& call, const SparseParameters& p, const char* message) {
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  EXPECT_EQ(RunFace(kOperator<Call>, p), ACLNN_ERR_PARAM_INVALID) << message;
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(message));
  EXPECT_EQ(before.FirstChange(), -1) << message;
}

template <typename Call>
void ExpectBadListFound() {
  const Call call(Usual());
  const RowTensor& lists = call.lists();
  lists.tensor.Set(lists.Offset(0, 0, 6) + 2, 40);
  Handles handles;
  ExpectFoundOnTheStream(call, ParametersOf(call.args(), call.options(), handles),
                         "sparseIndices[0][6][0][2]=40, want -1..39");
}

TEST(AclnnSparseFlashAttention, AnIndexThatIsNoKeyIsFoundOnTheStream) {
  ExpectBadListFound<SparseCall>();
  ExpectBadListFound<SparseGradCall>();
}

template <typename Call>
void ExpectBadLengthsFound() {
  const Call call(Usual());
  Handles handles;
  SparseParameters p = ParametersOf(call.args(), call.options(), handles);
  p.kv_lengths = LengthTensor(std::vector<int64_t>{40, 41}, ACL_INT32, handles);
  ExpectFoundOnTheStream(call, p, "actualSeqLengthsKv[1]=41, want 0..40 (key.shape[1])");
}

TEST(AclnnSparseFlashAttention, LengthsBeyondTheTensorAreFoundOnTheStream) {
  ExpectBadLengthsFound<SparseCall>();
  ExpectBadLengthsFound<SparseGradCall>();
}

TEST(AclnnSparseFlashAttention, LengthsInPlaceOfPrefixSumsAreFoundOnTheStream) {
  SparseCase c = Usual();
  c.tokens.layout = Layout::kTND;
  const SparseCall call(c);
  Handles handles;
  SparseParameters p = ParametersOf(call.args(), call.options(), handles);
  p.q_lengths = LengthTensor(std::vector<int64_t>{7, 3}, ACL_INT64, handles);
  ExpectFoundOnTheStream(call, p, "actualSeqLengthsQuery[1]=3");
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("looks like per-batch lengths"));
}

TEST(AclnnSparseFlashAttention, APageThatDoesNotExistIsFoundOnTheStream) {
  SparseCase c = Usual();
  c.tokens.page_rows = 16;
  const SparseCall call(c);
  call.block_table().Set(1, 1000);
  Handles handles;
  ExpectFoundOnTheStream(call, ParametersOf(call.args(), call.options(), handles), "blockTable[0][1]=1000");
}

}  // namespace
}  // namespace fa::test
