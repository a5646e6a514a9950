// fa run backward: reads the inputs and results of a forward and the gradient of its output, and writes gradients.

#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "commands/progress.h"
#include "commands/run/backward_files.h"
#include "fa/flash_attention_grad.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

void Run(const BackwardFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  AttentionInputs inputs(flags.attention);
  AttentionGradArgs args = LoadGradInputs(flags, inputs);
  OutputTensors outputs;
  outputs.Add(BackwardOutputs(flags, inputs.options.layout, args));
  auto plan = PlanFlashAttentionGrad(args, inputs.options, context.get());
  ThrowUnlessOk(plan.status());
  outputs.Allocate();
  {
    const Progress progress(
        fmt::format("fa run backward: {:.3g} GFLOP on {} threads", plan->info().flops * 1e-9, context->threads()));
    ThrowUnlessOk(plan->Run(args));
  }
  outputs.Commit();
}

}  // namespace

void AddRunBackward(CLI::App& run) {
  CLI::App* command = run.add_subcommand("backward", "Gradients of the forward; its flags say what the call was");
  const auto flags = std::make_shared<BackwardFlags>();
  AddBackwardFlags(*command, *flags);
  command->callback([flags] { Run(*flags); });
}

}  // namespace fa::tool
