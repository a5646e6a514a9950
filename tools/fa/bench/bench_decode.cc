// fa bench decode and fa bench infer: time few query rows, or a chunk of rows, against many keys. The report compares
// the call with the rate at which the machine reads memory.

#include <memory>

#include "bench/bench_report.h"
#include "cases/decode_data.h"
#include "cases/infer_case.h"
#include "commands.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

struct DecodeBenchFlags {
  DecodeCaseFlags decode;
  MeasureFlags measure;
};

/// Times the operator `op` on a decode.
/// @param prepare     prepare(decode) may change the decode before planning
/// @param args_of     args_of(args) turns a decode's arguments into the operator's arguments
/// @param options_of  options_of(decode) gives the operator's options
template <typename Prepare, typename ArgsOf, typename OptionsOf, typename MakePlan>
void MeasureDecode(const char* op, const DecodeBenchFlags& flags, Prepare prepare, ArgsOf args_of, OptionsOf options_of,
                   MakePlan make_plan) {
  const std::unique_ptr<Context> context = MakeContext(flags.measure.context);
  DecodeCase decode(flags.decode);
  prepare(decode);
  auto plan = make_plan(args_of(decode.args), options_of(decode), context.get());
  ThrowUnlessOkFromShape(plan.status());
  DecodeData data(decode);
  const auto args = args_of(data.Args());
  Workspace workspace;
  MeasureAndReport({.op = op,
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

template <typename Prepare, typename ArgsOf, typename OptionsOf, typename MakePlan>
void AddDecodeBench(CLI::App& bench, const char* op, const char* text, Prepare prepare, ArgsOf args_of,
                    OptionsOf options_of, MakePlan make_plan) {
  CLI::App* command = bench.add_subcommand(op, text);
  const auto flags = std::make_shared<DecodeBenchFlags>();
  AddDecodeCaseFlags(*command, flags->decode);
  AddMeasureFlags(*command, flags->measure);
  command->callback([=] { MeasureDecode(op, *flags, prepare, args_of, options_of, make_plan); });
}

}  // namespace

void AddBenchDecode(CLI::App& bench) {
  AddDecodeBench(
      bench, "decode", "Time few queries against long keys; the result is checked first", [](const DecodeCase&) {},
      [](const DecodeAttentionArgs& args) { return args; }, [](const DecodeCase& decode) { return decode.options; },
      PlanDecodeAttention);
}

void AddBenchInfer(CLI::App& bench) {
  AddDecodeBench(bench, "infer", "Time a decode step or a chunk, also over pages; the result is checked first",
                 TakeRuleOfSingleRows, InferArgsOf, InferOptionsOf, PlanInferAttention);
}

}  // namespace fa::tool
