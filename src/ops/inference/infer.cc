// The operator InferAttention. A call is bound as a decode, planned and run. The tile program is the forward's, or the
// tile program of int8 operands.

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/context/context_impl.h"
#include "core/run/guarded_call.h"
#include "fa/infer_attention.h"
#include "ops/dense/forward_program.h"
#include "ops/dense/mask_tiles.h"
#include "ops/inference/bind_infer.h"
#include "ops/inference/int8_program.h"
#include "ops/inference/output_scales.h"
#include "ops/inference/product_scales.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "tiling/plan_limits.h"
#include "tiling/workspace_plan.h"

namespace fa {
namespace {

/// `Program` is ForwardProgram or, for i8 queries without scales per row, Int8Program.
template <typename Program>
class InferPlanImpl final : public Plan::ImplFor<InferAttentionArgs> {
 public:
  InferPlanImpl(Context& context, ops::BoundInfer bound)
      : ImplFor(context),
        bound_(std::move(bound)),
        program_("infer", context, bound_.decode.attention),
        mask_tiles_(program_.bound(), core::ImplOf(context).workers()) {
    const ops::BoundOutputScales& scales = bound_.decode.scales;
    if (scales.strided) scales_at_ = program_.Book("output scales", ops::OutputScaleBytes(scales));
    if (bound_.widens_sink) {
      const auto heads = static_cast<size_t>(program_.bound().problem.heads);
      sink_at_ = program_.Book("sinks", heads * sizeof(float));
    }
    if (bound_.tree.bytes > 0) tree_at_ = program_.Book("dense masks of trees", bound_.tree.bytes);
    mask_tiles_.Book(program_);
  }

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return program_.workspace(); }
  [[nodiscard]] tiling::PlanFacts Facts() const override { return program_.Facts(); }

  [[nodiscard]] Status Run(const InferAttentionArgs& args, std::byte* workspace) const override {
    FA_RETURN_IF_ERROR(ops::CheckInferRunArgs(bound_, args));
    const auto padding = ops::ReadLeftPadding(bound_, args);
    if (!padding.ok()) return padding.status();
    if (padding->drops_keys) return RunWithoutDroppedKeys(args, *padding);
    ops::ForwardRows rows = ops::RowsOf(bound_, args, *padding, {workspace + sink_at_, workspace + tree_at_});
    FA_RETURN_IF_ERROR(mask_tiles_.Make(*this, workspace, &rows.scores));
    const ops::BoundOutputScales& scales = bound_.decode.scales;
    ops::OutputQuantization quantization;
    if (scales.quantized) {
      quantization = ops::ReadOutputScales(scales, args.quant_scale2, args.quant_offset2,
                                           core::kernels::Int8KernelsFor(context().isa()), workspace + scales_at_);
    }
    const ops::OutputQuantization* quantized = scales.quantized ? &quantization : nullptr;
    if constexpr (std::is_same_v<Program, ops::Int8Program>) {
      const auto product_scales = ops::ReadProductScales(ops::ProductScalesOf(args), program_.bound().scale);
      if (!product_scales.ok()) return product_scales.status();
      return program_.Run(*this, rows, *product_scales, quantized, workspace);
    } else {
      return program_.Run(*this, rows, workspace, quantized);
    }
  }

 private:
  /// Runs the call with 0 keys for the batch elements whose keys do not fit. Only a run knows these elements, so it
  /// makes another plan.
  [[nodiscard]] Status RunWithoutDroppedKeys(const InferAttentionArgs& args, const ops::LeftPadding& padding) const {
    std::vector<int64_t> lengths;
    for (const tiling::Sequence& sequence : bound_.decode.attention.problem.sequences) {
      const bool drops = ops::DropsKeys(bound_, padding, lengths.size());
      lengths.push_back(drops ? 0 : sequence.sk);
    }
    InferAttentionArgs fitting = args;
    fitting.lengths_kv = lengths;
    return InferAttention(fitting, bound_.options, &context());
  }

  ops::BoundInfer bound_;
  Program program_;
  ops::MaskTiles mask_tiles_;
  size_t scales_at_ = 0, sink_at_ = 0, tree_at_ = 0;
};

/// Returns whether queries and keys are multiplied as integers of 8 bits.
bool MultipliesInt8(const InferAttentionArgs& args) {
  return args.q.dtype == DType::kI8 && args.q_scale.data == nullptr;
}

/// Returns the bytes of a workspace whose buffers are each as large as the largest buffer of that name in any plan.
/// Slots of packed keys and states of parts are counted together: each key lies in a slot or in a part, not in both
/// (LargestCalls).
size_t LargestBuffers(std::span<const tiling::WorkspacePlan> plans, const ops::LargestCalls& of) {
  std::map<std::string, size_t> largest;
  for (const tiling::WorkspacePlan& plan : plans) {
    for (const auto& buffer : plan.buffers()) largest[buffer.name] = std::max(largest[buffer.name], buffer.bytes);
  }
  size_t &slots = largest["packed K and V"], &states = largest["states of parts of keys"];
  const auto then = static_cast<size_t>(
      std::ceil(static_cast<double>(slots) * of.slots_then + static_cast<double>(states) * of.states_then));
  slots = std::min(slots + states, std::max({slots, states, then}) + core::kernels::kLineBytes);
  states = 0;
  tiling::WorkspacePlan all;
  for (const auto& [name, bytes] : largest) all.Book(name, bytes);
  return all.total_bytes();
}

template <typename Program>
Result<size_t> MaxWorkspace(const InferAttentionArgs& args, const InferAttentionOptions& options, Context& context) {
  auto bound = ops::BindInfer(args, options);
  if (!bound.ok()) return bound.status();
  // Compressed keys are widened to f32, whose strips have a width of their own.
  const DType multiplied = bound->decode.storage.quantized ? DType::kF32 : args.q.dtype;
  const int64_t strip_rows = core::kernels::Kernels(context.isa(), multiplied).widest().rows;
  const ops::LargestCalls largest = ops::LargestCallsOf(*bound, args, strip_rows);
  size_t most = 0;
  std::vector<tiling::WorkspacePlan> plans;  // plans of the calls with large tiles come first
  for (const std::vector<ops::BoundInfer>& calls : largest.of_tiles) {
    const auto before = std::ssize(plans);
    for (const ops::BoundInfer& call : calls) plans.push_back(InferPlanImpl<Program>(context, call).workspace());
    most = std::max(most, LargestBuffers(plans, largest));
    plans.erase(plans.begin(), plans.begin() + before);
  }
  return most;
}

}  // namespace

Result<size_t> InferAttentionMaxWorkspace(const InferAttentionArgs& args, const InferAttentionOptions& options,
                                          Context* context) {
  return core::GuardedCall("the workspace", [&]() -> Result<size_t> {
    Context& used = context != nullptr ? *context : Context::Default();
    FA_RETURN_IF_ERROR(core::ImplOf(used).status());
    try {
      return MultipliesInt8(args) ? MaxWorkspace<ops::Int8Program>(args, options, used)
                                  : MaxWorkspace<ops::ForwardProgram>(args, options, used);
    } catch (const tiling::PlanTooLarge& error) {
      return Status::OutOfMemory(error.what());
    }
  });
}

Result<PlanFor<InferAttentionArgs>> PlanInferAttention(const InferAttentionArgs& args,
                                                       const InferAttentionOptions& options, Context* context) {
  const auto bind = [&] { return ops::BindInfer(args, options); };
  if (MultipliesInt8(args)) return ops::MakePlan<InferPlanImpl<ops::Int8Program>>(context, bind);
  return ops::MakePlan<InferPlanImpl<ops::ForwardProgram>>(context, bind);
}

Status InferAttention(const InferAttentionArgs& args, const InferAttentionOptions& options, Context* context) {
  auto plan = PlanInferAttention(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
