// fa plan forward: what would run, in words, as JSON or as a picture. Nothing is computed.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "commands.h"
#include "context_flags.h"
#include "fa/plan.h"
#include "failure.h"
#include "forward_case.h"
#include "output_files.h"
#include "plan_json.h"
#include "plan_svg.h"
#include "progress.h"

namespace fa::tool {
namespace {

struct Flags {
  ForwardCaseFlags forward;
  ContextFlags context;
  std::string svg;
  bool json = false;
};

Plan MakePlan(const ForwardCase& forward, Context& context) {
  const Progress progress(fmt::format("fa plan forward: {} workers", context.threads()));
  Result<Plan> plan = PlanFlashAttention(forward.args, forward.options, &context);
  ThrowUnlessOkFromShape(plan.status());
  return std::move(*plan);
}

void Run(const Flags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const ForwardCase forward(flags.forward);
  OutputFiles files;
  const size_t svg_file = flags.svg.empty() ? 0 : files.Add("--svg", flags.svg);
  const Plan plan = MakePlan(forward, *context);
  const PlanInfo info = plan.info();
  std::string svg;
  if (!flags.svg.empty()) {
    svg = DrawPlan(info, {.title = fmt::format("forward {} {}, mask: {}", flags.forward.shape, Name(forward.dtype),
                                               forward.mask_text),
                          .batch = forward.batch,
                          .heads = forward.heads,
                          .sq = forward.sq,
                          .sk = forward.sk});
    files.Set(svg_file, svg);
  }
  files.Commit();
  if (flags.json) {
    nlohmann::ordered_json json = PlanToJson(info);
    fmt::print("{}\n", json.dump(2));
  } else {
    const std::string text = plan.Describe();
    fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
  }
}

}  // namespace

void AddPlanForward(CLI::App& plan) {
  CLI::App* command = plan.add_subcommand("forward", "Plan of the dense forward; --threads may exceed the machine");
  const auto flags = std::make_shared<Flags>();
  AddForwardCaseFlags(*command, flags->forward);
  AddContextFlags(*command, flags->context);
  command->add_option("--svg", flags->svg, "Draw the (row x key) area, tiles coloured by worker")->type_name("FILE");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags] { Run(*flags); });
}

}  // namespace fa::tool
