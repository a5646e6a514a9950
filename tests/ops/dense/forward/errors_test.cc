// A refused call names the wrong argument and writes nothing. The tests in tests/ops/bind check which calls are
// refused.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/compare/compare.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

struct Mistake {
  const char* name;
  const char* argument;  ///< the argument that the message names
  std::function<void(AttentionArgs*, AttentionOptions*)> make;
};

const Mistake kMistakes[] = {
    {"NoQuery", "q", [](AttentionArgs* a, AttentionOptions*) { a->q.data = nullptr; }},
    {"NoOut", "out", [](AttentionArgs* a, AttentionOptions*) { a->out.data = nullptr; }},
    {"KeyOfAnotherHeadSize", "k", [](AttentionArgs* a, AttentionOptions*) { a->k.shape[3] = 15; }},
    {"ValueOfAnotherLength", "v", [](AttentionArgs* a, AttentionOptions*) { a->v.shape[2] = 8; }},
    {"OutOfAnotherType", "out", [](AttentionArgs* a, AttentionOptions*) { a->out.dtype = DType::kBF16; }},
    {"RankThree", "q",
     [](AttentionArgs* a, AttentionOptions*) {
       a->q.shape = {1, 16, 16};
     }},
    {"InnerStrideTwo", "k",
     [](AttentionArgs* a, AttentionOptions*) {
       a->k.stride = {512, 256, 16, 2};
     }},
    {"NegativeStride", "v",
     [](AttentionArgs* a, AttentionOptions*) {
       a->v.stride = {512, 256, -16, 1};
     }},
    {"OutOverlapsItself", "out", [](AttentionArgs* a, AttentionOptions*) { a->out.stride[2] = 0; }},
    {"OutIsQuery", "out", [](AttentionArgs* a, AttentionOptions*) { a->out.data = const_cast<void*>(a->q.data); }},
    {"SumIsMax", "softmax", [](AttentionArgs* a, AttentionOptions*) { a->softmax_sum.data = a->softmax_max.data; }},
    {"HeadsDisagree", "heads", [](AttentionArgs*, AttentionOptions* o) { o->heads = 3; }},
    {"ScaleNaN", "scale", [](AttentionArgs*, AttentionOptions* o) { o->scale = NAN; }},
    {"ScaleInfinite", "scale", [](AttentionArgs*, AttentionOptions* o) { o->scale = INFINITY; }},
    {"NegativeSoftcap", "softcap", [](AttentionArgs*, AttentionOptions* o) { o->softcap = -1; }},
    {"KeepProbZero", "keep_prob", [](AttentionArgs*, AttentionOptions* o) { o->keep_prob = 0; }},
    {"KeepProbAboveOne", "keep_prob", [](AttentionArgs*, AttentionOptions* o) { o->keep_prob = 1.5F; }},
    {"KeepProbWithoutMask", "keep_prob", [](AttentionArgs*, AttentionOptions* o) { o->keep_prob = 0.5F; }},
    {"PrefixMissing", "prefix", [](AttentionArgs*, AttentionOptions* o) { o->mask = Mask::Prefix({}); }},
    {"SinkOfTwoDimensions", "sink.shape=[2,16], want [N] or [B|1,N,Sq]",
     [](AttentionArgs* a, AttentionOptions*) {
       a->sink = {a->q.data, DType::kF32, {2, 16}, {}};
     }},
    {"SinkOfOtherHeads", "sink.shape[1]=3, want 2 (q.shape[1])",
     [](AttentionArgs* a, AttentionOptions*) {
       a->sink = {a->q.data, DType::kF32, {1, 3, 16}, {}};
     }},
    {"SinkOfOtherRows", "sink.shape[2]=15, want 16 (q.shape[2])",
     [](AttentionArgs* a, AttentionOptions*) {
       a->sink = {a->q.data, DType::kF32, {1, 2, 15}, {}};
     }},
    {"SinkOfOtherBatches", "sink.shape[0]=2, want 1 (q.shape[0])",
     [](AttentionArgs* a, AttentionOptions*) {
       a->sink = {a->q.data, DType::kF32, {2, 2, 16}, {}};
     }},
    {"RopeOfKeysOnly", "rope", [](AttentionArgs* a, AttentionOptions*) { a->k_rope = a->k; }},
    {"PackedLayoutWithoutLengths", "cu_q", [](AttentionArgs* a, AttentionOptions* o) {
       o->layout = Layout::kTND;
       for (TensorView* view : {&a->q, &a->k, &a->v}) *view = {view->data, view->dtype, {16, 2, 16}, {}};
       a->out = {a->out.data, a->out.dtype, {16, 2, 16}, {}};
       a->softmax_max = a->softmax_sum = a->lse = {};
     }}};

class RefusedCall : public ::testing::TestWithParam<Mistake> {};

TEST_P(RefusedCall, NamesTheArgumentAndWritesNothing) {
  ForwardCase c;
  c.heads = c.heads_kv = 2;
  const ForwardProblem problem(c);
  AttentionArgs args = problem.args();
  AttentionOptions options = problem.options();
  GetParam().make(&args, &options);
  const Snapshot before = problem.TakeSnapshot(/*outputs_may_change=*/false);
  const Status status = FlashAttention(args, options, ContextOf(DetectIsa()));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().rfind("invalid argument: ", 0), 0U) << status.message();
  EXPECT_NE(status.message().find(GetParam().argument), std::string::npos) << status.message();
  EXPECT_EQ(before.FirstChange(), -1);
}

INSTANTIATE_TEST_SUITE_P(Forward, RefusedCall, ::testing::ValuesIn(kMistakes),
                         [](const auto& info) { return info.param.name; });

TEST(RefusedRun, OfTensorsOtherThanThePlannedWritesNothing) {
  ForwardCase c;
  c.sink = true;
  const ForwardProblem planned(c);
  const auto plan = planned.MakePlan(ContextOf(DetectIsa()));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const std::function<void(AttentionArgs*)> changes[] = {
      [](AttentionArgs* a) { a->k.data = nullptr; },
      [](AttentionArgs* a) { a->sink = {}; },
      [](AttentionArgs* a) { a->lse = {}; },
      [](AttentionArgs* a) { a->q.stride[2] += 1; },
      [](AttentionArgs* a) { a->v.dtype = DType::kBF16; },
      [](AttentionArgs* a) { a->out.data = a->softmax_max.data; },
      [](AttentionArgs* a) { a->k.shape[2] = 3; },
  };
  for (const auto& change : changes) {
    AttentionArgs args = planned.args();
    change(&args);
    Workspace workspace;
    const Snapshot before = planned.TakeSnapshot(/*outputs_may_change=*/false);
    EXPECT_EQ(plan->Run(args, workspace).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(before.FirstChange(), -1);
  }
}

TEST(PlanFlashAttention, ReadsNoTensorContents) {
  ForwardCase c;
  c.lengths = EqualLengths(1, 300, 300);
  const ForwardProblem problem(c);
  AttentionArgs args = problem.args();
  void* unreadable = reinterpret_cast<void*>(0x1000);
  args.q.data = args.k.data = args.v.data = unreadable;
  args.out.data = args.softmax_max.data = args.softmax_sum.data = args.lse.data = unreadable;
  const auto plan = PlanFlashAttention(args, problem.options(), ContextOf(DetectIsa()));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  Workspace workspace;
  ASSERT_TRUE(plan->Run(problem.args(), workspace).ok());
  EXPECT_TRUE(SameBits(problem.Outputs(), OutputsOf(c, ContextOf(DetectIsa()))));
}

}  // namespace
}  // namespace fa::test
