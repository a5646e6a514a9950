// fa run forward: reads the inputs from files and writes the outputs to files.

#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "commands/progress.h"
#include "commands/run/forward_files.h"
#include "fa/flash_attention.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

void Run(const ForwardFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const AttentionInputs inputs(flags.attention);
  AttentionArgs args = inputs.args;
  OutputTensors outputs;
  outputs.Add(ForwardOutputs(flags, inputs, args));
  auto plan = PlanFlashAttention(args, inputs.options, context.get());
  ThrowUnlessOk(plan.status());
  outputs.Allocate();
  {
    const Progress progress(
        fmt::format("fa run forward: {:.3g} GFLOP on {} threads", plan->info().flops * 1e-9, context->threads()));
    ThrowUnlessOk(plan->Run(args));
  }
  outputs.Commit();
}

}  // namespace

void AddRunForward(CLI::App& run) {
  CLI::App* command = run.add_subcommand("forward", "out = dropout(softmax(mask(score))) V");
  const auto flags = std::make_shared<ForwardFlags>();
  AddForwardFlags(*command, *flags);
  command->callback([flags] { Run(*flags); });
}

}  // namespace fa::tool
