#include "doctor/self_test.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string_view>

#include "cases/backward_data.h"
#include "cases/forward_data.h"
#include "cases/int8_data.h"
#include "cases/prompt_case.h"
#include "doctor/illegal_instruction.h"
#include "fa/plan.h"
#include "flags/failure.h"
#include "peak/bracketed_rounds.h"
#include "peak/peak_rate.h"

namespace fa::tool {
namespace {

struct Subject {
  const char* op;
  const char* dtype;
};
constexpr Subject kSubjects[] = {
    {"forward", "f32"}, {"forward", "f16"}, {"forward", "bf16"}, {"backward", "f32"}, {"prompt", "int8"}};

/// A call, and the function that checks its results.
struct TestedCall {
  std::function<void()> call;
  std::function<double()> check;  ///< returns the error of the results; throws Failure
};

/// Makes a call, checks its results, and then times calls.
void MeasureCall(const Context& context, const PlanInfo& info, const TestedCall& tested, DType dtype, double seconds,
                 SelfTestResult& result) {
  tested.call();
  result.error = tested.check();
  result.kernel = fmt::format("{}", fmt::join(info.kernels, "+"));
  bench::PeakRate peak(context.threads(), context.isa(), dtype);
  // Timed calls get this share of `seconds`. The rest is for making data, checking results, and measuring the peak.
  constexpr double kCalls = 0.5;
  const bench::BracketedTiming timing = bench::TimeInRounds(
      {.seconds = kCalls * seconds, .call = tested.call, .references = {bench::GigaflopsOf(peak, info.flops)}});
  result.gflops = info.flops / timing.best * 1e-9;
  result.peak = peak.unit();
  result.peak_gflops = timing.compared[0].rate;
  result.fraction = timing.compared[0].fraction;
  result.above_peak = timing.quiet == 0 && timing.above > 0;
}

void Test(const Subject& subject, Context& context, double seconds, SelfTestResult& result) {
  // There is one head per thread, but at least four. One thread computes four heads at the portable level in about 10
  // ms. With 250 rows and keys, the last tile is partial.
  const ForwardCase sizes({.shape = fmt::format("1,{0},{0},250,250,64", std::max(4, context.threads())),
                           .dtype = subject.dtype,
                           .takes_int8 = true,
                           .mask = {}});
  Workspace workspace;
  if (std::string(subject.op) == "backward") {
    auto plan = PlanFlashAttentionGrad(sizes.GradArgs(), sizes.options, &context);
    ThrowUnlessOk(plan.status());
    BackwardData data(sizes, context);
    const AttentionGradArgs args = data.Args();
    const TestedCall tested = {[&] { ThrowUnlessOk(plan->Run(args, workspace)); }, [&] { return data.CheckRows(); }};
    return MeasureCall(context, plan->info(), tested, sizes.dtype, seconds, result);
  }
  if (std::string(subject.op) == "prompt") {
    auto plan = PlanPromptFlashAttention(PromptArgsOf(sizes), PromptOptionsOf(sizes), &context);
    ThrowUnlessOk(plan.status());
    const Int8Data data(sizes);
    const TestedCall tested = {[&] { ThrowUnlessOk(plan->Run(data.args(), workspace)); },
                               [&] { return data.CheckRows(); }};
    return MeasureCall(context, plan->info(), tested, sizes.dtype, seconds, result);
  }
  auto plan = PlanFlashAttention(sizes.args, sizes.options, &context);
  ThrowUnlessOk(plan.status());
  ForwardData data(sizes);
  const AttentionArgs args = data.Args();
  const TestedCall tested = {[&] { ThrowUnlessOk(plan->Run(args, workspace)); }, [&] { return data.CheckRows(); }};
  MeasureCall(context, plan->info(), tested, sizes.dtype, seconds, result);
}

/// Returns the levels that this CPU runs, except the emulated level, which only tests use.
std::vector<Isa> LevelsHere() {
  std::vector<Isa> levels;
  for (const Isa isa : AllIsas()) {
    if (std::string_view(Name(isa)) != "amx_emulated" && CanRun(isa)) levels.push_back(isa);
  }
  return levels;
}

}  // namespace

std::vector<SelfTestResult> RunSelfTest(const ContextFlags& context, double seconds,
                                        const std::function<void(const std::string& what)>& progress) {
  const std::vector<Isa> levels = LevelsHere();
  const double share = seconds / static_cast<double>(levels.size() * std::size(kSubjects));
  std::vector<SelfTestResult> results;
  for (const Isa level : levels) {
    ContextFlags flags = context;
    flags.isa = Name(level);
    const IllegalInstructionNote note(fmt::format(
        "fa: {}: this CPU lacks an instruction of the level; FA_ASSUME_ISA takes levels for granted", flags.isa));
    const Status checked = CheckLevel(level);
    for (const Subject& subject : kSubjects) {
      SelfTestResult result = {.isa = flags.isa, .op = subject.op, .dtype = subject.dtype};
      progress(fmt::format("{} {} {}", result.isa, result.op, result.dtype));
      try {
        ThrowUnlessOk(checked);
        Test(subject, *MakeContext(flags), share, result);
      } catch (const std::exception& failure) {
        result = {.isa = flags.isa, .op = subject.op, .dtype = subject.dtype, .wrong = failure.what()};
      }
      results.push_back(std::move(result));
    }
  }
  return results;
}

}  // namespace fa::tool
