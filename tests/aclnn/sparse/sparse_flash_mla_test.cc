// Tests aclnnSparseFlashMla, its gradients and its L1 norm. They give the bits of the C++ functions, and an error code
// for each refused call. Tensor contents are read only when the stream runs the operator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aclnn/calls/face_call.h"
#include "aclnnop/aclnn_sparse_flash_mla.h"
#include "aclnnop/aclnn_sparse_flash_mla_grad.h"
#include "aclnnop/aclnn_sparse_flash_mla_metadata.h"
#include "aclnnop/aclnn_sparse_flash_mla_softmax_l1_norm.h"
#include "fa/view.h"
#include "ops/sparse/shared_kv_case.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

enum class MlaOperator : uint8_t { kForward, kGrad, kL1Norm };

/// All parameters of the operators. Each operator has some of them.
struct MlaParameters {
  const aclTensor *q = nullptr, *ori = nullptr, *cmp = nullptr, *ori_lists = nullptr, *cmp_lists = nullptr;
  const aclTensor *ori_table = nullptr, *cmp_table = nullptr;
  const aclTensor *cu_q = nullptr, *cu_ori = nullptr, *cu_cmp = nullptr;
  const aclTensor *used_q = nullptr, *used_ori = nullptr, *used_cmp = nullptr, *residual = nullptr;
  const aclTensor *ori_topk = nullptr, *cmp_topk = nullptr, *sinks = nullptr, *metadata = nullptr;
  const aclTensor *out = nullptr, *lse = nullptr, *d_out = nullptr;
  const aclTensor *dq = nullptr, *d_ori = nullptr, *d_cmp = nullptr, *d_sinks = nullptr;
  const aclTensor *ori_l1 = nullptr, *cmp_l1 = nullptr;
  double scale = 1;
  int64_t ratio = 1, ori_mask = 0, cmp_mask = 3, left = -1, right = -1, topk_value_mode = 1;
  std::string layout = "BSND", layout_kv = "BSND";
  bool return_lse = true;
};

aclnnStatus GetWorkspaceSize(MlaOperator op, const MlaParameters& p, uint64_t* size, aclOpExecutor** executor) {
  // The interface takes its strings as char*, and does not write to them.
  char *layout = const_cast<char*>(p.layout.c_str()), *layout_kv = const_cast<char*>(p.layout_kv.c_str());
  switch (op) {
    case MlaOperator::kForward:
      return aclnnSparseFlashMlaGetWorkspaceSize(p.q, p.ori, p.cmp, p.ori_lists, p.cmp_lists, p.ori_table, p.cmp_table,
                                                 p.cu_q, p.cu_ori, p.cu_cmp, p.used_q, p.used_ori, p.used_cmp,
                                                 p.residual, p.ori_topk, p.cmp_topk, p.sinks, p.metadata, p.scale,
                                                 p.ratio, p.ori_mask, p.cmp_mask, p.left, p.right, layout, layout_kv,
                                                 p.topk_value_mode, p.return_lse, p.out, p.lse, size, executor);
    case MlaOperator::kGrad:
      return aclnnSparseFlashMlaGradGetWorkspaceSize(
          p.q, p.d_out, p.out, p.lse, p.ori, p.cmp, p.ori_lists, p.cmp_lists, p.cu_q, p.cu_ori, p.cu_cmp, p.used_q,
          p.used_ori, p.used_cmp, p.residual, p.ori_topk, p.cmp_topk, p.sinks, p.metadata, p.scale, p.ratio, p.ori_mask,
          p.cmp_mask, p.left, p.right, layout, layout_kv, p.dq, p.d_ori, p.d_cmp, p.d_sinks, p.ori_l1, p.cmp_l1, size,
          executor);
    case MlaOperator::kL1Norm:
      return aclnnSparseFlashMlaSoftmaxL1NormGetWorkspaceSize(
          p.q, p.cmp, p.lse, p.cmp_lists, p.cu_q, p.cu_cmp, p.used_q, p.used_cmp, p.residual, p.cmp_topk, p.metadata,
          p.scale, p.ratio, p.cmp_mask, layout, layout_kv, p.cmp_l1, size, executor);
  }
  return ACLNN_ERR_INNER;
}

aclnnStatus Execute(MlaOperator op, void* workspace, uint64_t size, aclOpExecutor* executor, aclrtStream stream) {
  const auto phase = op == MlaOperator::kForward ? aclnnSparseFlashMla
                     : op == MlaOperator::kGrad  ? aclnnSparseFlashMlaGrad
                                                 : aclnnSparseFlashMlaSoftmaxL1Norm;
  return phase(workspace, size, executor, stream);
}

aclTensor* Int32Tensor(std::span<const int64_t> values, bool leading_zero, Handles& handles) {
  if (values.empty()) return nullptr;
  std::vector<int32_t> all;
  if (leading_zero) all.push_back(0);
  for (const int64_t value : values) all.push_back(static_cast<int32_t>(value));
  auto* memory = static_cast<int32_t*>(handles.Memory(all.size() * sizeof(int32_t)));
  std::copy(all.begin(), all.end(), memory);
  return handles.Tensor(memory, ACL_INT32, {static_cast<int64_t>(all.size())});
}

template <typename Args>
MlaParameters MlaParametersOf(const Args& args, const SharedKvOptions& options, Handles& handles) {
  MlaParameters p;
  p.q = handles.Tensor(args.q);
  p.ori = handles.Tensor(args.ori_kv);
  p.cmp = handles.Tensor(args.cmp_kv);
  p.ori_lists = handles.Tensor(args.ori_indices);
  p.cmp_lists = handles.Tensor(args.cmp_indices);
  p.ori_topk = handles.Tensor(args.ori_topk_length);
  p.cmp_topk = handles.Tensor(args.cmp_topk_length);
  p.sinks = handles.Tensor(args.sink);
  p.cu_q = Int32Tensor(args.cu_q, true, handles);
  p.cu_ori = Int32Tensor(args.cu_ori, true, handles);
  p.cu_cmp = Int32Tensor(args.cu_cmp, true, handles);
  p.used_q = Int32Tensor(args.used_q, false, handles);
  p.used_ori = Int32Tensor(args.used_ori, false, handles);
  p.used_cmp = Int32Tensor(args.used_cmp, false, handles);
  p.residual = Int32Tensor(args.cmp_residual, false, handles);
  p.out = handles.Tensor(args.out);
  p.lse = handles.Tensor(args.lse);
  p.scale = 1 / std::sqrt(static_cast<double>(args.q.shape[args.q.shape.rank() - 1]));
  p.ratio = options.cmp_ratio;
  p.ori_mask = static_cast<int64_t>(options.ori_mask);
  p.cmp_mask = static_cast<int64_t>(options.cmp_mask);
  p.left = options.window_left;
  p.right = options.window_right;
  p.layout = p.layout_kv = Name(options.layout);
  if constexpr (requires { args.dq; }) {
    p.d_out = handles.Tensor(args.d_out);
    p.dq = handles.Tensor(args.dq);
    p.d_ori = handles.Tensor(args.d_ori_kv);
    p.d_cmp = handles.Tensor(args.d_cmp_kv);
    p.d_sinks = handles.Tensor(args.dsink);
    p.ori_l1 = handles.Tensor(args.ori_l1_norm);
    p.cmp_l1 = handles.Tensor(args.cmp_l1_norm);
  } else {
    p.ori_table = handles.Tensor(args.ori_block_table);
    p.cmp_table = handles.Tensor(args.cmp_block_table);
    if (p.ori_table != nullptr) p.layout_kv = "PA_BBND";
  }
  return p;
}

SharedKvCase UsualMla(DType dtype = DType::kF32) {
  SharedKvCase c{.heads = 3, .sink = true};
  c.tokens.dtype = dtype;
  c.tokens.lengths = {{6, 4}, {30, 21}};
  c.tokens.spare_q = 2;
  c.tokens.spare_k = 3;
  c.cmp_lengths = {7, 5};
  c.lse_without_keys = std::numeric_limits<float>::infinity();
  return c;
}

std::vector<SharedKvCase> MlaCases() {
  std::vector<SharedKvCase> cases;
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      SharedKvCase c = UsualMla(dtype);
      c.tokens.layout = layout;
      cases.push_back(c);
      c.ori_listed = c.topk_lengths = true;
      cases.push_back(c);
      c.has_ori = false;
      c.residual = {3, 1};
      cases.push_back(c);
    }
  }
  return cases;
}

template <typename Call>
void ExpectBitsOfMla(MlaOperator op, const Call& cpp, const Call& face, const SharedKvCase& c) {
  ASSERT_TRUE(cpp.Run(nullptr).ok()) << c;
  Handles handles;
  const MlaParameters p = MlaParametersOf(face.args(), face.options(), handles);
  ASSERT_EQ(RunFace(op, p), ACL_SUCCESS) << aclGetRecentErrMsg() << "\n " << c;
  EXPECT_TRUE(SameBits(face.Outputs(), cpp.Outputs())) << c;
}

TEST(AclnnSparseFlashMla, EveryCaseGivesTheBitsOfCpp) {
  for (const SharedKvCase& c : MlaCases()) {
    ExpectBitsOfMla(MlaOperator::kForward, SharedKvCall(c), SharedKvCall(c), c);
    ExpectBitsOfMla(MlaOperator::kGrad, SharedKvGradCall(c), SharedKvGradCall(c), c);
  }
}

TEST(AclnnSparseFlashMla, PagesGiveTheBitsOfCpp) {
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    SharedKvCase c = UsualMla();
    c.tokens.layout = layout;
    c.tokens.page_rows = 8;
    c.cmp_page_rows = 4;
    ExpectBitsOfMla(MlaOperator::kForward, SharedKvCall(c), SharedKvCall(c), c);
  }
}

// The operator that computes only the L1 norm has the bits of the norm that the C++ gradient computes.
TEST(AclnnSparseFlashMlaSoftmaxL1Norm, GivesTheBitsOfCpp) {
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    SharedKvCase c = UsualMla(DType::kBF16);
    c.tokens.layout = layout;
    c.has_ori = false;
    c.residual = {3, 1};
    ExpectBitsOfMla(MlaOperator::kL1Norm, SharedKvGradCall(c, true), SharedKvGradCall(c, true), c);
  }
}

TEST(AclnnSparseFlashMlaSoftmaxL1Norm, WithoutAListHasTheBitsOfCppForEveryKey) {
  for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
    SharedKvCase c = UsualMla(DType::kBF16);
    c.tokens.layout = layout;
    c.has_ori = false;
    c.residual = {3, 1};
    const SharedKvGradCall call(c, /*only_l1=*/true);
    SharedKvGradArgs args = call.args();
    args.cmp_indices = {};
    Dims shape = args.q.shape;
    shape[shape.rank() - 2] = 1;
    shape[shape.rank() - 1] = args.cmp_kv.shape[args.cmp_kv.shape.rank() - 3];
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<float> cpp(static_cast<size_t>(count), 7), face(cpp.size(), 8);
    args.cmp_l1_norm = View(cpp, shape);
    ASSERT_TRUE(SharedKvAttentionGrad(args, call.options()).ok()) << c;
    args.cmp_l1_norm = View(face, shape);
    Handles handles;
    const MlaParameters p = MlaParametersOf(args, call.options(), handles);
    ASSERT_EQ(RunFace(MlaOperator::kL1Norm, p), ACL_SUCCESS) << aclGetRecentErrMsg() << "\n " << c;
    EXPECT_EQ(face, cpp) << c;
    EXPECT_GT(*std::max_element(face.begin(), face.end()), 0) << c;
  }
}

// In TND, sequsedQ, sequsedOriKv and sequsedCmpKv say how many rows of a sequence are in use.
TEST(AclnnSparseFlashMla, RowsInUseOfPackedSequencesAreThoseOfBsnd) {
  SharedKvCase c = UsualMla();
  const SharedKvCall bsnd(c);
  ASSERT_TRUE(bsnd.Run(nullptr).ok());
  Handles handles;
  const SharedKvCall face(c);
  const SharedKvArgs args = face.args();
  // The tensors [B, S, ...] lie in memory like packed tensors [B * S, ...].
  const auto packed = [&](const auto& tensor) -> TensorView {
    TensorView view = tensor;
    if (view.data == nullptr) return view;
    Dims shape = {view.shape[0] * view.shape[1]};
    for (int i = 2; i < view.shape.rank(); ++i) shape.push_back(view.shape[i]);
    view.shape = shape;
    view.stride = {};
    return view;
  };
  MlaParameters p = MlaParametersOf(args, face.options(), handles);
  p.layout = p.layout_kv = "TND";
  p.q = handles.Tensor(packed(args.q));
  p.ori = handles.Tensor(packed(args.ori_kv));
  p.cmp = handles.Tensor(packed(args.cmp_kv));
  p.cmp_lists = handles.Tensor(packed(args.cmp_indices));
  p.out = handles.Tensor(packed(args.out));
  p.return_lse = false;
  const auto sums = [](const TensorView& tensor) { return std::vector<int64_t>{tensor.shape[1], 2 * tensor.shape[1]}; };
  p.cu_q = Int32Tensor(sums(args.q), true, handles);
  p.cu_ori = Int32Tensor(sums(args.ori_kv), true, handles);
  p.cu_cmp = Int32Tensor(sums(args.cmp_kv), true, handles);
  ASSERT_EQ(RunFace(MlaOperator::kForward, p), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(ValuesOf(face.Outputs(), "out"), ValuesOf(bsnd.Outputs(), "out"));
  EXPECT_EQ(face.Outputs().front().rows.unused, bsnd.Outputs().front().rows.unused);
}

struct MlaMistake {
  const char* message;
  std::function<void(MlaParameters*)> make;
  aclnnStatus code = 161002;
};

TEST(AclnnSparseFlashMla, ErrorsNameTheParameter) {
  const MlaMistake mistakes[] = {
      {"q", [](MlaParameters* p) { p->q = nullptr; }, 161001},
      {"attnOut", [](MlaParameters* p) { p->out = nullptr; }, 161001},
      {"softmaxLse", [](MlaParameters* p) { p->lse = nullptr; }, 161001},
      {"oriKv: missing, want it or cmpKv", [](MlaParameters* p) { p->ori = p->cmp = p->cmp_lists = nullptr; }},
      {"oriMaskMode=1, want 0, 3 or 4", [](MlaParameters* p) { p->ori_mask = 1; }},
      {"cmpMaskMode=4, want 0 or 3", [](MlaParameters* p) { p->cmp_mask = 4; }},
      {"cmpRatio=0", [](MlaParameters* p) { p->ratio = 0; }},
      {"oriWinLeft=-2", [](MlaParameters* p) { p->left = -2; }},
      {"topkValueMode=2, want 1", [](MlaParameters* p) { p->topk_value_mode = 2; }},
      {"layoutQ=\"BNSD\"", [](MlaParameters* p) { p->layout = "BNSD"; }},
      {"layoutKv=\"TND\", want \"BSND\" (layoutQ) or \"PA_BBND\"", [](MlaParameters* p) { p->layout_kv = "TND"; }},
      {"oriBlockTable: missing", [](MlaParameters* p) { p->layout_kv = "PA_BBND"; }},
      {"cuSeqlensQ: given", [](MlaParameters* p) { p->cu_q = p->used_q; }},
      {"sinks.dtype=i32", [](MlaParameters* p) { p->sinks = p->used_q; }},
  };
  for (const MlaMistake& mistake : mistakes) {
    const SharedKvCall call(UsualMla());
    Handles handles;
    MlaParameters p = MlaParametersOf(call.args(), call.options(), handles);
    mistake.make(&p);
    const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
    EXPECT_EQ(RunFace(MlaOperator::kForward, p), mistake.code) << mistake.message;
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(mistake.message));
    EXPECT_EQ(before.FirstChange(), -1);
  }
}

TEST(AclnnSparseFlashMlaGrad, ErrorsNameTheParameter) {
  const MlaMistake mistakes[] = {
      {"query", [](MlaParameters* p) { p->q = nullptr; }, 161001},
      {"dOut", [](MlaParameters* p) { p->d_out = nullptr; }, 161001},
      {"dQuery", [](MlaParameters* p) { p->dq = nullptr; }, 161001},
      {"dOut.dtype=f32, want f16 (query.dtype)", [](MlaParameters* p) { p->d_out = p->sinks; }},
      {"dOriKv: given, want none without oriKv", [](MlaParameters* p) { p->ori = p->used_ori = nullptr; }},
      {"dSinks: given, want none without sinks", [](MlaParameters* p) { p->sinks = nullptr; }},
      {"oriSoftmaxL1Norm.shape[3]=6, want at least 33 (keys in use)", [](MlaParameters* p) { p->ori_l1 = p->cmp_l1; }},
      {"cmpSoftmaxL1Norm.dtype=f16, want f32", [](MlaParameters* p) { p->cmp_l1 = p->dq; }},
      {"oriMaskMode=1, want 0, 3 or 4", [](MlaParameters* p) { p->ori_mask = 1; }},
      {"layoutKv=\"PA_BBND\", want \"BSND\" (layoutQ)", [](MlaParameters* p) { p->layout_kv = "PA_BBND"; }},
  };
  for (const MlaMistake& mistake : mistakes) {
    const SharedKvGradCall call(UsualMla(DType::kF16));
    Handles handles;
    MlaParameters p = MlaParametersOf(call.args(), call.options(), handles);
    mistake.make(&p);
    const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
    EXPECT_EQ(RunFace(MlaOperator::kGrad, p), mistake.code) << mistake.message;
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(mistake.message));
    EXPECT_EQ(before.FirstChange(), -1);
  }
}

TEST(AclnnSparseFlashMlaSoftmaxL1Norm, ErrorsNameTheParameter) {
  const MlaMistake mistakes[] = {
      {"k", [](MlaParameters* p) { p->cmp = nullptr; }, 161001},
      {"softmaxL1Norm", [](MlaParameters* p) { p->cmp_l1 = nullptr; }, 161001},
      {"softmaxL1Norm.shape[3]=6, want at least 10 (keys in use)", [](MlaParameters* p) { p->cmp_lists = nullptr; }},
      {"k.dtype=f32, want f16 (q.dtype)", [](MlaParameters* p) { p->cmp = p->cmp_l1; }},
      {"softmaxLse.dtype=f16, want f32", [](MlaParameters* p) { p->lse = p->q; }},
      {"maskMode=4, want 0 or 3", [](MlaParameters* p) { p->cmp_mask = 4; }},
      {"layoutK=\"TND\", want \"BSND\" (layoutQ)", [](MlaParameters* p) { p->layout_kv = "TND"; }},
      {"cmpRatio=0", [](MlaParameters* p) { p->ratio = 0; }},
  };
  for (const MlaMistake& mistake : mistakes) {
    SharedKvCase c = UsualMla(DType::kF16);
    c.has_ori = false;
    const SharedKvGradCall call(c, /*only_l1=*/true);
    Handles handles;
    MlaParameters p = MlaParametersOf(call.args(), call.options(), handles);
    mistake.make(&p);
    const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
    EXPECT_EQ(RunFace(MlaOperator::kL1Norm, p), mistake.code) << mistake.message;
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(mistake.message));
    EXPECT_EQ(before.FirstChange(), -1);
  }
}

TEST(AclnnSparseFlashMla, BadContentsAreFoundWhenTheStreamRuns) {
  SharedKvCase c = UsualMla();
  c.tokens.layout = Layout::kTND;
  const SharedKvCall call(c);
  Handles handles;
  MlaParameters p = MlaParametersOf(call.args(), call.options(), handles);
  constexpr int64_t kWithoutZero[] = {1, 6, 10};
  p.cu_q = Int32Tensor(kWithoutZero, false, handles);
  const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
  EXPECT_EQ(RunFace(MlaOperator::kForward, p), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("cuSeqlensQ[0]=1, want 0"));
  EXPECT_EQ(before.FirstChange(), -1);
}

TEST(AclnnSparseFlashMlaMetadata, IsZeros) {
  Handles handles;
  std::vector<int32_t> memory(1024, 7);
  const auto plan = [&](const aclTensor* metadata, uint64_t* size, aclOpExecutor** executor) {
    return aclnnSparseFlashMlaMetadataGetWorkspaceSize(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                                                       nullptr, nullptr, 64, 1, 512, 1, 16, 1024, 256, 0, 512, 4, 4, 3,
                                                       127, 0, "BSND", "BSND", true, true, metadata, size, executor);
  };
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(plan(handles.Tensor(memory.data(), ACL_INT32, {1024}), &size, &executor), ACL_SUCCESS);
  std::vector<unsigned char> workspace(size);
  ASSERT_EQ(aclnnSparseFlashMlaMetadata(workspace.data(), size, executor, nullptr), ACL_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
  EXPECT_EQ(memory, std::vector<int32_t>(1024, 0));
  EXPECT_EQ(plan(handles.Tensor(memory.data(), ACL_INT32, {512}), &size, &executor), 161002);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("metaData: want int32 [1024]"));
  EXPECT_EQ(plan(nullptr, &size, &executor), 161001);
}

TEST(AclnnSparseFlashMlaMetadata, ErrorsNameTheParameter) {
  struct Numbers {
    int64_t heads = 64, batch = 1, topk = 512, ratio = 4, ori_mask = 4, cmp_mask = 3, left = 127;
    const char *layout = "TND", *layout_kv = "PA_BBND";
    bool has_keys = true;
  };
  Handles handles;
  std::vector<int32_t> memory(1024, 7);
  const aclTensor* metadata = handles.Tensor(memory.data(), ACL_INT32, {1024});
  const auto plan = [&](const Numbers& n) {
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    return aclnnSparseFlashMlaMetadataGetWorkspaceSize(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                                                       nullptr, nullptr, n.heads, 1, 512, n.batch, 16, 1024, 256, 0,
                                                       n.topk, n.ratio, n.ori_mask, n.cmp_mask, n.left, 0, n.layout,
                                                       n.layout_kv, n.has_keys, false, metadata, &size, &executor);
  };
  const std::pair<Numbers, const char*> mistakes[] = {
      {{.heads = -1}, "numHeadsQ=-1, want 0 or more"},
      {{.batch = -1}, "batchSize=-1, want 0 or more"},
      {{.topk = -1}, "cmpTopk=-1, want 0 or more"},
      {{.ratio = 0}, "cmpRatio=0, want 1 or more"},
      {{.ori_mask = 1}, "oriMaskMode=1, want 0, 3 or 4"},
      {{.cmp_mask = 4}, "cmpMaskMode=4, want 0 or 3"},
      {{.left = -2}, "oriWinLeft=-2, want -1 or more"},
      {{.layout = "BNSD"}, "layoutQ=\"BNSD\""},
      {{.layout_kv = "BSND"}, "layoutKv=\"BSND\", want \"TND\" (layoutQ) or \"PA_BBND\""},
      {{.has_keys = false}, "hasOriKv=false, want true, or hasCmpKv=true"},
  };
  for (const auto& [numbers, message] : mistakes) {
    EXPECT_EQ(plan(numbers), 161002) << message;
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace fa::test
