// A refused call names the wrong argument and writes nothing. The tests in tests/ops/bind check which calls are
// refused.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

struct Mistake {
  const char* name;
  const char* argument;  ///< the argument that the message names
  std::function<void(AttentionGradArgs*, AttentionOptions*)> make;
};

const Mistake kMistakes[] = {
    {"NoQuery", "q", [](AttentionGradArgs* a, AttentionOptions*) { a->q.data = nullptr; }},
    {"NoOut", "out", [](AttentionGradArgs* a, AttentionOptions*) { a->out = {}; }},
    {"NoOutputGradient", "d_out", [](AttentionGradArgs* a, AttentionOptions*) { a->d_out = {}; }},
    {"NoMaximum", "softmax_max", [](AttentionGradArgs* a, AttentionOptions*) { a->softmax_max = {}; }},
    {"SumOfAnotherLength", "softmax_sum", [](AttentionGradArgs* a, AttentionOptions*) { a->softmax_sum.shape[2] = 5; }},
    {"NoQueryGradient", "dq", [](AttentionGradArgs* a, AttentionOptions*) { a->dq = {}; }},
    {"KeyGradientOfAnotherType", "dk", [](AttentionGradArgs* a, AttentionOptions*) { a->dk.dtype = DType::kBF16; }},
    {"ValueGradientOfAnotherLength", "dv", [](AttentionGradArgs* a, AttentionOptions*) { a->dv.shape[2] = 8; }},
    {"KeyGradientOverlapsItself", "dk", [](AttentionGradArgs* a, AttentionOptions*) { a->dk.stride[2] = 0; }},
    {"QueryGradientIsQuery", "dq",
     [](AttentionGradArgs* a, AttentionOptions*) { a->dq.data = const_cast<void*>(a->q.data); }},
    {"ValueGradientIsKeyGradient", "dv", [](AttentionGradArgs* a, AttentionOptions*) { a->dv.data = a->dk.data; }},
    {"KeyGradientIsOut", "dk",
     [](AttentionGradArgs* a, AttentionOptions*) { a->dk.data = const_cast<void*>(a->out.data); }},
    {"RopeGradientWithoutRope", "dq_rope", [](AttentionGradArgs* a, AttentionOptions*) { a->dq_rope = a->dq; }},
    {"BiasGradientWithoutBias", "dpse", [](AttentionGradArgs* a, AttentionOptions*) { a->dpse = a->dq; }},
    {"SlopeGradientWithoutSlopes", "dslopes", [](AttentionGradArgs* a, AttentionOptions*) { a->dslopes = a->dsink; }},
    {"SinkGradientWithoutSink", "dsink", [](AttentionGradArgs* a, AttentionOptions*) { a->sink = {}; }},
    {"ScaleNaN", "scale", [](AttentionGradArgs*, AttentionOptions* o) { o->scale = NAN; }},
    {"KeepProbWithoutMask", "keep_prob", [](AttentionGradArgs*, AttentionOptions* o) { o->keep_prob = 0.5F; }},
};

BackwardCase Usual() {
  BackwardCase c;
  c.forward.heads = c.forward.heads_kv = 2;
  c.forward.sink = true;
  return c;
}

class RefusedGradCall : public ::testing::TestWithParam<Mistake> {};

TEST_P(RefusedGradCall, NamesTheArgumentAndWritesNothing) {
  const BackwardProblem problem(Usual());
  AttentionGradArgs args = problem.args();
  AttentionOptions options = problem.options();
  GetParam().make(&args, &options);
  const Snapshot before = problem.TakeSnapshot(/*outputs_may_change=*/false);
  const Status status = FlashAttentionGrad(args, options, ContextOf(DetectIsa()));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().rfind("invalid argument: ", 0), 0U) << status.message();
  EXPECT_NE(status.message().find(GetParam().argument), std::string::npos) << status.message();
  EXPECT_EQ(before.FirstChange(), -1);
}

INSTANTIATE_TEST_SUITE_P(Backward, RefusedGradCall, ::testing::ValuesIn(kMistakes),
                         [](const auto& info) { return info.param.name; });

TEST(RefusedGradRun, OfTensorsOtherThanThePlannedWritesNothing) {
  const BackwardProblem planned(Usual());
  const auto plan = planned.MakePlan(ContextOf(DetectIsa()));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const std::function<void(AttentionGradArgs*)> changes[] = {
      [](AttentionGradArgs* a) { a->k.data = nullptr; },
      [](AttentionGradArgs* a) { a->dsink = {}; },
      [](AttentionGradArgs* a) { a->d_out.stride[2] += 1; },
      [](AttentionGradArgs* a) { a->dv.dtype = DType::kBF16; },
      [](AttentionGradArgs* a) { a->dq.data = const_cast<void*>(a->d_out.data); },
      [](AttentionGradArgs* a) { a->dk.shape[2] = 3; },
      [](AttentionGradArgs* a) { a->softmax_sum.data = nullptr; },
  };
  for (const auto& change : changes) {
    AttentionGradArgs args = planned.args();
    change(&args);
    Workspace workspace;
    const Snapshot before = planned.TakeSnapshot(/*outputs_may_change=*/false);
    EXPECT_EQ(plan->Run(args, workspace).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(before.FirstChange(), -1);
  }
}

TEST(PlanFlashAttentionGrad, ReadsNoTensorContents) {
  BackwardCase c = Usual();
  c.forward.lengths = EqualLengths(1, 300, 300);
  const BackwardProblem problem(c);
  AttentionGradArgs args = problem.args();
  void* unreadable = reinterpret_cast<void*>(0x1000);
  args.q.data = args.k.data = args.v.data = args.out.data = args.d_out.data = args.sink.data = unreadable;
  args.softmax_max.data = args.softmax_sum.data = unreadable;
  args.dq.data = args.dk.data = args.dv.data = args.dsink.data = unreadable;
  const auto plan = PlanFlashAttentionGrad(args, problem.options(), ContextOf(DetectIsa()));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  Workspace workspace;
  ASSERT_TRUE(plan->Run(problem.args(), workspace).ok());
  EXPECT_TRUE(SameBits(problem.Outputs(), OutputsOf(c, ContextOf(DetectIsa()))));
}

}  // namespace
}  // namespace fa::test
