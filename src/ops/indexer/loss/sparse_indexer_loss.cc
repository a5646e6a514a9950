// The operator SparseLightningIndexerGradKLLoss. A call is bound, planned and run. A task is one query token. The task
// goes through the token's selected keys twice, in blocks. The first pass gathers the keys, keeps the indexer's
// products, and sums the attention's probabilities over the heads. The row's softmax and loss follow. The second pass
// computes the gradients from the kept products (IndexerGradient).

#include <algorithm>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "core/integer.h"
#include "core/run/executor.h"
#include "fa/indexer_loss.h"
#include "ops/indexer/indexer_gradient.h"
#include "ops/indexer/loss/bind_indexer_loss.h"
#include "ops/indexer/loss/loss_plan.h"
#include "ops/indexer/loss_row.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/plan_machine.h"
#include "ops/tile/row_probability.h"
#include "ops/token/gathered_keys.h"
#include "ops/token/key_selection.h"
#include "ops/token/key_sum_tasks.h"
#include "tiling/sparse/indexer_grad_facts.h"
#include "tiling/sparse/make_indexer_grad_plan.h"

namespace fa {
namespace {

struct LossProgram {
  LossProgram(const ops::LossProblem& problem_of_call, const core::kernels::KernelTable& kernels, int workers,
              tiling::WorkspacePlan& workspace);
  [[nodiscard]] tiling::PlanFacts Facts(const tiling::Machine& machine) const;

  [[nodiscard]] tiling::IndexerGradProblem Problem() const {
    const ops::LossAttention& attention = problem.attention;
    return {.sequences = problem.shape.sequences,
            .dtype = problem.shape.dtype,
            .heads = problem.shape.heads,
            .d = problem.shape.d,
            .entries = problem.lists.entries,
            .attention_width = problem.has_mean ? 0 : attention.heads * (attention.d + attention.d_rope)};
  }
  [[nodiscard]] int64_t RowBlocks() const { return core::CeilDiv(row_keys, plan.block_k); }

  const ops::LossProblem& problem;
  const core::kernels::KernelTable& table;
  tiling::IndexerGradPlan plan;
  ops::IndexerGradient gradient;
  ops::HeadStrips heads;  // the attention's heads, along the lanes
  ops::GatherShape gather, gather_attention;
  int64_t row_keys;         // most keys that a token selects
  size_t kept_block_bytes;  // bytes of the gathered rows of one block
  ops::KeySumTasks tasks;
  size_t scratch_bytes;  // number of bytes of one worker's scratch
  size_t scratch, losses;
};

/// One worker's memory.
struct Scratch {
  Scratch(ops::Carver& carver, const LossProgram& program);

  ops::KeySelection selection;
  ops::IndexerGradient::Token token;
  std::byte* kept;                  ///< gathered rows of the indexer's keys, block after block
  core::kernels::RowBlock* blocks;  ///< the gathered rows of each block, packed for `product`
  float* products;                  ///< the indexer's products, block after block
  float *scores, *p;
  float** targets;

  // Buffers of the attention; unused with p_head_mean.
  float *panel, *panel_rope, *shift, *shares, *tile;
  ops::GatherPanels gathered;
};

Scratch::Scratch(ops::Carver& carver, const LossProgram& program)
    : selection(carver, program.problem.lists, program.problem.shape.sequences.max_sk),
      token(carver, program.gradient, program.plan.block_k),
      kept(carver.Array<std::byte>(program.RowBlocks() * static_cast<int64_t>(program.kept_block_bytes))),
      blocks(carver.Array<core::kernels::RowBlock>(program.RowBlocks())),
      products(carver.Floats(program.row_keys, program.gradient.strips().lanes())),
      scores(carver.Floats(program.row_keys)),
      p(carver.Floats(program.row_keys)),
      targets(carver.Array<float*>(program.plan.block_k)),
      panel(carver.Floats(program.heads.PanelFloats(program.problem.attention.d))),
      panel_rope(carver.Floats(program.heads.PanelFloats(program.problem.attention.d_rope))),
      shift(carver.Floats(program.heads.lanes())),
      shares(carver.Floats(program.heads.lanes())),
      tile(carver.Floats(program.plan.block_k, program.heads.lanes())),
      gathered(carver, program.gather_attention) {}

size_t ScratchBytes(const LossProgram& program) {
  ops::Carver carver(nullptr);
  static_cast<void>(Scratch(carver, program));
  return carver.used();
}

size_t BlockBytes(const ops::GatherShape& shape) {
  ops::Carver carver(nullptr);
  static_cast<void>(ops::GatherPanels(carver, shape));
  return carver.used();
}

LossProgram::LossProgram(const ops::LossProblem& problem_of_call, const core::kernels::KernelTable& kernels,
                         int workers, tiling::WorkspacePlan& workspace)
    : problem(problem_of_call),
      table(kernels),
      plan(tiling::MakeSparseLossPlan(Problem(), workers)),
      gradient(problem.shape, table),
      heads(table, problem.attention.heads),
      gather(gradient.Gather(plan.block_k)),
      gather_attention{.dtype = problem.shape.dtype,
                       .form = gather.form,
                       .d = problem.attention.d,
                       .d_rope = problem.attention.d_rope,
                       .shared_v = true,
                       .block = problem.has_mean ? 0 : plan.block_k,
                       .by_address = heads.kernels().scores_by_address},
      row_keys(problem.lists.MaxKeys(problem.shape.sequences.max_sk)),
      kept_block_bytes(BlockBytes(gather)),
      tasks(problem.shape.sequences, problem.shape.d, plan.units, workers, workspace),
      scratch_bytes(ScratchBytes(*this)),
      scratch(workspace.Book("token scratch", scratch_bytes, workers)),
      losses(workspace.Book("loss of every token", sizeof(double), problem.shape.sequences.tokens)) {}

/// Runs any task of the loss. A run makes one object, which all workers share.
class LossTile {
 public:
  LossTile(const LossProgram& program, const ops::LossRows& rows, std::byte* workspace)
      : program_(program),
        problem_(program.problem),
        rows_(rows),
        workspace_(workspace),
        losses_(reinterpret_cast<double*>(workspace + program.losses)),
        keys_(*program.table.rows, program.gather, {.k = rows.index.k}),
        attention_keys_(*program.table.rows, program.gather_attention,
                        {.k = {.view = rows.k}, .k_rope = {.view = rows.k_rope}}),
        run_(program.tasks, problem_.shape.sequences, *program.table.rows,
             {.rows = rows.gradients.dk, .multiplier = problem_.multiplier}, workspace) {}

  void operator()(int32_t task, int worker) const {
    run_.RunTask(task, [&](int64_t token) { RunToken(token, worker); });
  }
  /// Writes the loss. Must be called after all tasks have run.
  void WriteLoss() const { ops::WriteLoss(losses_, problem_.shape.sequences.tokens, problem_.multiplier, rows_.loss); }

 private:
  void RunToken(int64_t number, int worker) const;
  [[nodiscard]] double KeysWeight(const ops::SparseToken& at) const;
  void BeginAttention(const ops::SparseToken& at, double keys_weight, const Scratch& scratch) const;
  void AddProbabilities(const ops::KeyPlace& place, std::span<const int32_t> keys, const Scratch& scratch,
                        float* p) const;
  [[nodiscard]] ops::GatherPanels Kept(const Scratch& scratch, int64_t first) const {
    ops::Carver carver(scratch.kept + static_cast<size_t>(first / program_.plan.block_k) * program_.kept_block_bytes);
    return {carver, program_.gather};
  }

  const LossProgram& program_;
  const ops::LossProblem& problem_;
  const ops::LossRows& rows_;
  std::byte* workspace_;
  double* losses_;
  ops::GatheredKeys keys_, attention_keys_;
  ops::KeySumTasks::Run run_;
};

/// Returns the sum over the heads of the weight that sinks leave to keys. Without sinks this is the number of heads.
double LossTile::KeysWeight(const ops::SparseToken& at) const {
  const ops::LossAttention& attention = problem_.attention;
  auto weight = static_cast<double>(attention.heads);
  if (!attention.has_sink) return weight;
  const int64_t row = problem_.shape.sequences.Row(at);
  for (int64_t head = 0; head < attention.heads; ++head) {
    const double of_sink =
        ops::ExpBelow<double>(rows_.sink[head], attention.Statistic(rows_.max, at.sequence, head, row));
    weight -= of_sink / attention.Statistic(rows_.sum, at.sequence, head, row);
  }
  return weight;
}

/// Packs queries and statistics of a token. The probabilities of a key, summed over the heads, are divided by
/// `keys_weight`.
void LossTile::BeginAttention(const ops::SparseToken& at, double keys_weight, const Scratch& scratch) const {
  const ops::LossAttention& attention = problem_.attention;
  const int64_t row = problem_.shape.sequences.Row(at);
  program_.heads.Pack(ops::HeadsAt(rows_.q, at.sequence, 0, row), attention.d, scratch.panel);
  if (attention.d_rope > 0) {
    program_.heads.Pack(ops::HeadsAt(rows_.q_rope, at.sequence, 0, row), attention.d_rope, scratch.panel_rope);
  }
  std::fill_n(scratch.shift, program_.heads.lanes(), std::numeric_limits<float>::infinity());
  std::fill_n(scratch.shares, attention.heads, static_cast<float>(1 / keys_weight));
  for (int64_t head = 0; head < attention.heads; ++head) {
    scratch.shift[head] = ops::RowShift(attention.Statistic(rows_.max, at.sequence, head, row),
                                        attention.Statistic(rows_.sum, at.sequence, head, row));
  }
}

/// Adds to p[key] the attention's probabilities, summed over the heads with the weights scratch.shares.
void LossTile::AddProbabilities(const ops::KeyPlace& place, std::span<const int32_t> keys, const Scratch& scratch,
                                float* p) const {
  const ops::LossAttention& attention = problem_.attention;
  const ops::HeadStrips& heads = program_.heads;
  const auto& kernels = program_.gradient.kernels();
  const auto count = static_cast<int64_t>(keys.size());
  const ops::KeyRows rows = attention_keys_.Gather(place, keys, scratch.gathered).rows;
  heads.Scores(rows.k, count, scratch.panel, attention.d, false, scratch.tile);
  if (attention.d_rope > 0) {
    heads.Scores(rows.k_rope, count, scratch.panel_rope, attention.d_rope, true, scratch.tile);
  }
  const float factor = attention.scale * std::numbers::log2e_v<float>;
  for (int64_t strip = 0; strip < heads.strips(); ++strip) {
    kernels.probabilities(scratch.tile + strip * count * heads.width(), count, heads.width(), factor,
                          scratch.shift + heads.First(strip));
  }
  heads.SumHeads(kernels, scratch.tile, count, scratch.shares, /*relu=*/false, p);
}

void LossTile::RunToken(int64_t number, int worker) const {
  ops::Carver carver(workspace_ + program_.scratch + static_cast<size_t>(worker) * program_.scratch_bytes);
  const Scratch scratch(carver, program_);
  const ops::IndexerShape& shape = problem_.shape;
  const ops::IndexerGradient& gradient = program_.gradient;
  const ops::SparseToken at = shape.sequences.Token(number);
  const int64_t row = shape.sequences.Row(at), lanes = gradient.strips().lanes();
  const ops::KeyPlace place = shape.Place(at.sequence);
  ops::OrderedCommit::Turn turn(run_.commit(), at.sequence,
                                shape.sequences.list[static_cast<size_t>(at.sequence)].first_token, number);
  gradient.Begin(at, rows_.index, scratch.token);
  ops::SelectedKeys selected =
      scratch.selection.Select(rows_.indices.At(at.sequence, 0, row), shape.sequences.Limit(at));
  if (!problem_.has_mean) {
    const double keys_weight = KeysWeight(at);
    // There is no target if sinks have all the weight.
    if (keys_weight <= 0) selected.count = 0;
    BeginAttention(at, keys_weight, scratch);
  }

  const int64_t block_k = program_.plan.block_k;
  const auto for_blocks = [&](const auto& visit) {
    for (int64_t first = 0; first < selected.count; first += block_k) {
      visit(first, std::min(block_k, selected.count - first));
    }
  };
  for_blocks([&](int64_t first, int64_t count) {
    const std::span<const int32_t> keys(selected.keys + first, static_cast<size_t>(count));
    float* products = scratch.products + first * lanes;
    const ops::GatheredBlock block = keys_.Gather(place, keys, Kept(scratch, first));
    scratch.blocks[first / block_k] = block.k_of_product;
    gradient.Products(block.rows.k, count, scratch.token, products);
    gradient.Scores(products, count, scratch.token, scratch.scores + first);
    if (!problem_.has_mean) AddProbabilities(place, keys, scratch, scratch.p + first);
  });
  if (problem_.has_mean) {
    const auto* mean = reinterpret_cast<const float*>(rows_.mean.At(at.sequence, 0, row));
    for (int64_t i = 0; i < selected.count; ++i) scratch.p[i] = mean[selected.slots[i]];
  }
  if (problem_.target == IndexerTarget::kL1) {
    ops::NormaliseRow(ops::RowSum(scratch.p, selected.count), selected.count, scratch.p);
  }
  ops::RowSoftmax(*program_.table.rows, scratch.scores, selected.count, scratch.scores);
  if (rows_.softmax_index.data != nullptr) {
    auto* y = reinterpret_cast<float*>(rows_.softmax_index.At(at.sequence, 0, row));
    std::fill_n(y, problem_.lists.entries, 0.0F);
    for (int64_t i = 0; i < selected.count; ++i) y[selected.slots[i]] = scratch.scores[i];
  }
  const double weight = problem_.target == IndexerTarget::kGiven ? ops::RowSum(scratch.p, selected.count) : 1;
  losses_[number] = ops::RowLoss(scratch.p, selected.count, weight, scratch.scores);

  run_.WaitUntilCleared();
  for_blocks([&](int64_t first, int64_t count) {
    gradient.AddSelected({.selected = selected,
                          .first = first,
                          .count = count,
                          .rows = scratch.blocks[first / block_k],
                          .d_scores = scratch.scores + first,
                          .s = scratch.products + first * lanes,
                          .targets = scratch.targets},
                         scratch.token, run_, at.sequence, turn);
  });
  gradient.Finish(at, rows_.gradients, problem_.multiplier, scratch.token);
}

tiling::PlanFacts LossProgram::Facts(const tiling::Machine& machine) const {
  std::vector<std::string> kernels = {gradient.strips().kernels().name, gradient.kernels().name};
  if (!problem.has_mean) kernels.emplace_back(heads.kernels().name);
  return FactsOf(Problem(), machine, plan, tasks.plan(), std::move(kernels));
}

}  // namespace

Result<PlanFor<SparseIndexerLossArgs>> PlanSparseLightningIndexerGradKLLoss(const SparseIndexerLossArgs& args,
                                                                            const SparseIndexerLossOptions& options,
                                                                            Context* context) {
  return ops::MakePlan<ops::LossPlan<LossProgram, LossTile, SparseIndexerLossArgs>>(
      context, [&] { return ops::BindIndexerLoss(args, options); });
}

Status SparseLightningIndexerGradKLLoss(const SparseIndexerLossArgs& args, const SparseIndexerLossOptions& options,
                                        Context* context) {
  auto plan = PlanSparseLightningIndexerGradKLLoss(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
