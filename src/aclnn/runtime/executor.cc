#include "aclnn/runtime/executor.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "aclnn/runtime/descriptors.h"
#include "aclnn/runtime/handle_table.h"
#include "aclnn/runtime/report.h"
#include "aclnn/runtime/stream.h"

// The addresses are atomic and not guarded by a mutex. In a forked child, a thread that exists only in the parent could
// hold the mutex.
struct aclOpExecutor {
  explicit aclOpExecutor(std::shared_ptr<fa::aclnn::Operation> checked) : operation(std::move(checked)) {
    const std::vector<void*> given = operation->TakeAddresses();
    addresses = std::vector<std::atomic<void*>>(given.size());
    for (size_t i = 0; i < given.size(); ++i) addresses[i] = given[i];
  }

  std::shared_ptr<fa::aclnn::Operation> operation;
  uint64_t workspace_bytes = 0;
  std::vector<std::atomic<void*>> addresses;  // addresses of the operands
  std::atomic<bool> repeatable = false;
};

namespace fa::aclnn {
namespace {

// The operation's memory begins at the first multiple of this number in the program's workspace.
constexpr uintptr_t kAlignment = 64;

// No address space is larger than this number of bytes.
constexpr size_t kMostWorkspaceBytes = size_t{1} << 56;

constinit HandleTable<aclOpExecutor> executors;

std::byte* Aligned(void* workspace) {
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  return static_cast<std::byte*>(workspace) + (kAlignment - address % kAlignment) % kAlignment;
}

aclnnStatus NotAlive() { return Report({ACLNN_ERR_PARAM_INVALID, "executor: not created, run before, or destroyed"}); }

// Returns the executor of a handle. If there is none, returns null and stores the reason in *error.
std::shared_ptr<aclOpExecutor> Find(const aclOpExecutor* handle, aclnnStatus* error) {
  *error = CheckNotNull({{"executor", handle}});
  if (*error != ACLNN_SUCCESS) return nullptr;
  auto executor = executors.Find(handle);
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

// Gives the operand at `place` another address. The caller knows the operand as number `index` of `count` operands of
// this `kind`, such as "inputs".
aclnnStatus SetAddress(aclOpExecutor& executor, size_t index, size_t count, const char* kind, size_t place,
                       aclTensor* tensor, void* address) {
  if (const auto descriptor = FindTensor(tensor); descriptor != nullptr) descriptor->data = address;
  if (index >= count) {
    return Report({ACLNN_ERR_PARAM_INVALID, "invalid argument: index=" + std::to_string(index) + ", want less than " +
                                                std::to_string(count) + " (" + kind + " given)"});
  }
  executor.addresses[place] = address;
  return ACLNN_SUCCESS;
}

// Does the work of aclSetInputTensorAddr and aclSetOutputTensorAddr.
aclnnStatus SetAddressOf(const aclOpExecutor* handle, bool output, size_t index, aclTensor* tensor, void* address) {
  return Guarded([&]() -> aclnnStatus {
    aclnnStatus error = ACLNN_SUCCESS;
    const auto executor = Find(handle, &error);
    if (executor == nullptr) return error;
    const std::vector<size_t> places = executor->operation->operands().IndicesOf(output);
    const size_t place = index < places.size() ? places[index] : 0;
    return SetAddress(*executor, index, places.size(), output ? "outputs" : "inputs", place, tensor, address);
  });
}

}  // namespace

aclnnStatus ReleaseExecutor(std::shared_ptr<Operation> operation, uint64_t* workspace_size, aclOpExecutor** executor) {
  const size_t booked = operation->operands().booked_bytes();
  if (booked > kMostWorkspaceBytes) {
    return Report(Status::OutOfMemory("workspace of more than " + std::to_string(kMostWorkspaceBytes) + " bytes"));
  }
  auto made = std::make_shared<aclOpExecutor>(std::move(operation));
  made->workspace_bytes = booked > 0 ? booked + kAlignment : 0;
  const uint64_t bytes = made->workspace_bytes;
  *executor = executors.Insert(std::move(made));
  *workspace_size = bytes;
  return ACLNN_SUCCESS;
}

aclnnStatus Execute(void* workspace, uint64_t workspace_size, aclOpExecutor* handle, aclrtStream stream) noexcept {
  return GuardedOperator([&]() -> aclnnStatus {
    aclnnStatus error = ACLNN_SUCCESS;
    const auto executor = Find(handle, &error);
    if (executor == nullptr) return error;
    error = CheckWorkspace(workspace, workspace_size, executor->workspace_bytes);
    if (error != ACLNN_SUCCESS) return error;
    std::vector<void*> addresses(executor->addresses.begin(), executor->addresses.end());
    if (const char* name = executor->operation->operands().FirstWithoutMemory(addresses); name != nullptr) {
      return Report({ACLNN_ERR_PARAM_NULLPTR, std::string(name) + ": null data"});
    }
    const std::shared_ptr<Stream> queue = FindStream(stream);
    if (queue == nullptr) return ACLNN_ERR_PARAM_INVALID;
    Job job = [operation = executor->operation, addresses = std::move(addresses), base = Aligned(workspace)] {
      return operation->Run({.addresses = addresses, .workspace = base});
    };
    // The executor is removed in the same step in which the job is queued. So two threads cannot both run an executor
    // that may run only once. If the job cannot be queued, the executor stays.
    bool alive = true;
    const bool queued = queue->Push(std::move(job), [&] {
      alive = executor->repeatable || executors.Remove(handle) != nullptr;
      return alive;
    });
    if (queued) return ACLNN_SUCCESS;
    if (!alive) return NotAlive();
    return Report({ACLNN_ERR_PARAM_INVALID, "stream: destroyed by another thread meanwhile"});
  });
}

}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  return Guarded([&]() -> aclnnStatus {
    aclnnStatus error = ACLNN_SUCCESS;
    const auto found = Find(executor, &error);
    if (found == nullptr) return error;
    found->repeatable = true;
    return ACLNN_SUCCESS;
  });
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  return Guarded([&]() -> aclnnStatus {
    aclnnStatus error = CheckNotNull({{"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    return executors.Remove(executor) == nullptr ? NotAlive() : ACLNN_SUCCESS;
  });
}

aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return Guarded([&]() -> aclnnStatus {
    aclnnStatus error = ACLNN_SUCCESS;
    const auto found = Find(executor, &error);
    return found == nullptr ? error
                            : SetAddress(*found, index, found->addresses.size(), "tensors", index, tensor, addr);
  });
}

aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return SetAddressOf(executor, /*output=*/false, index, tensor, addr);
}

aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return SetAddressOf(executor, /*output=*/true, index, tensor, addr);
}
