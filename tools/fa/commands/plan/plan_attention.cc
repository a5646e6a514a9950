// fa plan forward, backward, decode, prompt, infer: prints the plan as text, as JSON or as a picture, without computing
// attention.

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "cases/decode_case.h"
#include "cases/forward_case.h"
#include "cases/infer_case.h"
#include "cases/prompt_case.h"
#include "commands.h"
#include "commands/plan/plan_output.h"
#include "commands/plan/plan_ranks.h"
#include "commands/progress.h"
#include "fa/plan.h"
#include "flags/context_flags.h"
#include "flags/failure.h"
#include "flags/rank_flags.h"

namespace fa::tool {
namespace {

struct AttentionPlanFlags {
  DecodeCaseFlags call;  ///< sizes of the call; only decode uses block_size
  PlanContextFlags context;
  PlanOutputFlags output;
  RankPlanFlags ranks;  ///< used by operators that have a schedule over ranks
};

/// An operator whose `fa plan` command has AttentionPlanFlags.
struct Operator {
  const char* name;
  /// Plans the call; null for decode and infer, whose keys may lie in pages.
  Result<Plan> (*plan)(const ForwardCase& forward, Context& context);
  bool takes_int8 = false;
  /// Makes the operator's schedule over ranks. The pointer is null if the operator does not run over ranks.
  Result<RankSchedule> (*schedule)(const ForwardCase& forward, const SequenceShards& shards,
                                   const RankMachines& machines, Context& context) = nullptr;
  Result<Plan> (*plan_keys)(const DecodeCase& decode, Context& context) = nullptr;  ///< set if `plan` is null
};

Plan MakePlan(const Operator& op, const ForwardCase& forward, const DecodeCase* decode, Context& context) {
  const Progress progress(fmt::format("fa plan {}: {} workers", op.name, context.threads()));
  Result<Plan> plan = decode != nullptr ? op.plan_keys(*decode, context) : op.plan(forward, context);
  ThrowUnlessOkFromShape(plan.status());
  return std::move(*plan);
}

void Run(const Operator& op, const AttentionPlanFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  std::optional<DecodeCase> decode;
  std::optional<ForwardCase> dense;
  const ForwardCase& forward =
      op.plan == nullptr ? decode.emplace(flags.call).forward : dense.emplace(flags.call.forward);
  const PlanPicture picture = {.title = fmt::format("{} {} {}, mask: {}", op.name, flags.call.forward.shape,
                                                    Name(forward.dtype), forward.mask_text),
                               .batch = forward.batch,
                               .heads = forward.heads,
                               .sq = forward.sq,
                               .sk = forward.sk};
  if (flags.ranks.ranks > 0) {
    const auto schedule = op.schedule(forward, ShardsOf(flags.ranks.cut), MachinesOf(flags.ranks), *context);
    ThrowUnlessOkFromShape(schedule.status());
    return WriteRankSchedule(flags.output, flags.ranks, picture, *schedule);
  }
  WritePlan(flags.output, picture, [&] { return MakePlan(op, forward, decode ? &*decode : nullptr, *context); });
}

void AddPlan(CLI::App& plan, const char* text, const Operator& op) {
  CLI::App* command = plan.add_subcommand(op.name, text);
  const auto flags = std::make_shared<AttentionPlanFlags>();
  flags->call.forward.takes_int8 = op.takes_int8;
  if (op.plan == nullptr) {
    AddDecodeCaseFlags(*command, flags->call);
  } else {
    AddForwardCaseFlags(*command, flags->call.forward);
  }
  AddContextFlags(*command, flags->context);
  AddPlanOutputFlags(*command, flags->output);
  if (op.schedule != nullptr) AddRankPlanFlags(*command, flags->ranks);
  command->callback([op, flags, command] {
    if (op.schedule != nullptr) CheckRankPlanFlags(*command, flags->ranks);
    Run(op, *flags);
  });
}

}  // namespace

void AddPlanForward(CLI::App& plan) {
  AddPlan(
      plan, "Plan of the dense forward; --threads may exceed the machine",
      {"forward",
       [](const ForwardCase& forward, Context& context) {
         return AnyPlan(PlanFlashAttention(forward.args, forward.options, &context));
       },
       /*takes_int8=*/false,
       [](const ForwardCase& forward, const SequenceShards& shards, const RankMachines& machines, Context& context) {
         return ScheduleFlashAttention(forward.args, forward.options, shards, machines, &context);
       }});
}

void AddPlanBackward(CLI::App& plan) {
  AddPlan(
      plan, "Plan of the dense backward; --threads may exceed the machine",
      {"backward",
       [](const ForwardCase& forward, Context& context) {
         return AnyPlan(PlanFlashAttentionGrad(forward.GradArgs(), forward.options, &context));
       },
       /*takes_int8=*/false,
       [](const ForwardCase& forward, const SequenceShards& shards, const RankMachines& machines, Context& context) {
         return ScheduleFlashAttentionGrad(forward.GradArgs(), forward.options, shards, machines, &context);
       }});
}

void AddPlanDecode(CLI::App& plan) {
  AddPlan(plan, "Plan of a decode: few queries against long keys",
          {.name = "decode", .plan = nullptr, .plan_keys = [](const DecodeCase& decode, Context& context) {
             return AnyPlan(PlanDecodeAttention(decode.args, decode.options, &context));
           }});
}

void AddPlanInfer(CLI::App& plan) {
  AddPlan(plan, "Plan of a fused inference: prompts, chunks and decode steps",
          {.name = "infer", .plan = nullptr, .plan_keys = [](const DecodeCase& decode, Context& context) {
             return AnyPlan(PlanInferAttention(InferArgsOf(decode.args), InferOptionsOf(decode), &context));
           }});
}

void AddPlanPrompt(CLI::App& plan) {
  AddPlan(plan, "Plan of prompt attention, int8 too; --threads may exceed the machine",
          {"prompt",
           [](const ForwardCase& forward, Context& context) {
             return AnyPlan(PlanPromptFlashAttention(PromptArgsOf(forward), PromptOptionsOf(forward), &context));
           },
           /*takes_int8=*/true});
}

}  // namespace fa::tool
