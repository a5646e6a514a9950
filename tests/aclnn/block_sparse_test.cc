// The device's block-sparse attention has the bits of fa::InferAttention and fa::FlashAttentionGrad with a mask of
// blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "aclnn/calls/face_call.h"
#include "aclnn/calls/run_phases.h"
#include "aclnnop/aclnn_block_sparse_attention.h"
#include "aclnnop/aclnn_block_sparse_attention_grad.h"
#include "fa/block_mask.h"
#include "fa/flash_attention_grad.h"
#include "fa/infer_attention.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 2, kHeads = 4, kHeadsKv = 2, kRows = 70, kKeys = 90, kSize = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

/// The parameters of both operators, and the memory of their tensors.
class Call {
 public:
  explicit Call(const std::string& layout) : layout_q(layout), layout_kv(layout) {
    rows_ = packed() ? kRows + 5 : kRows;
    keys_ = packed() ? kKeys + 7 : kKeys;
    for (std::vector<float>* tensor : {&q, &d_out}) Fill(kHeads * Tokens(rows_), tensor);
    for (std::vector<float>* tensor : {&k, &v}) Fill(kHeadsKv * Tokens(keys_), tensor);
    if (packed()) {
      lengths_q = {kRows, 5};
      lengths_kv = {kKeys - 1, 7};
    } else {
      lengths_q = {kRows, 11};
      lengths_kv = {kKeys - 30, kKeys};
    }
    for (int64_t i = 0; i < kBatch * kHeads * 3 * 3; ++i) blocks.push_back(i % 3 == 0 || i % 7 == 2 ? 1 : 0);
    for (int64_t i = 0; i < 3; ++i) blocks[static_cast<size_t>(3 + i)] = 0;  // 32 rows without keys
    Forget();
  }
  void Forget() {
    out.assign(q.size(), kNan), dq = out;
    dk.assign(k.size(), kNan), dv = dk;
    lse.assign(static_cast<size_t>(kHeads * Tokens(rows_)), kNan);
  }

  aclError RunForward() {
    Handles handles;
    const aclTensor *query = Rows(handles, q, rows_, kHeads), *key = Rows(handles, k, keys_, kHeadsKv),
                    *value = handles.Tensor(v.data(), value_type, Shape(keys_, kHeadsKv));
    const aclTensor *to = Rows(handles, out, rows_, kHeads), *stats = Lse(handles), *mask = Mask(handles);
    const aclIntArray *shape = Array(handles, block_shape), *of_q = Lengths(handles, lengths_q),
                      *of_kv = Lengths(handles, lengths_kv);
    const aclTensor* other = given_too ? query : nullptr;
    const bool table = given_too && table_too;
    return RunPhases(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnBlockSparseAttentionGetWorkspaceSize(
              without_query ? nullptr : query, key, value, mask, table ? nullptr : other, shape, of_q, of_kv,
              table ? other : nullptr, layout_q.data(), layout_kv.data(), heads_kv, mask_type, 0.3, 4, page_size, 1, 2,
              lse_flag, to, lse_flag == 0 ? nullptr : stats, size, executor);
        },
        aclnnBlockSparseAttention);
  }
  aclError RunBackward() {
    Handles handles;
    const aclTensor *query = Rows(handles, q, rows_, kHeads), *key = Rows(handles, k, keys_, kHeadsKv),
                    *value = Rows(handles, v, keys_, kHeadsKv), *dy = Rows(handles, d_out, rows_, kHeads),
                    *from = Rows(handles, out, rows_, kHeads);
    const aclTensor *to_q = Rows(handles, dq, rows_, kHeads), *to_k = Rows(handles, dk, keys_, kHeadsKv),
                    *to_v = Rows(handles, dv, keys_, kHeadsKv);
    const aclTensor *stats = Lse(handles), *mask = Mask(handles);
    const aclIntArray *shape = Array(handles, block_shape), *of_q = Lengths(handles, lengths_q),
                      *of_kv = Lengths(handles, lengths_kv);
    return RunPhases(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnBlockSparseAttentionGradGetWorkspaceSize(dy, without_query ? nullptr : query, key, value, from,
                                                               stats, mask, given_too ? query : nullptr, shape, of_q,
                                                               of_kv, layout_q.data(), layout_kv.data(), heads_kv,
                                                               mask_type, 0.3, 1, 2, to_q, to_k, to_v, size, executor);
        },
        aclnnBlockSparseAttentionGrad);
  }

  /// Computes the same results by the C++ interface.
  void Expect() {
    const std::vector<int64_t> shape = block_shape.empty() ? std::vector<int64_t>{128, 128} : block_shape;
    const PairLists sizes{
        .rows = kRows, .keys = packed() ? kKeys - 1 : kKeys, .block_rows = shape[0], .block_keys = shape[1]};
    const auto mask = PairMaskFromBlocks({blocks.data(), DType::kI8, mask_shape(), {}}, sizes);
    ASSERT_TRUE(mask.ok()) << mask.status().message();
    const auto view = [&](std::vector<float>& x, int64_t rows, int64_t heads) {
      const std::vector<int64_t> of = Shape(rows, heads);
      return MutableTensorView{x.data(), DType::kF32, Dims(std::span(of)), {}};
    };
    const bool packed_rows = packed(), turned = layout_q == "BSND";
    MutableTensorView stats{lse.data(), DType::kF32, {kBatch, kHeads, rows_}, {}};
    if (turned) stats.stride = {rows_ * kHeads, 1, kHeads};
    if (packed_rows) stats.shape = {rows_, kHeads};
    std::vector<int64_t> cu_q = lengths_q, cu_kv = lengths_kv;
    if (packed_rows) cu_q[1] += cu_q[0], cu_kv[1] += cu_kv[0];
    const TensorView keys = view(k, keys_, kHeadsKv), values = view(v, keys_, kHeadsKv);
    InferAttentionArgs args;
    args.q = view(q, rows_, kHeads);
    args.k = {&keys, 1};
    args.v = {&values, 1};
    (packed_rows ? args.cu_q : args.lengths_q) = cu_q;
    (packed_rows ? args.cu_kv : args.lengths_kv) = cu_kv;
    args.pair_mask = blocks.empty() ? nullptr : &*mask;
    args.out = view(out, rows_, kHeads);
    args.lse = stats;
    const Layout layout = packed_rows ? Layout::kTND : turned ? Layout::kBSND : Layout::kBNSD;
    Status status = InferAttention(args, {.layout = layout, .scale = 0.3F, .lse_without_keys = kInfinity});
    ASSERT_TRUE(status.ok()) << status.message();
    AttentionGradArgs grads;
    const std::vector<float> ones(lse.size(), 1);
    grads.q = args.q, grads.k = keys, grads.v = values, grads.out = args.out;
    grads.d_out = view(d_out, rows_, kHeads);
    grads.softmax_max = stats;
    grads.softmax_sum = {ones.data(), DType::kF32, stats.shape, stats.stride};
    grads.pair_mask = args.pair_mask;
    grads.dq = view(dq, rows_, kHeads), grads.dk = view(dk, keys_, kHeadsKv), grads.dv = view(dv, keys_, kHeadsKv);
    AttentionOptions options;
    options.layout = layout;
    options.scale = 0.3F;
    if (packed_rows) {
      grads.cu_q = cu_q, grads.cu_kv = cu_kv;
    } else {
      std::vector<int64_t> end;
      for (size_t b = 0; b < 2; ++b) {
        for (int64_t i = 0; i < kRows; ++i) end.push_back(i < lengths_q[b] ? lengths_kv[b] : 0);
      }
      options.mask = fa::Mask::Rows(std::vector<int64_t>(end.size()), end);
    }
    status = FlashAttentionGrad(grads, options);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  [[nodiscard]] bool packed() const { return layout_q == "TND"; }
  [[nodiscard]] std::vector<std::vector<float>> Results() const { return {out, lse, dq, dk, dv}; }

  std::vector<float> q, k, v, d_out, out, lse, dq, dk, dv;
  std::vector<int8_t> blocks;
  std::vector<int64_t> block_shape = {32, 33}, lengths_q, lengths_kv;
  std::string layout_q, layout_kv;
  int64_t heads_kv = kHeadsKv, mask_type = 0, page_size = 0, lse_flag = 1, mask_columns = 3;
  aclDataType value_type = ACL_FLOAT;
  bool given_too = false, table_too = false, without_query = false, wrong_lse = false, no_sequences = false;

 private:
  static void Fill(int64_t tokens, std::vector<float>* tensor) {
    static int count = 0;
    for (int64_t i = 0; i < tokens * kSize; ++i) tensor->push_back(std::sin(0.7F * static_cast<float>(++count)));
  }
  [[nodiscard]] int64_t Tokens(int64_t rows) const { return packed() ? rows : kBatch * rows; }
  [[nodiscard]] std::vector<int64_t> Shape(int64_t rows, int64_t heads, int64_t columns = kSize) const {
    if (packed()) return {rows, heads, columns};
    if (layout_q == "BSND") return {kBatch, rows, heads, columns};
    return {kBatch, heads, rows, columns};
  }
  [[nodiscard]] Dims mask_shape() const {
    return block_shape.empty() ? Dims{1, 1, 1, 1} : Dims{kBatch, kHeads, 3, mask_columns};
  }
  const aclTensor* Rows(Handles& handles, std::vector<float>& x, int64_t rows, int64_t heads) {
    return handles.Tensor(x.data(), ACL_FLOAT, Shape(rows, heads));
  }
  const aclTensor* Lse(Handles& handles) {
    return handles.Tensor(lse.data(), ACL_FLOAT, Shape(rows_, kHeads, wrong_lse ? 2 : 1));
  }
  const aclTensor* Mask(Handles& handles) {
    const Dims shape = mask_shape();
    return blocks.empty() ? nullptr : handles.Tensor(blocks.data(), ACL_INT8, {shape.begin(), shape.end()});
  }
  static const aclIntArray* Array(Handles& handles, const std::vector<int64_t>& values) {
    return values.empty() ? nullptr : handles.Array(values);
  }
  const aclIntArray* Lengths(Handles& handles, const std::vector<int64_t>& values) const {
    return no_sequences ? handles.Array({}) : Array(handles, values);
  }

  int64_t rows_ = 0, keys_ = 0;
};

TEST(AclnnBlockSparse, HasTheBitsOfCppInEveryLayout) {
  for (const std::string layout : {"TND", "BNSD", "BSND"}) {
    SCOPED_TRACE(layout);
    Call call(layout);
    ASSERT_NO_FATAL_FAILURE(call.Expect());
    const std::vector<std::vector<float>> want = call.Results();
    EXPECT_NE(std::count(want[1].begin(), want[1].end(), kInfinity), 0);
    call.Forget();
    ASSERT_EQ(call.RunForward(), ACL_SUCCESS) << aclGetRecentErrMsg();
    ASSERT_EQ(call.RunBackward(), ACL_SUCCESS) << aclGetRecentErrMsg();
    EXPECT_EQ(call.Results(), want);
  }
}

TEST(AclnnBlockSparse, BlocksHave128RowsAndKeysByDefault) {
  for (const std::string layout : {"TND", "BNSD", "BSND"}) {
    SCOPED_TRACE(layout);
    Call call(layout);
    call.block_shape.clear();
    call.blocks = {1};
    ASSERT_NO_FATAL_FAILURE(call.Expect());
    const std::vector<std::vector<float>> want = call.Results();
    for (const bool null : {false, true}) {  // a null mask keeps every block
      if (null) call.blocks.clear();
      call.Forget();
      ASSERT_EQ(call.RunForward(), ACL_SUCCESS) << aclGetRecentErrMsg();
      ASSERT_EQ(call.RunBackward(), ACL_SUCCESS) << aclGetRecentErrMsg();
      EXPECT_EQ(call.Results(), want);
    }
  }
}

TEST(AclnnBlockSparse, WithoutTheFlagThereIsNoLse) {
  Call call("BNSD");
  call.lse_flag = 0;
  ASSERT_EQ(call.RunForward(), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_FALSE(std::isnan(call.out[0]));
  EXPECT_TRUE(std::all_of(call.lse.begin(), call.lse.end(), [](float x) { return std::isnan(x); }));
}

TEST(AclnnBlockSparse, ErrorsNameTheParameter) {
  const struct {
    std::string text;
    std::function<void(Call&)> change;
    bool forward_only = false;
    std::string layout = "BNSD";
  } cases[] = {
      {"attenMask: given, want null", [](Call& c) { c.given_too = true; }},
      {"blockTable: given, want null", [](Call& c) { c.given_too = c.table_too = true; }, true},
      {"maskType=1, want 0", [](Call& c) { c.mask_type = 1; }},
      {"blockSize=128, want 0", [](Call& c) { c.page_size = 128; }, true},
      {"softmaxLseFlag=2, want 0 or 1", [](Call& c) { c.lse_flag = 2; }, true},
      {"qInputLayout=\"BSH\", want \"TND\", \"BNSD\" or \"BSND\"", [](Call& c) { c.layout_q = "BSH"; }},
      {"kvInputLayout=\"BSND\", want \"BNSD\" (qInputLayout)", [](Call& c) { c.layout_kv = "BSND"; }},
      {"numKeyValueHeads=4, want 2 (key)", [](Call& c) { c.heads_kv = 4; }},
      {"value.dtype=bf16, want f32 (query.dtype)", [](Call& c) { c.value_type = ACL_BF16; }, true},
      {"blockShape has 1 entries, want 2", [](Call& c) { c.block_shape = {32}; }},
      {"blockShape[1]=0, want >= 1",
       [](Call& c) {
         c.block_shape = {32, 0};
       }},
      {"actualSeqLengths has 1 entries, want 2", [](Call& c) { c.lengths_q = {3}; }},
      {"actualSeqLengthsKv[1]=91, want 0..90",
       [](Call& c) {
         c.lengths_kv = {3, 91};
       }},
      {"actualSeqLengths has 0 entries, want at least 1", [](Call& c) { c.no_sequences = true; }, false, "TND"},
      {"actualSeqLengths[1]=6, want 0..5",
       [](Call& c) {
         c.lengths_q = {70, 6};
       },
       false, "TND"},
      {"actualSeqLengthsKv: missing, want one length per sequence", [](Call& c) { c.lengths_kv.clear(); }, false,
       "TND"},
      {"blockSparseMask.shape[3]=2, want 3 (key)", [](Call& c) { c.mask_columns = 2; }},
      {"softmaxLse.shape=[2,4,70,2], want [2,4,70,1]",
       [](Call& c) {
         c.wrong_lse = true;
         c.lse.resize(2 * c.lse.size());
       }},
  };
  for (const auto& [text, change, forward_only, layout] : cases) {
    Call call(layout);
    change(call);
    call.out.assign(call.out.size(), 7);
    EXPECT_EQ(call.RunForward(), ACLNN_ERR_PARAM_INVALID) << text;
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(text));
    EXPECT_TRUE(std::all_of(call.out.begin(), call.out.end(), [](float x) { return x == 7; })) << text;
    if (forward_only) continue;
    EXPECT_EQ(call.RunBackward(), ACLNN_ERR_PARAM_INVALID) << text;
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(text));
  }
  Call call("TND");
  call.without_query = true;
  EXPECT_EQ(call.RunForward(), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(call.RunBackward(), ACLNN_ERR_PARAM_NULLPTR);
}

}  // namespace
}  // namespace fa::test
