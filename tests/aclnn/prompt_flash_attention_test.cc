// Tests aclnnPromptFlashAttention V1 to V3. They give the bits of the C++ function, return the documented codes, and
// ignore some of their parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "aclnn/calls/face_call.h"
#include "aclnnop/aclnn_prompt_flash_attention.h"
#include "aclnnop/aclnn_prompt_flash_attention_v2.h"
#include "aclnnop/aclnn_prompt_flash_attention_v3.h"
#include "ops/inference/prompt/prompt_case.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

/// All parameters of V3. V1 and V2 have fewer of them.
struct PromptParameters {
  const aclTensor *query = nullptr, *key = nullptr, *value = nullptr, *pse = nullptr, *mask = nullptr, *out = nullptr;
  const aclIntArray *lengths = nullptr, *lengths_kv = nullptr;
  const aclTensor *deq1 = nullptr, *quant1 = nullptr, *deq2 = nullptr, *quant2 = nullptr, *offset2 = nullptr;
  int64_t heads = 1, heads_kv = 0, pre = 2147483647, next = 2147483647, sparse_mode = 0, inner_precise = 1;
  double scale = 1;
  std::string layout = "BNSD";
};

aclnnStatus Prepare(int version, const PromptParameters& p, uint64_t* size, aclOpExecutor** executor) {
  char* layout = p.layout.empty() ? nullptr : const_cast<char*>(p.layout.c_str());
  switch (version) {
    case 1:
      return aclnnPromptFlashAttentionGetWorkspaceSize(p.query, p.key, p.value, p.pse, p.mask, p.lengths, p.heads,
                                                       p.scale, p.pre, p.next, layout, p.heads_kv, p.out, size,
                                                       executor);
    case 2:
      return aclnnPromptFlashAttentionV2GetWorkspaceSize(
          p.query, p.key, p.value, p.pse, p.mask, p.lengths, p.lengths_kv, p.deq1, p.quant1, p.deq2, p.quant2,
          p.offset2, p.heads, p.scale, p.pre, p.next, layout, p.heads_kv, p.sparse_mode, p.out, size, executor);
    default:
      return aclnnPromptFlashAttentionV3GetWorkspaceSize(p.query, p.key, p.value, p.pse, p.mask, p.lengths,
                                                         p.lengths_kv, p.deq1, p.quant1, p.deq2, p.quant2, p.offset2,
                                                         p.heads, p.scale, p.pre, p.next, layout, p.heads_kv,
                                                         p.sparse_mode, p.inner_precise, p.out, size, executor);
  }
}

aclError RunPrompt(int version, const PromptParameters& p) {
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  if (const aclnnStatus status = Prepare(version, p, &size, &executor); status != 0) return status;
  std::vector<unsigned char> workspace(size);
  const auto execute = version == 1   ? aclnnPromptFlashAttention
                       : version == 2 ? aclnnPromptFlashAttentionV2
                                      : aclnnPromptFlashAttentionV3;
  if (const aclnnStatus status = execute(workspace.data(), size, executor, nullptr); status != 0) return status;
  return aclrtSynchronizeStream(nullptr);
}

/// Returns the parameters of a case whose tensors `problem` holds.
PromptParameters ParametersOf(const PromptCase& c, const PromptProblem& problem, Handles& handles) {
  const PromptAttentionArgs args = problem.args();
  const auto array = [&](std::span<const int64_t> padded, std::span<const int64_t> packed) -> const aclIntArray* {
    const std::span<const int64_t> values = c.packed() ? packed : padded;
    return values.empty() ? nullptr : handles.Array({values.begin(), values.end()});
  };
  PromptParameters p;
  p.query = handles.Tensor(args.q);
  p.key = handles.Tensor(args.k);
  p.value = handles.Tensor(args.v);
  p.pse = handles.Tensor(args.pse);
  p.mask = handles.Tensor(args.dense_mask);
  if (c.mask.mode >= 2) {
    const std::vector<uint8_t>& triangle = CompressedMask(c.mask.mode);
    p.mask = handles.Tensor(const_cast<uint8_t*>(triangle.data()), ACL_BOOL, {2048, 2048});
  }
  p.lengths = array(args.lengths_q, args.cu_q);
  p.lengths_kv = array(args.lengths_kv, args.cu_kv);
  p.deq1 = handles.Tensor(args.deq_scale1);
  p.quant1 = handles.Tensor(args.quant_scale1);
  p.deq2 = handles.Tensor(args.deq_scale2);
  p.quant2 = handles.Tensor(args.quant_scale2);
  p.offset2 = handles.Tensor(args.quant_offset2);
  p.out = handles.Tensor(static_cast<TensorView>(args.out));
  p.heads = c.heads;
  p.heads_kv = c.heads_kv == c.heads ? 0 : c.heads_kv;
  p.layout = Name(c.layout);
  p.scale = problem.values().scale;
  p.sparse_mode = c.mask.mode;
  if (c.mask.mode == 4 || c.mask.band) {
    p.pre = c.mask.pre;
    p.next = c.mask.next;
  }
  return p;
}

PromptCase Usual() {
  PromptCase c;
  c.dtype = c.out_dtype = DType::kF16;
  c.heads = 4;
  c.heads_kv = 2;
  c.batch = 2;
  c.sq = 24;
  c.sk = 40;
  return c;
}

void ExpectTheBitsOfCpp(int version, const PromptCase& c) {
  const PromptProblem face(c), cpp(c);
  Handles handles;
  ASSERT_EQ(RunPrompt(version, ParametersOf(c, face, handles)), 0) << aclGetRecentErrMsg();
  ASSERT_TRUE(cpp.Run(nullptr).ok());
  EXPECT_EQ(face.Outputs(), cpp.Outputs());
  EXPECT_EQ(face.UnusedOutputs(), cpp.UnusedOutputs());
}

TEST(AclnnPromptFlashAttention, EveryLayoutGivesTheBitsOfCpp) {
  for (const Layout layout : {Layout::kBSH, Layout::kBSND, Layout::kBNSD, Layout::kBNSD_BSND}) {
    for (const int version : {1, 2, 3}) {
      PromptCase c = Usual();
      c.layout = layout;
      c.lengths_q = {24, 7};
      if (version > 1) c.lengths_kv = {13, 40};
      SCOPED_TRACE(std::string(Name(layout)) + " V" + std::to_string(version));
      ExpectTheBitsOfCpp(version, c);
    }
  }
  PromptCase packed = Usual();
  packed.layout = Layout::kTND;
  packed.lengths_q = {5, 19};
  packed.lengths_kv = {9, 22};
  ExpectTheBitsOfCpp(3, packed);
}

TEST(AclnnPromptFlashAttention, EveryModeGivesTheBitsOfCpp) {
  for (const int mode : {0, 1, 2, 3, 4}) {
    PromptCase c = Usual();
    c.mask = {.mode = mode, .band = false, .pre = 6, .next = 3};
    c.lengths_q = {24, 11};
    SCOPED_TRACE(mode);
    ExpectTheBitsOfCpp(2, c);
  }
  PromptCase dense = Usual();
  dense.mask = {.mode = 0, .band = true, .pre = 9, .next = 5};
  dense.sparse_mode = true;
  dense.dense_mask = PromptMask::kBatch;
  dense.wider = 3;
  ExpectTheBitsOfCpp(1, dense);
}

TEST(AclnnPromptFlashAttention, Int8GivesTheBitsOfCpp) {
  for (const DType in : {DType::kI8, DType::kF16}) {
    PromptCase c = Usual();
    c.dtype = in;
    c.out_dtype = DType::kI8;
    c.per_column = c.with_offset = true;
    c.packed_deq = true;
    ExpectTheBitsOfCpp(2, c);
  }
  PromptCase half = Usual();
  half.dtype = DType::kI8;
  half.deq1 = 1e-3F;
  half.pse = true;
  ExpectTheBitsOfCpp(3, half);
}

TEST(AclnnPromptFlashAttention, OnlyV3HonoursTheBias) {
  PromptCase c = Usual();
  c.pse = true;
  ExpectTheBitsOfCpp(3, c);
  PromptCase without = Usual();
  for (const int version : {1, 2}) {
    const PromptProblem with_bias(c), plain(without);
    Handles handles;
    ASSERT_EQ(RunPrompt(version, ParametersOf(c, with_bias, handles)), 0) << aclGetRecentErrMsg();
    ASSERT_TRUE(plain.Run(nullptr).ok());
    EXPECT_EQ(with_bias.Outputs(), plain.Outputs()) << version;
  }
}

TEST(AclnnPromptFlashAttention, AnEmptyOutputIsDone) {
  Handles handles;
  const PromptCase c = Usual();
  const PromptProblem problem(c);
  PromptParameters p = ParametersOf(c, problem, handles);
  p.out = handles.Tensor(handles.Memory(1), ACL_FLOAT16, {0, 4, 24, 16});
  uint64_t size = 7;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(Prepare(3, p, &size, &executor), 0) << aclGetRecentErrMsg();
  EXPECT_EQ(size, 0U);
  EXPECT_EQ(aclnnPromptFlashAttentionV3(nullptr, 0, executor, nullptr), 0);
  EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
}

struct Refusal {
  const char* name;
  aclnnStatus code;
  const char* message;
  std::function<void(PromptParameters*, Handles*)> make;
};

const Refusal kRefusals[] = {
    {"NullQuery", 161001, "query", [](auto* p, Handles*) { p->query = nullptr; }},
    {"NullKey", 161001, "key", [](auto* p, Handles*) { p->key = nullptr; }},
    {"NullValue", 161001, "value", [](auto* p, Handles*) { p->value = nullptr; }},
    {"NullOut", 161001, "attentionOut", [](auto* p, Handles*) { p->out = nullptr; }},
    {"NullLayout", 161001, "inputLayout", [](auto* p, Handles*) { p->layout.clear(); }},
    {"Layout", 161002, "inputLayout=\"SBH\"", [](auto* p, Handles*) { p->layout = "SBH"; }},
    {"NumHeads0", 161002, "numHeads=0", [](auto* p, Handles*) { p->heads = 0; }},
    {"NumHeads", 161002, "numHeads=3, want 4", [](auto* p, Handles*) { p->heads = 3; }},
    {"NumKeyValueHeads", 161002, "numKeyValueHeads=4, want 2", [](auto* p, Handles*) { p->heads_kv = 0; }},
    {"NegativeKeyValueHeads", 161002, "numKeyValueHeads=-2", [](auto* p, Handles*) { p->heads_kv = -2; }},
    {"SparseMode5", 161002, "sparseMode=5, want 0..4", [](auto* p, Handles*) { p->sparse_mode = 5; }},
    {"Mode2WithoutMask", 161002, "attenMask: missing", [](auto* p, Handles*) { p->sparse_mode = 2; }},
    {"Mode3WithoutMask", 161002, "attenMask: missing", [](auto* p, Handles*) { p->sparse_mode = 3; }},
    {"Mode4WithoutMask", 161002, "attenMask: missing", [](auto* p, Handles*) { p->sparse_mode = 4; }},
    {"MaskShape", 161002, "attenMask.shape",
     [](auto* p, Handles* handles) {
       p->sparse_mode = 3;
       p->mask = handles->Tensor(handles->Memory(1024 * 1024), ACL_BOOL, {1024, 1024});
     }},
    {"TooFewLengths", 161002, "actualSeqLengths has 3 entries, want 1 or 4",
     [](auto* p, Handles* handles) {
       for (const aclTensor** tensor : {&p->query, &p->out}) {
         *tensor = handles->Tensor(handles->Memory(4 * 4 * 24 * 16 * 2), ACL_FLOAT16, {4, 4, 24, 16});
       }
       for (const aclTensor** tensor : {&p->key, &p->value}) {
         *tensor = handles->Tensor(handles->Memory(4 * 2 * 40 * 16 * 2), ACL_FLOAT16, {4, 2, 40, 16});
       }
       p->lengths = handles->Array({1, 2, 3});
     }},
    {"LengthTooLarge", 161002, "actualSeqLengthsKv[0]=41, want 0..40",
     [](auto* p, Handles* handles) { p->lengths_kv = handles->Array({41}); }},
    {"ScaleOfFloats", 161002, "deqScale1: given",
     [](auto* p, Handles* handles) { p->deq1 = handles->Tensor(handles->Memory(4), ACL_FLOAT, {1}); }},
    {"OutType", 161002, "attentionOut.dtype=bf16",
     [](auto* p, Handles* handles) {
       p->out = handles->Tensor(handles->Memory(2 * 4 * 24 * 16 * 2), ACL_BF16, {2, 4, 24, 16});
     }},
    {"MissingQuantScale2", 161002, "quantScale2: missing",
     [](auto* p, Handles* handles) {
       p->out = handles->Tensor(handles->Memory(2 * 4 * 24 * 16), ACL_INT8, {2, 4, 24, 16});
     }},
    {"BothTokensNegative", 161002, "preTokens=-3",
     [](auto* p, Handles* handles) {
       p->mask = handles->Tensor(handles->Memory(24 * 40), ACL_BOOL, {24, 40});
       p->sparse_mode = 0;
       p->pre = p->next = -3;
     }},
};

class AclnnPromptRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(AclnnPromptRefusal, HasItsCodeAndNamesTheParameter) {
  const PromptCase c = Usual();
  const PromptProblem problem(c);
  Handles handles;
  PromptParameters p = ParametersOf(c, problem, handles);
  GetParam().make(&p, &handles);
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(Prepare(3, p, &size, &executor), GetParam().code);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(Rows, AclnnPromptRefusal, ::testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(AclnnPromptFlashAttention, AWrongCompressedMaskFailsAtTheSynchronise) {
  PromptCase c = Usual();
  c.mask.mode = 3;
  const PromptProblem problem(c);
  Handles handles;
  PromptParameters p = ParametersOf(c, problem, handles);
  p.mask = handles.Tensor(handles.Memory(2048 * 2048), ACL_BOOL, {2048, 2048});
  EXPECT_EQ(RunPrompt(2, p), ACLNN_ERR_PARAM_INVALID);
}

}  // namespace
}  // namespace fa::test
