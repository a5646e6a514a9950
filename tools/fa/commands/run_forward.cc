// fa run forward: reads files and writes files.

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "commands/progress.h"
#include "fa/flash_attention.h"
#include "files/attention_inputs.h"
#include "files/output_tensors.h"
#include "flags/context_flags.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

struct Flags {
  AttentionFlags attention;
  ContextFlags context;
  std::string out, softmax_max, softmax_sum, lse;
};

void AddOutputs(const Flags& flags, const AttentionInputs& inputs, AttentionArgs& args, OutputTensors& outputs) {
  const Layout layout = inputs.options.layout;
  TensorSizes out = inputs.query;
  out.d = inputs.value.d;
  outputs.Add("--out", flags.out, args.out, args.q.dtype, ShapeOf(OutputLayout(layout), out));
  const std::vector<int64_t> stats = StatsShape(layout, inputs.query);
  outputs.AddIfNamed("--softmax-max", flags.softmax_max, args.softmax_max, DType::kF32, stats);
  outputs.AddIfNamed("--softmax-sum", flags.softmax_sum, args.softmax_sum, DType::kF32, stats);
  outputs.AddIfNamed("--lse", flags.lse, args.lse, DType::kF32, stats);
}

void Run(const Flags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const AttentionInputs inputs(flags.attention);
  AttentionArgs args = inputs.args;
  OutputTensors outputs;
  AddOutputs(flags, inputs, args, outputs);
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
  const auto flags = std::make_shared<Flags>();
  AddAttentionFlags(*command, flags->attention);
  command->add_option("--out", flags->out, "Output, in the layout's own shape")->type_name("NPY")->required();
  command->add_option("--softmax-max", flags->softmax_max, "Row maximum, float32 [B,N,Sq], TND [T,N]")
      ->type_name("NPY");
  command->add_option("--softmax-sum", flags->softmax_sum, "Row sum of exp(score - max), likewise")->type_name("NPY");
  command->add_option("--lse", flags->lse, "max + ln(sum), likewise")->type_name("NPY");
  AddContextFlags(*command, flags->context);
  command->callback([flags] { Run(*flags); });
}

}  // namespace fa::tool
