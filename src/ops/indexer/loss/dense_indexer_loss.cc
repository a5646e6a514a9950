// The operator DenseLightningIndexerGradKLLoss. A call is bound, planned and run. The statistics are given. So the
// target, the score, the loss and the gradient of a (query token, key) pair need no other pair.
//
// A task is a group of tokens, and it goes through the keys in blocks. The attention's probabilities are computed head
// after head into one tile [key][token], with tokens along the lanes. Then the indexer's products and gradients are
// computed token after token, with heads along the lanes (IndexerGradient). No memory grows with S1 x S2. The target
// IndexerTarget::kL1 is divided by the row's sum of probabilities. So a task first goes through the attention's keys
// once more, to compute the sum.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "core/run/executor.h"
#include "fa/indexer_loss.h"
#include "ops/indexer/indexer_gradient.h"
#include "ops/indexer/loss/bind_indexer_loss.h"
#include "ops/indexer/loss/loss_plan.h"
#include "ops/indexer/loss_row.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "ops/tile/row_probability.h"
#include "ops/tile/strip.h"
#include "ops/token/gathered_keys.h"
#include "ops/token/key_sum_tasks.h"
#include "tiling/sparse/indexer_grad_facts.h"
#include "tiling/sparse/make_indexer_grad_plan.h"
#include "tiling/sparse/token_groups.h"

namespace fa {
namespace {

using core::kernels::RowBlock;
using core::kernels::StripKernels;

using Group = tiling::TokenGroup;

struct DenseLossProgram {
  DenseLossProgram(const ops::LossProblem& problem_of_call, const core::kernels::KernelTable& kernels, int workers,
                   tiling::WorkspacePlan& workspace);
  [[nodiscard]] tiling::PlanFacts Facts(const tiling::Machine& machine) const;

  [[nodiscard]] tiling::IndexerGradProblem Problem() const {
    const ops::LossAttention& attention = problem.attention;
    return {.sequences = problem.shape.sequences,
            .dtype = problem.shape.dtype,
            .heads = problem.shape.heads,
            .d = problem.shape.d,
            .attention_width = attention.heads * (attention.d + attention.d_rope),
            .walks_twice = problem.target == IndexerTarget::kL1};
  }
  [[nodiscard]] int64_t width() const { return lanes.width; }

  const ops::LossProblem& problem;
  const core::kernels::KernelTable& table;
  ops::IndexerGradient gradient;
  const StripKernels& lanes;  ///< the attention's kernels; tokens lie along the lanes
  tiling::IndexerGradPlan plan;
  ops::KeyForm form;
  ops::KeySumTasks tasks;
  size_t scratch_bytes;  // number of bytes of one worker's scratch
  size_t scratch, losses;
};

/// One worker's memory.
struct DenseLossScratch {
  DenseLossScratch(ops::Carver& carver, const DenseLossProgram& program);

  ops::IndexerGradient::Token* tokens;
  float *panels, *panels_rope;  ///< the attention's queries, head after head
  float* shift;                 ///< [head][token]: RowShift of the attention's row
  float *s, *p;                 ///< scores and probabilities [key][token] of one block
  float *k, *k_rope;            ///< widened rows of the attention's keys in a block
  float *k_index, *k_pairs;     ///< widened or paired rows of the indexer's keys
  float* products;              ///< the indexer's products of one token
  float *scores, *p_row;        ///< one token's scores and probabilities
  double* p_sum;                ///< for each token: the sum of its probabilities
  double* loss;                 ///< one loss per token
  float** targets;
};

DenseLossScratch::DenseLossScratch(ops::Carver& carver, const DenseLossProgram& program) {
  const ops::LossAttention& attention = program.problem.attention;
  const int64_t width = program.width(), d = program.problem.shape.d, block_k = program.plan.block_k;
  const bool widens = program.form == ops::KeyForm::kF32;
  tokens = carver.Array<ops::IndexerGradient::Token>(width);
  for (int64_t i = 0; i < width; ++i) {
    const ops::IndexerGradient::Token token(carver, program.gradient, block_k);
    if (tokens != nullptr) tokens[i] = token;
  }
  panels = carver.Floats(attention.heads, program.lanes.PanelRows(attention.d), width);
  panels_rope = carver.Floats(attention.heads, program.lanes.PanelRows(attention.d_rope), width);
  shift = carver.Floats(attention.heads, width);
  s = carver.Floats(block_k, width);
  p = carver.Floats(block_k, width);
  k = carver.Floats(widens ? block_k * attention.d : 0);
  k_rope = carver.Floats(widens ? block_k * attention.d_rope : 0);
  k_index = carver.Floats(widens ? block_k * d : 0);
  k_pairs = carver.Floats(program.form == ops::KeyForm::kPairs ? program.table.rows->PairedFloats(block_k, d) : 0);
  products = carver.Floats(block_k, program.gradient.strips().lanes());
  scores = carver.Floats(block_k);
  p_row = carver.Floats(block_k);
  p_sum = carver.Array<double>(width);
  loss = carver.Array<double>(width);
  targets = carver.Array<float*>(block_k);
}

size_t ScratchBytes(const DenseLossProgram& program) {
  ops::Carver carver(nullptr);
  static_cast<void>(DenseLossScratch(carver, program));
  return carver.used();
}

DenseLossProgram::DenseLossProgram(const ops::LossProblem& problem_of_call, const core::kernels::KernelTable& kernels,
                                   int workers, tiling::WorkspacePlan& workspace)
    : problem(problem_of_call),
      table(kernels),
      gradient(problem.shape, table),
      lanes(table.ForRows(tiling::TokensOfAGroup(problem.shape.sequences, workers))),
      plan(tiling::MakeDenseLossPlan(Problem(), lanes.width, workers)),
      form(ops::KeyFormOf(lanes, problem.shape.dtype)),
      tasks(problem.shape.sequences, problem.shape.d, plan.units, workers, workspace),
      scratch_bytes(ScratchBytes(*this)),
      scratch(workspace.Book("group scratch", scratch_bytes, workers)),
      losses(workspace.Book("loss of every token", sizeof(double), problem.shape.sequences.tokens)) {}

/// Runs any task of the loss. A run makes one object, which all workers share.
class DenseLossTile {
 public:
  DenseLossTile(const DenseLossProgram& program, const ops::LossRows& rows, std::byte* workspace)
      : program_(program),
        problem_(program.problem),
        rows_(rows),
        workspace_(workspace),
        losses_(reinterpret_cast<double*>(workspace + program.losses)),
        run_(program.tasks, problem_.shape.sequences, *program.table.rows,
             {.rows = rows.gradients.dk, .multiplier = problem_.multiplier}, workspace) {}

  void operator()(int32_t task, int worker) const {
    run_.RunTask(task, [&](int64_t group) { RunGroup(group, worker); });
  }
  /// Writes the loss. Must be called after all tasks have run.
  void WriteLoss() const { ops::WriteLoss(losses_, problem_.shape.sequences.tokens, problem_.multiplier, rows_.loss); }

 private:
  void RunGroup(int64_t number, int worker) const;
  void BeginAttention(const Group& group, const DenseLossScratch& scratch) const;
  void Probabilities(const Group& group, tiling::Interval keys, const DenseLossScratch& scratch) const;
  void SumProbabilities(const Group& group, const DenseLossScratch& scratch) const;
  void RunBlock(const Group& group, tiling::Interval keys, const DenseLossScratch& scratch,
                ops::OrderedCommit::Turn& turn) const;
  void AddToken(const Group& group, int64_t i, tiling::Interval keys, const RowBlock& rows,
                const DenseLossScratch& scratch) const;

  /// Returns a tensor's rows of keys for the kernels: in place, or widened to f32 in `to`.
  [[nodiscard]] RowBlock KeyRows(const layout::RowsView& tensor, const Group& group, int64_t head,
                                 tiling::Interval keys, int64_t d, float* to) const;
  [[nodiscard]] int64_t Limit(const Group& group, int64_t i) const {
    return problem_.shape.sequences.Limit({group.sequence, group.rows.begin + i});
  }
  [[nodiscard]] int64_t Tokens(const Group& group) const { return group.rows.end - group.rows.begin; }

  const DenseLossProgram& program_;
  const ops::LossProblem& problem_;
  const ops::LossRows& rows_;
  std::byte* workspace_;
  double* losses_;
  ops::KeySumTasks::Run run_;
};

RowBlock DenseLossTile::KeyRows(const layout::RowsView& tensor, const Group& group, int64_t head, tiling::Interval keys,
                                int64_t d, float* to) const {
  const int64_t row = problem_.shape.sequences.list[static_cast<size_t>(group.sequence)].k_offset + keys.begin;
  const RowBlock in_place = ops::BlockAt(tensor, group.sequence, head, row);
  if (program_.form != ops::KeyForm::kF32) return in_place;
  program_.table.rows->widen(in_place, keys.end - keys.begin, d, to, d);
  return {to, DType::kF32, d};
}

/// For every head, packs the queries and statistics of the group's tokens for one strip.
void DenseLossTile::BeginAttention(const Group& group, const DenseLossScratch& scratch) const {
  const ops::LossAttention& attention = problem_.attention;
  const StripKernels& kernels = program_.lanes;
  const DType dtype = problem_.shape.dtype;
  const int64_t tokens = Tokens(group);
  const int64_t first = problem_.shape.sequences.Row({group.sequence, group.rows.begin});
  const auto pack = [&](const layout::RowsView& tensor, int64_t d, int64_t head, float* panels) {
    ops::LaneArray<const void*> lanes;
    for (int64_t i = 0; i < tokens; ++i) lanes[i] = tensor.At(group.sequence, head, first + i);
    kernels.pack_queries({lanes, dtype, tokens}, d, 1, panels + head * kernels.PanelRows(d) * kernels.width);
  };
  std::fill_n(scratch.shift, attention.heads * kernels.width, std::numeric_limits<float>::infinity());
  for (int64_t head = 0; head < attention.heads; ++head) {
    pack(rows_.q, attention.d, head, scratch.panels);
    if (attention.d_rope > 0) pack(rows_.q_rope, attention.d_rope, head, scratch.panels_rope);
    for (int64_t i = 0; i < tokens; ++i) {
      scratch.shift[head * kernels.width + i] =
          ops::RowShift(attention.Statistic(rows_.max, group.sequence, head, first + i),
                        attention.Statistic(rows_.sum, group.sequence, head, first + i));
    }
  }
}

/// Computes p[key][token], the mean over the heads of the attention's probabilities.
void DenseLossTile::Probabilities(const Group& group, tiling::Interval keys, const DenseLossScratch& scratch) const {
  const ops::LossAttention& attention = problem_.attention;
  const StripKernels& kernels = program_.lanes;
  const int64_t count = keys.end - keys.begin, width = kernels.width,
                of_key_head = attention.heads / attention.heads_kv;
  const float factor = attention.scale * std::numbers::log2e_v<float>;
  ops::LaneArray<float> share;
  std::fill_n(share.data(), ops::kMaxStripWidth, 1.0F / static_cast<float>(attention.heads));
  std::fill_n(scratch.p, count * width, 0.0F);
  for (int64_t key_head = 0; key_head < attention.heads_kv; ++key_head) {
    const RowBlock k = KeyRows(rows_.k, group, key_head, keys, attention.d, scratch.k);
    RowBlock k_rope;
    if (attention.d_rope > 0) {
      k_rope = KeyRows(rows_.k_rope, group, key_head, keys, attention.d_rope, scratch.k_rope);
    }
    for (int64_t head = key_head * of_key_head; head < (key_head + 1) * of_key_head; ++head) {
      const auto panel = [&](float* panels, int64_t d) { return panels + head * kernels.PanelRows(d) * width; };
      kernels.scores(k, count, panel(scratch.panels, attention.d), attention.d, false, scratch.s, nullptr);
      if (attention.d_rope > 0) {
        kernels.scores(k_rope, count, panel(scratch.panels_rope, attention.d_rope), attention.d_rope, true, scratch.s,
                       nullptr);
      }
      program_.gradient.kernels().probabilities(scratch.s, count, width, factor, scratch.shift + head * width);
      kernels.add_state(scratch.s, share, ops::kUnitAlpha.data(), count, scratch.p);
    }
  }
}

void DenseLossTile::SumProbabilities(const Group& group, const DenseLossScratch& scratch) const {
  const int64_t tokens = Tokens(group), end = Limit(group, tokens - 1), width = program_.width();
  for (int64_t key = 0; key < end; key += program_.plan.block_k) {
    const tiling::Interval keys{key, std::min(key + program_.plan.block_k, end)};
    Probabilities(group, keys, scratch);
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t limit = std::min(keys.end, Limit(group, i));
      for (int64_t j = key; j < limit; ++j) scratch.p_sum[i] += scratch.p[(j - key) * width + i];
    }
  }
}

/// Computes the loss and the gradients of one token and a block of keys.
void DenseLossTile::AddToken(const Group& group, int64_t i, tiling::Interval keys, const RowBlock& rows,
                             const DenseLossScratch& scratch) const {
  const ops::IndexerGradient& gradient = program_.gradient;
  const ops::IndexerGradient::Token& token = scratch.tokens[i];
  const int64_t count = keys.end - keys.begin, width = program_.width();
  const int64_t row = problem_.shape.sequences.Row({group.sequence, group.rows.begin + i});
  for (int64_t key = 0; key < count; ++key) scratch.p_row[key] = scratch.p[key * width + i];
  if (problem_.target == IndexerTarget::kL1) ops::NormaliseRow(scratch.p_sum[i], count, scratch.p_row);
  gradient.Scores(scratch.products, count, token, scratch.scores);
  ops::RowSoftmax(*program_.table.rows, scratch.scores, count, rows_.max_index.At(group.sequence, 0, row),
                  rows_.sum_index.At(group.sequence, 0, row), scratch.scores);
  scratch.loss[i] += ops::RowLoss(scratch.p_row, count, /*weight=*/1, scratch.scores);
  gradient.AddQuerySide(rows, count, scratch.scores, scratch.products, token);
}

void DenseLossTile::RunBlock(const Group& group, tiling::Interval keys, const DenseLossScratch& scratch,
                             ops::OrderedCommit::Turn& turn) const {
  const ops::IndexerShape& shape = problem_.shape;
  const ops::IndexerGradient& gradient = program_.gradient;
  Probabilities(group, keys, scratch);
  const RowBlock rows = KeyRows(rows_.index.k.view, group, 0, keys, shape.d, scratch.k_index);
  RowBlock rows_of_product = rows;
  if (program_.form == ops::KeyForm::kPairs) {
    program_.table.rows->pair_rows(rows, keys.end - keys.begin, shape.d, scratch.k_pairs, shape.d);
    rows_of_product = program_.table.rows->Paired(scratch.k_pairs, shape.d);
  }
  for (int64_t key = keys.begin; key < keys.end; ++key) {
    scratch.targets[key - keys.begin] = run_.Row(group.sequence, key);
  }
  bool waited = false;
  for (int64_t i = 0; i < Tokens(group); ++i) {
    const tiling::Interval kept{keys.begin, std::min(keys.end, Limit(group, i))};
    const int64_t count = kept.end - kept.begin;
    if (count <= 0) continue;
    gradient.Products(rows, count, scratch.tokens[i], scratch.products);
    AddToken(group, i, kept, rows_of_product, scratch);
    if (!waited) turn.WaitFor(static_cast<int32_t>(keys.end));
    waited = true;
    gradient.AddKeySide(scratch.products, count, 0, count, scratch.targets, scratch.tokens[i]);
  }
  turn.Publish(static_cast<int32_t>(keys.end));
}

void DenseLossTile::RunGroup(int64_t number, int worker) const {
  ops::Carver carver(workspace_ + program_.scratch + static_cast<size_t>(worker) * program_.scratch_bytes);
  const DenseLossScratch scratch(carver, program_);
  const Group& group = program_.plan.groups[static_cast<size_t>(number)];
  const int64_t tokens = Tokens(group), end = Limit(group, tokens - 1);
  const auto at = [&](int64_t i) { return ops::SparseToken{group.sequence, group.rows.begin + i}; };
  ops::OrderedCommit::Turn turn(run_.commit(), group.sequence, group.first_group, number);
  for (int64_t i = 0; i < tokens; ++i) {
    program_.gradient.Begin(at(i), rows_.index, scratch.tokens[i]);
    scratch.p_sum[i] = scratch.loss[i] = 0;
  }
  BeginAttention(group, scratch);
  if (problem_.target == IndexerTarget::kL1) SumProbabilities(group, scratch);
  run_.WaitUntilCleared();
  for (int64_t key = 0; key < end; key += program_.plan.block_k) {
    RunBlock(group, {key, std::min(key + program_.plan.block_k, end)}, scratch, turn);
  }
  const auto& sequence = problem_.shape.sequences.list[static_cast<size_t>(group.sequence)];
  for (int64_t i = 0; i < tokens; ++i) {
    losses_[sequence.first_token + at(i).row] = scratch.loss[i];
    program_.gradient.Finish(at(i), rows_.gradients, problem_.multiplier, scratch.tokens[i]);
  }
}

tiling::PlanFacts DenseLossProgram::Facts(const tiling::Machine& machine) const {
  return FactsOf(Problem(), machine, plan, tasks.plan(),
                 {lanes.name, gradient.strips().kernels().name, gradient.kernels().name});
}

}  // namespace

Result<PlanFor<DenseIndexerLossArgs>> PlanDenseLightningIndexerGradKLLoss(const DenseIndexerLossArgs& args,
                                                                          const DenseIndexerLossOptions& options,
                                                                          Context* context) {
  return ops::MakePlan<ops::LossPlan<DenseLossProgram, DenseLossTile, DenseIndexerLossArgs>>(
      context, [&] { return ops::BindIndexerLoss(args, options); });
}

Status DenseLightningIndexerGradKLLoss(const DenseIndexerLossArgs& args, const DenseIndexerLossOptions& options,
                                       Context* context) {
  auto plan = PlanDenseLightningIndexerGradKLLoss(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
