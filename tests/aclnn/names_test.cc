// Errors must name every argument as the operator's header names the parameter.
#include "aclnn/operations/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "fa/error_text.h"
#include "fa/operators.h"
#include "support/cases/call_fields.h"

namespace fa::test {
namespace {

using aclnn::Names;
using aclnn::ParameterOf;

struct Operator {
  Names names;
  const char* header;    ///< the path of the header below include/aclnnop
  const char* function;  ///< the newest version of the operator's function
  CallFields fields;
  std::vector<std::string> options;  ///< the options that errors name
  std::vector<std::string> without;  ///< arguments that the device's operator does not have
};

template <typename Args>
CallFields Fields() {
  static Args args;
  return FieldsOf(&args);
}

/// Returns the text of a header in include/aclnnop.
std::string TextOf(const std::string& header) {
  std::ifstream file(std::string(FA_ACLNN_HEADERS) + "/" + header);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Returns the names of a function's parameters as its header declares them.
std::vector<std::string> ParametersOf(const std::string& header, const std::string& function) {
  const std::string all = TextOf(header);
  const size_t begin = all.find(function + "GetWorkspaceSize(");
  if (begin == std::string::npos) return {};
  const std::string list = all.substr(begin, all.find(';', begin) - begin);
  std::vector<std::string> parameters;
  const std::regex name("(\\w+)\\s*[,)]");
  for (std::sregex_iterator at(list.begin(), list.end(), name), end; at != end; ++at) parameters.push_back((*at)[1]);
  return parameters;
}

std::vector<Operator> Operators() {
  const std::vector<std::string> dense = {"layout",   "heads",    "scale",     "keep_prob",   "pse_type",   "q_start",
                                          "kv_start", "mask.pre", "mask.next", "mask.prefix", "sparse_mode"};
  return {
      {Names::kForward,
       "aclnn_flash_attention_score.h",
       "aclnnFlashAttentionVarLenScoreV5",
       Fields<AttentionArgs>(),
       dense,
       {"lse"}},
      {Names::kBackward,
       "aclnn_flash_attention_score_grad.h",
       "aclnnFlashAttentionUnpaddingScoreGradV5",
       Fields<AttentionGradArgs>(),
       dense,
       {}},
      {Names::kMerge,
       "aclnn_ring_attention_update.h",
       "aclnnRingAttentionUpdateV2",
       Fields<MergeArgs>(),
       {"layout"},
       {}},
      {Names::kPrompt,
       "aclnn_prompt_flash_attention_v3.h",
       "aclnnPromptFlashAttentionV3",
       Fields<PromptAttentionArgs>(),
       {"layout", "heads", "heads_kv", "scale", "mask.pre", "mask.next", "sparse_mode"},
       {"q_rope", "k_rope", "sink", "softmax_max", "softmax_sum", "lse"}},
      {Names::kDecode,
       "aclnn_incre_flash_attention_v4.h",
       "aclnnIncreFlashAttentionV4",
       Fields<DecodeAttentionArgs>(),
       {"layout", "heads", "scale", "k", "v"},
       {"lse", "lengths_q", "cu_q", "sink", "q_rope", "k_scale", "v_scale", "k_offset", "v_offset"}},
      {Names::kInfer,
       "aclnn_fused_infer_attention_score_v5.h",
       "aclnnFusedInferAttentionScoreV5",
       Fields<InferAttentionArgs>(),
       {"layout", "heads", "heads_kv", "scale", "mask.pre", "mask.next", "sparse_mode", "block_size", "k", "v",
        "k_rope", "lengths_q", "lengths_kv", "cu_q", "cu_kv", "length_prefix"},
       {}},
      {Names::kSparseForward,
       "aclnn_sparse_flash_attention_v2.h",
       "aclnnSparseFlashAttentionV2",
       Fields<SparseAttentionArgs>(),
       {"layout", "scale", "block_size", "mask"},
       {"p_head_mean"}},
      {Names::kSparseBackward,
       "aclnn_sparse_flash_attention_grad_v2.h",
       "aclnnSparseFlashAttentionGradV2",
       Fields<SparseAttentionGradArgs>(),
       {"layout", "scale", "block_size", "mask"},
       {}},
      {Names::kSharedKv,
       "aclnn_sparse_flash_mla.h",
       "aclnnSparseFlashMla",
       Fields<SharedKvArgs>(),
       {"layout", "scale", "cmp_ratio", "ori_mask", "cmp_mask", "window_left", "window_right"},
       {}},
      {Names::kSharedKvBackward,
       "aclnn_sparse_flash_mla_grad.h",
       "aclnnSparseFlashMlaGrad",
       Fields<SharedKvGradArgs>(),
       {"layout", "scale", "cmp_ratio", "ori_mask", "cmp_mask", "window_left", "window_right"},
       {}},
      {Names::kIndexer,
       "aclnn_lightning_indexer.h",
       "aclnnLightningIndexer",
       Fields<LightningIndexerArgs>(),
       {"layout", "mask"},
       {"q_scale", "k_scale", "index_offset", "used_q", "used_kv", "residual_kv"}},
      {Names::kIndexerBackward,
       "aclnn_lightning_indexer_grad.h",
       "aclnnLightningIndexerGrad",
       Fields<LightningIndexerGradArgs>(),
       {"layout", "mask"},
       {}},
      {Names::kDenseIndexerLse,
       "aclnn_dense_lightning_indexer_softmax_lse.h",
       "aclnnDenseLightningIndexerSoftmaxLse",
       Fields<DenseIndexerLseArgs>(),
       {"layout", "mask"},
       {}},
      {Names::kIndexerLoss,
       "aclnn_sparse_lightning_indexer_grad_kl_loss_v2.h",
       "aclnnSparseLightningIndexerGradKLLossV2",
       Fields<SparseIndexerLossArgs>(),
       {"layout", "scale", "mask"},
       {"p_head_mean", "softmax_index", "used_q", "used_kv", "residual_kv"}},
      {Names::kDenseIndexerLoss,
       "aclnn_dense_lightning_indexer_grad_kl_loss.h",
       "aclnnDenseLightningIndexerGradKLLoss",
       Fields<DenseIndexerLossArgs>(),
       {"layout", "scale", "mask"},
       {}},
      {Names::kIndexerLossValue,
       "aclnn_lightning_indexer_kl_loss.h",
       "aclnnLightningIndexerKLLoss",
       Fields<IndexerKLLossArgs>(),
       {"eps"},
       {}},
      {Names::kIndexScore,
       "aclnn_msa_index_score.h",
       "aclnnMsaIndexScore",
       Fields<MsaIndexScoreArgs>(),
       {"mask", "init_blocks", "local_blocks"},
       {}},
      {Names::kMergeLse,
       "aclnn_attention_update.h",
       "aclnnAttentionUpdate",
       Fields<MergeByLseArgs>(),
       {"lse", "local_out"},
       {}},
      {Names::kScatter,
       "aclnn_scatter_pa_kv_cache.h",
       "aclnnScatterPaKvCache",
       Fields<ScatterRowsArgs>(),
       {"form"},
       {"source_rows", "key_scale", "value_scale", "key_scale_cache", "value_scale_cache"}},
      {Names::kGather, "aclnn_gather_pa_kv_cache.h", "aclnnGatherPaKvCache", Fields<GatherRowsArgs>(), {"form"}, {}},
  };
}

TEST(AclnnNames, AreTestedOfEveryOperator) {
  std::vector<std::string> names;
  for (const Operator& op : Operators()) names.emplace_back(kOperatorNames[static_cast<size_t>(op.names)]);
  EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(kOperatorNames));
}

TEST(AclnnNames, OfEveryArgumentOfEveryOperator) {
  std::vector<Operator> operators = Operators();
  // The device's operator for the L1 norm calls SharedKvAttentionGrad. The library has no such operator.
  operators.push_back({Names::kSharedKvL1Norm,
                       "aclnn_sparse_flash_mla_softmax_l1_norm.h",
                       "aclnnSparseFlashMlaSoftmaxL1Norm",
                       Fields<SharedKvGradArgs>(),
                       {"layout", "scale", "cmp_ratio", "cmp_mask"},
                       {"ori_kv", "ori_indices", "ori_topk_length", "sink", "cu_ori", "used_ori", "out", "d_out", "dq",
                        "d_ori_kv", "d_cmp_kv", "dsink", "ori_l1_norm"}});
  for (const Operator& op : operators) {
    const std::vector<std::string> parameters = ParametersOf(op.header, op.function);
    ASSERT_GT(parameters.size(), 5U) << op.function;
    std::vector<std::string> arguments = op.options;
    for (const TensorField& field : op.fields.tensors) arguments.push_back(field.name());
    for (const LengthsField& field : op.fields.lengths) arguments.push_back(field.name);
    for (const std::string& argument : arguments) {
      if (std::count(op.without.begin(), op.without.end(), argument) > 0) continue;
      const std::string name(ParameterOf(op.names, argument));
      const std::regex with_endings(name + "(Out)?(Optional)?|" + name + "Optional(Out)?");
      EXPECT_TRUE(std::any_of(parameters.begin(), parameters.end(),
                              [&](const std::string& parameter) { return std::regex_match(parameter, with_endings); }))
          << op.function << ": " << argument << " as " << name;
    }
  }
}

TEST(AclnnNames, RenameArgumentsAndNothingElse) {
  const Status status = Status::InvalidArgument(ErrorText::Argument("k", ".shape", "[1]").Is("3") + ", want 2 (" +
                                                ErrorText::Argument("q", ".shape", "[1]") + "): out of k");
  EXPECT_EQ(Renamed(status, Names::kBackward).message(),
            "invalid argument: keyIn.shape[1]=3, want 2 (query.shape[1]): out of k");
  EXPECT_EQ(Renamed(status, Names::kForward).message(),
            "invalid argument: key.shape[1]=3, want 2 (query.shape[1]): out of k");
  EXPECT_TRUE(Renamed(Status::Ok(), Names::kForward).ok());
}

TEST(RuntimeHeader, ListsEveryFunction) {
  const std::string text = TextOf("../acl/acl.h");
  const size_t end_of_list = text.find("/// The setters for lists");
  ASSERT_NE(end_of_list, std::string::npos) << "the list ends before the functions that do not exist";
  const std::string list = text.substr(0, end_of_list);
  const std::string declared = TextOf("../acl/acl_base.h") + TextOf("../acl/acl_rt.h") + TextOf("../aclnn/acl_meta.h");
  const std::regex function("(acl\\w+)\\(");
  const std::sregex_iterator begin(declared.begin(), declared.end(), function), end;
  EXPECT_GT(std::distance(begin, end), 60);
  for (auto at = begin; at != end; ++at) {
    const std::string name = (*at)[1];
    EXPECT_TRUE(std::regex_search(list, std::regex("\\b" + name + "\\b"))) << name;
  }
}

}  // namespace
}  // namespace fa::test
