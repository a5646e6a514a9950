// Every version of aclnnIncreFlashAttention gives the bits of fa::DecodeAttention. Errors name the wrong parameter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "aclnn/calls/face_call.h"
#include "aclnnop/aclnn_incre_flash_attention.h"
#include "aclnnop/aclnn_incre_flash_attention_v2.h"
#include "aclnnop/aclnn_incre_flash_attention_v3.h"
#include "aclnnop/aclnn_incre_flash_attention_v4.h"
#include "ops/inference/decode/decode_case.h"
#include "ops/inference/prompt/prompt_case.h"
#include "ops/inference/strided_scales.h"
#include "support/each_case.h"
#include "support/tensor.h"

namespace fa::test {

enum class DecodeVersion : uint8_t { kV1, kV2, kV3, kV4 };

/// The parameters of all versions of the operator.
struct DecodeParameters {
  const aclTensor* query = nullptr;
  const aclTensorList *key = nullptr, *value = nullptr;
  const aclTensor *pse = nullptr, *mask = nullptr;
  const aclIntArray* lengths = nullptr;
  const aclTensor *dequant1 = nullptr, *quant1 = nullptr, *dequant2 = nullptr, *quant2 = nullptr, *offset2 = nullptr;
  const aclTensor *antiquant_scale = nullptr, *antiquant_offset = nullptr, *block_table = nullptr, *padding = nullptr;
  int64_t heads = 1;
  double scale = 1;
  std::string layout = "BNSD";
  int64_t heads_kv = 0, block_size = 0, inner_precise = 1;
  const aclTensor* out = nullptr;
};

aclnnStatus GetWorkspaceSize(DecodeVersion version, const DecodeParameters& p, uint64_t* size,
                             aclOpExecutor** executor) {
  char* layout = const_cast<char*>(p.layout.c_str());
  switch (version) {
    case DecodeVersion::kV1:
      return aclnnIncreFlashAttentionGetWorkspaceSize(p.query, p.key, p.value, p.pse, p.mask, p.lengths, p.heads,
                                                      p.scale, layout, p.heads_kv, p.out, size, executor);
    case DecodeVersion::kV2:
      return aclnnIncreFlashAttentionV2GetWorkspaceSize(p.query, p.key, p.value, p.pse, p.mask, p.lengths, p.dequant1,
                                                        p.quant1, p.dequant2, p.quant2, p.offset2, p.heads, p.scale,
                                                        layout, p.heads_kv, p.out, size, executor);
    case DecodeVersion::kV3:
      return aclnnIncreFlashAttentionV3GetWorkspaceSize(
          p.query, p.key, p.value, p.pse, p.mask, p.lengths, p.dequant1, p.quant1, p.dequant2, p.quant2, p.offset2,
          p.antiquant_scale, p.antiquant_offset, p.block_table, p.heads, p.scale, layout, p.heads_kv, p.block_size,
          p.inner_precise, p.out, size, executor);
    case DecodeVersion::kV4:
      return aclnnIncreFlashAttentionV4GetWorkspaceSize(
          p.query, p.key, p.value, p.pse, p.mask, p.lengths, p.dequant1, p.quant1, p.dequant2, p.quant2, p.offset2,
          p.antiquant_scale, p.antiquant_offset, p.block_table, p.padding, p.heads, p.scale, layout, p.heads_kv,
          p.block_size, p.inner_precise, p.out, size, executor);
  }
  return ACLNN_ERR_INNER;
}

aclnnStatus Execute(DecodeVersion version, void* workspace, uint64_t size, aclOpExecutor* executor,
                    aclrtStream stream) {
  switch (version) {
    case DecodeVersion::kV1: return aclnnIncreFlashAttention(workspace, size, executor, stream);
    case DecodeVersion::kV2: return aclnnIncreFlashAttentionV2(workspace, size, executor, stream);
    case DecodeVersion::kV3: return aclnnIncreFlashAttentionV3(workspace, size, executor, stream);
    case DecodeVersion::kV4: return aclnnIncreFlashAttentionV4(workspace, size, executor, stream);
  }
  return ACLNN_ERR_INNER;
}

namespace {

using ::testing::HasSubstr;

constexpr DecodeVersion kVersions[] = {DecodeVersion::kV1, DecodeVersion::kV2, DecodeVersion::kV3, DecodeVersion::kV4};

/// Descriptors of the tensors of a C++ call.
class DecodeFace {
 public:
  explicit DecodeFace(const DecodeProblem& problem) {
    const DecodeAttentionArgs args = problem.args();
    const ForwardCase& c = problem.decode_case().dense;
    p.query = handles_.Tensor(args.q);
    p.key = List(args.k);
    p.value = List(args.v);
    p.pse = handles_.Tensor(args.pse);
    p.mask = handles_.Tensor(args.dense_mask);
    p.lengths = handles_.Array({args.lengths_kv.begin(), args.lengths_kv.end()});
    p.antiquant_scale = handles_.Tensor(args.antiquant_scale);
    p.antiquant_offset = handles_.Tensor(args.antiquant_offset);
    p.block_table = handles_.Tensor(args.block_table);
    p.out = handles_.Tensor(args.out);
    p.heads = c.heads;
    p.heads_kv = c.heads_kv;
    p.scale = static_cast<double>(c.scale_value());
    p.layout = Name(c.layout);
    p.block_size = problem.decode_case().page_rows;
  }
  ~DecodeFace() {
    for (const aclTensorList* list : lists_) aclDestroyTensorList(list);
  }
  DecodeFace(const DecodeFace&) = delete;
  DecodeFace& operator=(const DecodeFace&) = delete;

  /// Returns a list that owns its tensors.
  const aclTensorList* List(std::span<const TensorView> views) {
    std::vector<const aclTensor*> tensors;
    for (const TensorView& view : views) {
      const auto rank = static_cast<uint64_t>(view.shape.rank());
      const int64_t* stride = view.stride.empty() ? nullptr : view.stride.begin();
      tensors.push_back(aclCreateTensor(view.shape.begin(), rank, AclTypeOf(view.dtype), stride, 0, ACL_FORMAT_ND,
                                        view.shape.begin(), rank, const_cast<void*>(view.data)));
    }
    return ListOf(tensors);
  }
  const aclTensorList* ListOf(std::span<const aclTensor* const> tensors) {
    lists_.push_back(aclCreateTensorList(tensors.data(), tensors.size()));
    return lists_.back();
  }
  Handles& handles() { return handles_; }

  DecodeParameters p;

 private:
  Handles handles_;
  std::vector<const aclTensorList*> lists_;
};

void ExpectBitsOfCpp(const DecodeCase& c, DecodeVersion version) {
  const ForwardOutputs want = OutputsOf(c, nullptr);
  const DecodeProblem problem(c);
  const DecodeFace face(problem);
  ASSERT_EQ(RunFace(version, face.p), ACL_SUCCESS) << aclGetRecentErrMsg() << "\n " << c;
  EXPECT_EQ(problem.Outputs().out, want.out) << c;
}

DecodeCase Usual(DType dtype = DType::kF16) {
  DecodeCase c = MakeDecodeCase(6, 2, 1, {600, 33}, dtype);
  c.spare_k = 7;
  return c;
}

TEST(IncreBits, EveryVersionLayoutAndType) {
  const auto check = [&](DecodeVersion version, Layout layout, DType dtype) {
    DecodeCase c = Usual(dtype);
    c.dense.layout = layout;
    ExpectBitsOfCpp(c, version);
    c.keys = KeyForm::kList;
    ExpectBitsOfCpp(c, version);
  };
  ForEachCase(check, Axis{"version", kVersions}, Axis{"layout", {Layout::kBNSD, Layout::kBSND, Layout::kBSH}},
              Axis{"dtype", {DType::kF32, DType::kF16, DType::kBF16}});
}

TEST(IncreBits, BiasAndMasks) {
  for (const DecodeVersion version : kVersions) {
    DecodeCase c = Usual();
    c.dense.pse = PseForm::kRow;
    c.dense.pse_type = reference::PseType::kScaleThenAdd;
    c.dense.dense_mask = MaskForm::kPerBatch;
    for (const int rank : {2, 3, 4}) {
      c.mask_rank = rank;
      ExpectBitsOfCpp(c, version);
    }
  }
}

TEST(IncreBits, CompressedKeysAndPages) {
  const auto check = [&](DecodeVersion version, DType format, Layout layout, KeyForm form, Quantization quantization) {
    if (form == KeyForm::kPagesOfHeads && layout == Layout::kBSH) return;
    if (format == DType::kI4x8 && quantization == Quantization::kNone) return;
    DecodeCase c = Usual();
    c.dense.layout = layout;
    c.keys = form;
    c.quantization = quantization;
    c.format = format;
    c.antiquant_dtype = DType::kF16;
    ExpectBitsOfCpp(c, version);
  };
  ForEachCase(check, Axis{"version", {DecodeVersion::kV3, DecodeVersion::kV4}},
              Axis{"format", {DType::kI8, DType::kI4x8}}, Axis{"layout", {Layout::kBNSD, Layout::kBSND, Layout::kBSH}},
              Axis{"form", {KeyForm::kOneTensor, KeyForm::kList, KeyForm::kPages, KeyForm::kPagesOfHeads}},
              Axis{"quantization", {Quantization::kNone, Quantization::kPerTensor, Quantization::kPerChannel}});
}

TEST(IncreErrors, Int4KeysWithoutScales) {
  DecodeCase c = Usual();
  c.quantization = Quantization::kPerTensor;
  c.format = DType::kI4x8;
  const DecodeProblem problem(c);
  DecodeFace face(problem);
  face.p.antiquant_scale = nullptr;
  for (const DecodeVersion version : {DecodeVersion::kV3, DecodeVersion::kV4}) {
    EXPECT_EQ(RunFace(version, face.p), ACLNN_ERR_PARAM_INVALID);
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("antiquantScale: missing (key.dtype is i4x8)"));
  }
}

TEST(IncreErrors, CompressedKeysInVersionsWithoutScales) {
  for (const auto& [format, name] : {std::pair{DType::kI4x8, "i32"}, std::pair{DType::kI8, "i8"}}) {
    DecodeCase c = Usual();
    c.quantization = Quantization::kPerTensor;
    c.format = format;
    const DecodeProblem problem(c);
    const DecodeFace face(problem);
    const std::string want = std::string("key.dtype=") + name + ", want f16 (query)";
    for (const DecodeVersion version : {DecodeVersion::kV1, DecodeVersion::kV2}) {
      EXPECT_EQ(RunFace(version, face.p), ACLNN_ERR_PARAM_INVALID);
      EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(want));
    }
  }
}

// Returns a view of [B,N,1,D] as [B,1,N,D].
TensorView RowsBeforeHeads(TensorView tensor) {
  if (tensor.stride.empty()) tensor.stride = DenseStride(tensor.shape);
  std::swap(tensor.shape[1], tensor.shape[2]);
  std::swap(tensor.stride[1], tensor.stride[2]);
  return tensor;
}

// In layout BSND, pages have the device's order [pages, Nkv, blockSize, D]. This also holds if blockSize
// equals Nkv. The shape then does not show the order.
TEST(IncreBits, PagesOfHeadsInLayoutBsnd) {
  for (const int64_t page_rows : {2, 16}) {
    for (const Quantization quantization : {Quantization::kNone, Quantization::kPerTensor}) {
      DecodeCase c = Usual();
      c.keys = KeyForm::kPagesOfHeads;
      c.page_rows = page_rows;
      c.quantization = quantization;
      const ForwardOutputs want = OutputsOf(c, nullptr);
      const DecodeProblem problem(c);
      DecodeFace face(problem);
      face.p.layout = "BSND";
      face.p.query = face.handles().Tensor(RowsBeforeHeads(problem.args().q));
      face.p.out = face.handles().Tensor(RowsBeforeHeads(problem.args().out));
      ASSERT_EQ(RunFace(DecodeVersion::kV3, face.p), ACL_SUCCESS) << aclGetRecentErrMsg() << "\n " << c;
      EXPECT_EQ(problem.Outputs().out, want.out) << c;
    }
  }
}

TEST(IncreBits, Int8Results) {
  for (const DecodeVersion version : {DecodeVersion::kV2, DecodeVersion::kV3, DecodeVersion::kV4}) {
    const DecodeProblem problem(Usual());
    std::vector<int8_t> want(size_t{2} * 6 * 24), got(want.size());
    float scale = 90, offset = -3;
    DecodeAttentionArgs args = problem.args();
    args.quant_scale2 = {&scale, DType::kF32, {1}, {}};
    args.quant_offset2 = {&offset, DType::kF32, {1}, {}};
    args.out = {want.data(), DType::kI8, {2, 6, 1, 24}, {}};
    const Status status = DecodeAttention(args, problem.options());
    ASSERT_TRUE(status.ok()) << status.message();
    DecodeFace face(problem);
    face.p.quant2 = face.handles().Tensor(&scale, ACL_FLOAT, {1});
    face.p.offset2 = face.handles().Tensor(&offset, ACL_FLOAT, {1});
    face.p.out = face.handles().Tensor(got.data(), ACL_INT8, {2, 6, 1, 24});
    ASSERT_EQ(RunFace(version, face.p), ACL_SUCCESS) << aclGetRecentErrMsg();
    EXPECT_EQ(got, want);
  }
}

// Int8 queries give the bits of fa::PromptAttention.
TEST(IncreBits, Int8Queries) {
  for (const DecodeVersion version : {DecodeVersion::kV2, DecodeVersion::kV3, DecodeVersion::kV4}) {
    PromptCase c;
    c.dtype = DType::kI8;
    c.out_dtype = DType::kF16;
    c.heads = 6;
    c.heads_kv = 2;
    c.batch = 2;
    c.sq = 1;
    c.sk = 70;
    c.lengths_kv = {70, 33};
    c.layout = version == DecodeVersion::kV4 ? Layout::kBSND : Layout::kBNSD;
    const PromptProblem prompt(c);
    ASSERT_TRUE(prompt.Run(nullptr).ok());
    const std::vector<double> want = prompt.Outputs();
    const PromptAttentionArgs args = prompt.args();
    const Snapshot before = prompt.TakeSnapshot();
    before.Forget();
    const DecodeProblem other(Usual());
    DecodeFace face(other);
    Handles& handles = face.handles();
    DecodeParameters p{.lengths = handles.Array({args.lengths_kv.begin(), args.lengths_kv.end()})};
    p.query = handles.Tensor(args.q);
    p.key = face.List({&args.k, 1});
    p.value = face.List({&args.v, 1});
    p.dequant1 = handles.Tensor(args.deq_scale1);
    p.quant1 = handles.Tensor(args.quant_scale1);
    p.dequant2 = handles.Tensor(args.deq_scale2);
    p.out = handles.Tensor(args.out);
    p.heads = c.heads;
    p.heads_kv = c.heads_kv;
    p.scale = static_cast<double>(prompt.options().scale.value_or(1.0F / std::sqrt(static_cast<float>(c.d))));
    p.layout = Name(c.layout);
    ASSERT_EQ(RunFace(version, p), ACL_SUCCESS) << aclGetRecentErrMsg();
    EXPECT_EQ(prompt.Outputs(), want);
    p.quant1 = nullptr;
    EXPECT_EQ(RunFace(version, p), ACLNN_ERR_PARAM_INVALID);
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("quantScale1: missing, want it (query.dtype=i8)"));
  }
}

TEST(IncreBits, Int8ResultsOfScalesWithAnyStrides) {
  const DecodeProblem problem(Usual(DType::kF32));
  const auto scales = MakeStridedScales(DType::kF32, 6, 24, 60, 200);
  const auto offsets = MakeStridedScales(DType::kF32, 6, 24, -40, 40);
  for (size_t i = 0; i < scales.size(); ++i) {
    std::vector<int8_t> want(size_t{2} * 6 * 24), got(want.size());
    const StridedScales &scale = scales[i], &offset = offsets[(i + 3) % offsets.size()];
    DecodeAttentionArgs args = problem.args();
    args.quant_scale2 = scale.packed.view();
    args.quant_offset2 = offset.packed.view();
    args.out = {want.data(), DType::kI8, {2, 6, 1, 24}, {}};
    const Status status = DecodeAttention(args, problem.options());
    ASSERT_TRUE(status.ok()) << status.message();
    DecodeFace face(problem);
    face.p.quant2 = face.handles().Tensor(scale.tensor.view());
    face.p.offset2 = face.handles().Tensor(offset.tensor.view());
    face.p.out = face.handles().Tensor(got.data(), ACL_INT8, {2, 6, 1, 24});
    ASSERT_EQ(RunFace(DecodeVersion::kV4, face.p), ACL_SUCCESS) << aclGetRecentErrMsg();
    EXPECT_EQ(got, want) << scale.name << ", " << offset.name;
  }
}

// With kvPaddingSize = n, a tensor has n rows after its last key. Such a call must give the bits of a call with tensors
// that begin at the first key.
TEST(IncreBits, PaddedKeys) {
  constexpr int64_t kPadding = 3;
  for (const Layout layout : {Layout::kBNSD, Layout::kBSND, Layout::kBSH}) {
    DecodeCase c = Usual(DType::kF32);
    c.dense.layout = layout;
    c.dense.lengths.sk = {607, 607};
    c.spare_k = 0;
    const DecodeProblem problem(c);
    const std::vector<int64_t> lengths = {600, 33};
    DecodeAttentionArgs args = problem.args();
    const int seq = layout == Layout::kBNSD ? 2 : 1;
    std::vector<TensorView> k, v;
    for (size_t b = 0; b < 2; ++b) {
      for (const auto& [from, to] : {std::pair{args.k[0], &k}, std::pair{args.v[0], &v}}) {
        TensorView one = from;
        const int64_t row = 607 - kPadding - lengths[b];
        one.data =
            static_cast<const float*>(from.data) + static_cast<int64_t>(b) * from.stride[0] + row * from.stride[seq];
        one.shape[0] = 1;
        one.shape[seq] = lengths[b];
        to->push_back(one);
      }
    }
    args.k = k;
    args.v = v;
    args.lengths_kv = lengths;
    ASSERT_TRUE(DecodeAttention(args, problem.options()).ok());
    const std::vector<double> want = problem.Outputs().out;

    DecodeFace face(problem);
    face.p.lengths = face.handles().Array(lengths);
    auto* padding = static_cast<int64_t*>(face.handles().Memory(sizeof(int64_t)));
    *padding = kPadding;
    face.p.padding = face.handles().Tensor(padding, ACL_INT64, {1});
    ASSERT_EQ(RunFace(DecodeVersion::kV4, face.p), ACL_SUCCESS) << aclGetRecentErrMsg();
    EXPECT_EQ(problem.Outputs().out, want);
    *padding = 8;
    EXPECT_EQ(RunFace(DecodeVersion::kV4, face.p), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(problem.Outputs().out, want) << "nothing was written";
  }
}

struct Mistake {
  const char* name;
  aclnnStatus code;
  const char* message;
  std::function<void(DecodeFace*)> make;
};

void* Anything() {
  static float memory[4096];
  return memory;
}

const Mistake kMistakes[] = {
    {"NoQuery", ACLNN_ERR_PARAM_NULLPTR, "query", [](DecodeFace* f) { f->p.query = nullptr; }},
    {"NoKey", ACLNN_ERR_PARAM_NULLPTR, "key", [](DecodeFace* f) { f->p.key = nullptr; }},
    {"NoValue", ACLNN_ERR_PARAM_NULLPTR, "value", [](DecodeFace* f) { f->p.value = nullptr; }},
    {"NoOut", ACLNN_ERR_PARAM_NULLPTR, "attentionOut", [](DecodeFace* f) { f->p.out = nullptr; }},
    {"EmptyList", ACLNN_ERR_PARAM_INVALID, "key: missing", [](DecodeFace* f) { f->p.key = f->List({}); }},
    {"UnknownLayout", ACLNN_ERR_PARAM_INVALID, "inputLayout=\"SBH\"", [](DecodeFace* f) { f->p.layout = "SBH"; }},
    {"NoHeads", ACLNN_ERR_PARAM_INVALID, "numHeads=0", [](DecodeFace* f) { f->p.heads = 0; }},
    {"HeadsDisagree", ACLNN_ERR_PARAM_INVALID, "numHeads=4, want 6 (query.shape[1], inputLayout BNSD)",
     [](DecodeFace* f) { f->p.heads = 4; }},
    {"KeyHeadsDisagree", ACLNN_ERR_PARAM_INVALID, "numKeyValueHeads=3, want 2 (key)",
     [](DecodeFace* f) { f->p.heads_kv = 3; }},
    {"KeyHeadsThatDoNotDivide", ACLNN_ERR_PARAM_INVALID, "numKeyValueHeads=5, want 0 or a divisor of 6",
     [](DecodeFace* f) { f->p.heads_kv = 5; }},
    {"ScaleNotFinite", ACLNN_ERR_PARAM_INVALID, "scaleValue=nan",
     [](DecodeFace* f) { f->p.scale = std::numeric_limits<double>::quiet_NaN(); }},
    {"LengthBeyondTheTable", ACLNN_ERR_PARAM_INVALID, "actualSeqLengths[0]=900, want 0..",
     [](DecodeFace* f) {
       f->p.lengths = f->handles().Array({900, 33});
     }},
    {"PagesWithoutLengths", ACLNN_ERR_PARAM_INVALID, "actualSeqLengths: missing",
     [](DecodeFace* f) { f->p.lengths = nullptr; }},
    {"AnotherBlockSize", ACLNN_ERR_PARAM_INVALID, "blockSize=32, want 16 (key.shape[1])",
     [](DecodeFace* f) { f->p.block_size = 32; }},
    {"TableOfAnotherType", ACLNN_ERR_PARAM_INVALID, "blocktable.dtype=i64, want i32",
     [](DecodeFace* f) {
       f->p.block_table = f->handles().Tensor(Anything(), ACL_INT64, {2, 40});
     }},
    {"QuantizedResult", ACLNN_ERR_PARAM_INVALID, "quantScale2: given, want none",
     [](DecodeFace* f) { f->p.quant2 = f->handles().Tensor(Anything(), ACL_FLOAT, {1}); }},
    {"QuantizedQuery", ACLNN_ERR_PARAM_INVALID, "dequantScale1: given, want none",
     [](DecodeFace* f) { f->p.dequant1 = f->handles().Tensor(Anything(), ACL_FLOAT, {1}); }},
    {"ScaleOfFloatKeys", ACLNN_ERR_PARAM_INVALID, "antiquantScale: given, want none",
     [](DecodeFace* f) { f->p.antiquant_scale = f->handles().Tensor(Anything(), ACL_FLOAT16, {2}); }},
    {"MaskOfAnotherType", ACLNN_ERR_PARAM_INVALID, "attenMask.dtype=f16",
     [](DecodeFace* f) {
       f->p.mask = f->handles().Tensor(Anything(), ACL_FLOAT16, {2, 700});
     }},
    {"BiasOfAnotherShape", ACLNN_ERR_PARAM_INVALID, "pseShift.shape[1]=5, want 6",
     [](DecodeFace* f) {
       f->p.pse = f->handles().Tensor(Anything(), ACL_FLOAT16, {2, 5, 1, 700});
     }},
    {"NullAmongTheKeys", ACLNN_ERR_INNER_NULLPTR, "key[1]: null",
     [](DecodeFace* f) {
       const aclTensor* tensors[] = {f->handles().Tensor(Anything(), ACL_FLOAT16, {1, 2, 700, 24}), nullptr};
       f->p.key = f->ListOf(tensors);
     }},
    {"NullAmongTheValues", ACLNN_ERR_INNER_NULLPTR, "value[0]: null",
     [](DecodeFace* f) {
       const aclTensor* tensors[] = {nullptr};
       f->p.value = f->ListOf(tensors);
     }},
    {"PaddingOfPages", ACLNN_ERR_PARAM_INVALID, "kvPaddingSize: given, want none (with blocktable)",
     [](DecodeFace* f) { f->p.padding = f->handles().Tensor(Anything(), ACL_INT64, {1}); }},
};

class IncreCodes : public ::testing::TestWithParam<Mistake> {};

TEST_P(IncreCodes, NameTheParameterInTheFirstPhase) {
  DecodeCase c = Usual();
  c.keys = KeyForm::kPages;
  const DecodeProblem problem(c);
  DecodeFace face(problem);
  GetParam().make(&face);
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(GetWorkspaceSize(DecodeVersion::kV4, face.p, &size, &executor), GetParam().code);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(GetParam().message));
  EXPECT_EQ(executor, nullptr);
}

INSTANTIATE_TEST_SUITE_P(All, IncreCodes, ::testing::ValuesIn(kMistakes),
                         [](const auto& info) { return info.param.name; });

TEST(IncreRun, APageThatDoesNotExistIsFoundOnTheStream) {
  DecodeCase c = Usual();
  c.keys = KeyForm::kPages;
  const DecodeProblem problem(c);
  problem.SetTableEntry(1, 2, 1000);
  const DecodeFace face(problem);
  EXPECT_EQ(RunFace(DecodeVersion::kV3, face.p), ACLNN_ERR_PARAM_INVALID);
  for (const double x : problem.Outputs().out) ASSERT_TRUE(std::isnan(x)) << "nothing was written";
}

}  // namespace
}  // namespace fa::test
