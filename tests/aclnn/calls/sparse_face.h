#ifndef FA_TESTS_ACLNN_SPARSE_FACE_H_
#define FA_TESTS_ACLNN_SPARSE_FACE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "aclnn/calls/face_call.h"
#include "fa/indexer_loss.h"
#include "fa/indexer_lse.h"
#include "fa/lightning_indexer.h"
#include "fa/lightning_indexer_grad.h"
#include "fa/sparse_flash_attention.h"
#include "fa/sparse_flash_attention_grad.h"
#include "support/cases/token/token_case.h"
#include "support/cases/token/token_outputs.h"

namespace fa::test {

enum class SparseOperator : uint8_t {
  kForward,
  kForwardV2,
  kBackward,
  kBackwardV2,
  kIndexer,
  kIndexerGrad,
  kIndexerLse,
  kSparseLoss,
  kSparseLossV2,
  kDenseLoss
};

/// All parameters of the sparse operators. Each operator has some of them.
struct SparseParameters {
  const aclTensor *query = nullptr, *key = nullptr, *value = nullptr, *query_rope = nullptr, *key_rope = nullptr;
  const aclTensor *indices = nullptr, *block_table = nullptr, *q_lengths = nullptr, *kv_lengths = nullptr;
  const aclIntArray *q_array = nullptr, *kv_array = nullptr;
  const aclTensor *out = nullptr, *max = nullptr, *sum = nullptr, *d_out = nullptr;
  const aclTensor *dq = nullptr, *dk = nullptr, *dv = nullptr, *dq_rope = nullptr, *dk_rope = nullptr;
  const aclTensor *weights = nullptr, *values = nullptr, *dy = nullptr, *dweights = nullptr;
  const aclTensor *query_index = nullptr, *key_index = nullptr, *max_index = nullptr, *sum_index = nullptr;
  const aclTensor *sinks = nullptr, *d_sinks = nullptr;
  const aclTensor *dq_index = nullptr, *dk_index = nullptr, *loss = nullptr;
  double scale = 1;
  int64_t block_size = 1, sparse_mode = 3, pre = -5, next = 9, attention_mode = 2, count = 0, head_num = 0;
  bool return_lse = true, return_values = true, deterministic = true;
  std::string layout = "BSND", layout_kv = "BSND";
  bool no_layout = false;  ///< whether the strings of the layouts are null
};

[[nodiscard]] aclnnStatus GetWorkspaceSize(SparseOperator op, const SparseParameters& p, uint64_t* size,
                                           aclOpExecutor** executor);
aclnnStatus Execute(SparseOperator op, void* workspace, uint64_t size, aclOpExecutor* executor, aclrtStream stream);

/// Returns a C++ call's parameters as the interface takes them. For sparse attention and the indexer, lengths become
/// tensors of type `lengths`.
[[nodiscard]] SparseParameters ParametersOf(const SparseAttentionArgs& args, const SparseAttentionOptions& options,
                                            Handles& handles, aclDataType lengths = ACL_INT64);
[[nodiscard]] SparseParameters ParametersOf(const SparseAttentionGradArgs& args, const SparseAttentionOptions& options,
                                            Handles& handles, aclDataType lengths = ACL_INT64);
[[nodiscard]] SparseParameters ParametersOf(const LightningIndexerArgs& args, const LightningIndexerOptions& options,
                                            Handles& handles, aclDataType lengths = ACL_INT64);
[[nodiscard]] SparseParameters ParametersOf(const LightningIndexerGradArgs& args,
                                            const LightningIndexerGradOptions& options, Handles& handles,
                                            aclDataType lengths = ACL_INT64);
[[nodiscard]] SparseParameters ParametersOf(const DenseIndexerLseArgs& args, const DenseIndexerLseOptions& options,
                                            Handles& handles);
[[nodiscard]] SparseParameters ParametersOf(const SparseIndexerLossArgs& args, const SparseIndexerLossOptions& options,
                                            Handles& handles);
[[nodiscard]] SparseParameters ParametersOf(const DenseIndexerLossArgs& args, const DenseIndexerLossOptions& options,
                                            Handles& handles);

/// Expects that a call through the interface writes the bits that C++ writes.
template <typename Call, typename Case>
void ExpectBitsOfCpp(SparseOperator op, const Case& c, aclDataType lengths = ACL_INT64) {
  const Call cpp(c), face(c);
  ASSERT_TRUE(cpp.Run(nullptr).ok()) << c;
  Handles handles;
  const SparseParameters p = ParametersOf(face.args(), face.options(), handles, lengths);
  ASSERT_EQ(RunFace(op, p), ACL_SUCCESS) << aclGetRecentErrMsg() << "\n " << c;
  EXPECT_TRUE(SameBits(face.Outputs(), cpp.Outputs())) << c;
}

/// Returns two sequences of few tokens.
[[nodiscard]] TokenCase UsualTokens(DType dtype);

/// Returns the case that `usual` makes, in every layout and type, with spare rows that no sequence uses. `variants`
/// change this case one after another, and the cases after each change are returned too. The last case has no lengths.
template <typename Case>
std::vector<Case> CasesOf(Case (*usual)(DType), const std::vector<std::function<void(Case*)>>& variants) {
  std::vector<Case> cases;
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      Case c = usual(dtype);
      c.tokens.layout = layout;
      c.tokens.spare_q = 2;
      c.tokens.spare_k = 3;
      cases.push_back(c);
      for (const auto& change : variants) {
        change(&c);
        cases.push_back(c);
      }
    }
  }
  Case whole = usual(DType::kF32);
  whole.tokens.lengths = {{6, 6}, {30, 30}};
  whole.tokens.lengths_given = false;
  cases.push_back(whole);
  return cases;
}

/// Returns a tensor of lengths, or null if there are no lengths.
[[nodiscard]] aclTensor* LengthTensor(std::span<const int64_t> values, aclDataType dtype, Handles& handles);

}  // namespace fa::test

#endif  // FA_TESTS_ACLNN_SPARSE_FACE_H_
