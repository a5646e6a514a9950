// Two partial results of attention over disjoint keys become the result over all keys. Each part has an output [M,D]
// and an lse [M]. The second part has no keys for the last row.
#include <limits>

#include "aclnnop/aclnn_attention_update.h"
#include "device.h"

namespace {

constexpr int64_t kRows = 3, kSize = 4;

}  // namespace

int main() {
  constexpr int32_t kDevice = 0;
  aclrtStream stream = nullptr;
  StartDevice(kDevice, &stream);

  const float infinity = std::numeric_limits<float>::infinity();
  DeviceTensor lse[] = {CreateTensor(std::vector<float>{0.5F, 1.0F, 1.5F}, {kRows}, ACL_FLOAT),
                        CreateTensor(std::vector<float>{0.5F, 2.0F, infinity}, {kRows}, ACL_FLOAT)};
  DeviceTensor part[] = {CreateTensor(Wave(kRows * kSize, 0.7), {kRows, kSize}, ACL_FLOAT),
                         CreateTensor(Wave(kRows * kSize, 1.3), {kRows, kSize}, ACL_FLOAT)};
  DeviceTensor out = CreateOutput<float>({kRows, kSize}, ACL_FLOAT);
  DeviceTensor whole_lse = CreateOutput<float>({kRows}, ACL_FLOAT);
  const aclTensor* lse_tensors[] = {lse[0].tensor, lse[1].tensor};
  const aclTensor* part_tensors[] = {part[0].tensor, part[1].tensor};
  aclTensorList* lse_list = aclCreateTensorList(lse_tensors, 2);
  aclTensorList* part_list = aclCreateTensorList(part_tensors, 2);

  constexpr int64_t kWithLse = 1;  // with updateType 0 there is no lseOut
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnAttentionUpdateGetWorkspaceSize(lse_list, part_list, kWithLse, out.tensor, whole_lse.tensor,
                                             &workspace_size, &executor));
  Execute(aclnnAttentionUpdate, workspace_size, executor, stream);

  Print("merged", ToHost<float>(out), kSize);
  Print("lse", ToHost<float>(whole_lse), kRows);

  // Destroying a list destroys its tensors.
  CHECK(aclDestroyTensorList(lse_list));
  CHECK(aclDestroyTensorList(part_list));
  for (DeviceTensor* tensor : {&lse[0], &lse[1], &part[0], &part[1]}) CHECK(aclrtFree(tensor->memory));
  Destroy(out);
  Destroy(whole_lse);
  StopDevice(kDevice, stream);
  return 0;
}
