#include "fa/context.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/context/context_impl.h"

namespace fa {
namespace {

ContextOptions WithThreads(int threads) {
  ContextOptions options;
  options.threads = threads;
  return options;
}

core::Topology TwoNodesOf64() { return *core::Topology::FromSynthetic("numa:2 core:64 pu:1"); }

TEST(ResolveContext, TakesEveryCoreAndTheHighestLevelByDefault) {
  const Result<ContextSettings> settings = ResolveContext({}, {}, TwoNodesOf64(), Isa::kAvx512);
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->workers, 128);
  EXPECT_EQ(settings->isa, Isa::kAvx512);
  EXPECT_FALSE(settings->portable_blas);
}

TEST(ResolveContext, TakesThePreferredLevelUnlessAHigherOneIsAsked) {
  const auto isa_of = [](std::optional<Isa> asked) {
    ContextOptions options;
    options.isa = asked;
    return ResolveContext(options, {}, TwoNodesOf64(), Isa::kAvx512Bf16, Isa::kAvx512Vnni)->isa;
  };
  EXPECT_EQ(isa_of({}), Isa::kAvx512Vnni);
  EXPECT_EQ(isa_of(Isa::kAvx512Bf16), Isa::kAvx512Bf16);
}

TEST(ResolveContext, LetsTheEnvironmentSetThreadsLevelAndBlas) {
  const ContextEnvironment environment{.num_threads = "3", .force_isa = "avx2", .portable_blas = "1"};
  const Result<ContextSettings> settings = ResolveContext({}, environment, TwoNodesOf64(), Isa::kAvx512);
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->workers, 3);
  EXPECT_EQ(settings->isa, Isa::kAvx2);
  EXPECT_TRUE(settings->portable_blas);
}

TEST(ResolveContext, LetsOptionsWinOverTheEnvironment) {
  const ContextEnvironment environment{.num_threads = "many", .force_isa = "sse9", .portable_blas = "1"};
  const ContextOptions options{.threads = 5, .isa = Isa::kPortable, .portable_blas = false};
  const Result<ContextSettings> settings = ResolveContext(options, environment, TwoNodesOf64(), Isa::kAvx512);
  ASSERT_TRUE(settings.ok()) << settings.status().message();
  EXPECT_EQ(settings->workers, 5);
  EXPECT_EQ(settings->isa, Isa::kPortable);
  EXPECT_FALSE(settings->portable_blas);
}

TEST(ResolveContext, TreatsEmptyVariablesAsUnset) {
  const ContextEnvironment environment{.num_threads = "", .force_isa = "", .portable_blas = ""};
  const Result<ContextSettings> settings = ResolveContext({}, environment, TwoNodesOf64(), Isa::kAvx2);
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->workers, 128);
  EXPECT_EQ(settings->isa, Isa::kAvx2);
}

TEST(ResolveContext, RefusesBadThreadCountsByName) {
  for (int threads : {-1, -1000, (1 << 16) + 1}) {
    const Status status = ResolveContext(WithThreads(threads), {}, TwoNodesOf64(), Isa::kAvx2).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "invalid argument: threads=" + std::to_string(threads) + ", want 0..65536");
  }
  for (const char* text : {"0", "-2", "4 ", "four", "99999999999"}) {
    const Status status = ResolveContext({}, {.num_threads = text}, TwoNodesOf64(), Isa::kAvx2).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), std::string("invalid argument: FA_NUM_THREADS=") + text + ", want 1..65536");
  }
}

TEST(ResolveContext, RefusesLevelsThatTheCpuLacksAndUnknownOnes) {
  ContextOptions options;
  options.isa = Isa::kAvx512;
  const Status lacking = ResolveContext(options, {}, TwoNodesOf64(), Isa::kAvx2).status();
  EXPECT_EQ(lacking.code(), StatusCode::kUnsupported);
  EXPECT_EQ(lacking.message(), "unsupported: isa=avx512, but this CPU's highest level is avx2");
  const Status unknown = ResolveContext({}, {.force_isa = "sse9"}, TwoNodesOf64(), Isa::kAvx2).status();
  EXPECT_EQ(unknown.code(), StatusCode::kUnsupported);
  EXPECT_EQ(unknown.message().find("unsupported: FA_FORCE_ISA=sse9, want portable"), 0u);
}

TEST(ResolveContext, TakesTheHighestLevelThatWasBuiltAndRefusesOthersByName) {
  const auto without_512 = [](Isa isa) { return isa == Isa::kAvx512 || isa == Isa::kAvx512Vnni; };
  const auto isa = [&](const ContextOptions& options, const ContextEnvironment& environment) {
    return ResolveContext(options, environment, TwoNodesOf64(), Isa::kAvx512Bf16, Isa::kAvx512Vnni, without_512);
  };
  EXPECT_EQ(isa({}, {})->isa, Isa::kAvx2);
  ContextOptions options;
  options.isa = Isa::kAvx512Bf16;
  EXPECT_EQ(isa(options, {})->isa, Isa::kAvx512Bf16);
  const Status status = isa({}, {.force_isa = "avx512"}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.message(),
            "unsupported: FA_FORCE_ISA=avx512, but this library was built without it: FA_LEVELS=all builds every level "
            "(pip: -C "
            "cmake.define.FA_LEVELS=all)");
  EXPECT_EQ(ResolveContext({}, {}, TwoNodesOf64(), Isa::kNeon, {}, [](Isa isa) { return isa != Isa::kPortable; })->isa,
            Isa::kPortable);
}

TEST(ContextImpl, MakesOneArenaANodeWhenEachHasTwoWorkers) {
  auto nodes = [](int workers, NumaPolicy numa) {
    return Context::Impl({.workers = workers, .numa = numa}, TwoNodesOf64()).nodes();
  };
  EXPECT_EQ(nodes(128, NumaPolicy::kSpread), 2);
  EXPECT_EQ(nodes(4, NumaPolicy::kSpread), 2);
  EXPECT_EQ(nodes(3, NumaPolicy::kSpread), 1);
  EXPECT_EQ(nodes(128, NumaPolicy::kIgnore), 1);
}

TEST(ContextImpl, LendsEachBorrowerItsOwnExecutorAndWorkspaceAndLendsThemAgain) {
  Context::Impl impl({.workers = 2}, TwoNodesOf64());
  const core::Executor* first = nullptr;
  const Workspace* first_workspace = nullptr;
  {
    const auto a = impl.BorrowExecutor(), b = impl.BorrowExecutor();
    EXPECT_NE(&*a, &*b);
    first = &*a;  // the executor that is returned to the pool last
    const auto workspace = impl.BorrowWorkspace(), other = impl.BorrowWorkspace();
    EXPECT_NE(&*workspace, &*other);
    first_workspace = &*workspace;
  }
  EXPECT_EQ(&*impl.BorrowExecutor(), first);
  EXPECT_EQ(&*impl.BorrowWorkspace(), first_workspace);
}

TEST(ContextImpl, KeepsTheMemoryOfSmallWorkspacesOnly) {
  Context::Impl impl({.workers = 2}, TwoNodesOf64());
  ASSERT_TRUE(impl.BorrowWorkspace()->Reserve(size_t{1} << 20).ok());
  EXPECT_EQ(impl.BorrowWorkspace()->size(), size_t{1} << 20);
  // Pages that are never touched take no memory.
  ASSERT_TRUE(impl.BorrowWorkspace()->Reserve((size_t{256} << 20) + 1).ok());
  EXPECT_EQ(impl.BorrowWorkspace()->size(), 0u);
}

TEST(ContextImpl, SurvivesManyBorrowersAtOnce) {
  Context::Impl impl({.workers = 2}, TwoNodesOf64());
  std::array<int, 4> sums{};
  std::vector<std::thread> borrowers;
  for (int& sum : sums) {
    borrowers.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const auto workspace = impl.BorrowWorkspace();
        if (!workspace->Reserve(4).ok()) return;
        // The word is not atomic. If two threads had this workspace at once, there would be a race and a wrong sum.
        int& word = *reinterpret_cast<int*>(workspace->data());
        word = sum;
        sum = word + 1;
      }
    });
  }
  for (std::thread& borrower : borrowers) borrower.join();
  EXPECT_EQ(sums, (std::array<int, 4>{2000, 2000, 2000, 2000}));
}

TEST(Context, ReportsItsSettings) {
  ContextOptions options = WithThreads(7);
  options.isa = Isa::kPortable;
  options.accumulation = Accumulation::kAtomicFree;
  options.numa = NumaPolicy::kIgnore;
  const Result<std::unique_ptr<Context>> context = Context::Create(options);
  ASSERT_TRUE(context.ok()) << context.status().message();
  EXPECT_EQ((*context)->threads(), 7);
  EXPECT_EQ((*context)->isa(), Isa::kPortable);
  EXPECT_EQ((*context)->accumulation(), Accumulation::kAtomicFree);
  EXPECT_EQ((*context)->numa(), NumaPolicy::kIgnore);
  const std::string text = (*context)->Describe();
  for (const char* part :
       {"isa: portable", "threads: 7", "caches: L1 ", "numa nodes: 1 (node 0: ", "atomic-free", "cpu: "}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

TEST(Context, DescribesNoMissingKernelsInABuildWithTests) {
  EXPECT_EQ(Context::Default().Describe().find("kernels not built"), std::string::npos);
}

TEST(Context, MayHaveMoreThreadsThanTheMachine) {
  const Result<std::unique_ptr<Context>> context = Context::Create(WithThreads(128));
  ASSERT_TRUE(context.ok());
  EXPECT_EQ(core::ImplOf(**context).workers(), 128);
}

TEST(Context, RefusesNegativeThreads) {
  const Result<std::unique_ptr<Context>> context = Context::Create(WithThreads(-1));
  ASSERT_FALSE(context.ok());
  EXPECT_EQ(context.status().code(), StatusCode::kInvalidArgument);
}

TEST(Context, DefaultIsOneForTheProcess) { EXPECT_EQ(&Context::Default(), &Context::Default()); }

/// Sets an environment variable while the object lives.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~ScopedVariable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(ContextDeathTest, DefaultWithABadForcedIsaIsUsableAndHoldsTheError) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // a fresh process, in which no default context was made yet
  EXPECT_EXIT(
      {
        const ScopedVariable variable("FA_FORCE_ISA", "sse9");
        Context& context = Context::Default();
        const bool right = core::ImplOf(context).status().code() == StatusCode::kUnsupported && context.threads() > 0 &&
                           context.Describe().find("unusable: unsupported: FA_FORCE_ISA=sse9") != std::string::npos;
        std::exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(Context, CreateFailsWhereTheForcedIsaCannotBeHonoured) {
  const ScopedVariable variable("FA_FORCE_ISA", "sse9");
  const Result<std::unique_ptr<Context>> context = Context::Create();
  ASSERT_FALSE(context.ok());
  EXPECT_EQ(context.status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace fa
