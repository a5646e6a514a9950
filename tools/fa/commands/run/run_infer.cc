// fa run infer: reads the inputs from files and writes the outputs to files.

#include <fmt/format.h>

#include <memory>
#include <string>

#include "commands.h"
#include "commands/progress.h"
#include "files/infer_inputs.h"
#include "files/output_tensors.h"
#include "flags/context_flags.h"
#include "flags/failure.h"
#include "flags/flag_names.h"

namespace fa::tool {
namespace {

struct InferRunFlags {
  InferFlags infer;
  ContextFlags context;
  std::string out, lse;
};

void Run(const InferRunFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const InferInputs inputs(flags.infer);
  InferAttentionArgs args = inputs.args;
  OutputTensors outputs;
  TensorSizes out = inputs.query;
  out.d = inputs.dv;
  outputs.Add("--out", flags.out, args.out, inputs.out_dtype(), OutputShapeOf(inputs.options.layout, out));
  outputs.AddIfNamed("--lse", flags.lse, args.lse, DType::kF32, StatsShape(inputs.options.layout, inputs.query));
  auto plan = PlanInferAttention(args, inputs.options, context.get());
  ThrowUnlessOk(plan.status(), InferenceFlagNames());
  outputs.Allocate();
  {
    const Progress progress(
        fmt::format("fa run infer: {:.3g} GFLOP on {} threads", plan->info().flops * 1e-9, context->threads()));
    ThrowUnlessOk(plan->Run(args), InferenceFlagNames());
  }
  outputs.Commit();
}

}  // namespace

void AddRunInfer(CLI::App& run) {
  CLI::App* command =
      run.add_subcommand("infer", "Prompts, chunks and decode steps in every layout and cache of the device");
  const auto flags = std::make_shared<InferRunFlags>();
  AddInferFlags(*command, flags->infer);
  command->add_option("--out", flags->out, "Output, in the shape of the layout's last part")
      ->type_name("NPY")
      ->required();
  command->add_option("--lse", flags->lse, "max + ln(sum), float32 [B,N,Sq], packed [T,N]")->type_name("NPY");
  AddContextFlags(*command, flags->context);
  command->callback([flags] { Run(*flags); });
}

}  // namespace fa::tool
