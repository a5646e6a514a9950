// fa run backward: reads the forward's files, its results and the gradient of its output, and writes gradients.

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cases/grad_args.h"
#include "commands.h"
#include "commands/progress.h"
#include "fa/flash_attention_grad.h"
#include "files/attention_inputs.h"
#include "files/output_tensors.h"
#include "flags/context_flags.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

struct Flags {
  AttentionFlags attention;
  ContextFlags context;
  std::string dout, out, softmax_max, softmax_sum;
  std::string dq, dk, dv, dq_rope, dk_rope, dpse, dslopes, dsink;
};

std::vector<int64_t> ShapeLike(const TensorView& view) { return {view.shape.begin(), view.shape.end()}; }

AttentionGradArgs LoadInputs(const Flags& flags, AttentionInputs& inputs) {
  AttentionGradArgs args = GradArgsOf(inputs.args);
  args.d_out = inputs.LoadFloats("--dout", flags.dout);
  args.out = inputs.LoadFloats("--out", flags.out);
  args.softmax_max = inputs.Load("--softmax-max", flags.softmax_max);
  args.softmax_sum = inputs.Load("--softmax-sum", flags.softmax_sum);
  return args;
}

/// A gradient has the shape of the tensor that it belongs to; planning says whether that tensor was given.
void AddOutputs(const Flags& flags, AttentionGradArgs& args, OutputTensors& outputs) {
  outputs.Add("--dq", flags.dq, args.dq, args.q.dtype, ShapeLike(args.q));
  outputs.Add("--dk", flags.dk, args.dk, args.k.dtype, ShapeLike(args.k));
  outputs.Add("--dv", flags.dv, args.dv, args.v.dtype, ShapeLike(args.v));
  outputs.AddIfNamed("--dq-rope", flags.dq_rope, args.dq_rope, args.q_rope.dtype, ShapeLike(args.q_rope));
  outputs.AddIfNamed("--dk-rope", flags.dk_rope, args.dk_rope, args.k_rope.dtype, ShapeLike(args.k_rope));
  outputs.AddIfNamed("--dpse", flags.dpse, args.dpse, args.pse.dtype, ShapeLike(args.pse));
  outputs.AddIfNamed("--dslopes", flags.dslopes, args.dslopes, DType::kF32, ShapeLike(args.pse));
  outputs.AddIfNamed("--dsink", flags.dsink, args.dsink, DType::kF32, ShapeLike(args.sink));
}

void Run(const Flags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  AttentionInputs inputs(flags.attention);
  AttentionGradArgs args = LoadInputs(flags, inputs);
  OutputTensors outputs;
  AddOutputs(flags, args, outputs);
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
  const auto flags = std::make_shared<Flags>();
  AddAttentionFlags(*command, flags->attention);
  const auto file = [command](const char* flag, std::string& path, const char* text) {
    return command->add_option(flag, path, text)->type_name("NPY");
  };
  file("--dout", flags->dout, "Input: gradient of the output")->required();
  file("--out", flags->out, "Input: the forward's output")->required();
  file("--softmax-max", flags->softmax_max, "Input: the forward's, float32 [B,N,Sq] or [B,N,Sq,8], TND [T,N(,8)]")
      ->required();
  file("--softmax-sum", flags->softmax_sum, "Input: likewise")->required();
  file("--dq", flags->dq, "Gradient of --query, its shape and type")->required();
  file("--dk", flags->dk, "Gradient of --key")->required();
  file("--dv", flags->dv, "Gradient of --value")->required();
  file("--dq-rope", flags->dq_rope, "Gradient of --query-rope");
  file("--dk-rope", flags->dk_rope, "Gradient of --key-rope");
  file("--dpse", flags->dpse, "Gradient of --pse, types 0 and 1; broadcast dimensions summed");
  file("--dslopes", flags->dslopes, "Gradient of --pse, types 2 and 3, float32");
  file("--dsink", flags->dsink, "Gradient of --sink, float32 [N]");
  AddContextFlags(*command, flags->context);
  command->callback([flags] { Run(*flags); });
}

}  // namespace fa::tool
