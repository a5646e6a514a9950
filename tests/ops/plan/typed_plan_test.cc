// A plan runs only on the arguments of its own operator. Code with other arguments does not compile.
#include <gtest/gtest.h>

#include <concepts>
#include <span>
#include <type_traits>
#include <utility>

#include "fa/fa.h"

namespace fa {
namespace {

template <typename... Args>
struct Operators {};

// `First` is no operator. It is needed because each line of the list begins with a comma.
template <typename First, typename... Args>
struct ListOf {
  using Type = Operators<Args...>;
};
#define FA_ARGS(name, function, Args, Options, text) , Args
using EveryOperator = ListOf<void FA_OPERATORS(FA_ARGS)>::Type;
#undef FA_ARGS

template <typename Plan, typename Args>
concept RunsOn = requires(const Plan& plan, const Args& args, Workspace& workspace, std::span<std::byte> memory) {
  { plan.Run(args) } -> std::same_as<Status>;
  { plan.Run(args, workspace) } -> std::same_as<Status>;
  { plan.Run(args, memory) } -> std::same_as<Status>;
};
template <typename Plan, typename Args>
concept RunsOnInAnyWay = requires(const Plan& plan, const Args& args) {
  plan.Run(args);
}
|| requires(const Plan& plan, const Args& args, Workspace& workspace) { plan.Run(args, workspace); }
|| requires(const Plan& plan, const Args& args, std::span<std::byte> memory) { plan.Run(args, memory); };

template <typename Planned, typename... Args>
constexpr bool RunsOnItsOwn(Operators<Args...> /*all*/) {
  return RunsOn<PlanFor<Planned>, Planned> &&
         ((std::same_as<Planned, Args> || !RunsOnInAnyWay<PlanFor<Planned>, Args>)&&...);
}
template <typename... Args>
constexpr bool EachRunsOnItsOwn(Operators<Args...> all) {
  return (RunsOnItsOwn<Args>(all) && ...);
}
static_assert(EachRunsOnItsOwn(EveryOperator{}));

// Checks that a Plan without its operator's type cannot run. Checks that the plan of one operator does not convert to
// the plan of another.
template <typename... Args>
constexpr bool NoneRunsAsAPlan(Operators<Args...> /*all*/) {
  return (!RunsOnInAnyWay<Plan, Args> && ...);
}
static_assert(NoneRunsAsAPlan(EveryOperator{}));
static_assert(std::is_convertible_v<PlanFor<AttentionArgs>, Plan>);
static_assert(!std::is_constructible_v<PlanFor<AttentionArgs>, Plan>);
static_assert(!std::is_constructible_v<PlanFor<AttentionArgs>, PlanFor<AttentionGradArgs>>);

// Checks that a function PlanX takes XArgs and returns a plan for XArgs.
template <typename Args, typename Options, typename Planned>
constexpr bool PlansItsOwn(Result<PlanFor<Planned>> (* /*plan*/)(const Args&, const Options&, Context*)) {
  return std::same_as<Args, Planned>;
}
#define FA_PLANS(name, function, Args, Options, text)        \
  static_assert(PlansItsOwn<Args, Options>(Plan##function)); \
  static_assert(std::same_as<decltype(function(std::declval<Args>(), std::declval<Options>(), nullptr)), Status>);
FA_OPERATORS(FA_PLANS)
#undef FA_PLANS

TEST(TypedPlan, SaysAsAPlanWhatItSaysItself) {
  float values[16] = {};
  AttentionArgs args;
  args.q = args.k = args.v = {values, DType::kF32, {1, 1, 2, 4}, {}};
  args.out = {values, DType::kF32, {1, 1, 2, 4}, {}};
  const auto typed = PlanFlashAttention(args, {});
  ASSERT_TRUE(typed.ok()) << typed.status().message();
  const Result<Plan> any = AnyPlan(typed);
  ASSERT_TRUE(any.ok());
  EXPECT_EQ(any->Describe(), typed->Describe());
  EXPECT_EQ(any->workspace_bytes(), typed->workspace_bytes());
  EXPECT_EQ(any->info().op, "forward");
}

TEST(TypedPlan, KeepsItsErrorAsAPlan) {
  const Result<Plan> none = AnyPlan(PlanFlashAttention({}, {}));
  EXPECT_EQ(none.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(none.status().message(), PlanFlashAttention({}, {}).status().message());
}

}  // namespace
}  // namespace fa
