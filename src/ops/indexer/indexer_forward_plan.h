#ifndef FA_OPS_INDEXER_FORWARD_PLAN_H_
#define FA_OPS_INDEXER_FORWARD_PLAN_H_

#include <cstddef>
#include <utility>

#include "core/run/executor.h"
#include "ops/indexer/indexer_tile.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "tiling/sparse/indexer_facts.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// The plan of a call that scores keys for tokens, with its bound arguments, its schedule and its workspace. `Step` is
/// the TokenStep that uses the scores. `Step` also has the call's name, a description of its result and the size of its
/// scratch.
template <typename Bound, typename Step, typename Args>
class IndexerForwardPlan final : public Plan::ImplFor<Args> {
 public:
  IndexerForwardPlan(Context& context, Bound bound)
      : Plan::ImplFor<Args>(context),
        bound_(std::move(bound)),
        machine_(MachineOf(context, KernelsOf(context, bound_.shape.dtype))),
        program_(bound_.shape, KernelsOf(context, bound_.shape.dtype), machine_,
                 Step::ScratchBytes(bound_.Problem(), KernelsOf(context, bound_.shape.dtype)), workspace_) {}

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const override {
    const IndexerShape& shape = bound_.shape;
    return FactsOf({.op = Step::kOp,
                    .result = Step::ResultOf(bound_.Problem()),
                    .dtype = shape.stored_dtype(),
                    .heads = shape.heads,
                    .d = shape.d,
                    .key_width = program_.KeyWidth()},
                   shape.sequences, machine_, program_.plan, program_.KernelNames());
  }

  [[nodiscard]] Status Run(const Args& args, std::byte* workspace) const override {
    FA_RETURN_IF_ERROR(CheckIndexerRunArgs(bound_, args));
    const auto rows = RowsOf(bound_, args);
    const Step step(bound_.Problem(), program_.table, rows);
    IndexerTile tile(program_, rows.in, step, workspace);
    step.WriteUnusedRows(tile.StepScratch(0));
    return this->RunGraph(program_.plan.graph, core::TaskFunction(tile), workspace + program_.run_state);
  }

 private:
  Bound bound_;
  tiling::Machine machine_;
  tiling::WorkspacePlan workspace_;
  IndexerProgram program_;
};

}  // namespace fa::ops

#endif  // FA_OPS_INDEXER_FORWARD_PLAN_H_
