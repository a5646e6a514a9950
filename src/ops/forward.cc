// FlashAttention: bind -> plan -> run.

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "core/context_impl.h"
#include "core/executor.h"
#include "fa/flash_attention.h"
#include "ops/bind_attention.h"
#include "ops/forward_tile.h"
#include "ops/plan_impl.h"
#include "ops/plan_machine.h"
#include "tiling/describe.h"
#include "tiling/forward_plan.h"
#include "tiling/workspace_plan.h"

namespace fa {
namespace {

using ops::BoundAttention;
using ops::ForwardBuffers;

class ForwardPlanImpl final : public Plan::Impl {
 public:
  ForwardPlanImpl(Context& context, BoundAttention bound)
      : Impl(context),
        bound_(std::move(bound)),
        table_(ops::KernelsOf(context)),
        machine_(ops::MachineOf(context, table_)),
        plan_(tiling::MakeForwardPlan(bound_.problem, machine_)) {
    const bool convert = bound_.problem.dtype != DType::kF32;
    buffers_.run_state = workspace_.Book("run state", core::RunStateBytes(plan_.graph));
    buffers_.slots = workspace_.Book(
        "packed K and V", static_cast<size_t>(plan_.kv_slots) * ops::KeyPanels::SlotBytes(bound_.problem, plan_));
    buffers_.scratch_bytes = ops::TileScratch::Bytes(bound_.problem, plan_.shape.block_q, plan_.shape.block_k, convert,
                                                     bound_.pse.compressed);
    buffers_.scratch =
        workspace_.Book("tile scratch", buffers_.scratch_bytes * static_cast<size_t>(plan_.graph.workers()));
    if (plan_.merges == 0) return;
    buffers_.arrivals = workspace_.Book("arrived parts of keys", ArrivalBytes());
    buffers_.state_floats = ops::PartStateFloats(plan_.state_rows, bound_.problem.dv);
    buffers_.states = workspace_.Book("states of parts of keys",
                                      static_cast<size_t>(plan_.states) * buffers_.state_floats * sizeof(float));
  }

  [[nodiscard]] size_t workspace_bytes() const override { return workspace_.total_bytes(); }

  [[nodiscard]] PlanInfo info() const override;

  [[nodiscard]] std::string Describe() const override {
    return tiling::DescribeForward(bound_.problem, machine_, plan_, workspace_, KernelNames());
  }

  [[nodiscard]] Status Run(const AttentionArgs& args, std::byte* workspace) const override {
    if (Status status = ops::CheckRunArgs(bound_, args); !status.ok()) return status;
    if (bound_.tail_row_begin < bound_.tail_row_end) ops::WriteTailRows(bound_, args);
    std::memset(workspace + buffers_.arrivals, 0, ArrivalBytes());
    ops::ForwardTile tile(bound_, plan_, table_, args, buffers_, workspace);
    return RunGraph(plan_.graph, core::TaskFunction(tile), workspace + buffers_.run_state);
  }
  [[nodiscard]] Status Run(const AttentionGradArgs& /*args*/, std::byte* /*workspace*/) const override {
    return Status::InvalidArgument("plan: made for the forward, want AttentionArgs");
  }

 private:
  [[nodiscard]] std::vector<std::string> KernelNames() const;
  [[nodiscard]] size_t ArrivalBytes() const { return static_cast<size_t>(plan_.merges) * sizeof(int32_t); }

  BoundAttention bound_;
  const core::kernels::KernelTable& table_;
  tiling::Machine machine_;
  tiling::ForwardPlan plan_;
  tiling::WorkspacePlan workspace_;
  ForwardBuffers buffers_;
};

std::vector<std::string> ForwardPlanImpl::KernelNames() const {
  std::vector<std::string> names;
  const auto add = [&names](const char* name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  };
  const tiling::ForwardItem* last = nullptr;
  for (const auto& item : plan_.items) {
    const int64_t rows = (item.row_end - item.row_begin) * item.heads;
    if (last != nullptr && item.sequence == last->sequence && rows == (last->row_end - last->row_begin) * last->heads) {
      continue;
    }
    last = &item;
    for (int64_t left = rows; left > 0;) {
      const core::kernels::StripKernels& strip = ops::ForwardKernels(table_, bound_.problem, item.sequence, left);
      add(strip.name);
      left -= strip.rows;
    }
  }
  return names;
}

PlanInfo ForwardPlanImpl::info() const {
  PlanInfo info;
  info.op = "forward";
  info.isa = Name(table_.isa);
  info.kernels = KernelNames();
  info.reason = plan_.shape.reason;
  info.block_q = plan_.shape.block_q;
  info.block_k = plan_.shape.block_k;
  info.tasks = plan_.graph.task_count;
  info.edges = static_cast<int64_t>(plan_.graph.successors.size());
  info.workers = plan_.graph.workers();
  info.flops = plan_.flops;
  info.flops_full = plan_.flops_full;
  info.flops_visited = plan_.flops_visited;
  info.workspace_bytes = workspace_.total_bytes();
  info.load = plan_.load;
  info.efficiency = plan_.efficiency;
  info.tiles.reserve(plan_.items.size());
  const std::vector<int> worker_of = ops::FirstWorkers(plan_.graph);
  for (size_t t = 0; t < plan_.items.size(); ++t) {
    const auto& item = plan_.items[t];
    info.tiles.push_back({item.sequence, item.head_kv, item.head_begin, item.head_begin + item.heads, item.row_begin,
                          item.row_end, item.keys.begin, item.keys.end, item.cost, worker_of[t]});
  }
  return info;
}

}  // namespace

Result<Plan> PlanFlashAttention(const AttentionArgs& args, const AttentionOptions& options, Context* context) {
  return ops::MakePlan<ForwardPlanImpl>(context, [&] { return ops::BindAttention(args, options); });
}

Status FlashAttention(const AttentionArgs& args, const AttentionOptions& options, Context* context) {
  auto plan = PlanFlashAttention(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
