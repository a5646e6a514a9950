#ifndef FA_ACLNN_EXECUTOR_H_
#define FA_ACLNN_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnn/runtime/operands.h"
#include "fa/status.h"

namespace fa::aclnn {

/// One operator call, checked and planned. Run() changes nothing in the object, because several streams may run a
/// repeatable executor at the same time.
class Operation {
 public:
  explicit Operation(Operands operands) : operands_(std::move(operands)) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Runs the operation on the stream's thread. On failure nothing was written.
  [[nodiscard]] virtual Status Run(const CallMemory& memory) const = 0;
  [[nodiscard]] const Operands& operands() const { return operands_; }
  /// Returns the addresses of the tensors. The executor calls this function once.
  [[nodiscard]] std::vector<void*> TakeAddresses() { return operands_.TakeAddresses(); }

 protected:
  Operands operands_;
};

/// Ends the first phase: hands the executor and its workspace's size to the program.
[[nodiscard]] aclnnStatus ReleaseExecutor(std::shared_ptr<Operation> operation, uint64_t* workspace_size,
                                          aclOpExecutor** executor);

/// Does the second phase of every operator: queues the operation.
aclnnStatus Execute(void* workspace, uint64_t workspace_size, aclOpExecutor* executor, aclrtStream stream) noexcept;
/// Defines a function of the interface that does the second phase.
#define FA_DEFINE_EXECUTE(function)                                                                            \
  aclnnStatus function(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream) { \
    return fa::aclnn::Execute(workspace, workspaceSize, executor, stream);                                     \
  }

}  // namespace fa::aclnn

#endif  // FA_ACLNN_EXECUTOR_H_
