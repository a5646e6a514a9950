#include "commands/run/forward_files.h"

namespace fa::tool {

void AddForwardFlags(CLI::App& command, ForwardFlags& flags) {
  AddAttentionFlags(command, flags.attention);
  command.add_option("--out", flags.out, "Output, in the layout's own shape")->type_name("NPY")->required();
  command.add_option("--softmax-max", flags.softmax_max, "Row maximum, float32 [B,N,Sq], TND [T,N]")->type_name("NPY");
  command.add_option("--softmax-sum", flags.softmax_sum, "Row sum of exp(score - max), likewise")->type_name("NPY");
  command.add_option("--lse", flags.lse, "max + ln(sum), likewise")->type_name("NPY");
  AddContextFlags(command, flags.context);
}

std::vector<OutputSpec> ForwardOutputs(const ForwardFlags& flags, const AttentionInputs& inputs, AttentionArgs& args) {
  const Layout layout = inputs.options.layout, out_layout = OutputLayout(layout);
  TensorSizes out = inputs.query;
  out.d = inputs.value.d;
  const std::vector<int64_t> stats = StatsShape(layout, inputs.query);
  const RowAxis of_stats{.axis = StatsSequenceAxis(layout)};
  return Named({{"--out", flags.out, &args.out, args.q.dtype, ShapeOf(out_layout, out), {SequenceAxis(out_layout)}},
                {"--softmax-max", flags.softmax_max, &args.softmax_max, DType::kF32, stats, of_stats},
                {"--softmax-sum", flags.softmax_sum, &args.softmax_sum, DType::kF32, stats, of_stats},
                {"--lse", flags.lse, &args.lse, DType::kF32, stats, of_stats}});
}

}  // namespace fa::tool
