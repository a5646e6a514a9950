#include "commands/plan/plan_output.h"

#include "commands/plan/plan_json.h"
#include "files/output_files.h"

namespace fa::tool {

void AddPlanOutputFlags(CLI::App& command, PlanOutputFlags& flags) {
  command
      .add_option("--svg", flags.svg,
                  "Draw the (row x key) area, tiles coloured by worker where the plan predicts who takes them")
      ->type_name("FILE");
  command.add_flag("--json", flags.json, "Print one JSON object");
}

void WritePlan(const PlanOutputFlags& flags, const PlanPicture& picture, const std::function<Plan()>& make) {
  OutputFiles files;
  const size_t svg_file = flags.svg.empty() ? 0 : files.Add("--svg", flags.svg);
  const Plan plan = make();
  std::string svg;
  if (!flags.svg.empty()) {
    svg = DrawPlan(plan.info(), picture);
    files.Set(svg_file, svg);
  }
  files.Commit();
  PrintPlan(plan, flags.json);
}

}  // namespace fa::tool
