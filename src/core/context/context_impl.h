#ifndef FA_CORE_CONTEXT_IMPL_H_
#define FA_CORE_CONTEXT_IMPL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/context/pool.h"
#include "core/machine/cpu.h"
#include "core/machine/topology.h"
#include "core/run/executor.h"
#include "core/run/flow_executor.h"
#include "fa/context.h"
#include "fa/status.h"
#include "fa/workspace.h"

namespace fa {

/// The settings of a context, as they follow from its options, the environment and the machine.
struct ContextSettings {
  int workers = 1;
  Isa isa = Isa::kPortable;
  Accumulation accumulation = Accumulation::kDeterministic;
  NumaPolicy numa = NumaPolicy::kSpread;
  bool portable_blas = false;
  bool plans_only = false;    ///< whether the context plans for another machine and runs nothing
  bool reports_runs = true;   ///< whether FA_VERBOSE reports the context's runs
  std::string isa_note = {};  ///< the text that Context::isa_note returns
};

/// The values of FA_NUM_THREADS, FA_FORCE_ISA and FA_PORTABLE_BLAS. A variable that is not set is null.
struct ContextEnvironment {
  const char* num_threads = nullptr;
  const char* force_isa = nullptr;
  const char* portable_blas = nullptr;

  [[nodiscard]] static ContextEnvironment Read();
};

/// Determines the settings of a context. An option wins over the environment, and the environment wins over the
/// machine. If the build lacks the preferred level, the context gets the highest level below it.
/// @return the settings, or an error kInvalidArgument or kUnsupported
[[nodiscard]] Result<ContextSettings> ResolveContext(const ContextOptions& options,
                                                     const ContextEnvironment& environment,
                                                     const core::Topology& topology, Isa highest,
                                                     std::optional<Isa> preferred = {},
                                                     bool (*left_out)(Isa) = core::IsLeftOut);

/// A machine that is not this one, and the settings of a context for that machine.
struct PlannedMachine {
  ContextSettings settings;
  core::Topology topology;
};
[[nodiscard]] Result<PlannedMachine> ResolveMachine(const MachineOptions& machine);

class Context::Impl {
 public:
  using MakeExecutor = std::function<std::unique_ptr<core::Executor>()>;

  /// If `status` is not ok, calls with this context return `status` at once. `make_executor` makes executors with
  /// settings.workers workers; if it is null, they run on oneTBB.
  Impl(const ContextSettings& settings, core::Topology topology, Status status = Status::Ok(),
       MakeExecutor make_executor = {});
  [[nodiscard]] static std::unique_ptr<Context> ToContext(std::unique_ptr<Impl> impl);

  [[nodiscard]] const Status& status() const { return status_; }
  /// Returns kUnsupported if the context makes plans for another machine.
  [[nodiscard]] Status CheckRuns() const;
  [[nodiscard]] const ContextSettings& settings() const { return settings_; }
  [[nodiscard]] const core::Topology& topology() const { return topology_; }
  /// Returns the instruction-set level that planners use.
  [[nodiscard]] Isa isa() const { return settings_.isa; }
  [[nodiscard]] int workers() const { return settings_.workers; }
  /// Returns the number of NUMA nodes that the workers are spread over. Worker c is on core::NodeOfWorker(c, workers(),
  /// nodes()).
  [[nodiscard]] int nodes() const { return static_cast<int>(executor_nodes_.size()); }
  [[nodiscard]] int64_t l1_bytes() const { return topology_.l1_bytes; }
  [[nodiscard]] int64_t l2_bytes() const { return topology_.l2_bytes; }
  [[nodiscard]] bool portable_blas() const { return settings_.portable_blas; }

  using ExecutorLease = core::Pool<core::Executor>::Lease;
  /// A lease of a workspace from the pool. The destructor returns the workspace, and frees the memory of a large
  /// workspace.
  class WorkspaceLease {
   public:
    explicit WorkspaceLease(core::Pool<Workspace>::Lease lease) : lease_(std::move(lease)) {}
    ~WorkspaceLease();
    WorkspaceLease(const WorkspaceLease&) = delete;
    Workspace& operator*() const { return *lease_; }
    Workspace* operator->() const { return &*lease_; }

   private:
    core::Pool<Workspace>::Lease lease_;
  };
  /// BorrowExecutor and BorrowWorkspace lend an object to one call at a time. Both throw std::bad_alloc.
  [[nodiscard]] ExecutorLease BorrowExecutor();
  [[nodiscard]] WorkspaceLease BorrowWorkspace();

  [[nodiscard]] std::string Describe() const;

 private:
  ContextSettings settings_;
  core::Topology topology_;
  Status status_;
  std::vector<core::FlowExecutor::Node> executor_nodes_;
  MakeExecutor make_executor_;
  core::Pool<core::Executor> executors_;
  core::Pool<Workspace> workspaces_;
};

namespace core {

struct ContextAccess {
  static Context::Impl& ImplOf(const Context& context) { return *context.impl_; }
};
/// Returns the implementation of a context.
[[nodiscard]] inline Context::Impl& ImplOf(const Context& context) { return ContextAccess::ImplOf(context); }

}  // namespace core

}  // namespace fa

#endif  // FA_CORE_CONTEXT_IMPL_H_
