#include "aclnn/operations/tensor_lists.h"

#include <algorithm>
#include <string>

#include "aclnn/runtime/descriptors.h"
#include "aclnn/runtime/report.h"

namespace fa::aclnn {

std::vector<Operands::Slot> AddList(const char* name, const aclTensorList* list, Operands::Form form,
                                    Operands& operands, Status* status) {
  std::vector<Operands::Slot> slots;
  const auto tensors = TensorsOf(name, list);
  if (!tensors.ok()) {
    *status = tensors.status();
    return slots;
  }
  for (const aclTensor* tensor : *tensors) slots.push_back(operands.Input(name, tensor, form));
  return slots;
}

aclnnStatus CheckNoNullIn(const char* name, const aclTensorList* list) {
  const auto tensors = TensorsOf(name, list);
  if (!tensors.ok()) return Report(tensors.status());
  const auto null = std::find(tensors->begin(), tensors->end(), nullptr);
  if (null == tensors->end()) return ACLNN_SUCCESS;
  const std::string index = std::to_string(null - tensors->begin());
  return Report({ACLNN_ERR_INNER_NULLPTR, std::string(name) + "[" + index + "]: null"});
}

}  // namespace fa::aclnn
