#include "ops/dense/forward_program.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/run/executor.h"
#include "ops/dense/unused_rows.h"
#include "ops/plan/plan_machine.h"
#include "tiling/forward/forward_facts.h"
#include "tiling/forward/make_forward_plan.h"

namespace fa::ops {
namespace {

/// Returns the kernels of a call. If keys are compressed, these are the f32 kernels, because tiles widen keys to f32.
/// Only the kernels of few rows are still those of problem.dtype. With problem.whole_rows, no kernels of few rows
/// are used.
core::kernels::KernelTable TableOf(const Context& context, const BoundAttention& bound) {
  const core::kernels::KernelTable& own = KernelsOf(context, bound.problem.dtype);
  if (!core::kernels::IsCompressed(bound.k.dtype)) return own;
  core::kernels::KernelTable table = KernelsOf(context, DType::kF32);
  table.few = own.few;
  table.few_count = bound.problem.whole_rows ? 0 : own.few_count;
  return table;
}

/// Sets k_in_place, v_in_place and packs_tiles. Kernels of pairs read K in place, because a pair is two neighbouring
/// columns of a row. V must be packed, because a pair of V is one column of two neighbouring keys. The loop of the tile
/// unit takes both packed, but it has no dropout. With a bias or slopes, a row's first keys often have far lower scores
/// than later ones, and the loop would compute most rows twice.
BoundAttention ReadBy(const core::kernels::KernelTable& table, BoundAttention bound) {
  if (table.pairs()) {
    bound.problem.packs_tiles = AttendedTiles::Takes(table, bound.problem) && !bound.has_drop_mask &&
                                !bound.has_philox && !bound.has_pse && !bound.has_slopes;
    bound.problem.k_in_place = !bound.problem.packs_tiles;
    bound.problem.v_in_place = false;
  }
  return bound;
}

}  // namespace

ForwardProgram::ForwardProgram(const char* op, const Context& context, BoundAttention bound)
    : op_(op),
      table_(TableOf(context, bound)),
      bound_(ReadBy(table_, std::move(bound))),
      machine_(MachineOf(context, table_)),
      plan_(tiling::MakeForwardPlan(bound_.problem, machine_)) {
  buffers_.run_state = workspace_.Book("run state", core::RunStateBytes(plan_.graph));
  buffers_.slots =
      workspace_.Book("packed K and V", KeyPanels::SlotBytes(bound_.problem, plan_, table_), plan_.kv_slots);
  buffers_.converts_keys = bound_.converts_keys() && !bound_.problem.whole_rows;
  buffers_.stages_bias = bound_.pse.compressed;
  buffers_.scratch_bytes = TileScratch::Bytes(bound_.problem, plan_.shape.block_q, plan_.shape.block_k,
                                              buffers_.converts_keys, buffers_.stages_bias, bound_.problem.packs_tiles);
  buffers_.scratch = workspace_.Book("tile scratch", buffers_.scratch_bytes, plan_.graph.workers());
  if (plan_.merges == 0) return;
  buffers_.arrivals = workspace_.Book("arrived parts of keys", ArrivalBytes());
  buffers_.state_floats = PartStateFloats(plan_.state_rows, bound_.problem.dv);
  buffers_.states = workspace_.Book("states of parts of keys", buffers_.state_floats * sizeof(float), plan_.states);
}

Status ForwardProgram::Run(const GraphRunner& runner, const ForwardRows& rows, std::byte* workspace,
                           const OutputQuantization* quantization) const {
  WriteUnusedRows(bound_.problem, rows);
  std::memset(workspace + buffers_.arrivals, 0, ArrivalBytes());
  ForwardTile tile(bound_.problem, plan_, table_, rows, buffers_, workspace, quantization);
  return runner.RunGraph(plan_.graph, core::TaskFunction(tile), workspace + buffers_.run_state);
}

tiling::PlanFacts ForwardProgram::Facts() const {
  tiling::PlanFacts facts = FactsOf(op_, bound_.problem, machine_, plan_, KernelNames());
  facts.problem += UnusedRowsLine(bound_);
  return facts;
}

std::vector<std::string> ForwardProgram::KernelNames() const {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  const tiling::ForwardItem* last = nullptr;
  for (const auto& item : plan_.items) {
    const int64_t rows = (item.row_end - item.row_begin) * item.heads;
    if (last != nullptr && item.sequence == last->sequence && rows == (last->row_end - last->row_begin) * last->heads) {
      continue;
    }
    last = &item;
    if (bound_.problem.packs_tiles && item.slot >= 0) {
      add(std::string(table_.widest().name) + "_attend_tiles");
      continue;
    }
    for (int64_t left = rows; left > 0;) {
      const core::kernels::StripKernels& strip =
          ForwardKernels(table_, bound_.problem, plan_.shape.block_k, item.sequence, left);
      add(strip.name);
      left -= strip.rows;
    }
  }
  return names;
}

}  // namespace fa::ops
