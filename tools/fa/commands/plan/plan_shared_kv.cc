// fa plan shared-kv, shared-kv-backward: prints the plan as text, as JSON or as a picture, without computing.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "cases/shared_kv_case.h"
#include "commands.h"
#include "commands/plan/plan_output.h"
#include "flags/context_flags.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

struct SharedKvPlanFlags {
  SharedKvCaseFlags shared;
  PlanContextFlags context;
  PlanOutputFlags output;
};

using SharedKvPlanner = Result<Plan> (*)(const SharedKvCase& shared, Context* context);

void AddSharedKvPlan(CLI::App& app, const char* name, const char* text, SharedKvPlanner plan_case) {
  CLI::App* command = app.add_subcommand(name, text);
  const auto flags = std::make_shared<SharedKvPlanFlags>();
  AddSharedKvCaseFlags(*command, 4096, flags->shared);
  AddContextFlags(*command, flags->context);
  AddPlanOutputFlags(*command, flags->output);
  command->callback([name, plan_case, flags] {
    const std::unique_ptr<Context> context = MakeContext(flags->context);
    const SharedKvCase shared(flags->shared);
    WritePlan(
        flags->output,
        {.title = fmt::format("{} {} {}, mask: {}", name, flags->shared.shape, Name(shared.dtype), shared.MaskText()),
         .keys = "selected keys",
         .batch = shared.batch,
         .heads = shared.heads,
         .sq = shared.s1,
         .sk = std::min(shared.window, shared.s2) +
               (shared.k > 0 ? std::min(shared.k, shared.compressed()) : shared.compressed())},
        [&] {
          Result<Plan> plan = plan_case(shared, context.get());
          ThrowUnlessOkFromShape(plan.status());
          return std::move(*plan);
        });
  });
}

}  // namespace

void AddPlanSharedKv(CLI::App& plan) {
  AddSharedKvPlan(plan, "shared-kv", "Plan of attention over original and compressed keys",
                  [](const SharedKvCase& shared, Context* context) {
                    return AnyPlan(PlanSharedKvAttention(shared.ForwardArgs(), shared.Options(), context));
                  });
}

void AddPlanSharedKvBackward(CLI::App& plan) {
  AddSharedKvPlan(plan, "shared-kv-backward", "Plan of the gradients of shared-kv",
                  [](const SharedKvCase& shared, Context* context) {
                    return AnyPlan(PlanSharedKvAttentionGrad(shared.BackwardArgs(), shared.Options(), context));
                  });
}

}  // namespace fa::tool
