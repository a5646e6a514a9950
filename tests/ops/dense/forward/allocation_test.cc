// From the second run of a plan on, Run allocates nothing. The test is its own binary because it replaces operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "support/cases/forward_problem.h"
#include "support/execution/contexts.h"

namespace {

std::atomic<int64_t> allocations{0};

void* Allocate(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes == 0 ? 1 : bytes) != 0) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new[](std::size_t bytes) { return Allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace fa::test {
namespace {

TEST(AllocationCounter, SeesTheLibrary) {
  ForwardCase c;
  const ForwardProblem problem(c);
  const AttentionArgs args = problem.args();
  const AttentionOptions options = problem.options();
  Context* context = ContextOf(DetectIsa(), 1);
  const int64_t before = allocations;
  ASSERT_TRUE(PlanFlashAttention(args, options, context).ok());
  EXPECT_GT(allocations, before) << "the library's operator new is not this one";
}

struct Named {
  const char* name;
  ForwardCase c;
};

std::vector<Named> Cases() {
  std::vector<Named> cases;
  ForwardCase c;
  cases.push_back({"OneTile", c});
  c.heads = 4;
  c.heads_kv = 2;
  c.d = c.dv = 64;
  c.lengths = EqualLengths(2, 600, 600);
  c.mask.mode = 3;
  cases.push_back({"ManyTiles", c});
  c.dtype = DType::kBF16;
  cases.push_back({"Bf16", c});
  c.dtype = DType::kF16;
  c.pse = PseForm::kFull;
  c.pse_type = reference::PseType::kScaleThenAdd;
  c.dense_mask = MaskForm::kPlane;
  c.dropout = DropoutForm::kSeed;
  c.keep_prob = 0.9F;
  c.sink = true;
  c.softcap = 5;
  c.d_rope = 16;
  c.padding = {.inner = 3, .middle = 3, .outer = 3};
  cases.push_back({"EveryPass", c});
  c = {};
  c.layout = Layout::kTND;
  c.lengths = {{5, 0, 200, 1}, {7, 3, 400, 0}};
  c.tail_q = 9;
  c.dropout = DropoutForm::kMask;
  c.keep_prob = 0.9F;
  cases.push_back({"Packed", c});
  return cases;
}

class PlanRunAllocatesNothing : public ::testing::TestWithParam<std::tuple<Isa, int>> {};

TEST_P(PlanRunAllocatesNothing, FromTheSecondCallOn) {
  const auto [isa, threads] = GetParam();
  for (const Named& named : Cases()) {
    const ForwardProblem problem(named.c);
    const AttentionArgs args = problem.args();
    const auto plan = problem.MakePlan(ContextOf(isa, threads));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    Workspace workspace;
    ASSERT_TRUE(plan->Run(args, workspace).ok());
    for (int run = 0; run < 5; ++run) {
      const int64_t before = allocations;
      const Status status = plan->Run(args, workspace);
      EXPECT_EQ(allocations, before) << named.name << " run " << run;
      ASSERT_TRUE(status.ok()) << status.message();
    }
    ASSERT_TRUE(plan->Run(args).ok());
    const int64_t before = allocations;
    const Status status = plan->Run(args);
    EXPECT_EQ(allocations, before) << named.name << " with the context's workspace";
    ASSERT_TRUE(status.ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, PlanRunAllocatesNothing,
                         ::testing::Combine(::testing::ValuesIn(IsaLevels()), ::testing::Values(1, 2)),
                         [](const auto& info) {
                           return IsaName(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace fa::test
