#include "fa/plan.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "core/context/context_impl.h"
#include "core/run/guarded_call.h"
#include "core/run/serial_executor.h"
#include "fa/error_text.h"
#include "ops/plan/plan_impl.h"
#include "ops/plan/verbose.h"

namespace fa {

Plan::Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Status Plan::Impl::RunGraph(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* state) const {
  return core::GuardedCall("threads to run the plan", [&] {
    if (graph.task_count <= 1) return core::RunInOrder(graph, run_task);
    return core::ImplOf(context_).BorrowExecutor()->Run(graph, run_task, state);
  });
}

namespace {

constexpr uintptr_t kWorkspaceAlignment = 64;

Status RunOn(const Plan::Impl& impl, const void* args, std::byte* workspace) {
  const Context::Impl& context = core::ImplOf(impl.context());
  if (Status status = context.CheckRuns(); !status.ok()) return impl.CannotRun(status);
  if (!ops::Verbose() || !context.settings().reports_runs) [[likely]] {
    return impl.RunAny(args, workspace);
  }
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  Status status = impl.RunAny(args, workspace);
  ops::Report(impl, status, std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  return status;
}

Status CheckWorkspace(std::span<std::byte> workspace, size_t want) {
  if (workspace.size() < want) {
    return Status::InvalidArgument(ErrorText::Argument("workspace").Has(std::to_string(workspace.size())) +
                                   " bytes, want " + std::to_string(want));
  }
  if (reinterpret_cast<uintptr_t>(workspace.data()) % kWorkspaceAlignment != 0) {
    return Status::InvalidArgument(ErrorText::Argument("workspace").Says("want an address that is a multiple of 64"));
  }
  return Status::Ok();
}

}  // namespace

Status Plan::RunAny(const void* args, Workspace& workspace) const {
  Status status = core::GuardedCall("the run of a plan", [&] {
    if (Status reserved = workspace.Reserve(workspace_bytes()); !reserved.ok()) return impl_->CannotRun(reserved);
    return RunOn(*impl_, args, workspace.data());
  });
  if (!status.ok()) impl_->AfterError(workspace);
  return status;
}

Status Plan::RunAny(const void* args, std::span<std::byte> workspace) const {
  return core::GuardedCall("the run of a plan", [&] {
    if (Status status = CheckWorkspace(workspace, workspace_bytes()); !status.ok()) {
      return impl_->CannotRun(status);
    }
    return RunOn(*impl_, args, workspace.data());
  });
}

Status Plan::RunAny(const void* args) const {
  bool borrowed = false;
  const Status status = core::GuardedCall("a workspace of the context", [&] {
    auto workspace = core::ImplOf(impl_->context()).BorrowWorkspace();
    borrowed = true;
    return RunAny(args, *workspace);
  });
  return borrowed ? status : impl_->CannotRun(status);
}

size_t Plan::workspace_bytes() const { return impl_->workspace().total_bytes(); }
PlanInfo Plan::info() const { return impl_->Info(); }
std::string Plan::Describe() const { return tiling::Describe(impl_->Facts(), impl_->workspace()); }

}  // namespace fa
