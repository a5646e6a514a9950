#include "ranks/run/grad_chain.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/integer.h"
#include "core/run/executor.h"
#include "ops/plan/plan_machine.h"
#include "ops/tile/strip.h"
#include "ranks/rows/unit_messages.h"
#include "ranks/run/rank_runner.h"
#include "tiling/backward/backward_facts.h"
#include "tiling/backward/backward_interleave.h"
#include "tiling/backward/backward_shape.h"
#include "tiling/backward/backward_tiles.h"
#include "tiling/plan_limits.h"
#include "tiling/row_cut.h"

namespace fa::ops {

GradChain::GradChain(const Context& context, BoundAttentionGrad part, const std::vector<tiling::RowPart>& parts,
                     const std::vector<tiling::Sequence>& whole, int64_t first_sequence,
                     std::shared_ptr<const tiling::SumSchedule> schedule, int rank)
    : bound_(std::move(part)),
      schedule_(std::move(schedule)),
      table_(KernelsOf(context, bound_.forward.problem.dtype)),
      machine_(MachineOf(context, table_)),
      columns_(bound_.forward.problem.d + bound_.forward.problem.d_rope),
      layout_(MakeLayout(machine_)),
      buffers_(bound_, layout_, table_, workspace_),
      graph_(MakeGraph(parts, whole, first_sequence, rank)),
      copied_keys_(table_.rows->PairedRows(graph_.copied_keys)) {
  const tiling::AttentionProblem& problem = bound_.forward.problem;
  for (int64_t s = 0; s < std::ssize(whole) - first_sequence; ++s) {
    key_offset_.push_back(whole[static_cast<size_t>(first_sequence + s)].k_offset);
  }
  run_state_ = workspace_.Book("run state of a unit", core::RunStateBytes(graph_.plan.graph));
  states_ = workspace_.Book("states of blocks", graph_.blocks.size() * sizeof(ChainMessages::BlockState));
  sums_ = workspace_.Book("places of sums", (graph_.blocks.size() + 1) * sizeof(KeySums));
  const auto book = [&](const char* name, bool copies, int64_t floats) {
    const size_t bytes = copies ? static_cast<size_t>(floats * problem.heads_kv) * sizeof(float) : 0;
    return workspace_.Book(name, AlignedBytes(static_cast<int64_t>(bytes)), graph_.copies);
  };
  k_ = book("K of a chunk", buffers_.copies_k(), buffers_.KeyOffset(copied_keys_));
  v_ = book("V of a chunk", buffers_.copies_v(), copied_keys_ * problem.dv);
}

int64_t GradChain::ColumnsAtOnce(const tiling::Machine& machine) const {
  return core::CeilDiv(int64_t{machine.workers}, bound_.forward.problem.heads_kv);
}

/// Makes a plan without tiles. The plan has one slot per kv head, with the rows of all parts one after the other.
tiling::BackwardPlan GradChain::MakeLayout(const tiling::Machine& machine) const {
  const tiling::AttentionProblem& problem = bound_.forward.problem;
  const tiling::BackwardShape shape =
      ChooseBackwardShape(problem, machine, ChooseBackwardInterleave(problem, machine.workers));
  int64_t rows = 0, keys = 0;
  for (const tiling::Sequence& sequence : problem.sequences) rows = std::max(rows, sequence.sq);
  for (const tiling::SumChunk& chunk : schedule_->chunks) keys = std::max(keys, chunk.keys.size());
  const int64_t most_rows =
      tiling::TileRowsOfBlocks(rows, core::CeilDiv(keys, shape.block_k), ColumnsAtOnce(machine), schedule_->few_chunks);
  tiling::BackwardPlan layout;
  layout.reason = shape.reason;
  layout.slot_keys = core::RoundUp(keys, shape.block_k);
  layout.block_q = std::min(shape.block_q, core::RoundUp(most_rows, int64_t{machine.strip_rows}));
  layout.block_k = shape.block_k;
  layout.slots = problem.heads_kv;
  for (const tiling::Sequence& sequence : problem.sequences) {
    layout.slot_row_of.push_back(layout.slot_rows);
    layout.slot_rows += problem.group() * core::RoundUp(sequence.sq, layout.block_q);
  }
  layout.graph.range_begin.assign(static_cast<size_t>(machine.workers) + 1, 0);
  return layout;
}

tiling::ChainGraph GradChain::MakeGraph(const std::vector<tiling::RowPart>& parts,
                                        const std::vector<tiling::Sequence>& whole, int64_t first_sequence,
                                        int rank) const {
  const tiling::AttentionProblem& problem = bound_.forward.problem;
  const tiling::BackwardCut cut{.block_q = layout_.block_q,
                                .block_k = layout_.block_k,
                                .strip_rows = machine_.strip_rows,
                                .group = problem.group()};
  double tiles = 0;
  for (const tiling::Sequence& sequence : problem.sequences) {
    tiles += CountPairTiles(tiling::OwnRule(sequence), cut) * static_cast<double>(problem.heads_kv);
  }
  tiling::CheckTasks(tiles, machine_);
  tiling::ChainGraph graph = MakeChainGraph(*schedule_, {.own = problem.sequences,
                                                         .parts = parts,
                                                         .whole = whole,
                                                         .first_sequence = first_sequence,
                                                         .group = problem.group(),
                                                         .heads_kv = problem.heads_kv,
                                                         .block_q = layout_.block_q,
                                                         .block_k = layout_.block_k,
                                                         .strip_rows = machine_.strip_rows,
                                                         .slot_row_of = layout_.slot_row_of,
                                                         .copies_keys = buffers_.copies_k() || buffers_.copies_v(),
                                                         .workers = machine_.workers,
                                                         .rank = rank});
  graph.plan.reason = layout_.reason;
  graph.plan.slots = layout_.slots;
  graph.plan.slot_rows = layout_.slot_rows;
  graph.plan.slot_keys = layout_.slot_keys;
  AddFlops(graph.plan);
  return graph;
}

void GradChain::AddFlops(tiling::BackwardPlan& plan) const {
  const tiling::AttentionProblem& problem = bound_.forward.problem;
  const double of_pair = BackwardFlopsPerPair(problem);
  for (const tiling::Sequence& sequence : problem.sequences) {
    const double of_heads = of_pair * static_cast<double>(problem.heads);
    plan.flops += of_heads * static_cast<double>(tiling::OwnRule(sequence).KeptPairs({0, sequence.sq}));
    plan.flops_full += of_heads * static_cast<double>(sequence.sq) * static_cast<double>(sequence.sk);
  }
  int64_t groups = 0;
  for (const tiling::BackwardItem& item : plan.items) groups += item.cost;
  plan.flops_visited += of_pair * static_cast<double>(groups * machine_.strip_rows * tiling::kKeyStep);
}

tiling::PlanFacts GradChain::Facts() const {
  return FactsOf(bound_.forward.problem, machine_, graph_.plan, {buffers_.KernelName(table_)});
}

/// Counts the receives that a poll may start, and one send per chunk for each unit in flight.
MessagesUnderWay GradChain::UnderWay() const {
  const auto sends = [](const tiling::ChainBlock& block) { return block.sends(); };
  const int64_t sent = std::count_if(graph_.blocks.begin(), graph_.blocks.end(), sends);
  const int64_t leaving = tiling::kUnitsInFlight * std::min<int64_t>(sent, schedule_->travelling_chunks);
  MessagesUnderWay under_way{.requests = ChainMessages::kMostReceives + leaving};
  for (const tiling::SumChunk& chunk : schedule_->chunks) {
    if (chunk.travel_number >= 0) under_way.bytes = std::max(under_way.bytes, chunk.keys.size() * floats_per_key());
  }
  under_way.bytes *= static_cast<int64_t>(sizeof(float));
  return under_way;
}

size_t GradChain::SumBytes() const { return static_cast<size_t>(schedule_->keys * floats_per_key()) * sizeof(float); }

KeySums GradChain::SumsOf(const tiling::ChainBlock& block, float* sums, const StagedRows& finished,
                          std::byte* workspace) const {
  const tiling::AttentionProblem& problem = bound_.forward.problem;
  const tiling::SumChunk& chunk = schedule_->chunks[static_cast<size_t>(block.of.chunk)];
  const int64_t keys = chunk.keys.size();
  KeySums of{.begin = block.of.from < 0,
             .end = block.of.to < 0,
             .dk = AllSums(sums).Of(block.of.chunk).data(),
             .dk_head = keys * columns_,
             .dv_head = keys * problem.dv,
             .k_head = buffers_.copies_k() ? buffers_.KeyOffset(copied_keys_) : 0,
             .v_head = buffers_.copies_v() ? copied_keys_ * problem.dv : 0,
             .first_key = chunk.keys.begin};
  of.dv = of.dk + problem.heads_kv * of.dk_head;
  of.bias = of.dv + problem.heads_kv * of.dv_head;
  of.bias_head = keys;
  if (chunk.last == block.of.rank) {
    of.first_row = finished.Place(key_offset_[static_cast<size_t>(chunk.sequence)] + chunk.keys.begin);
  }
  const auto copy = [&](size_t at, int64_t head_floats) {
    const int64_t bytes = problem.heads_kv * head_floats * static_cast<int64_t>(sizeof(float));
    return reinterpret_cast<float*>(workspace + at + static_cast<size_t>(block.copy) * AlignedBytes(bytes));
  };
  if (buffers_.copies_k()) of.k = copy(k_, of.k_head);
  if (buffers_.copies_v()) of.v = copy(v_, of.v_head);
  return of;
}

Status GradChain::Run(Context& context, Transport& transport, const GradRows& rows, const Finished& finished,
                      const Travelling& travelling, UnitProgress& progress, std::byte* workspace,
                      Status& computed) const {
  auto* states = reinterpret_cast<ChainMessages::BlockState*>(workspace + states_);
  auto* sums = reinterpret_cast<KeySums*>(workspace + sums_);
  new (sums) KeySums;
  for (size_t b = 0; b < graph_.blocks.size(); ++b) {
    new (&states[b]) ChainMessages::BlockState;
    new (&sums[b]) KeySums(SumsOf(graph_.blocks[b], travelling.sums, finished.rows, workspace));
  }
  ChainMessages messages(transport, graph_.blocks, {states, graph_.blocks.size()}, AllSums(travelling.sums),
                         {travelling.requests, RequestCount()}, progress);
  if (computed.ok()) {
    GradRows of_unit = rows;
    of_unit.dk = finished.dk;
    of_unit.dk_rope = finished.dk_rope;
    of_unit.dv = finished.dv;
    BackwardTile tile(bound_.forward.problem, graph_.plan, table_, of_unit, buffers_, workspace, sums);
    auto run_task = [&](int32_t task, int worker) {
      const tiling::BackwardItem& item = graph_.plan.items[static_cast<size_t>(task)];
      if (item.key_begin == item.key_end) return tile(task, worker);  // rows without keys belong to no block
      const tiling::SumBlock& of = graph_.blocks[static_cast<size_t>(item.key_sums)].of;
      if (item.first_of_column && of.begins_heads && has_key_bias()) OpenBias(item, sums[item.key_sums]);
      tile(task, worker);
      if (item.last_of_column && of.ends_heads && has_key_bias()) FinishBias(item, sums[item.key_sums], finished);
      messages.TileHasRun(item.key_sums);
    };
    computed = RankRunner(context, &messages)
                   .RunGraph(graph_.plan.graph, core::TaskFunction(run_task), workspace + run_state_);
    if (!messages.failed().ok()) return messages.failed();
  }
  return messages.done() ? Status::Ok() : messages.PassOn();
}

/// Clears the sums of the bias gradient for the tile's keys.
void GradChain::OpenBias(const tiling::BackwardItem& item, const KeySums& sums) {
  std::fill_n(sums.bias + item.head_kv * sums.bias_head + item.key_begin - sums.first_key,
              item.key_end - item.key_begin, 0.0f);
}

void GradChain::FinishBias(const tiling::BackwardItem& item, const KeySums& sums, const Finished& finished) {
  const int64_t key = item.key_begin - sums.first_key;
  std::copy_n(sums.bias + item.head_kv * sums.bias_head + key, item.key_end - item.key_begin,
              finished.bias + item.head * finished.rows.rows + sums.first_row + key);
}

void GradChain::ForgetSends(const Travelling& travelling) const {
  std::fill_n(travelling.requests, RequestCount(), kNoRequest);
}

Status GradChain::FinishSends(Transport& transport, const Travelling& travelling) const {
  for (size_t chunk = 0; chunk < RequestCount(); ++chunk) {
    Transport::Request& sent = travelling.requests[chunk];
    if (sent == kNoRequest) continue;
    FA_RETURN_IF_ERROR(transport.Wait(std::exchange(sent, kNoRequest)));
  }
  return Status::Ok();
}

}  // namespace fa::ops
