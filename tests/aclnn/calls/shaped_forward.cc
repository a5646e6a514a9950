#include "aclnn/calls/shaped_forward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fa::test {

ShapedForward::ShapedForward(const Sizes& sizes, const std::string& layout) : sizes_(sizes) {
  const bool packed = layout == "TND";
  const auto shape = [&](int64_t heads, int64_t rows, int64_t size) -> std::vector<int64_t> {
    if (packed) return {sizes.batch * rows, heads, size};
    return {sizes.batch, heads, rows, size};
  };
  p.heads = sizes.heads;
  p.layout = layout;
  p.query = Tensor(ACL_FLOAT, shape(sizes.heads, sizes.sq, sizes.d));
  p.key = Tensor(ACL_FLOAT, shape(sizes.heads_kv, sizes.sk, sizes.d));
  p.value = Tensor(ACL_FLOAT, shape(sizes.heads_kv, sizes.sk, sizes.dv));
  p.out = Tensor(ACL_FLOAT, shape(sizes.heads, sizes.sq, sizes.dv));
  std::vector<int64_t> statistics = {sizes.batch, sizes.heads, sizes.sq, 8};
  if (packed) statistics = {sizes.batch * sizes.sq, sizes.heads, 8};
  p.softmax_max = Tensor(ACL_FLOAT, statistics);
  p.softmax_sum = Tensor(ACL_FLOAT, statistics);
  if (packed) SetLengths({sizes.sq}, {sizes.sk});
}

void ShapedForward::SetLengths(std::vector<int64_t> q, std::vector<int64_t> kv) {
  for (std::vector<int64_t>* lengths : {&q, &kv}) {
    for (size_t b = 1; b < lengths->size(); ++b) (*lengths)[b] += (*lengths)[b - 1];
  }
  p.q_lengths = handles_.Array(q);
  p.kv_lengths = handles_.Array(kv);
}

void ShapedForward::SetMode(int64_t mode, int64_t pre, int64_t next) {
  p.sparse_mode = mode;
  p.pre = pre;
  p.next = next;
  const bool compressed = mode >= 2 && mode <= 8 && mode != 5;
  std::vector<int64_t> shape = {sizes_.sq, sizes_.sk};
  if (mode == 5) shape = {sizes_.batch, 1, sizes_.sq, sizes_.sk};
  if (compressed) shape = {mode == 6 ? 3072 : 2048, 2048};
  p.atten_mask = Tensor(ACL_BOOL, shape);
}

aclTensor* ShapedForward::Tensor(aclDataType dtype, const std::vector<int64_t>& shape) {
  return handles_.Tensor(reinterpret_cast<void*>(4096), dtype, shape);
}

aclnnStatus ShapedForward::Plan() const {
  return Plan(p.layout == "TND" ? ForwardVersion::kVarLenV5 : ForwardVersion::kScoreV3);
}

aclnnStatus ShapedForward::Plan(ForwardVersion version) const {
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  const aclnnStatus status = GetWorkspaceSize(version, p, &size, &executor);
  if (status == ACLNN_SUCCESS) aclDestroyAclOpExecutor(executor);
  return status;
}

void ExpectInvalid(const ShapedForward& call, const std::string& text) {
  EXPECT_EQ(call.Plan(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), ::testing::HasSubstr(text));
}

void ExpectAccepted(const ShapedForward& call) { EXPECT_EQ(call.Plan(), ACLNN_SUCCESS) << aclGetRecentErrMsg(); }

}  // namespace fa::test
