// fa bench infer: times a fused inference of a decode step or of a chunk of rows against many keys.

#include <memory>

#include "bench/bench_report.h"
#include "cases/decode_data.h"
#include "cases/infer_case.h"
#include "commands.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

struct InferBenchFlags {
  DecodeCaseFlags decode;
  MeasureFlags measure;
};

void Run(const InferBenchFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.measure.context);
  DecodeCase decode(flags.decode);
  TakeRuleOfSingleRows(decode);
  auto plan = PlanInferAttention(InferArgsOf(decode.args), InferOptionsOf(decode), context.get());
  ThrowUnlessOkFromShape(plan.status());
  DecodeData data(decode);
  const InferAttentionArgs args = InferArgsOf(data.Args());
  Workspace workspace;
  MeasureAndReport({.op = "infer",
                    .flags = flags.measure,
                    .subject = SubjectOf(decode.forward),
                    .context = *context,
                    .info = plan->info(),
                    .bytes = data.key_value_bytes(),
                    .bytes_of = "keys and values",
                    .memory = data.key_value_memory(),
                    .dtype = flags.decode.forward.dtype,
                    .block_size = decode.block_size,
                    .call = [&] { ThrowUnlessOk(plan->Run(args, workspace)); },
                    .check = [&] { data.CheckRows(); }});
}

}  // namespace

void AddBenchInfer(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("infer", "Time a decode step or a chunk, also over pages; the result is checked first");
  const auto flags = std::make_shared<InferBenchFlags>();
  AddDecodeCaseFlags(*command, flags->decode);
  AddMeasureFlags(*command, flags->measure);
  command->callback([flags] { Run(*flags); });
}

}  // namespace fa::tool
