// The operator LightningIndexerGrad. A call is bound, planned and run. A task is one query token. The selected keys of
// the token are gathered in blocks, and its heads lie along the lanes. A block's three products (scores, dq, dk) run
// while the block's rows and scores are in L2. Tokens add to the f32 sums of keys in ascending order
// (ordered_commit.h).

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/run/executor.h"
#include "fa/lightning_indexer_grad.h"
#include "ops/indexer/bind_indexer_grad.h"
#include "ops/indexer/indexer_gradient.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "ops/token/gathered_keys.h"
#include "ops/token/key_selection.h"
#include "ops/token/key_sum_tasks.h"
#include "tiling/sparse/indexer_grad_facts.h"
#include "tiling/sparse/make_indexer_grad_plan.h"

namespace fa {
namespace {

struct GradProgram {
  GradProgram(const ops::IndexerShape& shape_of_call, const ops::KeyLists& lists_of_call,
              const core::kernels::KernelTable& kernels, int workers, tiling::WorkspacePlan& workspace);

  [[nodiscard]] tiling::IndexerGradProblem Problem() const {
    return {.sequences = shape.sequences,
            .dtype = shape.dtype,
            .heads = shape.heads,
            .d = shape.d,
            .entries = lists.entries};
  }

  const ops::IndexerShape& shape;
  const ops::KeyLists& lists;
  const core::kernels::KernelTable& table;
  tiling::IndexerGradPlan plan;
  ops::IndexerGradient gradient;
  ops::GatherShape gather;
  ops::KeySumTasks tasks;
  size_t scratch_bytes;  // number of bytes of one worker's scratch
  size_t scratch;
};

/// One worker's memory.
struct Scratch {
  Scratch(ops::Carver& carver, const GradProgram& program)
      : selection(carver, program.lists, program.shape.sequences.max_sk),
        gathered(carver, program.gather),
        token(carver, program.gradient, program.plan.block_k),
        s(carver.Floats(program.plan.block_k, program.gradient.strips().lanes())),
        d_values(carver.Floats(program.lists.Slots(program.shape.sequences.max_sk))),
        d_block(carver.Floats(program.plan.block_k)),
        targets(carver.Array<float*>(program.plan.block_k)) {}

  ops::KeySelection selection;
  ops::GatherPanels gathered;
  ops::IndexerGradient::Token token;
  float *s, *d_values, *d_block;
  float** targets;
};

size_t ScratchBytes(const GradProgram& program) {
  ops::Carver carver(nullptr);
  static_cast<void>(Scratch(carver, program));
  return carver.used();
}

GradProgram::GradProgram(const ops::IndexerShape& shape_of_call, const ops::KeyLists& lists_of_call,
                         const core::kernels::KernelTable& kernels, int workers, tiling::WorkspacePlan& workspace)
    : shape(shape_of_call),
      lists(lists_of_call),
      table(kernels),
      plan(tiling::MakeIndexerGradPlan(Problem(), workers)),
      gradient(shape, table),
      gather(gradient.Gather(plan.block_k)),
      tasks(shape.sequences, shape.d, plan.units, workers, workspace),
      scratch_bytes(ScratchBytes(*this)),
      scratch(workspace.Book("token scratch", scratch_bytes, workers)) {}

/// Runs any task of the gradient. A run makes one object, which all workers share.
class GradTile {
 public:
  GradTile(const GradProgram& program, const ops::SelectionGradRows& rows, std::byte* workspace)
      : program_(program),
        rows_(rows),
        workspace_(workspace),
        keys_(*program.table.rows, program.gather, {.k = rows.in.k}),
        run_(program.tasks, program.shape.sequences, *program.table.rows, {.rows = rows.gradients.dk}, workspace) {}

  void operator()(int32_t task, int worker) const {
    run_.RunTask(task, [&](int64_t token) { RunToken(token, worker); });
  }

 private:
  void RunToken(int64_t number, int worker) const;

  const GradProgram& program_;
  const ops::SelectionGradRows& rows_;
  std::byte* workspace_;
  ops::GatheredKeys keys_;
  ops::KeySumTasks::Run run_;
};

void GradTile::RunToken(int64_t number, int worker) const {
  ops::Carver carver(workspace_ + program_.scratch + static_cast<size_t>(worker) * program_.scratch_bytes);
  const Scratch scratch(carver, program_);
  const ops::IndexerShape& shape = program_.shape;
  const ops::IndexerGradient& gradient = program_.gradient;
  const ops::SparseToken at = shape.sequences.Token(number);
  const int64_t row = shape.sequences.Row(at);
  ops::OrderedCommit::Turn turn(run_.commit(), at.sequence,
                                shape.sequences.list[static_cast<size_t>(at.sequence)].first_token, number);
  gradient.Begin(at, rows_.in, scratch.token);

  const int64_t entries = program_.lists.Slots(shape.sequences.Limit(at));
  program_.table.rows->widen({rows_.d_values.At(at.sequence, 0, row), rows_.d_values.rows.dtype, entries}, 1, entries,
                             scratch.d_values, entries);
  const ops::SelectedKeys selected =
      scratch.selection.Select(rows_.indices.At(at.sequence, 0, row), shape.sequences.Limit(at));
  const ops::KeyPlace place = shape.Place(at.sequence);
  run_.WaitUntilCleared();
  const int64_t block_k = program_.plan.block_k;
  for (int64_t first = 0; first < selected.count; first += block_k) {
    const int64_t count = std::min(block_k, selected.count - first);
    const ops::GatheredBlock block =
        keys_.Gather(place, {selected.keys + first, static_cast<size_t>(count)}, scratch.gathered);
    gradient.Products(block.rows.k, count, scratch.token, scratch.s);
    for (int64_t i = 0; i < count; ++i) scratch.d_block[i] = scratch.d_values[selected.slots[first + i]];
    gradient.AddSelected({.selected = selected,
                          .first = first,
                          .count = count,
                          .rows = block.k_of_product,
                          .d_scores = scratch.d_block,
                          .s = scratch.s,
                          .targets = scratch.targets},
                         scratch.token, run_, at.sequence, turn);
  }
  gradient.Finish(at, rows_.gradients, 1, scratch.token);
}

class IndexerGradPlanImpl final : public Plan::ImplFor<LightningIndexerGradArgs> {
 public:
  IndexerGradPlanImpl(Context& context, ops::BoundIndexerGrad bound)
      : ImplFor(context),
        bound_(std::move(bound)),
        machine_(ops::MachineOf(context, ops::KernelsOf(context, bound_.shape.dtype))),
        program_(bound_.shape, bound_.lists, ops::KernelsOf(context, bound_.shape.dtype), machine_.workers,
                 workspace_) {}

  [[nodiscard]] const tiling::WorkspacePlan& workspace() const override { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const override {
    return FactsOf(program_.Problem(), machine_, program_.plan, program_.tasks.plan(),
                   {program_.gradient.strips().kernels().name, program_.gradient.kernels().name});
  }

  [[nodiscard]] Status Run(const LightningIndexerGradArgs& args, std::byte* workspace) const override {
    FA_RETURN_IF_ERROR(ops::CheckIndexerGradRunArgs(bound_, args));
    const ops::SelectionGradRows rows = ops::RowsOf(bound_, args);
    ops::ClearUnusedGradients(bound_.shape, rows.gradients);
    GradTile tile(program_, rows, workspace);
    return RunGraph(program_.tasks.graph(), core::TaskFunction(tile), program_.tasks.RunState(workspace));
  }

 private:
  ops::BoundIndexerGrad bound_;
  tiling::Machine machine_;
  tiling::WorkspacePlan workspace_;
  GradProgram program_;
};

}  // namespace

Result<PlanFor<LightningIndexerGradArgs>> PlanLightningIndexerGrad(const LightningIndexerGradArgs& args,
                                                                   const LightningIndexerGradOptions& options,
                                                                   Context* context) {
  return ops::MakePlan<IndexerGradPlanImpl>(context, [&] { return ops::BindIndexerGrad(args, options); });
}

Status LightningIndexerGrad(const LightningIndexerGradArgs& args, const LightningIndexerGradOptions& options,
                            Context* context) {
  auto plan = PlanLightningIndexerGrad(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
