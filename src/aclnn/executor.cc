#include "aclnn/executor.h"

#include <mutex>
#include <string>
#include <vector>

#include "aclnn/descriptors.h"
#include "aclnn/handle_table.h"
#include "aclnn/report.h"
#include "aclnn/stream.h"

struct aclOpExecutor {
  std::shared_ptr<const fa::aclnn::Operation> operation;
  uint64_t workspace_bytes = 0;

  std::mutex mutex;              // of what follows
  std::vector<void*> addresses;  // of the operands
  bool repeatable = false;
};

namespace fa::aclnn {
namespace {

// What the operation needs begins at the next multiple of this in the program's workspace.
constexpr uintptr_t kAlignment = 64;

HandleTable<aclOpExecutor>& Executors() {
  static auto& executors = *new HandleTable<aclOpExecutor>;
  return executors;
}

std::byte* Aligned(void* workspace) {
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  return static_cast<std::byte*>(workspace) + (kAlignment - address % kAlignment) % kAlignment;
}

aclnnStatus NotAlive() { return Report({ACLNN_ERR_PARAM_INVALID, "executor: not created, run before, or destroyed"}); }

// The executor behind a handle, or null and its error.
std::shared_ptr<aclOpExecutor> Find(const aclOpExecutor* handle, aclnnStatus* error) {
  *error = CheckNotNull({{"executor", handle}});
  if (*error != ACLNN_SUCCESS) return nullptr;
  auto executor = Executors().Find(handle);
  if (executor == nullptr) *error = NotAlive();
  return executor;
}

aclnnStatus CheckWorkspace(const void* workspace, uint64_t size, uint64_t want) {
  if (want == 0) return ACLNN_SUCCESS;
  if (workspace == nullptr) return Report({ACLNN_ERR_PARAM_NULLPTR, "workspace: null"});
  if (size >= want) return ACLNN_SUCCESS;
  return Report({ACLNN_ERR_PARAM_INVALID,
                 "invalid argument: workspaceSize=" + std::to_string(size) + ", want " + std::to_string(want)});
}

}  // namespace

aclnnStatus ReleaseExecutor(std::shared_ptr<Operation> operation, uint64_t* workspace_size, aclOpExecutor** executor) {
  auto made = std::make_shared<aclOpExecutor>();
  const size_t booked = operation->operands().booked_bytes();
  made->workspace_bytes = booked > 0 ? booked + kAlignment : 0;
  made->addresses = operation->TakeAddresses();
  made->operation = std::move(operation);
  *workspace_size = made->workspace_bytes;
  *executor = Executors().Insert(std::move(made));
  return ACLNN_SUCCESS;
}

aclnnStatus Execute(void* workspace, uint64_t workspace_size, aclOpExecutor* handle, aclrtStream stream) noexcept {
  return GuardedOperator([&]() -> aclnnStatus {
    aclnnStatus error = ACLNN_SUCCESS;
    const auto executor = Find(handle, &error);
    if (executor == nullptr) return error;
    error = CheckWorkspace(workspace, workspace_size, executor->workspace_bytes);
    if (error != ACLNN_SUCCESS) return error;
    bool repeatable = false;
    std::vector<void*> addresses;
    {
      const std::lock_guard lock(executor->mutex);
      repeatable = executor->repeatable;
      addresses = executor->addresses;
    }
    if (const char* name = executor->operation->operands().FirstWithoutMemory(addresses); name != nullptr) {
      return Report({ACLNN_ERR_PARAM_NULLPTR, std::string(name) + ": null data"});
    }
    const std::shared_ptr<Stream> queue = FindStream(stream);
    if (queue == nullptr) return Report({ACLNN_ERR_PARAM_INVALID, "stream: not created, or destroyed"});
    // Two threads cannot both run an executor that runs once.
    if (!repeatable && Executors().Remove(handle) == nullptr) return NotAlive();
    queue->Push([operation = executor->operation, addresses = std::move(addresses), base = Aligned(workspace)] {
      return operation->Run({.addresses = addresses, .workspace = base});
    });
    return ACLNN_SUCCESS;
  });
}

}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  return Guarded([&]() -> aclnnStatus {
    aclnnStatus error = ACLNN_SUCCESS;
    const auto found = Find(executor, &error);
    if (found == nullptr) return error;
    const std::lock_guard lock(found->mutex);
    found->repeatable = true;
    return ACLNN_SUCCESS;
  });
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  return Guarded([&]() -> aclnnStatus {
    aclnnStatus error = CheckNotNull({{"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    return Executors().Remove(executor) == nullptr ? NotAlive() : ACLNN_SUCCESS;
  });
}

aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return Guarded([&]() -> aclnnStatus {
    aclnnStatus error = ACLNN_SUCCESS;
    const auto found = Find(executor, &error);
    if (found == nullptr) return error;
    if (const auto descriptor = FindTensor(tensor); descriptor != nullptr) descriptor->set_data(addr);
    const std::lock_guard lock(found->mutex);
    if (index >= found->addresses.size()) {
      return Report({ACLNN_ERR_PARAM_INVALID, "invalid argument: index=" + std::to_string(index) + ", want less than " +
                                                  std::to_string(found->addresses.size()) + " (tensors given)"});
    }
    found->addresses[index] = addr;
    return ACLNN_SUCCESS;
  });
}
