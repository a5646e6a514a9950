#include "fa/plan.h"

#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include "core/context_impl.h"
#include "ops/plan_impl.h"

namespace fa {

Plan::Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Status Plan::Impl::RunGraph(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* state) const {
  try {
    if (graph.task_count == 0) return Status::Ok();
    if (graph.task_count == 1) {
      run_task(0, 0);
      return Status::Ok();
    }
    auto executor = context_.impl().BorrowExecutor();
    return executor->Run(graph, run_task, state);
  } catch (const std::bad_alloc&) {
    return Status::OutOfMemory("threads to run the plan");
  }
}

Status Plan::Impl::MadeForAnother() const {
  return Status::InvalidArgument(std::string("plan: made for ") + made_for());
}

Status Plan::Impl::Run(const AttentionArgs& /*args*/, std::byte* /*workspace*/) const { return MadeForAnother(); }
Status Plan::Impl::Run(const AttentionGradArgs& /*args*/, std::byte* /*workspace*/) const { return MadeForAnother(); }
Status Plan::Impl::Run(const PromptAttentionArgs& /*args*/, std::byte* /*workspace*/) const { return MadeForAnother(); }
Status Plan::Impl::Run(const DecodeAttentionArgs& /*args*/, std::byte* /*workspace*/) const { return MadeForAnother(); }

namespace {

template <typename Args>
Status RunIn(const Plan::Impl& impl, const Args& args, Workspace& workspace) {
  if (Status status = workspace.Reserve(impl.workspace_bytes()); !status.ok()) return status;
  return impl.Run(args, workspace.data());
}

constexpr uintptr_t kWorkspaceAlignment = 64;

template <typename Args>
Status RunGiven(const Plan::Impl& impl, const Args& args, std::span<std::byte> workspace) {
  const size_t want = impl.workspace_bytes();
  if (workspace.size() < want) {
    return Status::InvalidArgument("workspace has " + std::to_string(workspace.size()) + " bytes, want " +
                                   std::to_string(want));
  }
  if (reinterpret_cast<uintptr_t>(workspace.data()) % kWorkspaceAlignment != 0) {
    return Status::InvalidArgument("workspace: want an address that is a multiple of 64");
  }
  return impl.Run(args, workspace.data());
}

template <typename Args>
Status RunPooled(const Plan::Impl& impl, const Args& args) {
  try {
    auto workspace = impl.context().impl().BorrowWorkspace();
    return RunIn(impl, args, *workspace);
  } catch (const std::bad_alloc&) {
    return Status::OutOfMemory("a workspace of the context");
  }
}

}  // namespace

Status Plan::Run(const AttentionArgs& args, Workspace& workspace) const { return RunIn(*impl_, args, workspace); }
Status Plan::Run(const AttentionArgs& args) const { return RunPooled(*impl_, args); }
Status Plan::Run(const AttentionGradArgs& args, Workspace& workspace) const { return RunIn(*impl_, args, workspace); }
Status Plan::Run(const AttentionGradArgs& args) const { return RunPooled(*impl_, args); }
Status Plan::Run(const AttentionArgs& args, std::span<std::byte> workspace) const {
  return RunGiven(*impl_, args, workspace);
}
Status Plan::Run(const AttentionGradArgs& args, std::span<std::byte> workspace) const {
  return RunGiven(*impl_, args, workspace);
}
Status Plan::Run(const PromptAttentionArgs& args, Workspace& workspace) const { return RunIn(*impl_, args, workspace); }
Status Plan::Run(const PromptAttentionArgs& args) const { return RunPooled(*impl_, args); }
Status Plan::Run(const PromptAttentionArgs& args, std::span<std::byte> workspace) const {
  return RunGiven(*impl_, args, workspace);
}
Status Plan::Run(const DecodeAttentionArgs& args, Workspace& workspace) const { return RunIn(*impl_, args, workspace); }
Status Plan::Run(const DecodeAttentionArgs& args) const { return RunPooled(*impl_, args); }
Status Plan::Run(const DecodeAttentionArgs& args, std::span<std::byte> workspace) const {
  return RunGiven(*impl_, args, workspace);
}

size_t Plan::workspace_bytes() const { return impl_->workspace_bytes(); }
PlanInfo Plan::info() const { return impl_->info(); }
std::string Plan::Describe() const { return impl_->Describe(); }

}  // namespace fa
