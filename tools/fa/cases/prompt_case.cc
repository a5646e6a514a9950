#include "cases/prompt_case.h"

namespace fa::tool {
namespace {

// A random byte has a standard deviation of 74. A sum of D products of two bytes then has a standard deviation of 74^2
// sqrt(D), and a score with the default scale of 1/sqrt(D) has 74^2.
constexpr float kDeq1 = 1.0F / (74 * 74), kQuant1 = 127, kDeq2 = 1.0F / (127 * 74);

TensorView Scale(const float* value) { return {value, DType::kF32, {1}, {}}; }

}  // namespace

PromptAttentionArgs PromptArgsOf(const ForwardCase& forward) {
  PromptAttentionArgs args;
  args.q = forward.args.q;
  args.k = forward.args.k;
  args.v = forward.args.v;
  args.dense_mask = forward.args.dense_mask;
  args.pair_mask = forward.args.pair_mask;
  args.cu_q = forward.args.cu_q;
  args.cu_kv = forward.args.cu_kv;
  args.out = forward.args.out;
  if (forward.dtype == DType::kI8) {
    args.deq_scale1 = Scale(&kDeq1);
    args.quant_scale1 = Scale(&kQuant1);
    args.deq_scale2 = Scale(&kDeq2);
    args.out.dtype = DType::kF16;
  }
  return args;
}

PromptAttentionOptions PromptOptionsOf(const ForwardCase& forward) {
  PromptAttentionOptions options;
  options.layout = forward.options.layout;
  options.heads = forward.options.heads;
  options.mask = forward.options.mask;
  return options;
}

}  // namespace fa::tool
