#ifndef FA_ACLNN_TENSOR_LISTS_H_
#define FA_ACLNN_TENSOR_LISTS_H_

#include <vector>

#include "acl/acl.h"
#include "aclnn/runtime/operands.h"
#include "fa/status.h"

namespace fa::aclnn {

/// Adds each tensor of the list as an input. Stores an error in *status if the list is not alive.
[[nodiscard]] std::vector<Operands::Slot> AddList(const char* name, const aclTensorList* list, Operands::Form form,
                                                  Operands& operands, Status* status);

/// Reports 561103 if a tensor of the list is null; otherwise returns 0.
[[nodiscard]] aclnnStatus CheckNoNullIn(const char* name, const aclTensorList* list);

}  // namespace fa::aclnn

#endif  // FA_ACLNN_TENSOR_LISTS_H_
