// aclnnMsaIndexScore and aclnnLightningIndexerKLLoss have the bits of the library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "aclnn/calls/face_call.h"
#include "aclnn/calls/run_phases.h"
#include "aclnnop/aclnn_lightning_indexer_kl_loss.h"
#include "aclnnop/aclnn_msa_index_score.h"
#include "fa/indexer_kl_loss.h"
#include "fa/msa_index_score.h"
#include "fa/view.h"

namespace fa::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsNan;
using ::testing::Not;

constexpr float kNoScore = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Waves(int64_t count, float step) {
  std::vector<float> x;
  for (int64_t i = 0; i < count; ++i) x.push_back(std::sin(step * static_cast<float>(i + 1)));
  return x;
}

std::vector<int8_t> Integers(int64_t count) {
  std::vector<int8_t> x;
  for (const float wave : Waves(count, 0.9F)) x.push_back(static_cast<int8_t>(100 * wave));
  return x;
}

/// Two sequences of 5 and 4 queries, with 400 and 200 keys.
struct ScoreCall {
  static constexpr int64_t kTokens = 9, kHeads = 3, kSize = 32, kKeys = 600, kColumns = 16;

  aclError Run() {
    Handles handles;
    const auto integers = [&](std::vector<int32_t>& values) -> const aclTensor* {
      return values.empty() ? nullptr : handles.Tensor(values.data(), ACL_INT32, {std::ssize(values)});
    };
    const aclTensor* in_q = handles.Tensor(q.data(), ACL_FLOAT, {kTokens, kHeads, kSize});
    const void* keys_data = int8_keys ? static_cast<const void*>(k8.data()) : k.data();
    const aclTensor* in_k =
        handles.Tensor(const_cast<void*>(keys_data), int8_keys ? ACL_INT8 : ACL_FLOAT, KeyShape({kSize}));
    const aclTensor* in_scale = with_scale ? handles.Tensor(scale.data(), ACL_FLOAT, scale_shape) : nullptr;
    const aclTensor* in_table = table.empty() ? nullptr : handles.Tensor(table.data(), ACL_INT32, {2, 2});
    const aclTensor *in_cu_q = integers(cu_q), *in_keys = integers(keys), *in_start = integers(start);
    const aclTensor* other = handles.Tensor(q.data(), ACL_FLOAT, {kTokens, kHeads, kSize});
    const aclTensor* out = handles.Tensor(score.data(), ACL_FLOAT, {kHeads, kTokens, columns});
    return RunPhases(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnMsaIndexScoreGetWorkspaceSize(
              in_q, in_k, in_table, in_scale, with_mask ? other : nullptr, in_cu_q, in_keys, in_start,
              without_layout ? nullptr : layout_key.data(), sparse_mode, init, local, out, size, executor);
        },
        aclnnMsaIndexScore);
  }
  /// Returns the shape of keys, or of their scales, in the form of `layout_key`.
  [[nodiscard]] std::vector<int64_t> KeyShape(const std::vector<int64_t>& last) const {
    std::vector<int64_t> shape = {kKeys, 1};
    if (layout_key == "BBND") shape = {3, 200, 1};
    if (layout_key == "BNBD") shape = {3, 1, 200};
    shape.insert(shape.end(), last.begin(), last.end());
    return shape;
  }
  void TakePages(const char* form) { layout_key = form, table = {0, 1, 2, -1}, keys = {400, 200}; }
  void TakeInt8(const std::vector<int64_t>& shape) { int8_keys = with_scale = true, scale_shape = shape; }

  [[nodiscard]] std::vector<float> Expected() {
    std::vector<float> want(score.size(), kNoScore);
    const int64_t sums_q[] = {5, 9}, sums_k[] = {400, 600};
    const std::vector<int64_t> blocks(start.begin(), start.end());
    const Status status =
        MsaIndexScore({.q = View(q, {kTokens, kHeads, kSize}),
                       .k = int8_keys ? View(static_cast<const void*>(k8.data()), DType::kI8, {kKeys, 1, kSize})
                                      : View(k, {kKeys, 1, kSize}),
                       .k_scale = int8_keys ? View(scale, {kKeys}) : TensorView(),
                       .lengths_q = sums_q,
                       .lengths_kv = sums_k,
                       .start_loc = blocks,
                       .score = View(want, {kHeads, kTokens, kColumns})},
                      {.mask = static_cast<SparseMask>(sparse_mode), .init_blocks = init, .local_blocks = local});
    EXPECT_TRUE(status.ok()) << status.message();
    return want;
  }

  std::vector<float> q = Waves(kTokens * kHeads * kSize, 0.7F), k = Waves(kKeys * kSize, 0.3F);
  std::vector<float> score = std::vector<float>(static_cast<size_t>(kHeads * kTokens * kColumns), kNoScore);
  std::vector<int8_t> k8 = Integers(kKeys * kSize);
  std::vector<float> scale = Waves(kKeys, 0.2F);
  std::vector<int64_t> scale_shape = {kKeys};
  std::vector<int32_t> cu_q = {0, 5, 9}, keys = {0, 400, 600}, start = {3, 1}, table;
  std::string layout_key = "TND";
  bool int8_keys = false, with_scale = false, with_mask = false, without_layout = false;
  int64_t sparse_mode = 3, init = 1, local = 1, columns = kColumns;
};

TEST(AclnnMsaIndexScore, HasTheBitsOfCppInEveryFormOfKeys) {
  for (const int64_t sparse_mode : {0, 3}) {
    for (const char* form : {"TND", "BBND", "BNBD"}) {
      ScoreCall call;
      call.sparse_mode = sparse_mode;
      call.with_mask = sparse_mode == 3;
      if (form != std::string("TND")) call.TakePages(form);
      ASSERT_EQ(call.Run(), ACL_SUCCESS) << aclGetRecentErrMsg();
      EXPECT_EQ(call.score, call.Expected());
    }
  }
  ScoreCall call;
  call.TakePages("BBND");
  call.without_layout = true;
  ASSERT_EQ(call.Run(), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(call.score, call.Expected());
}

TEST(AclnnMsaIndexScore, TakesInt8KeysWithScalesOfEveryShape) {
  const struct {
    const char* form;
    std::vector<int64_t> shape;
  } cases[] = {{"TND", {600}},        {"TND", {600, 1}},     {"BBND", {3, 1, 200}},
               {"BBND", {3, 200, 1}}, {"BNBD", {3, 1, 200}}, {"BNBD", {3, 200, 1}}};
  for (const auto& [form, shape] : cases) {
    ScoreCall call;
    if (form != std::string("TND")) call.TakePages(form);
    call.TakeInt8(shape);
    ASSERT_EQ(call.Run(), ACL_SUCCESS) << form << ": " << aclGetRecentErrMsg();
    EXPECT_EQ(call.score, call.Expected()) << form;
  }
}

// The first phase does not know the lengths. All packed keys together have 5 blocks, and the table has room for 4.
TEST(AclnnMsaIndexScore, ScoreNeedsTheColumnsOfTheLengthsThatTheRunReads) {
  for (const char* form : {"TND", "BBND", "BNBD"}) {
    ScoreCall call;
    if (form != std::string("TND")) call.TakePages(form);
    call.keys = form == std::string("TND") ? std::vector<int32_t>{0, 128, 384} : std::vector<int32_t>{128, 256};
    call.table = form == std::string("TND") ? std::vector<int32_t>() : std::vector<int32_t>{0, 1, 1, 2};
    call.columns = 2;
    call.score.resize(static_cast<size_t>(ScoreCall::kHeads * ScoreCall::kTokens * 2));
    ASSERT_EQ(call.Run(), ACL_SUCCESS) << form << ": " << aclGetRecentErrMsg();
    EXPECT_THAT(call.score, Each(Not(IsNan()))) << form;
    call.columns = 1;
    EXPECT_EQ(call.Run(), ACLNN_ERR_PARAM_INVALID) << form;
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("score.shape[2]=1, want at least 2")) << form;
  }
}

TEST(AclnnMsaIndexScore, ErrorsNameTheParameter) {
  const struct {
    std::string text;
    std::function<void(ScoreCall&)> change;
  } cases[] = {
      {"scale: given, want none without key.dtype=i8", [](ScoreCall& c) { c.with_scale = true; }},
      {"scale: missing, want it with key.dtype=i8", [](ScoreCall& c) { c.int8_keys = true; }},
      {"scale.shape[0]=599, want 600", [](ScoreCall& c) { c.TakeInt8({599}); }},
      {"scale.shape: want [3,1,200] or [3,200,1] (key)",
       [](ScoreCall& c) {
         c.TakePages("BNBD"), c.TakeInt8({3, 1, 199});
       }},
      {"actualSeqQlen[0]=1, want 0", [](ScoreCall& c) { c.cu_q[0] = 1; }},
      {"actualSeqKlen[0]=2, want 0", [](ScoreCall& c) { c.keys[0] = 2; }},
      {"attenMask: given, want null (sparseMode 0)", [](ScoreCall& c) { c.with_mask = true, c.sparse_mode = 0; }},
      {"sparseMode=2, want 0 or 3", [](ScoreCall& c) { c.sparse_mode = 2; }},
      {"layoutKey=\"BSND\", want \"TND\", \"BBND\" or \"BNBD\"", [](ScoreCall& c) { c.layout_key = "BSND"; }},
      {"blockTable: missing", [](ScoreCall& c) { c.layout_key = "BNBD"; }},
      {"initBlocks=-1, want at least 0", [](ScoreCall& c) { c.init = -1; }},
      {"localBlocks=-2, want at least 0", [](ScoreCall& c) { c.local = -2; }},
      {"startLoc[1]=-3, want 0..2^60", [](ScoreCall& c) { c.start[1] = -3; }},
      {"startLoc has 1 entries, want 2", [](ScoreCall& c) { c.start.pop_back(); }},
      {"actualSeqKlen[2]=601", [](ScoreCall& c) { c.keys[2] = 601; }},
      {"actualSeqQlen: missing", [](ScoreCall& c) { c.cu_q.clear(); }},
      {"score.shape[2]=3, want at least", [](ScoreCall& c) { c.columns = 3; }},
  };
  for (const auto& [text, change] : cases) {
    ScoreCall call;
    change(call);
    EXPECT_EQ(call.Run(), ACLNN_ERR_PARAM_INVALID) << text;
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(text));
    EXPECT_THAT(call.score, Each(IsNan())) << text;
  }
  ScoreCall call;
  call.start.clear();
  EXPECT_EQ(call.Run(), ACLNN_ERR_PARAM_NULLPTR);
}

struct ValueCall {
  aclError Run() {
    Handles handles;
    const aclTensor* in_target = handles.Tensor(target.data(), ACL_FLOAT, {4, 3, 10});
    const aclTensor* in_probs = handles.Tensor(probs.data(), ACL_FLOAT, {4, rows, 10});
    const aclTensor* out = handles.Tensor(loss.data(), ACL_FLOAT, {std::ssize(loss)});
    return RunPhases(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnLightningIndexerKLLossGetWorkspaceSize(in_target, without_probs ? nullptr : in_probs, eps,
                                                             weight.data(), out, size, executor);
        },
        aclnnLightningIndexerKLLoss);
  }

  std::vector<float> target = std::vector<float>(120, 0.125F), probs = std::vector<float>(120, 0.0625F),
                     loss = {kNoScore};
  double eps = 1e-5;
  int64_t rows = 3;
  std::string weight = "logits";
  bool without_probs = false;
};

TEST(AclnnLightningIndexerKLLoss, HasTheBitsOfCpp) {
  for (const bool of_target : {true, false}) {
    ValueCall call;
    call.weight = of_target ? "logits" : "probs";
    float want = kNoScore;
    const Status status = IndexerKLLoss(
        {.target = View(call.target, {12, 10}), .probabilities = View(call.probs, {12, 10}), .loss = View(&want, {1})},
        {.eps = call.eps, .weight = of_target ? IndexerKLLossWeight::kTarget : IndexerKLLossWeight::kNormalised});
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(call.Run(), ACL_SUCCESS) << aclGetRecentErrMsg();
    EXPECT_EQ(call.loss[0], want);
  }
}

TEST(AclnnLightningIndexerKLLoss, ErrorsNameTheParameter) {
  const struct {
    std::string text;
    std::function<void(ValueCall&)> change;
  } cases[] = {
      {"weightType=\"mean\", want \"logits\" or \"probs\"", [](ValueCall& c) { c.weight = "mean"; }},
      {"eps=-1, want a finite number", [](ValueCall& c) { c.eps = -1; }},
      {"indexProbs.shape[1]=2, want 3 (targetScore.shape[1])", [](ValueCall& c) { c.rows = 2; }},
      {"loss.shape=[2], want one element", [](ValueCall& c) { c.loss.push_back(0); }},
  };
  for (const auto& [text, change] : cases) {
    ValueCall call;
    change(call);
    EXPECT_EQ(call.Run(), ACLNN_ERR_PARAM_INVALID) << text;
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(text));
    EXPECT_THAT(call.loss[0], IsNan()) << text;
  }
  ValueCall call;
  call.without_probs = true;
  EXPECT_EQ(call.Run(), ACLNN_ERR_PARAM_NULLPTR);
}

}  // namespace
}  // namespace fa::test
