// fa run prompt: reads files, and writes the output and the statistics that the flags ask for.

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "commands/progress.h"
#include "fa/prompt_flash_attention.h"
#include "files/attention_inputs.h"
#include "files/output_tensors.h"
#include "flags/context_flags.h"
#include "flags/failure.h"
#include "flags/flag_names.h"
#include "flags/flag_values.h"

namespace fa::tool {
namespace {

struct PromptFlags {
  AttentionFlags attention;  ///< flags of dense attention that prompt attention also has
  ContextFlags context;
  std::string lengths, lengths_kv;
  std::string deq_scale1, quant_scale1, deq_scale2, quant_scale2, quant_offset2;
  std::string out, out_dtype;
  std::string softmax_max, softmax_sum, lse;
};

DType OutType(const std::string& text, DType query) {
  if (text.empty()) return query == DType::kI8 ? DType::kF16 : query;
  if (text == "int8" || text == Name(DType::kI8)) return DType::kI8;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (text == Name(dtype)) return dtype;
  }
  throw UsageError(fmt::format("--out-dtype: '{}', want f32, f16, bf16 or int8", text));
}

/// Returns the flags of dense attention. In TND these flags also give the lengths, as for the forward.
AttentionFlags AttentionFlagsOf(const PromptFlags& flags) {
  AttentionFlags forward = flags.attention;
  forward.takes_int8 = true;
  if (forward.layout != Name(Layout::kTND)) return forward;
  if (flags.lengths.empty()) throw UsageError("--actual-seq-lengths: missing, layout TND needs it");
  if (flags.lengths_kv.empty()) throw UsageError("--actual-seq-lengths-kv: missing, layout TND needs it");
  forward.actual_seq_qlen = flags.lengths;
  forward.actual_seq_kvlen = flags.lengths_kv;
  return forward;
}

/// The arguments and options of the call. `lengths` owns the lists of lengths to which the arguments and options point.
struct PromptCall {
  explicit PromptCall(const PromptFlags& flags) : inputs(AttentionFlagsOf(flags)) {
    args.q = inputs.args.q;
    args.k = inputs.args.k;
    args.v = inputs.args.v;
    args.q_rope = inputs.args.q_rope;
    args.k_rope = inputs.args.k_rope;
    args.pse = inputs.args.pse;
    args.dense_mask = inputs.args.dense_mask;
    args.pair_mask = inputs.args.pair_mask;
    args.sink = inputs.args.sink;
    args.deq_scale1 = inputs.Load("--deq-scale1", flags.deq_scale1);
    args.quant_scale1 = inputs.Load("--quant-scale1", flags.quant_scale1);
    args.deq_scale2 = inputs.Load("--deq-scale2", flags.deq_scale2);
    args.quant_scale2 = inputs.Load("--quant-scale2", flags.quant_scale2);
    args.quant_offset2 = inputs.Load("--quant-offset2", flags.quant_offset2);
    args.cu_q = inputs.args.cu_q;
    args.cu_kv = inputs.args.cu_kv;
    options.layout = inputs.options.layout;
    options.heads = inputs.options.heads;
    options.scale = inputs.options.scale;
    options.mask = inputs.options.mask;
    options.pse_type = inputs.options.pse_type;
    CopyNumbers(inputs.options, options);
    if (options.layout == Layout::kTND) return;
    if (!flags.lengths.empty()) lengths_q = ParseIntegers("--actual-seq-lengths", flags.lengths);
    if (!flags.lengths_kv.empty()) lengths_kv = ParseIntegers("--actual-seq-lengths-kv", flags.lengths_kv);
    args.lengths_q = lengths_q;
    args.lengths_kv = lengths_kv;
  }

  AttentionInputs inputs;
  std::vector<int64_t> lengths_q, lengths_kv;
  PromptAttentionArgs args;
  PromptAttentionOptions options;
};

void Run(const PromptFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  PromptCall call(flags);
  OutputTensors outputs;
  TensorSizes out = call.inputs.query;
  out.d = call.inputs.value.d;
  outputs.Add("--out", flags.out, call.args.out, OutType(flags.out_dtype, call.args.q.dtype),
              ShapeOf(OutputLayout(call.options.layout), out));
  const std::vector<int64_t> statistics = StatsShape(call.options.layout, call.inputs.query);
  outputs.AddIfNamed("--softmax-max", flags.softmax_max, call.args.softmax_max, DType::kF32, statistics);
  outputs.AddIfNamed("--softmax-sum", flags.softmax_sum, call.args.softmax_sum, DType::kF32, statistics);
  outputs.AddIfNamed("--lse", flags.lse, call.args.lse, DType::kF32, statistics);
  auto plan = PlanPromptFlashAttention(call.args, call.options, context.get());
  ThrowUnlessOk(plan.status(), InferenceFlagNames());
  outputs.Allocate();
  {
    const Progress progress(
        fmt::format("fa run prompt: {:.3g} GFLOP on {} threads", plan->info().flops * 1e-9, context->threads()));
    ThrowUnlessOk(plan->Run(call.args), InferenceFlagNames());
  }
  outputs.Commit();
}

void AddPromptFlags(CLI::App& command, PromptFlags& flags) {
  const auto file = [&command](const char* flag, std::string& path, const char* text) {
    return command.add_option(flag, path, text)->type_name("NPY");
  };
  AttentionFlags& attention = flags.attention;
  AddOperandFlags(command, attention);
  attention.pse_type = static_cast<int64_t>(PseType::kScaleThenAdd);
  AddScoreFlags(command, attention, "0 (default): scale QK + pse [B|1,N,>=Sq,>=Sk]; 1: scale (QK + pse); 2, 3: slopes");
  AddNumberFlags(command, attention.numbers, PromptAttentionOptions());
  command
      .add_option("--actual-seq-lengths", flags.lengths,
                  "Query rows in use of each batch element, or of all; TND: "
                  "inclusive prefix sums")
      ->type_name("N,N,...");
  command.add_option("--actual-seq-lengths-kv", flags.lengths_kv, "Key rows in use, in the same form")
      ->type_name("N,N,...");
  file("--deq-scale1", flags.deq_scale1, "int8 inputs: scale of Q K^T, one float32 or uint64");
  file("--quant-scale1", flags.quant_scale1, "int8 inputs: scale of the probabilities, one float32");
  file("--deq-scale2", flags.deq_scale2, "int8 inputs: scale of P V, one float32 or uint64");
  file("--quant-scale2", flags.quant_scale2, "int8 output: one scale, or one per head and column");
  file("--quant-offset2", flags.quant_offset2, "int8 output: added after the scale, in the same shape");
  file("--out", flags.out, "Output, in the layout's own shape")->required();
  file("--softmax-max", flags.softmax_max, "Row maximum, float32 [B,N,Sq], TND [T,N]; not of int8 inputs");
  file("--softmax-sum", flags.softmax_sum, "Row sum of exp(score - max), likewise");
  file("--lse", flags.lse, "max + ln(sum), likewise");
  command.add_option("--out-dtype", flags.out_dtype, "Default: the query's type, f16 for int8")
      ->type_name("f32|f16|bf16|int8");
}

}  // namespace

void AddRunPrompt(CLI::App& run) {
  CLI::App* command = run.add_subcommand("prompt", "out = softmax(mask(score)) V for inference: lengths, int8");
  const auto flags = std::make_shared<PromptFlags>();
  AddPromptFlags(*command, *flags);
  AddContextFlags(*command, flags->context);
  command->callback([flags] { Run(*flags); });
}

}  // namespace fa::tool
