// fa run decode and fa run infer: read the inputs from files and write the outputs to files.

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

template <typename InputFlags>
struct DecodeRunFlags {
  InputFlags inputs;
  ContextFlags context;
  std::string out, lse;
};

/// Runs the operator `op`. An object of `Inputs` reads the operator's inputs.
template <typename Inputs, typename InputFlags, typename MakePlan>
void RunDecode(const char* op, const DecodeRunFlags<InputFlags>& flags, MakePlan make_plan) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const Inputs inputs(flags.inputs);
  auto args = inputs.args;
  OutputTensors outputs;
  TensorSizes out = inputs.query;
  out.d = inputs.dv;
  outputs.Add("--out", flags.out, args.out, inputs.out_dtype(), OutputShapeOf(inputs.options.layout, out));
  outputs.AddIfNamed("--lse", flags.lse, args.lse, DType::kF32, StatsShape(inputs.options.layout, inputs.query));
  auto plan = make_plan(args, inputs.options, context.get());
  ThrowUnlessOk(plan.status(), InferenceFlagNames());
  outputs.Allocate();
  {
    const Progress progress(
        fmt::format("fa run {}: {:.3g} GFLOP on {} threads", op, plan->info().flops * 1e-9, context->threads()));
    ThrowUnlessOk(plan->Run(args), InferenceFlagNames());
  }
  outputs.Commit();
}

template <typename Inputs, typename InputFlags, typename MakePlan>
void AddDecodeRun(CLI::App& run, const char* op, const char* text, void (*add_flags)(CLI::App&, InputFlags&),
                  MakePlan make_plan) {
  CLI::App* command = run.add_subcommand(op, text);
  const auto flags = std::make_shared<DecodeRunFlags<InputFlags>>();
  add_flags(*command, flags->inputs);
  command->add_option("--out", flags->out, "Output, in the shape of the layout's last part")
      ->type_name("NPY")
      ->required();
  command->add_option("--lse", flags->lse, "max + ln(sum), float32 [B,N,Sq], packed [T,N]")->type_name("NPY");
  AddContextFlags(*command, flags->context);
  command->callback([=] { RunDecode<Inputs>(op, *flags, make_plan); });
}

}  // namespace

void AddRunDecode(CLI::App& run) {
  AddDecodeRun<DecodeInputs>(run, "decode", "Few queries against long keys, which may lie in pages or be int8",
                             AddDecodeFlags, PlanDecodeAttention);
}

void AddRunInfer(CLI::App& run) {
  AddDecodeRun<InferInputs>(run, "infer", "Prompts, chunks and decode steps in every layout and cache of the device",
                            AddInferFlags, PlanInferAttention);
}

}  // namespace fa::tool
