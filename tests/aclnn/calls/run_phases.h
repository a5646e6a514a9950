#ifndef FA_TESTS_ACLNN_RUN_PHASES_H_
#define FA_TESTS_ACLNN_RUN_PHASES_H_

#include <cstdint>
#include <vector>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"

namespace fa::test {

/// Runs both phases of an operator: `plan`, then `execute`.
template <typename Plan, typename Execute>
aclError RunPhases(Plan plan, Execute execute) {
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  if (const aclnnStatus status = plan(&size, &executor); status != ACLNN_SUCCESS) return status;
  std::vector<unsigned char> workspace(size);
  if (const aclnnStatus status = execute(workspace.data(), size, executor, nullptr); status != 0) return status;
  return aclrtSynchronizeStream(nullptr);
}

}  // namespace fa::test

#endif  // FA_TESTS_ACLNN_RUN_PHASES_H_
