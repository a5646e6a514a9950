// fa bench prompt: compares the rate of int8 with the peak of int8 dot products. For floats the command reports what
// `fa bench forward` reports.

#include <functional>
#include <memory>

#include "bench/bench_report.h"
#include "cases/forward_data.h"
#include "cases/int8_data.h"
#include "cases/prompt_case.h"
#include "commands.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

void MeasurePrompt(const BenchFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.measure.context);
  const ForwardCase prompt(flags.forward);
  auto plan = PlanPromptFlashAttention(PromptArgsOf(prompt), PromptOptionsOf(prompt), context.get());
  ThrowUnlessOkFromShape(plan.status());
  Workspace workspace;
  const auto measure = [&](const PromptAttentionArgs& args, double bytes, const std::function<void()>& check) {
    MeasureAndReport({.op = "prompt",
                      .flags = flags.measure,
                      .subject = SubjectOf(prompt),
                      .context = *context,
                      .info = plan->info(),
                      .bytes = bytes,
                      .dtype = flags.forward.dtype,
                      .call = [&] { ThrowUnlessOk(plan->Run(args, workspace)); },
                      .check = check});
  };
  if (prompt.dtype == DType::kI8) {
    const Int8Data data(prompt);
    measure(data.args(), data.bytes(), [&] { data.CheckRows(); });
    return;
  }
  ForwardData data(prompt);
  const AttentionArgs forward = data.Args();
  PromptAttentionArgs args = PromptArgsOf(prompt);
  args.q = forward.q;
  args.k = forward.k;
  args.v = forward.v;
  args.out = forward.out;
  measure(args, data.bytes(), [&] { data.CheckRows(); });
}

}  // namespace

void AddBenchPrompt(CLI::App& bench) {
  AddBench(bench, "prompt", "Time prompt attention, int8 too; the result is checked first", MeasurePrompt,
           /*takes_int8=*/true);
}

}  // namespace fa::tool
