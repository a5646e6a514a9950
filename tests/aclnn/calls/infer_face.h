#ifndef FA_TESTS_ACLNN_INFER_FACE_H_
#define FA_TESTS_ACLNN_INFER_FACE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "aclnn/calls/face_call.h"
#include "fa/infer_attention.h"

namespace fa::test {

/// A version of aclnnFusedInferAttentionScore. In the last four, the first phase is ...GetMaxWorkspaceSize.
enum class InferVersion : uint8_t { kV1, kV2, kV3, kV4, kV5, kV2Max, kV3Max, kV4Max, kV5Max };
inline constexpr InferVersion kInferVersions[] = {InferVersion::kV1, InferVersion::kV2, InferVersion::kV3,
                                                  InferVersion::kV4, InferVersion::kV5};

/// The parameters of all versions of the operator.
struct InferParameters {
  const aclTensor* query = nullptr;
  const aclTensorList *key = nullptr, *value = nullptr;
  const aclTensor *pse = nullptr, *mask = nullptr;
  const aclIntArray *lengths = nullptr, *lengths_kv = nullptr;
  const aclTensor *deq1 = nullptr, *quant1 = nullptr, *deq2 = nullptr, *quant2 = nullptr, *offset2 = nullptr;
  const aclTensor *antiquant_scale = nullptr, *antiquant_offset = nullptr, *block_table = nullptr;
  const aclTensor *query_padding = nullptr, *kv_padding = nullptr;
  const aclTensor *key_scale = nullptr, *key_offset = nullptr, *value_scale = nullptr, *value_offset = nullptr;
  const aclTensor *key_prefix = nullptr, *value_prefix = nullptr;
  const aclIntArray* prefix_length = nullptr;
  const aclTensor *query_rope = nullptr, *key_rope = nullptr, *rope_scale = nullptr;
  const aclTensor *query_scale = nullptr, *sink = nullptr;
  const aclIntArray *q_start = nullptr, *kv_start = nullptr;
  int64_t heads = 1;
  double scale = 1;
  int64_t pre = 2147483647, next = 2147483647;
  std::string layout = "BNSD";
  int64_t heads_kv = 0, sparse_mode = 0, inner_precise = 0, block_size = 0, antiquant_mode = 0;
  bool lse_flag = false;
  int64_t key_mode = 0, value_mode = 0, query_mode = 0, pse_type = 0;
  const aclTensor *out = nullptr, *lse = nullptr;
};

[[nodiscard]] aclnnStatus GetWorkspaceSize(InferVersion version, const InferParameters& p, uint64_t* size,
                                           aclOpExecutor** executor);
aclnnStatus Execute(InferVersion version, void* workspace, uint64_t size, aclOpExecutor* executor, aclrtStream stream);

/// Descriptors of the tensors of a C++ call.
class InferFace {
 public:
  InferFace(const InferAttentionArgs& args, const InferAttentionOptions& options);
  ~InferFace();
  InferFace(const InferFace&) = delete;
  InferFace& operator=(const InferFace&) = delete;

  /// Returns a list that owns its tensors.
  const aclTensorList* List(std::span<const TensorView> views, aclFormat format = ACL_FORMAT_ND);
  Handles& handles() { return handles_; }

  InferParameters p;

 private:
  Handles handles_;
  std::vector<const aclTensorList*> lists_;
};

}  // namespace fa::test

#endif  // FA_TESTS_ACLNN_INFER_FACE_H_
