#include "ops/inference/int8_program.h"

#include <algorithm>
#include <utility>

#include "core/run/executor.h"
#include "ops/plan/plan_machine.h"
#include "ops/tile/forward_strips.h"
#include "tiling/forward/forward_facts.h"
#include "tiling/forward/make_forward_plan.h"

namespace fa::ops {
namespace {

// Returns the machine for which the planner cuts tiles. Its strips have the width of the widest int8 kernel.
tiling::Machine MachineFor(const Context& context, const Int8Kernels& kernels) {
  tiling::Machine machine = MachineOf(context, kernels.passes);
  machine.isa = kernels.words.isa;
  machine.strip_rows = static_cast<int>(kernels.words.strips[0].width);
  return machine;
}

}  // namespace

Int8Program::Int8Program(const char* op, const Context& context, BoundAttention bound)
    : op_(op),
      bound_(std::move(bound)),
      kernels_(Int8KernelsOf(context)),
      machine_(MachineFor(context, kernels_)),
      plan_(tiling::MakeForwardPlan(bound_.problem, machine_)) {
  const core::kernels::Int8Table& words = kernels_.words;
  buffers_.run_state = workspace_.Book("run state", core::RunStateBytes(plan_.graph));
  buffers_.slots =
      workspace_.Book("packed K and V", Int8Panels::SlotBytes(bound_.problem, plan_, words), plan_.kv_slots);
  buffers_.scratch_bytes = Int8Scratch::Bytes(bound_.problem, bound_.out.dtype, plan_.slot_rows, words);
  buffers_.scratch = workspace_.Book("tile scratch", buffers_.scratch_bytes, plan_.graph.workers());
}

Status Int8Program::Run(const Plan::Impl& plan, ForwardRows rows, const ProductScales& scales,
                        const OutputQuantization* quantization, std::byte* workspace) const {
  rows.scores.scale = scales.scores;
  WriteUnusedRows(bound_.problem, rows);
  Int8Tile tile(bound_.problem, plan_, kernels_, rows, scales, quantization, buffers_, workspace);
  return plan.RunGraph(plan_.graph, core::TaskFunction(tile), workspace + buffers_.run_state);
}

tiling::PlanFacts Int8Program::Facts() const { return FactsOf(op_, bound_.problem, machine_, plan_, KernelNames()); }

std::vector<std::string> Int8Program::KernelNames() const {
  std::vector<std::string> names;
  for (const auto& item : plan_.items) {
    const int64_t sk = bound_.problem.sequences[static_cast<size_t>(item.sequence)].sk;
    for (int64_t left = (item.row_end - item.row_begin) * item.heads; left > 0;) {
      const core::kernels::Int8Kernels& strip = kernels_.ForRows(left, sk);
      if (std::find(names.begin(), names.end(), strip.name) == names.end()) names.emplace_back(strip.name);
      left -= strip.width;
    }
  }
  return names;
}

}  // namespace fa::ops
