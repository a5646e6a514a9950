// fa run forward: files in, files out.

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "attention_inputs.h"
#include "commands.h"
#include "context_flags.h"
#include "fa/flash_attention.h"
#include "failure.h"
#include "output_files.h"
#include "progress.h"

namespace fa::tool {
namespace {

struct Flags {
  AttentionFlags attention;
  ContextFlags context;
  std::string out, softmax_max, softmax_sum, lse;
};

/// One output: its descriptor in the call first, its memory once the call is known to be valid.
struct Output {
  const char* flag;
  const std::string& path;
  MutableTensorView& view;
  DType dtype;
  std::vector<int64_t> shape;
  Tensor tensor = {};
  size_t file = 0;
};

void Describe(std::vector<Output>& outputs, OutputFiles& files) {
  static char present;  // planning asks only whether an output is there
  for (Output& output : outputs) {
    output.file = files.Add(output.flag, output.path);
    output.view = {&present, output.dtype, Dims(std::span(std::as_const(output.shape))), {}};
  }
}

void Allocate(std::vector<Output>& outputs, OutputFiles& files) {
  for (Output& output : outputs) {
    output.tensor = NewTensor(output.dtype, output.shape);
    output.view.data = output.tensor.array.bytes();
    files.Set(output.file, output.tensor.array);
  }
}

std::vector<Output> Outputs(const Flags& flags, const AttentionInputs& inputs, AttentionArgs& args) {
  const Layout layout = inputs.options.layout;
  TensorSizes out = inputs.query;
  out.d = inputs.value.d;
  std::vector<Output> outputs;
  outputs.push_back({"--out", flags.out, args.out, args.q.dtype, ShapeOf(OutputLayout(layout), out)});
  const auto add = [&](const char* flag, const std::string& path, MutableTensorView& view) {
    if (!path.empty()) outputs.push_back({flag, path, view, DType::kF32, StatsShape(layout, inputs.query)});
  };
  add("--softmax-max", flags.softmax_max, args.softmax_max);
  add("--softmax-sum", flags.softmax_sum, args.softmax_sum);
  add("--lse", flags.lse, args.lse);
  return outputs;
}

void Run(const Flags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const AttentionInputs inputs(flags.attention);
  AttentionArgs args = inputs.args;
  OutputFiles files;
  std::vector<Output> outputs = Outputs(flags, inputs, args);
  Describe(outputs, files);
  Result<Plan> plan = PlanFlashAttention(args, inputs.options, context.get());
  ThrowUnlessOk(plan.status());
  Allocate(outputs, files);
  {
    const Progress progress(fmt::format("fa run forward: {:.3g} GFLOP on {} threads", plan->info().flops * 1e-9,
                                        context->threads()));
    ThrowUnlessOk(plan->Run(args));
  }
  files.Commit();
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
