#include "ops/ranks/run/grad_chain.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "core/integer.h"
#include "core/run/executor.h"
#include "ops/plan/plan_machine.h"
#include "ops/ranks/rows/unit_messages.h"
#include "ops/tile/strip.h"
#include "tiling/backward/backward_facts.h"
#include "tiling/backward/backward_interleave.h"
#include "tiling/backward/backward_order.h"
#include "tiling/backward/backward_shape.h"
#include "tiling/plan_limits.h"
#include "tiling/ranks/sequence_part.h"

namespace fa::ops {
namespace {

// Tags of messages: those of units and of parameter sums stand before, and no two chunks of a pair of ranks that
// overtake each other share one.
constexpr int kFirstTag = kUnitTags + 1, kTags = 32'000;
constexpr Transport::Request kNoRequest = -1;

/// The rule of a part's own rows alone: a part keeps the number of all rows.
tiling::RowRule OwnRule(const tiling::Sequence& part) {
  tiling::RowRule rule = part.rule;
  rule.sq = part.sq;
  return rule;
}

int TagOf(int64_t chunk) { return kFirstTag + static_cast<int>(chunk % kTags); }

}  // namespace

GradChain::GradChain(const Context& context, BoundAttentionGrad part, const std::vector<tiling::RowPart>& parts,
                     const std::vector<tiling::Sequence>& whole, int64_t first_sequence,
                     std::shared_ptr<const tiling::SumSchedule> schedule, int rank)
    : bound_(std::move(part)),
      schedule_(std::move(schedule)),
      table_(KernelsOf(context, bound_.forward.problem.dtype)),
      machine_(MachineOf(context, table_)),
      columns_(bound_.forward.problem.d + bound_.forward.problem.d_rope),
      layout_(MakeLayout(machine_)),
      buffers_(bound_, layout_, table_, workspace_) {
  MakeBlocks(machine_, parts, whole, first_sequence, rank);
  size_t run_state = 0;
  for (const tiling::BackwardPlan& idle : idle_) run_state = std::max(run_state, core::RunStateBytes(idle.graph));
  for (const Block& block : blocks_) run_state = std::max(run_state, core::RunStateBytes(block.plan.graph));
  run_state_ = workspace_.Book("run state of a block", run_state);
  const tiling::AttentionProblem& problem = bound_.forward.problem;
  const auto book = [&](const char* name, bool copies, int64_t floats) {
    return workspace_.Book(name, copies ? static_cast<size_t>(floats) * sizeof(float) : 0, problem.heads_kv);
  };
  k_ = book("K of a chunk", buffers_.copies_k(), buffers_.KeyOffset(copied_keys_));
  v_ = book("V of a chunk", buffers_.copies_v(), copied_keys_ * problem.dv);
}

int64_t GradChain::ColumnsAtOnce(const tiling::Machine& machine) const {
  return core::CeilDiv(int64_t{machine.workers}, bound_.forward.problem.heads_kv);
}

/// One slot per kv head, which has the rows of all parts one after the other.
tiling::BackwardPlan GradChain::MakeLayout(const tiling::Machine& machine) const {
  const tiling::AttentionProblem& problem = bound_.forward.problem;
  const tiling::BackwardShape shape =
      ChooseBackwardShape(problem, machine, ChooseBackwardInterleave(problem, machine.workers));
  int64_t rows = 0, keys = 0;
  for (const tiling::Sequence& sequence : problem.sequences) rows = std::max(rows, sequence.sq);
  for (const tiling::SumChunk& chunk : schedule_->chunks) keys = std::max(keys, chunk.keys.size());
  const int64_t most_rows = tiling::TileRowsOfBlocks(rows, core::CeilDiv(keys, shape.block_k), ColumnsAtOnce(machine));
  tiling::BackwardPlan layout;
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

tiling::BackwardPlan GradChain::MakeGraph(int64_t part, tiling::Interval heads, const tiling::BackwardCut& cut,
                                          int workers) const {
  const tiling::AttentionProblem& problem = bound_.forward.problem;
  const tiling::PairTiles tiles = MakePairTiles(OwnRule(problem.sequences[static_cast<size_t>(part)]), cut);
  std::vector<tiling::HeadPair> pairs;
  if (!tiles.tiles.empty()) {
    for (int64_t head = 0; head < problem.heads_kv; ++head) pairs.push_back({part, head, &tiles});
  }
  tiling::BackwardPlan graph;
  graph.block_q = layout_.block_q;
  graph.block_k = layout_.block_k;
  graph.slot_row_of = layout_.slot_row_of;
  OrderPairs(pairs, {.pairs = problem.heads_kv, .band = cut.band}, problem.group(), workers, graph);
  for (tiling::BackwardItem& item : graph.items) {
    item.head += heads.begin;
    item.slot = static_cast<int32_t>(item.head_kv);
  }
  return graph;
}

void GradChain::MakeBlocks(const tiling::Machine& machine, const std::vector<tiling::RowPart>& parts,
                           const std::vector<tiling::Sequence>& whole, int64_t first_sequence, int rank) {
  const tiling::AttentionProblem& problem = bound_.forward.problem;
  tiling::BackwardCut cut{.block_q = layout_.block_q,
                          .block_k = layout_.block_k,
                          .strip_rows = machine.strip_rows,
                          .group = problem.group(),
                          .band = ColumnsAtOnce(machine),
                          .columns = {0, 0}};
  double tiles = 0;
  for (const tiling::Sequence& sequence : problem.sequences) {
    tiles += CountPairTiles(OwnRule(sequence), cut) * static_cast<double>(problem.heads_kv);
    flops_ += BackwardFlopsPerPair(problem) * static_cast<double>(problem.heads) *
              static_cast<double>(sequence.rule.KeptPairs({0, sequence.sq}));
  }
  tiling::CheckTasks(tiles, machine);
  for (int64_t part = 0; part < std::ssize(parts); ++part) {
    tiling::BackwardPlan idle = MakeGraph(part, {0, problem.group()}, cut, machine.workers);
    if (!idle.items.empty()) idle_.push_back(std::move(idle));
  }
  cut.rows_without_keys = false;
  for (const tiling::SumBlock& block : schedule_->blocks) {
    if (block.rank != rank) continue;
    const tiling::SumChunk& chunk = schedule_->chunks[static_cast<size_t>(block.chunk)];
    const int64_t sequence = first_sequence + chunk.sequence;
    const auto found = std::find_if(parts.begin(), parts.end(), [&](const tiling::RowPart& part) {
      return part.sequence == sequence && part.placed.rows == block.rows;
    });
    cut.group = block.heads.size();
    cut.columns = {chunk.keys.begin / cut.block_k, core::CeilDiv(chunk.keys.end, cut.block_k)};
    cut.order = ColumnsDescend(whole[static_cast<size_t>(sequence)].rule) ? tiling::ColumnOrder::kDescending
                                                                          : tiling::ColumnOrder::kAscending;
    copied_keys_ = std::max(copied_keys_, table_.rows->PairedRows(core::RoundUp(chunk.keys.size(), cut.block_k)));
    blocks_.push_back({block, MakeGraph(found - parts.begin(), block.heads, cut, machine.workers)});
  }
  for (int64_t s = 0; s < std::ssize(whole) - first_sequence; ++s) {
    key_offset_.push_back(whole[static_cast<size_t>(first_sequence + s)].k_offset);
  }
}

tiling::PlanFacts GradChain::Facts() const {
  return FactsOf(bound_.forward.problem, machine_, blocks_.empty() ? layout_ : blocks_.front().plan,
                 {table_.widest().name});
}

size_t GradChain::SumBytes() const {
  const tiling::AttentionProblem& problem = bound_.forward.problem;
  return static_cast<size_t>(schedule_->keys * problem.heads_kv * (columns_ + problem.dv)) * sizeof(float);
}

std::span<float> GradChain::Region(const tiling::SumChunk& chunk, float* sums) const {
  const int64_t floats_per_key = bound_.forward.problem.heads_kv * (columns_ + bound_.forward.problem.dv);
  return {sums + chunk.at * floats_per_key, static_cast<size_t>(chunk.keys.size() * floats_per_key)};
}

TravellingSums GradChain::SumsOf(const tiling::SumChunk& chunk, float* sums, std::byte* workspace) const {
  const tiling::AttentionProblem& problem = bound_.forward.problem;
  const int64_t keys = chunk.keys.size();
  TravellingSums of{.dk = Region(chunk, sums).data(),
                    .dk_head = keys * columns_,
                    .dv_head = keys * problem.dv,
                    .k = reinterpret_cast<float*>(workspace + k_),
                    .v = reinterpret_cast<float*>(workspace + v_),
                    .k_head = buffers_.KeyOffset(copied_keys_),
                    .v_head = copied_keys_ * problem.dv,
                    .first_key = chunk.keys.begin};
  of.dv = of.dk + problem.heads_kv * of.dk_head;
  return of;
}

Status GradChain::RunGraph(const Plan::Impl& plan, const tiling::BackwardPlan& graph, const GradRows& rows,
                           const TravellingSums* sums, std::byte* workspace) const {
  BackwardTile tile(bound_.forward.problem, graph, table_, rows, buffers_, workspace, sums);
  return plan.RunGraph(graph.graph, core::TaskFunction(tile), workspace + run_state_);
}

Status GradChain::Run(const Plan::Impl& plan, Transport& transport, const GradRows& rows, const Finished& finished,
                      const Travelling& travelling, std::byte* workspace, Status& computed) const {
  for (const tiling::BackwardPlan& idle : idle_) {
    if (computed.ok()) computed = RunGraph(plan, idle, rows, nullptr, workspace);
  }
  for (const Block& block : blocks_) {
    const tiling::SumChunk& chunk = schedule_->chunks[static_cast<size_t>(block.of.chunk)];
    const std::span<float> region = Region(chunk, travelling.sums);
    Transport::Request& sent = travelling.requests[block.of.chunk];
    if (block.of.from < 0) {
      std::memset(region.data(), 0, region.size_bytes());
    } else if (block.of.from != block.of.rank) {
      // What has come back has left.
      if (sent != kNoRequest) {
        if (Status status = transport.Wait(std::exchange(sent, kNoRequest)); !status.ok()) return status;
      }
      Transport::Request request = kNoRequest;
      const auto bytes = std::as_writable_bytes(region);
      if (Status status = transport.Receive(block.of.from, TagOf(block.of.chunk), bytes, &request); !status.ok()) {
        return status;
      }
      if (Status status = transport.Wait(request); !status.ok()) return status;
    }
    const TravellingSums sums = SumsOf(chunk, travelling.sums, workspace);
    if (computed.ok()) computed = RunGraph(plan, block.plan, rows, &sums, workspace);
    if (block.of.to < 0) {
      Finish(chunk, rows, finished, travelling.sums);
    } else if (block.of.to != block.of.rank) {
      if (Status status = transport.Send(block.of.to, TagOf(block.of.chunk), std::as_bytes(region), &sent);
          !status.ok()) {
        return status;
      }
    }
  }
  return Status::Ok();
}

void GradChain::Finish(const tiling::SumChunk& chunk, const GradRows& rows, const Finished& finished,
                       float* sums) const {
  const tiling::AttentionProblem& problem = bound_.forward.problem;
  const TravellingSums of = SumsOf(chunk, sums, nullptr);
  const int64_t first = finished.rows.Place(key_offset_[static_cast<size_t>(chunk.sequence)] + chunk.keys.begin);
  for (int64_t head = 0; head < problem.heads_kv; ++head) {
    const auto write = [&](const layout::MutableRowsView& to, const float* from, int64_t stride, int64_t width,
                           float multiplier) {
      table_.rows->narrow(from, stride, chunk.keys.size(), width, multiplier, TargetAt(to, 0, head, first));
    };
    const float* dk = of.dk + head * of.dk_head;
    write(finished.dk, dk, columns_, problem.d, rows.scores.scale);
    if (problem.d_rope > 0) write(finished.dk_rope, dk + problem.d, columns_, problem.d_rope, rows.scores.scale);
    write(finished.dv, of.dv + head * of.dv_head, problem.dv, problem.dv, 1.0f);
  }
}

void GradChain::ForgetSends(const Travelling& travelling) const {
  std::fill_n(travelling.requests, RequestCount(), kNoRequest);
}

Status GradChain::FinishSends(Transport& transport, const Travelling& travelling) const {
  for (size_t chunk = 0; chunk < RequestCount(); ++chunk) {
    Transport::Request& sent = travelling.requests[chunk];
    if (sent == kNoRequest) continue;
    if (Status status = transport.Wait(std::exchange(sent, kNoRequest)); !status.ok()) return status;
  }
  return Status::Ok();
}

}  // namespace fa::ops
