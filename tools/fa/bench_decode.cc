// fa bench decode: few query rows against long keys, held against the rate at which this machine reads memory.

#include <memory>

#include "bench_report.h"
#include "commands.h"
#include "failure.h"
#include "forward_data.h"

namespace fa::tool {
namespace {

void Run(const BenchFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const ForwardCase decode(flags.forward);
  Result<Plan> plan = PlanFlashAttention(decode.args, decode.options, context.get());
  ThrowUnlessOkFromShape(plan.status());
  ForwardData data(decode);
  const AttentionArgs args = data.Args();
  Workspace workspace;
  MeasureAndReport({.op = "decode",
                    .flags = flags,
                    .forward = decode,
                    .context = *context,
                    .info = plan->info(),
                    .bytes = data.key_value_bytes(),
                    .against_memory = true,
                    .call = [&] { ThrowUnlessOk(plan->Run(args, workspace)); },
                    .check = [&] { data.CheckRows(); }});
}

}  // namespace

void AddBenchDecode(CLI::App& bench) {
  AddBench(bench, "decode", "Time few queries against long keys; the result is checked first", Run);
}

}  // namespace fa::tool
