// Computes attention over each half of the keys, and merges both results, as a ring of devices does. The layout is SBH.
#include "aclnnop/aclnn_flash_attention_score.h"
#include "aclnnop/aclnn_ring_attention_update.h"
#include "device.h"

namespace {

constexpr int64_t kTokens = 3, kKeys = 6, kHeads = 2, kSize = 4;

struct Partial {
  DeviceTensor max, sum, out;
};

Partial CreatePartial() {
  const std::vector<int64_t> statistics = {1, kHeads, kTokens, 8};
  return {CreateOutput<float>(statistics, ACL_FLOAT), CreateOutput<float>(statistics, ACL_FLOAT),
          CreateOutput<float>({kTokens, 1, kHeads * kSize}, ACL_FLOAT)};
}

// Computes attention to the keys from number `begin` to `end` - 1.
Partial Attend(const DeviceTensor& query, int64_t begin, int64_t end, aclrtStream stream) {
  const int64_t row = kHeads * kSize;
  const auto rows = [&](double frequency) {
    const std::vector<float> all = Wave(kKeys * row, frequency);
    const std::vector<float> some(all.begin() + begin * row, all.begin() + end * row);
    return CreateTensor(some, {end - begin, 1, row}, ACL_FLOAT);
  };
  DeviceTensor key = rows(1.1);
  DeviceTensor value = rows(1.9);
  Partial partial = CreatePartial();
  char layout[] = "SBH";
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnFlashAttentionScoreGetWorkspaceSize(query.tensor, key.tensor, value.tensor, nullptr, nullptr, nullptr,
                                                 nullptr, nullptr, 0.5, 1.0, 2147483647, 2147483647, kHeads, layout, 0,
                                                 0, partial.max.tensor, partial.sum.tensor, nullptr, partial.out.tensor,
                                                 &workspace_size, &executor));
  Execute(aclnnFlashAttentionScore, workspace_size, executor, stream);
  Destroy(key);
  Destroy(value);
  return partial;
}

}  // namespace

int main() {
  constexpr int32_t kDevice = 0;
  aclrtStream stream = nullptr;
  StartDevice(kDevice, &stream);

  DeviceTensor query = CreateTensor(Wave(kTokens * kHeads * kSize, 0.7), {kTokens, 1, kHeads * kSize}, ACL_FLOAT);
  Partial first = Attend(query, 0, kKeys / 2, stream);
  Partial second = Attend(query, kKeys / 2, kKeys, stream);
  Partial whole = Attend(query, 0, kKeys, stream);
  Partial merged = CreatePartial();

  char layout[] = "SBH";
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnRingAttentionUpdateGetWorkspaceSize(
      first.out.tensor, first.max.tensor, first.sum.tensor, second.out.tensor, second.max.tensor, second.sum.tensor,
      nullptr, layout, merged.out.tensor, merged.max.tensor, merged.sum.tensor, &workspace_size, &executor));
  Execute(aclnnRingAttentionUpdate, workspace_size, executor, stream);

  Print("merged attention", ToHost<float>(merged.out), kHeads * kSize);
  Print("attention over all keys", ToHost<float>(whole.out), kHeads * kSize);
  Print("merged max", FirstOfEight(ToHost<float>(merged.max)), kTokens);
  Print("merged sum", FirstOfEight(ToHost<float>(merged.sum)), kTokens);

  Destroy(query);
  for (Partial* partial : {&first, &second, &whole, &merged}) {
    for (DeviceTensor* tensor : {&partial->max, &partial->sum, &partial->out}) Destroy(*tensor);
  }
  StopDevice(kDevice, stream);
  return 0;
}
