// fa bench forward: measures FLOP/s, in which masked pairs do not count, as a fraction of this machine's peak. The peak
// is measured in the same run.

#include <memory>

#include "bench/bench_report.h"
#include "cases/forward_data.h"
#include "commands.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

void MeasureForward(const BenchFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.measure.context);
  const ForwardCase forward(flags.forward);
  auto plan = PlanFlashAttention(forward.args, forward.options, context.get());
  ThrowUnlessOkFromShape(plan.status());
  ForwardData data(forward);
  const AttentionArgs args = data.Args();
  Workspace workspace;
  MeasureAndReport({.op = "forward",
                    .flags = flags.measure,
                    .subject = SubjectOf(forward),
                    .context = *context,
                    .info = plan->info(),
                    .bytes = data.bytes(),
                    .call = [&] { ThrowUnlessOk(plan->Run(args, workspace)); },
                    .check = [&] { data.CheckRows(); }});
}

}  // namespace

void AddBenchForward(CLI::App& bench) {
  AddBench(bench, "forward", "Time the dense forward; the result is checked first", MeasureForward);
}

}  // namespace fa::tool
