#include "fa/context.h"

#include <memory>
#include <utility>

#include "core/context/context_impl.h"
#include "core/kernels/kernel_types.h"
#include "core/machine/cpu.h"
#include "core/run/guarded_call.h"
#include "core/run/openmp_team.h"

namespace fa {
namespace {

// A workspace larger than this frees its memory after a call, because a library must not keep gigabytes between calls.
// Only calls on very long sequences need more. They take so long that the time for fresh pages is small.
constexpr size_t kKeptWorkspaceBytes = size_t{256} << 20;

// Makes one arena per NUMA node if there are several nodes and each gets at least two workers. Otherwise one arena
// serves all nodes.
std::vector<core::FlowExecutor::Node> ExecutorNodes(const ContextSettings& settings, const core::Topology& topology) {
  const int nodes = static_cast<int>(topology.nodes.size());
  if (settings.numa == NumaPolicy::kIgnore || nodes < 2 || settings.workers < 2 * nodes) {
    return {{.workers = settings.workers}};
  }
  std::vector<core::FlowExecutor::Node> result;
  for (const core::Topology::Node& node : topology.nodes) result.push_back({.workers = 0, .cpus = node.cpus});
  for (int worker = 0; worker < settings.workers; ++worker) {
    ++result[static_cast<size_t>(core::NodeOfWorker(worker, settings.workers, nodes))].workers;
  }
  return result;
}

std::string KibText(int64_t bytes) { return bytes == 0 ? "none" : std::to_string(bytes >> 10) + " KiB"; }

}  // namespace

Context::Impl::Impl(const ContextSettings& settings, core::Topology topology, Status status, MakeExecutor make_executor)
    : settings_(settings),
      topology_(std::move(topology)),
      status_(std::move(status)),
      executor_nodes_(ExecutorNodes(settings_, topology_)),
      make_executor_(std::move(make_executor)) {
  if (!make_executor_) make_executor_ = [this] { return std::make_unique<core::FlowExecutor>(executor_nodes_); };
}

std::unique_ptr<Context> Context::Impl::ToContext(std::unique_ptr<Impl> impl) {
  return std::unique_ptr<Context>(new Context(std::move(impl)));
}

Context::Impl::ExecutorLease Context::Impl::BorrowExecutor() { return executors_.Borrow(make_executor_); }

Context::Impl::WorkspaceLease Context::Impl::BorrowWorkspace() {
  return WorkspaceLease(workspaces_.Borrow([] { return std::make_unique<Workspace>(); }));
}

Context::Impl::WorkspaceLease::~WorkspaceLease() {
  if (lease_->size() > kKeptWorkspaceBytes) *lease_ = Workspace();
}

Status Context::Impl::CheckRuns() const {
  if (!settings_.plans_only) return Status::Ok();
  return Status::Unsupported("context: it plans for another machine (" + std::string(Name(isa())) + ", " +
                             std::to_string(workers()) + " cores) and runs nothing");
}

std::string Context::Impl::Describe() const {
  const auto& [workers, isa, accumulation, numa, portable_blas, plans_only, reports_runs, isa_note] = settings_;
  std::string text = plans_only ? "cpu: another machine, for plans only\n" : "cpu: " + core::CpuName() + "\n";
  text += std::string("isa: ") + Name(isa) + " (highest here: " + Name(DetectIsa()) + ")\n";
  std::string left_out;
  for (const Isa level : AllIsas()) {
    if (core::IsLeftOut(level)) left_out.append(left_out.empty() ? "" : ", ").append(Name(level));
  }
  if (!left_out.empty()) text += "levels not built (FA_LEVELS): " + left_out + "\n";
#if defined(__x86_64__)
  if (!plans_only && Includes(isa, Isa::kAvx512Bf16)) {
    const core::kernels::KernelTable& pairs = core::kernels::Kernels(isa, DType::kBF16);
    const bool has_words = pairs.few_count > 0 && pairs.few[0].few_rows.attend_byte_floats != nullptr;
    if (!has_words) text += "kernels not built (FA_LEVELS): 8-bit floats on CPUs without AVX512_VBMI\n";
  }
  if (!plans_only) text += std::string("tile unit (AMX): ") + core::TileUnitOf(core::ReadCpuFeatureWords()) + "\n";
#endif
  if (!isa_note.empty()) text += "isa not used: " + isa_note + "\n";
  text += "caches: L1 " + KibText(topology_.l1_bytes) + ", L2 " + KibText(topology_.l2_bytes) + ", L3 " +
          KibText(topology_.l3_bytes) + "\n";
  text += "numa nodes: " + std::to_string(topology_.nodes.size()) + " (";
  for (const core::Topology::Node& node : topology_.nodes) {
    text += (text.ends_with('(') ? "" : ", ") + std::string("node ") + std::to_string(node.os_index) + ": " +
            std::to_string(node.cores) + (node.cores == 1 ? " core" : " cores");
  }
  if (topology_.cpu_quota > 0) text += "; control group: time of " + std::to_string(topology_.cpu_quota);
  text += ")\nthreads: " + std::to_string(workers) + " in " + std::to_string(nodes()) + " arena(s), numa policy " +
          (numa == NumaPolicy::kSpread ? "spread" : "ignore") + "\n";
  text += std::string("accumulation: ") +
          (accumulation == Accumulation::kDeterministic ? "deterministic" : "atomic-free") + "\n";
  if (portable_blas) text += "portable products: OpenBLAS\n";
  if (!status_.ok()) text += "unusable: " + status_.message() + "\n";
  return text;
}

Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Context::~Context() = default;

Result<std::unique_ptr<Context>> Context::ForPlanning(const MachineOptions& machine) {
  return core::GuardedCall("context", [&]() -> Result<std::unique_ptr<Context>> {
    Result<PlannedMachine> planned = ResolveMachine(machine);
    if (!planned.ok()) return planned.status();
    return Impl::ToContext(std::make_unique<Impl>(planned->settings, std::move(planned->topology)));
  });
}

int Context::threads() const { return impl_->workers(); }
Isa Context::isa() const { return impl_->isa(); }
Accumulation Context::accumulation() const { return impl_->settings().accumulation; }
NumaPolicy Context::numa() const { return impl_->settings().numa; }
const std::string& Context::isa_note() const { return impl_->settings().isa_note; }
std::string Context::Describe() const { return impl_->Describe(); }

Result<bool> ShareOpenMpThreads(std::string_view runtime) {
  return core::GuardedCall("the name of the OpenMP runtime", [&] { return core::OpenMpTeam::Share(runtime); });
}

}  // namespace fa
