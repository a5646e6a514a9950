// fa bench backward: times the computation of all gradients of a dense forward, without the forward itself.

#include <memory>

#include "bench/bench_report.h"
#include "cases/backward_data.h"
#include "commands.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

void MeasureBackward(const BenchFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.measure.context);
  const ForwardCase forward(flags.forward);
  auto plan = PlanFlashAttentionGrad(forward.GradArgs(), forward.options, context.get());
  ThrowUnlessOkFromShape(plan.status());
  BackwardData data(forward, *context);
  const AttentionGradArgs args = data.Args();
  Workspace workspace;
  MeasureAndReport({.op = "backward",
                    .flags = flags.measure,
                    .subject = SubjectOf(forward),
                    .context = *context,
                    .info = plan->info(),
                    .bytes = data.bytes(),
                    .call = [&] { ThrowUnlessOk(plan->Run(args, workspace)); },
                    .check = [&] { data.CheckRows(); }});
}

}  // namespace

void AddBenchBackward(CLI::App& bench) {
  AddBench(bench, "backward", "Time the dense backward; the gradients are checked first", MeasureBackward);
}

}  // namespace fa::tool
