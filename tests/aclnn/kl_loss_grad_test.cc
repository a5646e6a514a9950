// aclnnSparseLightningIndexerKLLossGrad has the bits of the library's loss with a given target.
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
#include "aclnnop/aclnn_sparse_lightning_indexer_kl_loss_grad.h"
#include "fa/indexer_loss.h"
#include "fa/view.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 2, kRows = 9, kKeys = 7, kHeads = 3, kSize = 16, kEntries = 5;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class LossGrad {
 public:
  explicit LossGrad(bool packed_rows) : packed(packed_rows), layout(packed_rows ? "TND" : "BSND"), layout_k(layout) {
    Fill(kBatch * kRows * kHeads * kSize, q), Fill(kBatch * kKeys * kSize, k), Fill(kBatch * kRows * kHeads, w);
    Fill(kBatch * kRows * kEntries, p);
    for (float& x : p) x = std::fabs(x);
    for (int32_t i = 0; i < kBatch * kRows * kEntries; ++i) lists.push_back(i % 11 == 10 ? -1 : i % 4);
    Forget();
  }
  void Forget() {
    dq.assign(q.size(), kNan), dk.assign(k.size(), kNan), dw.assign(w.size(), kNan), y.assign(p.size(), kNan);
  }
  aclError Run() {
    Handles handles;
    const auto integers = [&](std::vector<int32_t>& values) -> const aclTensor* {
      return values.empty() ? nullptr : handles.Tensor(values.data(), ACL_INT32, {std::ssize(values)});
    };
    const auto rows = [&](std::vector<float>& x, int64_t of, std::vector<int64_t> rest) {
      return handles.Tensor(x.data(), ACL_FLOAT, Shape(of, std::move(rest)));
    };
    std::vector<int64_t> entries = {kEntries};
    if (with_head) entries.insert(entries.begin(), 1);
    const aclTensor *in_q = rows(q, kRows, {kHeads, kSize}), *in_k = rows(k, kKeys, {1, kSize}),
                    *in_w = rows(w, kRows, {kHeads}), *in_p = rows(p, kRows, entries);
    const aclTensor* in_lists = handles.Tensor(lists.data(), ACL_INT32, Shape(kRows, {1, kEntries}));
    const aclTensor *to_q = rows(dq, kRows, {kHeads, kSize}), *to_k = rows(dk, kKeys, {1, kSize}),
                    *to_w = rows(dw, kRows, {kHeads}), *to_y = rows(y, kRows, entries);
    const aclTensor *sums_q = integers(cu_q), *sums_k = integers(cu_k), *in_use_q = integers(used_q),
                    *in_use_k = integers(used_k), *rest = integers(residual);
    return RunPhases(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnSparseLightningIndexerKLLossGradGetWorkspaceSize(
              without_q ? nullptr : in_q, in_k, in_w, in_lists, in_p, sums_q, sums_k, in_use_q, in_use_k, rest, nullptr,
              layout.data(), layout_k.data(), mask_mode, ratio, to_q, to_k, to_w, to_y, size, executor);
        },
        aclnnSparseLightningIndexerKLLossGrad);
  }
  void Expect() {
    const auto view = [&](auto& x, int64_t rows, std::vector<int64_t> rest) {
      const std::vector<int64_t> shape = Shape(rows, std::move(rest));
      return View(x.data(), Dims(std::span(shape)));
    };
    const auto wide = [&](const std::vector<int32_t>& values, bool after_empty) {
      std::vector<int64_t> all(values.begin(), values.end());
      if (after_empty && !all.empty()) all.insert(all.begin(), 0);
      return all;
    };
    const std::vector<int64_t> in_use_q = wide(used_q, packed), in_use_k = wide(used_k, packed),
                               rest = wide(residual, packed), sums_q = wide(cu_q, false), sums_k = wide(cu_k, false);
    float loss = 0;
    SparseIndexerLossArgs args;
    args.q_index = view(q, kRows, {kHeads, kSize}), args.k_index = view(k, kKeys, {1, kSize});
    args.weights = view(w, kRows, {kHeads}), args.sparse_indices = view(lists, kRows, {1, kEntries});
    args.p_head_mean = view(p, kRows, {kEntries});
    args.lengths_q = packed ? sums_q : in_use_q, args.lengths_kv = packed ? sums_k : in_use_k;
    if (packed) args.used_q = in_use_q, args.used_kv = in_use_k;
    args.residual_kv = rest;
    args.dq_index = view(dq, kRows, {kHeads, kSize}), args.dk_index = view(dk, kKeys, {1, kSize});
    args.dweights = view(dw, kRows, {kHeads}), args.softmax_index = view(y, kRows, {kEntries});
    args.loss = View(&loss, {1});
    const SparseIndexerLossOptions options{.layout = packed ? Layout::kTND : Layout::kBSND,
                                           .mask = static_cast<SparseMask>(mask_mode),
                                           .target = IndexerTarget::kGiven,
                                           .cmp_ratio = ratio};
    const Status status = SparseLightningIndexerGradKLLoss(args, options);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  [[nodiscard]] std::vector<std::vector<float>> Results() const { return {dq, dk, dw, y}; }

  bool packed, with_head = false, without_q = false;
  std::string layout, layout_k;
  int64_t mask_mode = 3, ratio = 2;
  std::vector<float> q, k, w, p, dq, dk, dw, y;
  std::vector<int32_t> lists, cu_q, cu_k, used_q, used_k, residual;

 private:
  static void Fill(int64_t count, std::vector<float>& x) {
    static int number = 0;
    for (int64_t i = 0; i < count; ++i) x.push_back(std::sin(0.7F * static_cast<float>(++number)));
  }
  [[nodiscard]] std::vector<int64_t> Shape(int64_t rows, std::vector<int64_t> rest) const {
    std::vector<int64_t> shape = packed ? std::vector<int64_t>{kBatch * rows} : std::vector<int64_t>{kBatch, rows};
    shape.insert(shape.end(), rest.begin(), rest.end());
    return shape;
  }
};

LossGrad Packed() {
  LossGrad call(true);
  call.cu_q = {0, kRows - 2, 2 * kRows};
  call.cu_k = {0, kKeys - 1, 2 * kKeys};
  return call;
}

TEST(AclnnKLLossGrad, HasTheBitsOfCpp) {
  for (const int64_t mask_mode : {0, 3}) {
    for (const bool lengths : {false, true}) {
      for (const bool packed : {false, true}) {
        SCOPED_TRACE(std::to_string(mask_mode) + (lengths ? " lengths" : "") + (packed ? " packed" : ""));
        LossGrad call = packed ? Packed() : LossGrad(false);
        call.mask_mode = mask_mode;
        call.with_head = lengths;
        if (lengths) call.used_q = {5, 3}, call.used_k = {4, 6}, call.residual = {1, 0};
        ASSERT_NO_FATAL_FAILURE(call.Expect());
        const std::vector<std::vector<float>> want = call.Results();
        EXPECT_FALSE(std::isnan(want[0][0]));
        call.Forget();
        ASSERT_EQ(call.Run(), ACL_SUCCESS) << aclGetRecentErrMsg();
        EXPECT_EQ(call.Results(), want);
      }
    }
  }
}

TEST(AclnnKLLossGrad, ErrorsNameTheParameter) {
  const struct {
    std::string text;
    bool packed;
    std::function<void(LossGrad&)> change;
  } cases[] = {
      {"maskMode=1, want 0 or 3", false, [](LossGrad& c) { c.mask_mode = 1; }},
      {"cmpRatio=0, want 1..1048576", false, [](LossGrad& c) { c.ratio = 0; }},
      {"layoutK", false, [](LossGrad& c) { c.layout_k = "TND"; }},
      {"cuSeqLensQ: given, want null (layoutQ BSND)", false,
       [](LossGrad& c) {
         c.cu_q = {0, 1, 2};
       }},
      {"cuSeqLensK: missing, want [B+1] (layoutQ TND)", true, [](LossGrad& c) { c.cu_k.clear(); }},
      {"cuSeqLensQ[0]=1, want 0", true, [](LossGrad& c) { c.cu_q[0] = 1; }},
      {"cuSeqLensQ[2]=19", true, [](LossGrad& c) { c.cu_q[2] = 19; }},
      {"cuSeqLensQ[2]=4, want >= 6", true,
       [](LossGrad& c) {
         c.cu_q = {0, 6, 4};
         c.used_q = {3, 0};
       }},
      {"cuSeqLensK[2]=1, want >= 3", true,
       [](LossGrad& c) {
         c.cu_k = {0, 3, 1};
         c.used_k = {3, 0};
       }},
      {"seqUsedK[1]=8, want 0..7", false,
       [](LossGrad& c) {
         c.used_k = {3, 8};
       }},
      {"seqUsedQ[0]=8, want 0..7", true,
       [](LossGrad& c) {
         c.used_q = {8, 2};
       }},
      {"seqUsedK[1]=9, want 0..8", true,
       [](LossGrad& c) {
         c.used_k = {3, 9};
       }},
      {"cmpResidualK has 1 entries, want 2", true, [](LossGrad& c) { c.residual = {1}; }},
      {"cmpResidualK[1]=2, want 0..1", false,
       [](LossGrad& c) {
         c.residual = {0, 2};
       }},
      {"sparseIndices[1][2][0][0]=9, want -1..6", false,
       [](LossGrad& c) { c.lists[static_cast<size_t>((kRows + 2) * kEntries)] = 9; }},
  };
  for (const auto& [text, packed, change] : cases) {
    LossGrad call = packed ? Packed() : LossGrad(false);
    change(call);
    EXPECT_EQ(call.Run(), ACLNN_ERR_PARAM_INVALID) << text;
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(text));
    EXPECT_TRUE(std::isnan(call.dq[0]) && std::isnan(call.y[0])) << text;
  }
  LossGrad call(false);
  call.without_q = true;
  EXPECT_EQ(call.Run(), ACLNN_ERR_PARAM_NULLPTR);
}

}  // namespace
}  // namespace fa::test
