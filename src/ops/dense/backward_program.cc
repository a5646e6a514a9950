#include "ops/dense/backward_program.h"

#include <utility>

#include "core/run/executor.h"
#include "ops/dense/backward_tile.h"
#include "ops/dense/gradient_sums.h"
#include "ops/dense/unused_rows.h"
#include "ops/plan/plan_machine.h"
#include "tiling/backward/backward_facts.h"
#include "tiling/backward/make_backward_plan.h"

namespace fa::ops {

BackwardProgram::BackwardProgram(const Context& context, BoundAttentionGrad bound)
    : bound_(std::move(bound)),
      table_(KernelsOf(context, bound_.forward.problem.dtype)),
      machine_(MachineOf(context, table_)),
      plan_(tiling::MakeBackwardPlan(bound_.forward.problem, machine_)),
      buffers_(bound_, plan_, table_, workspace_) {}

tiling::PlanFacts BackwardProgram::Facts() const {
  tiling::PlanFacts facts = FactsOf(bound_.forward.problem, machine_, plan_, {buffers_.KernelName(table_)});
  facts.problem += UnusedRowsLine(bound_.forward);
  return facts;
}

Status BackwardProgram::Run(const GraphRunner& runner, const GradRows& rows, std::byte* workspace) const {
  const tiling::AttentionProblem& problem = bound_.forward.problem;
  ClearGradientSums(problem, buffers_, workspace);
  BackwardTile tile(problem, plan_, table_, rows, buffers_, workspace);
  return runner.RunGraph(plan_.graph, core::TaskFunction(tile), buffers_.RunState(workspace));
}

void BackwardProgram::WriteSums(const GradRows& rows, std::byte* workspace) const {
  WriteGradientSums(bound_.forward.problem, table_, rows, buffers_, workspace);
}

}  // namespace fa::ops
