// fa bench decode: times few query rows against many keys. The report compares the call with the rate at which the
// machine reads memory.

#include <memory>

#include "bench/bench_report.h"
#include "cases/decode_data.h"
#include "commands.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

struct DecodeBenchFlags {
  DecodeCaseFlags decode;
  MeasureFlags measure;
};

void Run(const DecodeBenchFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.measure.context);
  const DecodeCase decode(flags.decode);
  auto plan = PlanDecodeAttention(decode.args, decode.options, context.get());
  ThrowUnlessOkFromShape(plan.status());
  DecodeData data(decode);
  const DecodeAttentionArgs args = data.Args();
  Workspace workspace;
  MeasureAndReport({.op = "decode",
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

void AddBenchDecode(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("decode", "Time few queries against long keys; the result is checked first");
  const auto flags = std::make_shared<DecodeBenchFlags>();
  AddDecodeCaseFlags(*command, flags->decode);
  AddMeasureFlags(*command, flags->measure);
  command->callback([flags] { Run(*flags); });
}

}  // namespace fa::tool
