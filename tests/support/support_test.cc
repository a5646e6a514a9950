// Tests the checks that all forward tests use. Each check must be able to fail.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <sys/utsname.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "support/cases/random_forward_case.h"
#include "support/compare/compare.h"
#include "support/compare/tolerance.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"
#include "support/execution/emulator.h"

namespace fa::test {
namespace {

Context* AnyContext() { return ContextOf(DetectIsa(), 1); }

TEST(ForEachCase, VisitsEveryCombinationInOrder) {
  std::vector<std::tuple<int64_t, bool>> visited;
  ForEachCase([&](int64_t rows, bool causal) { visited.emplace_back(rows, causal); }, Axis{"rows", FromTo(1, 2)},
              Axis{"causal", {false, true}});
  EXPECT_EQ(visited, (std::vector<std::tuple<int64_t, bool>>{{1, false}, {1, true}, {2, false}, {2, true}}));
}

TEST(ForEachCase, AFailureNamesItsCombination) {
  const auto run = [] {
    ForEachCase([](DType dtype, int rows) { EXPECT_TRUE(dtype != DType::kBF16 || rows != 7); },
                Axis{"type", {DType::kF32, DType::kBF16}}, Axis{"rows", {5, 7}});
  };
  EXPECT_NONFATAL_FAILURE(run(), "type = bf16");
  EXPECT_NONFATAL_FAILURE(run(), "rows = 7");
}

TEST(Snapshot, SeesEveryByteButThoseAllowed) {
  const HeadTensor tensor =
      MakeHeadTensor(DType::kF16, Layout::kBSND, {.batch = 2, .heads = 2, .rows = 3, .size = 5}, {.inner = 1});
  Snapshot snapshot;
  snapshot.Allow(tensor.tensor);
  tensor.tensor.Set(tensor.Offset(1, 1, 2) + 4, 1);
  EXPECT_EQ(snapshot.FirstChange(), -1);
  for (const int64_t outside : {int64_t{-1}, tensor.Offset(0, 0, 0) + 5, tensor.Offset(1, 1, 2) + 5}) {
    std::byte* at = tensor.tensor.Address(outside);
    const std::byte before = *at;
    *at = std::byte{1};
    EXPECT_GE(snapshot.FirstChange(), 0) << outside;
    *at = before;
  }
  EXPECT_EQ(snapshot.FirstChange(), -1);
}

TEST(GuardedBufferDeathTest, TheByteAfterTheLastCannotBeRead) {
  const GuardedBuffer buffer(100, Place::kAtEnd);
  EXPECT_EQ(buffer.data()[99], std::byte{0xFF});
  EXPECT_DEATH({ [[maybe_unused]] volatile std::byte read = buffer.data()[100]; }, "");
}

// Tests do less under an emulator, so a real machine must never count as one. Under an emulator, uname names the
// program's processor. The file /proc/sys/kernel/arch (since Linux 6.1) names the machine's processor.
TEST(Emulator, IsWhatRunsAProgramOfAnotherProcessor) {
  utsname system{};
  ASSERT_EQ(uname(&system), 0);
  std::string machine = system.machine;
  std::ifstream("/proc/sys/kernel/arch") >> machine;
  EXPECT_EQ(Emulated(), machine != system.machine) << machine << ", " << system.machine;
}

TEST(ForwardTolerance, ADeviationOfTwiceTheToleranceIsReportedWithItsPlace) {
  ForwardCase c;
  c.heads = 2;
  c.heads_kv = 1;
  const ForwardProblem problem(c);
  ASSERT_TRUE(RunsLikeTheReference(problem, AnyContext()));
  const reference::ForwardResult want = reference::Forward(problem.values());
  const int64_t row = 16 + 7;
  const int64_t element = row * c.dv + 3;
  auto* out = static_cast<float*>(problem.args().out.data);
  const ForwardTolerance tolerance(problem.values(), want, c.dtype);
  out[element] = static_cast<float>(want.out[element] + 2 * tolerance.Out(row, element));
  const auto result = MatchesReference(problem);
  EXPECT_FALSE(result);
  EXPECT_NE(std::string(result.message()).find("out[b=0 n=1 i=7 c=3]"), std::string::npos) << result.message();
}

TEST(ForwardTolerance, IsAFewUnitsOfTheLastPlaceOfAnOutput) {
  for (const auto& [dtype, unit] : {std::pair{DType::kF32, 0x1p-24}, {DType::kF16, 0x1p-11}, {DType::kBF16, 0x1p-8}}) {
    ForwardCase c;
    c.dtype = dtype;
    c.d = c.dv = 64;
    c.lengths = EqualLengths(1, 16, 128);
    const ForwardProblem problem(c);
    const reference::ForwardResult want = reference::Forward(problem.values());
    const ForwardTolerance tolerance(problem.values(), want, dtype);
    for (int64_t x = 0; x < 16 * 64; ++x) {
      const double bound = tolerance.Out(x / 64, x);
      EXPECT_GT(bound, unit * std::fabs(want.out[x]));
      EXPECT_LT(bound, (dtype == DType::kF32 ? 1000 : 4) * unit) << x;  // this bound holds for |v| around 1
    }
  }
}

struct Change {
  const char* name;
  std::function<void(ForwardCase*)> prepare;
  std::function<void(AttentionArgs*, AttentionOptions*)> change;
};

const Change kChanges[] = {
    {"Scale", [](ForwardCase*) {}, [](AttentionArgs*, AttentionOptions* o) { o->scale = 0.2505F; }},
    {"CausalEnd", [](ForwardCase* c) { c->mask.mode = 3; },
     [](AttentionArgs*, AttentionOptions* o) { o->mask = Mask::Band(Mask::kUnlimited, 1); }},
    {"CausalAnchor", [](ForwardCase* c) { c->mask.mode = 3; },
     [](AttentionArgs*, AttentionOptions* o) { o->mask = Mask::CausalTopLeft(); }},
    {"DenseMask", [](ForwardCase* c) { c->dense_mask = MaskForm::kPlane; },
     [](AttentionArgs* a, AttentionOptions*) { a->dense_mask = {}; }},
    {"Sink", [](ForwardCase* c) { c->sink = true; }, [](AttentionArgs* a, AttentionOptions*) { a->sink = {}; }},
    {"Softcap", [](ForwardCase* c) { c->softcap = 3; },
     [](AttentionArgs*, AttentionOptions* o) { o->softcap = 3.02F; }},
    {"DropoutOffset",
     [](ForwardCase* c) {
       c->dropout = DropoutForm::kSeed;
       c->keep_prob = 0.8F;
     },
     [](AttentionArgs*, AttentionOptions* o) { ++o->dropout->offset; }},
    {"SlopeStart",
     [](ForwardCase* c) {
       c->pse = PseForm::kSlopes;
       c->pse_type = reference::PseType::kSlopesSqrt;
     },
     [](AttentionArgs*, AttentionOptions* o) { o->q_start = 1; }},
    {"PseOrder",
     [](ForwardCase* c) {
       c->pse = PseForm::kFull;
       c->pse_type = reference::PseType::kScaleThenAdd;
     },
     [](AttentionArgs*, AttentionOptions* o) { o->pse_type = PseType::kAddThenScale; }},
    {"KeyShift", [](ForwardCase*) {},
     [](AttentionArgs* a, AttentionOptions*) {
       a->k.data = static_cast<const std::byte*>(a->k.data) + SizeOf(a->k.dtype) * 16;
       a->k.shape[2] -= 1;
       a->v.shape[2] -= 1;
     }},
};

class ForwardCheck : public ::testing::TestWithParam<Change> {};

TEST_P(ForwardCheck, NoticesACallThatComputesSomethingElse) {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    ForwardCase c;
    c.dtype = dtype;
    c.lengths = EqualLengths(1, 20, 40);
    c.scale = 0.25F;
    GetParam().prepare(&c);
    const ForwardProblem problem(c);
    ASSERT_TRUE(RunsLikeTheReference(problem, AnyContext()));
    AttentionArgs args = problem.args();
    AttentionOptions options = problem.options();
    GetParam().change(&args, &options);
    const Status status = FlashAttention(args, options, AnyContext());
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_FALSE(MatchesReference(problem));
  }
}

INSTANTIATE_TEST_SUITE_P(Forward, ForwardCheck, ::testing::ValuesIn(kChanges),
                         [](const auto& info) { return info.param.name; });

TEST(RandomForwardCase, TurnsOnEveryOption) {
  int tnd = 0, mode7 = 0, mode8 = 0, rows = 0, compressed = 0, rope = 0, together = 0, no_keys = 0, long_rows = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const ForwardCase c = RandomForwardCase(seed);
    tnd += c.packed() ? 1 : 0;
    mode7 += c.mask.mode == 7 ? 1 : 0;
    mode8 += c.mask.mode == 8 ? 1 : 0;
    rows += c.mask.mode == reference::MaskRule::kRows ? 1 : 0;
    compressed += c.pse == PseForm::kCompressed ? 1 : 0;
    rope += c.d_rope > 0 ? 1 : 0;
    together += c.packing == Packing::kTogether ? 1 : 0;
    no_keys += c.max_sk() == 0 ? 1 : 0;
    long_rows += c.max_sk() > 512 ? 1 : 0;
  }
  for (const int count : {tnd, mode7, mode8, rows, compressed, rope, together, no_keys, long_rows}) EXPECT_GT(count, 0);
}

TEST(RandomForwardCase, DependsOnTheSeedAlone) {
  EXPECT_EQ(ToString(RandomForwardCase(12)), ToString(RandomForwardCase(12)));
  EXPECT_NE(ToString(RandomForwardCase(12)), ToString(RandomForwardCase(13)));
}

}  // namespace
}  // namespace fa::test
