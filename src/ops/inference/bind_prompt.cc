// Binds prompt attention. Beyond the checks of a forward, checks heads_kv and that the given scales suit the types. An
// offset of the output is refused if it would change the 0 of rows without keys.
#include "ops/inference/bind_prompt.h"

#include <string>
#include <utility>

#include "ops/bind/argument_error.h"
#include "ops/bind/bind_parts.h"
#include "ops/bind/planned_tensors.h"
#include "ops/inference/product_scales.h"

namespace fa::ops {
namespace {

bool IsFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

Status CheckTypes(const PromptAttentionArgs& args) {
  const DType q = args.q.dtype;
  if (!IsFloat(q) && q != DType::kI8) return WrongType("q", q, "f32, f16, bf16 or i8");
  const ErrorText like_query = TypeOf("q", q);
  if (args.k.dtype != q) return WrongType("k", args.k.dtype, like_query);
  if (args.v.dtype != q) return WrongType("v", args.v.dtype, like_query);
  return CheckOutputType(q, args.out.dtype);
}

Status CheckQuantizedRows(const PromptAttentionArgs& args, const Mask& mask, const BoundAttention& bound) {
  const auto refuse = [](const char* name, int64_t got) {
    return Status::InvalidArgument(Arg(name).Is(std::to_string(got)) + ", want >= 0 (" + Arg("out", ".dtype") +
                                   "=i8, " + Arg("sparse_mode") + " 4)");
  };
  if (mask.sparse_mode() == 4 && mask.pre() < 0) return refuse("mask.pre", mask.pre());
  if (mask.sparse_mode() == 4 && mask.next() < 0) return refuse("mask.next", mask.next());
  return CheckOffsetRows(args.quant_offset2, mask, bound.problem);
}

Status CheckHeadsKv(const PromptAttentionOptions& options, int64_t heads_kv) {
  if (options.heads_kv == 0 || options.heads_kv == heads_kv) return Status::Ok();
  return Status::InvalidArgument(Arg("heads_kv").Is(std::to_string(options.heads_kv)) + ", want " +
                                 std::to_string(heads_kv) + " (" + Arg("k") + ")");
}

Status CheckRopeTypes(const PromptAttentionArgs& args) {
  const DType q = args.q.dtype;
  for (const auto& [name, rope] : {std::pair{"q_rope", &args.q_rope}, std::pair{"k_rope", &args.k_rope}}) {
    if (rope->data != nullptr && rope->dtype != q) return WrongType(name, rope->dtype, TypeOf("q", q));
  }
  return Status::Ok();
}

/// Returns the options of the equivalent forward.
AttentionOptions ForwardOptions(const PromptAttentionOptions& options) {
  AttentionOptions forward;
  forward.layout = options.layout;
  forward.heads = options.heads;
  forward.scale = options.scale;
  forward.mask = options.mask;
  forward.pse_type = options.pse_type;
  CopyNumbers(options, forward);
  return forward;
}

Status CheckInt8Products(const PromptAttentionArgs& args, const PromptAttentionOptions& options) {
  if (args.q.dtype != DType::kI8) return CheckRopeTypes(args);
  const std::pair<const char*, bool> given[] = {{"q_rope", args.q_rope.data != nullptr},
                                                {"k_rope", args.k_rope.data != nullptr},
                                                {"sink", args.sink.data != nullptr},
                                                {"softmax_max", args.softmax_max.data != nullptr},
                                                {"softmax_sum", args.softmax_sum.data != nullptr},
                                                {"lse", args.lse.data != nullptr}};
  return CheckFloatsOnly(given, ForwardOptions(options));
}

/// Returns the tensors of the equivalent forward.
DenseTensors ForwardTensors(const PromptAttentionArgs& args) {
  return {.q = args.q,
          .k = args.k,
          .v = args.v,
          .q_rope = args.q_rope,
          .k_rope = args.k_rope,
          .pse = args.pse,
          .dense_mask = args.dense_mask,
          .sink = args.sink,
          .pair_mask = args.pair_mask,
          .cu_q = args.cu_q,
          .cu_kv = args.cu_kv,
          .out = args.out,
          .softmax_max = args.softmax_max,
          .softmax_sum = args.softmax_sum,
          .lse = args.lse};
}

}  // namespace

ForwardRows RowsOf(const BoundAttention& bound, const PromptAttentionArgs& args) {
  return RowsOf(bound,
                ForwardAddresses{
                    .q = args.q.data,
                    .k = args.k.data,
                    .v = args.v.data,
                    .q_rope = args.q_rope.data,
                    .k_rope = args.k_rope.data,
                    .sink = args.sink.data,
                    .scores = {.pse = args.pse.data, .dense_mask = args.dense_mask.data, .pair_mask = args.pair_mask},
                    .out = args.out.data,
                    .softmax_max = args.softmax_max.data,
                    .softmax_sum = args.softmax_sum.data,
                    .lse = args.lse.data});
}

Result<BoundPrompt> BindPrompt(const PromptAttentionArgs& args, const PromptAttentionOptions& options) {
  FA_RETURN_IF_ERROR(CheckTypes(args));
  FA_RETURN_IF_ERROR(CheckProductScales(args.q.dtype, ProductScalesOf(args)));
  FA_RETURN_IF_ERROR(CheckInt8Products(args, options));
  Result<BoundAttention> attention = BindInference(ForwardTensors(args), ForwardOptions(options),
                                                   {.lengths = {args.lengths_q, args.lengths_kv}, .own_types = true});
  if (!attention.ok()) return attention.status();
  BoundPrompt bound{.attention = std::move(*attention)};
  tiling::AttentionProblem& problem = bound.attention.problem;
  FA_RETURN_IF_ERROR(CheckHeadsKv(options, problem.heads_kv));
  auto scales = BindOutputScales({args.q.dtype, args.out.dtype, args.quant_scale2, args.quant_offset2},
                                 problem.heads * problem.dv);
  if (!scales.ok()) return scales.status();
  bound.scales = *scales;
  if (bound.scales.quantized) {
    FA_RETURN_IF_ERROR(CheckQuantizedRows(args, options.mask, bound.attention));
  }
  problem.whole_rows = problem.dtype == DType::kI8;
  bound.attention.planned = KeepPlanned(TensorsOf(args));
  return bound;
}

Status CheckPromptRunArgs(const BoundAttention& bound, const PromptAttentionArgs& args) {
  FA_RETURN_IF_ERROR(CheckRunLengths(bound, {args.lengths_q, args.lengths_kv}));
  return CheckRunTensors(bound, TensorsOf(args), args.cu_q, args.cu_kv, args.dense_mask, args.pair_mask);
}

}  // namespace fa::ops
