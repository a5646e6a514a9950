#ifndef FA_TESTS_ACLNN_FACE_CALL_H_
#define FA_TESTS_ACLNN_FACE_CALL_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "fa/options.h"
#include "fa/tensor.h"

namespace fa::test {

/// Makes descriptors as a program does, and destroys them.
class Handles {
 public:
  Handles() = default;
  ~Handles();
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  /// Returns a descriptor of the view, or null for a view without data.
  aclTensor* Tensor(const TensorView& view);
  /// Returns a descriptor of a dense tensor with explicit strides. As in published programs, the descriptor's storage
  /// has the shape of the tensor.
  aclTensor* Tensor(void* data, aclDataType dtype, const std::vector<int64_t>& shape);
  aclIntArray* Array(const std::vector<int64_t>& values);
  /// Returns device memory filled with zeros, which is freed with this object.
  void* Memory(size_t bytes);

 private:
  std::vector<aclTensor*> tensors_;
  std::vector<aclIntArray*> arrays_;
  std::vector<void*> memory_;
};

[[nodiscard]] aclDataType AclTypeOf(DType dtype);
/// Returns the compressed mask of a sparse mode, with one byte per element.
[[nodiscard]] const std::vector<uint8_t>& CompressedMask(int64_t sparse_mode);

/// All parameters of all versions of the dense operators, except their tensors.
struct AttentionParameters {
  const aclIntArray* prefix = nullptr;
  const aclIntArray* q_lengths = nullptr;
  const aclIntArray* kv_lengths = nullptr;
  const aclIntArray* q_start = nullptr;
  const aclIntArray* kv_start = nullptr;
  double scale = 1, keep_prob = 1;
  int64_t pre = 2147483647, next = 2147483647;
  int64_t heads = 1;
  std::string layout = "BNSD";
  int64_t inner_precise = 0;
  int64_t sparse_mode = 0;
  int64_t pse_type = 1;
  std::string softmax_layout;
  int64_t seed = 0, offset = 0, out_dtype = 0;  ///< only version 4 has these
  std::array<const aclTensor*, 5> scales = {};  ///< only in version 4: dScaleQ, dScaleK, dScaleV, dScaleDy, dScaleO
};

enum class ForwardVersion : uint8_t {
  kScore,
  kScoreV2,
  kScoreV3,
  kScoreV4,
  kVarLen,
  kVarLenV2,
  kVarLenV3,
  kVarLenV4,
  kVarLenV5,
};
[[nodiscard]] const char* Name(ForwardVersion version);

struct ForwardParameters : AttentionParameters {
  const aclTensor *query = nullptr, *query_rope = nullptr, *key = nullptr, *key_rope = nullptr, *value = nullptr;
  const aclTensor *pse = nullptr, *drop_mask = nullptr, *padding_mask = nullptr, *atten_mask = nullptr, *sink = nullptr;
  const aclTensor *softmax_max = nullptr, *softmax_sum = nullptr, *softmax_out = nullptr, *out = nullptr;
};

enum class BackwardVersion : uint8_t {
  kGrad,
  kGradV2,
  kGradV3,
  kGradV4,
  kUnpadding,
  kUnpaddingV2,
  kUnpaddingV3,
  kUnpaddingV4,
  kUnpaddingV5,
};
[[nodiscard]] const char* Name(BackwardVersion version);

struct BackwardParameters : AttentionParameters {
  const aclTensor *query = nullptr, *query_rope = nullptr, *key = nullptr, *key_rope = nullptr, *value = nullptr;
  const aclTensor *dy = nullptr, *pse = nullptr, *drop_mask = nullptr, *padding_mask = nullptr, *atten_mask = nullptr;
  const aclTensor *softmax_max = nullptr, *softmax_sum = nullptr, *softmax_in = nullptr, *attention_in = nullptr;
  const aclTensor* sink = nullptr;
  const aclTensor *dq = nullptr, *dq_rope = nullptr, *dk = nullptr, *dk_rope = nullptr, *dv = nullptr;
  const aclTensor *dpse = nullptr, *dsink = nullptr;
};

[[nodiscard]] aclnnStatus GetWorkspaceSize(ForwardVersion version, const ForwardParameters& p, uint64_t* size,
                                           aclOpExecutor** executor);
[[nodiscard]] aclnnStatus GetWorkspaceSize(BackwardVersion version, const BackwardParameters& p, uint64_t* size,
                                           aclOpExecutor** executor);
aclnnStatus Execute(ForwardVersion version, void* workspace, uint64_t size, aclOpExecutor* executor,
                    aclrtStream stream);
aclnnStatus Execute(BackwardVersion version, void* workspace, uint64_t size, aclOpExecutor* executor,
                    aclrtStream stream);

/// Runs both phases on the default stream, with a workspace of exactly the size asked for, and synchronises.
/// @return the first code that is not 0
template <typename Version, typename Parameters>
aclError RunFace(Version version, const Parameters& parameters) {
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  if (const aclnnStatus status = GetWorkspaceSize(version, parameters, &size, &executor); status != 0) return status;
  std::vector<unsigned char> workspace(size);
  if (const aclnnStatus status = Execute(version, workspace.data(), size, executor, nullptr); status != 0) {
    aclDestroyAclOpExecutor(executor);
    return status;
  }
  return aclrtSynchronizeStream(nullptr);
}

}  // namespace fa::test

#endif  // FA_TESTS_ACLNN_FACE_CALL_H_
