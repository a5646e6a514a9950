#include "commands/run/backward_files.h"

#include "cases/grad_args.h"
#include "flags/layout_shapes.h"

namespace fa::tool {

void AddBackwardFlags(CLI::App& command, BackwardFlags& flags) {
  AddAttentionFlags(command, flags.attention);
  const auto file = [&command](const char* flag, std::string& path, const char* text) {
    return command.add_option(flag, path, text)->type_name("NPY");
  };
  file("--dout", flags.dout, "Input: gradient of the output")->required();
  file("--out", flags.out, "Input: the forward's output")->required();
  file("--softmax-max", flags.softmax_max, "Input: the forward's, float32 [B,N,Sq] or [B,N,Sq,8], TND [T,N(,8)]")
      ->required();
  file("--softmax-sum", flags.softmax_sum, "Input: likewise")->required();
  file("--dq", flags.dq, "Gradient of --query, its shape and type")->required();
  file("--dk", flags.dk, "Gradient of --key")->required();
  file("--dv", flags.dv, "Gradient of --value")->required();
  file("--dq-rope", flags.dq_rope, "Gradient of --query-rope");
  file("--dk-rope", flags.dk_rope, "Gradient of --key-rope");
  file("--dpse", flags.dpse, "Gradient of --pse, types 0 and 1; broadcast dimensions summed");
  file("--dslopes", flags.dslopes, "Gradient of --pse, types 2 and 3, float32");
  file("--dsink", flags.dsink, "Gradient of --sink, with its shape");
  AddContextFlags(command, flags.context);
}

AttentionGradArgs LoadGradInputs(const BackwardFlags& flags, AttentionInputs& inputs) {
  AttentionGradArgs args = GradArgsOf(inputs.args);
  args.d_out = inputs.LoadFloats("--dout", flags.dout);
  args.out = inputs.LoadFloats("--out", flags.out);
  args.softmax_max = inputs.Load("--softmax-max", flags.softmax_max);
  args.softmax_sum = inputs.Load("--softmax-sum", flags.softmax_sum);
  return args;
}

// A gradient has the shape of its input tensor. If that tensor was not given, planning refuses the gradient.
std::vector<OutputSpec> BackwardOutputs(const BackwardFlags& flags, Layout layout, AttentionGradArgs& args) {
  const int axis = SequenceAxis(layout);
  const RowAxis queries{.axis = axis}, keys{.axis = axis, .queries = false}, whole;
  const auto like = [](const char* flag, const std::string& path, MutableTensorView& view, const TensorView& of,
                       DType dtype, RowAxis rows) {
    return OutputSpec{flag, path, &view, dtype, {of.shape.begin(), of.shape.end()}, rows};
  };
  return Named({like("--dq", flags.dq, args.dq, args.q, args.q.dtype, queries),
                like("--dk", flags.dk, args.dk, args.k, args.k.dtype, keys),
                like("--dv", flags.dv, args.dv, args.v, args.v.dtype, keys),
                like("--dq-rope", flags.dq_rope, args.dq_rope, args.q_rope, args.q_rope.dtype, queries),
                like("--dk-rope", flags.dk_rope, args.dk_rope, args.k_rope, args.k_rope.dtype, keys),
                like("--dpse", flags.dpse, args.dpse, args.pse, args.pse.dtype, whole),
                like("--dslopes", flags.dslopes, args.dslopes, args.pse, DType::kF32, whole),
                like("--dsink", flags.dsink, args.dsink, args.sink, DType::kF32, whole)});
}

}  // namespace fa::tool
