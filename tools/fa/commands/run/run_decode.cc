// fa run decode: reads the inputs from files and writes the outputs to files.

#include <fmt/format.h>

#include <memory>
#include <string>

#include "commands.h"
#include "commands/progress.h"
#include "files/decode_inputs.h"
#include "files/output_tensors.h"
#include "flags/context_flags.h"
#include "flags/failure.h"
#include "flags/flag_names.h"

namespace fa::tool {
namespace {

struct DecodeRunFlags {
  DecodeFlags decode;
  ContextFlags context;
  std::string out, lse;
};

void Run(const DecodeRunFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const DecodeInputs inputs(flags.decode);
  DecodeAttentionArgs args = inputs.args;
  OutputTensors outputs;
  TensorSizes out = inputs.query;
  out.d = inputs.dv;
  outputs.Add("--out", flags.out, args.out, inputs.out_dtype(), ShapeOf(OutputLayout(inputs.options.layout), out));
  outputs.AddIfNamed("--lse", flags.lse, args.lse, DType::kF32, StatsShape(inputs.options.layout, inputs.query));
  auto plan = PlanDecodeAttention(args, inputs.options, context.get());
  ThrowUnlessOk(plan.status(), InferenceFlagNames());
  outputs.Allocate();
  {
    const Progress progress(
        fmt::format("fa run decode: {:.3g} GFLOP on {} threads", plan->info().flops * 1e-9, context->threads()));
    ThrowUnlessOk(plan->Run(args), InferenceFlagNames());
  }
  outputs.Commit();
}

}  // namespace

void AddRunDecode(CLI::App& run) {
  CLI::App* command = run.add_subcommand("decode", "Few queries against long keys, which may lie in pages or be int8");
  const auto flags = std::make_shared<DecodeRunFlags>();
  AddDecodeFlags(*command, flags->decode);
  command->add_option("--out", flags->out, "Output, in the layout's own shape")->type_name("NPY")->required();
  command->add_option("--lse", flags->lse, "max + ln(sum), float32 [B,N,Sq], TND [T,N]")->type_name("NPY");
  AddContextFlags(*command, flags->context);
  command->callback([flags] { Run(*flags); });
}

}  // namespace fa::tool
