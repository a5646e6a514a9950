// The sparse commands write the bytes that the library's own calls give. The commands' errors name the flag at fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fa/indexer_loss.h"
#include "fa/indexer_lse.h"
#include "fa/lightning_indexer.h"
#include "fa/lightning_indexer_grad.h"
#include "fa/sparse_flash_attention.h"
#include "fa/sparse_flash_attention_grad.h"
#include "npy/npy_file.h"
#include "support/cases/random_values.h"
#include "tools/cli_run.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

using npy::ElementType;
using ::testing::HasSubstr;

constexpr int64_t kQueries = 6, kKeys = 40, kHeads = 3, kD = 16, kRope = 8, kSelected = 7;
constexpr int64_t kIndexHeads = 2, kIndexD = 12, kPageRows = 8;

TensorView ViewOf(const npy::Array& array) {
  const DType dtype = array.type() == ElementType::kI32 ? DType::kI32 : DType::kF32;
  return {array.bytes(), dtype, Dims(std::span(array.shape())), {}};
}
MutableTensorView ViewOf(npy::Array& array) {
  const TensorView view = ViewOf(std::as_const(array));
  return {array.bytes(), view.dtype, view.shape, {}};
}

/// Files for a call of one sequence in layout BSND, and the same arrays in memory.
class CliSparse : public ::testing::Test {
 protected:
  void SetUp() override {
    q_ = Save("q.npy", {1, kQueries, kHeads, kD}, Tag::kQ);
    k_ = Save("k.npy", {1, kKeys, 1, kD}, Tag::kK);
    v_ = Save("v.npy", {1, kKeys, 1, kD}, Tag::kV);
    q_rope_ = Save("qr.npy", {1, kQueries, kHeads, kRope}, Tag::kQRope);
    k_rope_ = Save("kr.npy", {1, kKeys, 1, kRope}, Tag::kKRope);
    q_index_ = Save("qi.npy", {1, kQueries, kIndexHeads, kIndexD}, Tag::kQIndex);
    k_index_ = Save("ki.npy", {1, kKeys, 1, kIndexD}, Tag::kKIndex);
    weights_ = Save("w.npy", {1, kQueries, kIndexHeads}, Tag::kWeights);
    lists_ = npy::Array(ElementType::kI32, {1, kQueries, 1, kSelected});
    for (int64_t i = 0; i < lists_.size(); ++i) lists_.as<int32_t>()[i] = static_cast<int32_t>(i * 11 % kKeys);
    lists_.as<int32_t>()[kSelected - 1] = -1;
    npy::Save(Path("lists.npy"), lists_);
  }

  [[nodiscard]] npy::Array Save(const std::string& name, std::vector<int64_t> shape, Tag tag) const {
    npy::Array array(ElementType::kF32, std::move(shape));
    int64_t i = 0;
    for (float& x : array.as<float>()) x = static_cast<float>(RandomNormal(1, tag, {i++}));
    npy::Save(Path(name), array);
    return array;
  }
  /// Saves keys in pages. They lie in every second page of the file, from the last page down.
  void SavePages(const std::string& name, const npy::Array& dense, int64_t size) const {
    constexpr int64_t kPages = kKeys / kPageRows;
    npy::Array pages(ElementType::kF32, {2 * kPages, kPageRows, 1, size});
    npy::Array table(ElementType::kI32, {1, kPages});
    for (int64_t page = 0; page < kPages; ++page) {
      const int64_t place = 2 * (kPages - 1 - page);
      table.as<int32_t>()[page] = static_cast<int32_t>(place);
      for (int64_t i = 0; i < kPageRows * size; ++i) {
        pages.as<float>()[place * kPageRows * size + i] = dense.as<float>()[page * kPageRows * size + i];
      }
    }
    npy::Save(Path(name), pages);
    npy::Save(Path("table.npy"), table);
  }

  [[nodiscard]] std::string Path(const std::string& name) const { return scratch_.Path(name); }
  /// Returns the flags with paths: "--query q.npy" becomes "--query FOLDER/q.npy".
  [[nodiscard]] std::string Files(const std::vector<std::pair<std::string, std::string>>& files) const {
    std::string text;
    for (const auto& [flag, name] : files) text += " --" + flag + " " + Path(name);
    return text;
  }
  [[nodiscard]] std::string AttentionFiles() const {
    return Files({{"query", "q.npy"},
                  {"key", "k.npy"},
                  {"query-rope", "qr.npy"},
                  {"key-rope", "kr.npy"},
                  {"sparse-indices", "lists.npy"}});
  }
  [[nodiscard]] std::string IndexerFiles() const {
    return Files({{"query", "qi.npy"}, {"key", "ki.npy"}, {"weights", "w.npy"}});
  }
  [[nodiscard]] static CliResult Run(const std::string& command, const std::string& flags) {
    return RunCli("run " + command + " --layout BSND" + flags);
  }
  /// Returns the bytes of a file that holds the array.
  [[nodiscard]] std::string Bytes(const npy::Array& array) const {
    npy::Save(Path("want.npy"), array);
    return scratch_.Read("want.npy");
  }
  [[nodiscard]] SparseAttentionArgs AttentionArgs() const {
    SparseAttentionArgs args;
    args.q = ViewOf(q_);
    args.k = ViewOf(k_);
    args.q_rope = ViewOf(q_rope_);
    args.k_rope = ViewOf(k_rope_);
    args.sparse_indices = ViewOf(lists_);
    return args;
  }
  /// Runs the forward on the files and in memory, and compares the results.
  void RunForward() {
    const CliResult result = Run("sparse-forward", AttentionFiles() + Files({{"out", "out.npy"},
                                                                             {"softmax-max", "max.npy"},
                                                                             {"softmax-sum", "sum.npy"},
                                                                             {"p-head-mean", "p.npy"}}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    out_ = npy::Array(ElementType::kF32, q_.shape());
    max_ = npy::Array(ElementType::kF32, {1, 1, kQueries, kHeads});
    sum_ = npy::Array(ElementType::kF32, {1, 1, kQueries, kHeads});
    head_mean_ = npy::Array(ElementType::kF32, {1, kQueries, kSelected});
    SparseAttentionArgs args = AttentionArgs();
    args.out = ViewOf(out_);
    args.softmax_max = ViewOf(max_);
    args.softmax_sum = ViewOf(sum_);
    args.p_head_mean = ViewOf(head_mean_);
    ASSERT_TRUE(SparseFlashAttention(args, {}).ok());
  }

  ScratchFolder scratch_;
  npy::Array q_, k_, v_, q_rope_, k_rope_, q_index_, k_index_, weights_, lists_;
  npy::Array out_, max_, sum_, head_mean_;
};

TEST_F(CliSparse, ForwardWritesTheBytesOfTheLibrary) {
  RunForward();
  EXPECT_EQ(scratch_.Read("out.npy"), Bytes(out_));
  EXPECT_EQ(scratch_.Read("max.npy"), Bytes(max_));
  EXPECT_EQ(scratch_.Read("sum.npy"), Bytes(sum_));
  EXPECT_EQ(scratch_.Read("p.npy"), Bytes(head_mean_));
}

TEST_F(CliSparse, ForwardReadsPagesAndPackedSequences) {
  RunForward();
  SavePages("kp.npy", k_, kD);
  SavePages("krp.npy", k_rope_, kRope);
  const CliResult paged = Run("sparse-forward", Files({{"query", "q.npy"},
                                                       {"key", "kp.npy"},
                                                       {"query-rope", "qr.npy"},
                                                       {"key-rope", "krp.npy"},
                                                       {"sparse-indices", "lists.npy"},
                                                       {"block-table", "table.npy"},
                                                       {"out", "paged.npy"}}) +
                                                    " --actual-seq-kvlen 40");
  ASSERT_EQ(paged.exit_code, 0) << paged.err;
  EXPECT_EQ(scratch_.Read("paged.npy"), Bytes(out_));

  const auto packed = [this](const char* name, const npy::Array& array) {
    npy::Array copy(array.type(), {array.shape().begin() + 1, array.shape().end()});
    std::copy_n(array.bytes(), array.size_bytes(), copy.bytes());
    npy::Save(Path(name), copy);
  };
  packed("q.npy", q_);
  packed("k.npy", k_);
  packed("qr.npy", q_rope_);
  packed("kr.npy", k_rope_);
  packed("lists.npy", lists_);
  packed("want_packed.npy", out_);
  const CliResult result = RunCli("run sparse-forward --layout TND --actual-seq-qlen 0,6 --actual-seq-kvlen 0,40" +
                                  AttentionFiles() + Files({{"out", "packed.npy"}}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(scratch_.Read("packed.npy"), scratch_.Read("want_packed.npy"));
}

TEST_F(CliSparse, BackwardWritesTheBytesOfTheLibrary) {
  RunForward();
  const npy::Array d_out = Save("dout.npy", {1, kQueries, kHeads, kD}, Tag::kDOut);
  const CliResult result = Run("sparse-backward", AttentionFiles() + Files({{"dout", "dout.npy"},
                                                                            {"out", "out.npy"},
                                                                            {"softmax-max", "max.npy"},
                                                                            {"softmax-sum", "sum.npy"},
                                                                            {"dq", "dq.npy"},
                                                                            {"dk", "dk.npy"},
                                                                            {"dq-rope", "dqr.npy"},
                                                                            {"dk-rope", "dkr.npy"}}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const SparseAttentionArgs forward = AttentionArgs();
  npy::Array dq(ElementType::kF32, q_.shape()), dk(ElementType::kF32, k_.shape());
  npy::Array dq_rope(ElementType::kF32, q_rope_.shape()), dk_rope(ElementType::kF32, k_rope_.shape());
  SparseAttentionGradArgs args;
  args.q = forward.q;
  args.k = forward.k;
  args.q_rope = forward.q_rope;
  args.k_rope = forward.k_rope;
  args.sparse_indices = forward.sparse_indices;
  args.out = ViewOf(std::as_const(out_));
  args.d_out = ViewOf(d_out);
  args.softmax_max = ViewOf(std::as_const(max_));
  args.softmax_sum = ViewOf(std::as_const(sum_));
  args.dq = ViewOf(dq);
  args.dk = ViewOf(dk);
  args.dq_rope = ViewOf(dq_rope);
  args.dk_rope = ViewOf(dk_rope);
  ASSERT_TRUE(SparseFlashAttentionGrad(args, {}).ok());
  EXPECT_EQ(scratch_.Read("dq.npy"), Bytes(dq));
  EXPECT_EQ(scratch_.Read("dk.npy"), Bytes(dk));
  EXPECT_EQ(scratch_.Read("dqr.npy"), Bytes(dq_rope));
  EXPECT_EQ(scratch_.Read("dkr.npy"), Bytes(dk_rope));
}

TEST_F(CliSparse, SinksAreReadAndTheirGradientIsWritten) {
  const npy::Array sink = Save("sink.npy", {kHeads}, Tag::kSink);
  const npy::Array d_out = Save("dout.npy", {1, kQueries, kHeads, kD}, Tag::kDOut);
  const std::string forward_files = Files({{"out", "out.npy"}, {"softmax-max", "max.npy"}, {"softmax-sum", "sum.npy"}});
  const std::string inputs = AttentionFiles() + Files({{"sink", "sink.npy"}}) + forward_files;
  const CliResult forward = Run("sparse-forward", inputs);
  ASSERT_EQ(forward.exit_code, 0) << forward.err;
  const std::string gradients =
      Files({{"dq", "dq.npy"}, {"dk", "dk.npy"}, {"dq-rope", "dqr.npy"}, {"dk-rope", "dkr.npy"}, {"dsink", "ds.npy"}});
  const CliResult backward = Run("sparse-backward", inputs + Files({{"dout", "dout.npy"}}) + gradients);
  ASSERT_EQ(backward.exit_code, 0) << backward.err;

  npy::Array out(ElementType::kF32, q_.shape()), max(ElementType::kF32, {1, 1, kQueries, kHeads});
  npy::Array sum(ElementType::kF32, max.shape()), dsink(ElementType::kF32, {kHeads});
  npy::Array dq(ElementType::kF32, q_.shape()), dk(ElementType::kF32, k_.shape());
  npy::Array dq_rope(ElementType::kF32, q_rope_.shape()), dk_rope(ElementType::kF32, k_rope_.shape());
  SparseAttentionArgs args = AttentionArgs();
  args.sink = ViewOf(sink);
  args.out = ViewOf(out);
  args.softmax_max = ViewOf(max);
  args.softmax_sum = ViewOf(sum);
  ASSERT_TRUE(SparseFlashAttention(args, {}).ok());
  EXPECT_EQ(scratch_.Read("out.npy"), Bytes(out));
  EXPECT_EQ(scratch_.Read("sum.npy"), Bytes(sum));
  SparseAttentionGradArgs grad;
  grad.q = args.q;
  grad.k = args.k;
  grad.q_rope = args.q_rope;
  grad.k_rope = args.k_rope;
  grad.sink = args.sink;
  grad.sparse_indices = args.sparse_indices;
  grad.out = args.out;
  grad.d_out = ViewOf(d_out);
  grad.softmax_max = args.softmax_max;
  grad.softmax_sum = args.softmax_sum;
  grad.dq = ViewOf(dq);
  grad.dk = ViewOf(dk);
  grad.dq_rope = ViewOf(dq_rope);
  grad.dk_rope = ViewOf(dk_rope);
  grad.dsink = ViewOf(dsink);
  ASSERT_TRUE(SparseFlashAttentionGrad(grad, {}).ok());
  EXPECT_EQ(scratch_.Read("ds.npy"), Bytes(dsink));
  EXPECT_EQ(scratch_.Read("dq.npy"), Bytes(dq));

  const CliResult wrong = Run("sparse-forward", AttentionFiles() + Files({{"sink", "w.npy"}, {"out", "o.npy"}}));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--sink"));
}

TEST_F(CliSparse, IndexerAndItsBackwardWriteTheBytesOfTheLibrary) {
  const CliResult chosen = Run("indexer", IndexerFiles() + " --sparse-count 7" +
                                              Files({{"sparse-indices", "top.npy"}, {"sparse-values", "val.npy"}}));
  ASSERT_EQ(chosen.exit_code, 0) << chosen.err;
  npy::Array top(ElementType::kI32, lists_.shape()), values(ElementType::kF32, lists_.shape());
  LightningIndexerArgs args;
  args.q = ViewOf(q_index_);
  args.k = ViewOf(k_index_);
  args.weights = ViewOf(weights_);
  args.sparse_indices = ViewOf(top);
  args.sparse_values = ViewOf(values);
  ASSERT_TRUE(LightningIndexer(args, {}).ok());
  EXPECT_EQ(scratch_.Read("top.npy"), Bytes(top));
  EXPECT_EQ(scratch_.Read("val.npy"), Bytes(values));

  const CliResult backward = Run("indexer-backward", IndexerFiles() + Files({{"sparse-indices", "top.npy"},
                                                                             {"dvalues", "val.npy"},
                                                                             {"dq", "dq.npy"},
                                                                             {"dk", "dk.npy"},
                                                                             {"dw", "dw.npy"}}));
  ASSERT_EQ(backward.exit_code, 0) << backward.err;
  npy::Array dq(ElementType::kF32, q_index_.shape()), dk(ElementType::kF32, k_index_.shape());
  npy::Array dw(ElementType::kF32, weights_.shape());
  LightningIndexerGradArgs grad;
  grad.q = args.q;
  grad.k = args.k;
  grad.weights = args.weights;
  grad.sparse_indices = ViewOf(std::as_const(top));
  grad.d_values = ViewOf(std::as_const(values));
  grad.dq = ViewOf(dq);
  grad.dk = ViewOf(dk);
  grad.dweights = ViewOf(dw);
  ASSERT_TRUE(LightningIndexerGrad(grad, {}).ok());
  EXPECT_EQ(scratch_.Read("dq.npy"), Bytes(dq));
  EXPECT_EQ(scratch_.Read("dk.npy"), Bytes(dk));
  EXPECT_EQ(scratch_.Read("dw.npy"), Bytes(dw));
}

TEST_F(CliSparse, LossWritesTheBytesOfTheLibrary) {
  RunForward();
  npy::Array dq(ElementType::kF32, q_index_.shape()), dk(ElementType::kF32, k_index_.shape());
  npy::Array dw(ElementType::kF32, weights_.shape()), loss(ElementType::kF32, {1});
  const SparseAttentionArgs forward = AttentionArgs();
  SparseIndexerLossArgs args;
  args.q = forward.q;
  args.k = forward.k;
  args.q_rope = forward.q_rope;
  args.k_rope = forward.k_rope;
  args.sparse_indices = forward.sparse_indices;
  args.q_index = ViewOf(q_index_);
  args.k_index = ViewOf(k_index_);
  args.weights = ViewOf(weights_);
  args.softmax_max = ViewOf(std::as_const(max_));
  args.softmax_sum = ViewOf(std::as_const(sum_));
  args.dq_index = ViewOf(dq);
  args.dk_index = ViewOf(dk);
  args.dweights = ViewOf(dw);
  args.loss = ViewOf(loss);
  const std::string files = AttentionFiles() + Files({{"query-index", "qi.npy"},
                                                      {"key-index", "ki.npy"},
                                                      {"weights", "w.npy"},
                                                      {"softmax-max", "max.npy"},
                                                      {"softmax-sum", "sum.npy"},
                                                      {"dq-index", "dq.npy"},
                                                      {"dk-index", "dk.npy"},
                                                      {"dw", "dw.npy"},
                                                      {"loss", "loss.npy"}});
  for (const bool other : {false, true}) {
    const CliResult result = Run("indexer-kl-loss", files + (other ? " --reduction mean --target l1" : ""));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    SparseIndexerLossOptions options;
    if (other) {
      options.reduction = LossReduction::kMean;
      options.target = IndexerTarget::kL1;
    }
    ASSERT_TRUE(SparseLightningIndexerGradKLLoss(args, options).ok());
    EXPECT_EQ(scratch_.Read("dq.npy"), Bytes(dq)) << other;
    EXPECT_EQ(scratch_.Read("dk.npy"), Bytes(dk)) << other;
    EXPECT_EQ(scratch_.Read("dw.npy"), Bytes(dw)) << other;
    EXPECT_EQ(scratch_.Read("loss.npy"), Bytes(loss)) << other;
  }
  npy::Array y(ElementType::kF32, {1, kQueries, kSelected});
  const npy::Array p = Save("p.npy", {1, kQueries, kSelected}, Tag::kPse);
  const CliResult result =
      Run("indexer-kl-loss", files + Files({{"p-head-mean", "p.npy"}, {"softmax-index", "y.npy"}}) +
                                 " --target given --cmp-ratio 2 --residual-kv 1");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  args.p_head_mean = ViewOf(p);
  args.softmax_index = ViewOf(y);
  const std::vector<int64_t> residual = {1};
  args.residual_kv = residual;
  ASSERT_TRUE(SparseLightningIndexerGradKLLoss(args, {.target = IndexerTarget::kGiven, .cmp_ratio = 2}).ok());
  EXPECT_EQ(scratch_.Read("dq.npy"), Bytes(dq));
  EXPECT_EQ(scratch_.Read("y.npy"), Bytes(y));
}

TEST_F(CliSparse, DenseStatisticsWriteTheBytesOfTheLibrary) {
  npy::Array max(ElementType::kF32, {1, 1, kQueries}), sum(ElementType::kF32, {1, 1, kQueries});
  DenseIndexerLseArgs args;
  args.q_index = ViewOf(q_index_);
  args.k_index = ViewOf(k_index_);
  args.weights = ViewOf(weights_);
  args.softmax_max_index = ViewOf(max);
  args.softmax_sum_index = ViewOf(sum);
  ASSERT_TRUE(DenseLightningIndexerSoftmaxLse(args, {.mask = SparseMask::kNone}).ok());
  const std::string inputs = Files({{"query-index", "qi.npy"}, {"key-index", "ki.npy"}});
  const std::string outputs = Files({{"softmax-max-index", "maxi.npy"}, {"softmax-sum-index", "sumi.npy"}});
  const CliResult result =
      Run("dense-indexer-lse", inputs + Files({{"weights", "w.npy"}}) + outputs + " --sparse-mode 0");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(scratch_.Read("maxi.npy"), Bytes(max));
  EXPECT_EQ(scratch_.Read("sumi.npy"), Bytes(sum));
  const CliResult wrong = Run("dense-indexer-lse", inputs + Files({{"weights", "qi.npy"}}) + outputs);
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--weights: shape="));
}

TEST_F(CliSparse, DenseLossWritesTheBytesOfTheLibrary) {
  constexpr int64_t kKeyHeads = 3;
  const npy::Array keys = Save("kd.npy", {1, kKeys, kKeyHeads, kD}, Tag::kK);
  const npy::Array key_ropes = Save("krd.npy", {1, kKeys, kKeyHeads, kRope}, Tag::kKRope);
  // Any statistics with sums above 0 are valid.
  const npy::Array max = Save("max.npy", {1, kKeyHeads, kQueries, kHeads / kKeyHeads}, Tag::kV);
  const npy::Array max_index = Save("maxi.npy", {1, 1, kQueries}, Tag::kV);
  npy::Array sum(ElementType::kF32, max.shape()), sum_index(ElementType::kF32, max_index.shape());
  for (npy::Array* sums : {&sum, &sum_index}) std::fill_n(sums->as<float>().begin(), sums->size(), 30.0F);
  npy::Save(Path("sum.npy"), sum);
  npy::Save(Path("sumi.npy"), sum_index);
  npy::Array dq(ElementType::kF32, q_index_.shape()), dk(ElementType::kF32, k_index_.shape());
  npy::Array dw(ElementType::kF32, weights_.shape()), loss(ElementType::kF32, {1});
  DenseIndexerLossArgs args;
  args.q = ViewOf(q_);
  args.k = ViewOf(keys);
  args.q_rope = ViewOf(q_rope_);
  args.k_rope = ViewOf(key_ropes);
  args.q_index = ViewOf(q_index_);
  args.k_index = ViewOf(k_index_);
  args.weights = ViewOf(weights_);
  args.softmax_max = ViewOf(max);
  args.softmax_sum = ViewOf(std::as_const(sum));
  args.softmax_max_index = ViewOf(max_index);
  args.softmax_sum_index = ViewOf(std::as_const(sum_index));
  args.dq_index = ViewOf(dq);
  args.dk_index = ViewOf(dk);
  args.dweights = ViewOf(dw);
  args.loss = ViewOf(loss);
  DenseIndexerLossOptions options;
  options.reduction = LossReduction::kMean;
  ASSERT_TRUE(DenseLightningIndexerGradKLLoss(args, options).ok());
  const std::string files = Files({{"query", "q.npy"},
                                   {"key", "kd.npy"},
                                   {"query-rope", "qr.npy"},
                                   {"key-rope", "krd.npy"},
                                   {"query-index", "qi.npy"},
                                   {"key-index", "ki.npy"},
                                   {"weights", "w.npy"},
                                   {"softmax-max", "max.npy"},
                                   {"softmax-sum", "sum.npy"},
                                   {"softmax-max-index", "maxi.npy"},
                                   {"dq-index", "dq.npy"},
                                   {"dk-index", "dk.npy"},
                                   {"dw", "dw.npy"},
                                   {"loss", "loss.npy"}});
  const CliResult result =
      Run("dense-indexer-kl-loss", files + Files({{"softmax-sum-index", "sumi.npy"}}) + " --reduction mean");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(scratch_.Read("dq.npy"), Bytes(dq));
  EXPECT_EQ(scratch_.Read("dk.npy"), Bytes(dk));
  EXPECT_EQ(scratch_.Read("dw.npy"), Bytes(dw));
  EXPECT_EQ(scratch_.Read("loss.npy"), Bytes(loss));
  const CliResult wrong = Run("dense-indexer-kl-loss", files + Files({{"softmax-sum-index", "sum.npy"}}));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--softmax-sum-index: "));
}

TEST_F(CliSparse, BadIndicesAreRefusedOrSkipped) {
  lists_.as<int32_t>()[5] = 40;
  npy::Save(Path("lists.npy"), lists_);
  const std::string flags = AttentionFiles() + Files({{"out", "out.npy"}});
  const CliResult refused = Run("sparse-forward", flags);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--sparse-indices: [0][0][0][5]=40, want -1..39"));
  EXPECT_EQ(scratch_.Read("out.npy"), "");
  const CliResult skipped = Run("sparse-forward", flags + " --skip-bad-indices");
  EXPECT_EQ(skipped.exit_code, 0) << skipped.err;
}

TEST_F(CliSparse, BadArgumentsNameTheFlagAndWriteNothing) {
  const std::string out = Files({{"out", "none.npy"}});
  struct Case {
    std::string command, flags, message;
  };
  for (const Case& c : std::vector<Case>{
           {"sparse-forward", AttentionFiles() + out + " --sparse-mode 2", "--sparse-mode: 2, want 0 or 3"},
           {"sparse-forward", AttentionFiles() + out + " --sparse-block-size 129",
            "--sparse-block-size: 129, want 1..128"},
           {"sparse-forward", AttentionFiles() + out + " --actual-seq-qlen 7",
            "--actual-seq-qlen: [0]=7, want 0..6 (shape[1] of --query)"},
           {"sparse-forward", AttentionFiles() + out + " --actual-seq-kvlen 41",
            "--actual-seq-kvlen: [0]=41, want 0..40 (shape[1] of --key)"},
           {"sparse-forward", AttentionFiles() + out + Files({{"block-table", "q.npy"}}), "--block-table: "},
           {"sparse-forward", AttentionFiles() + out + Files({{"value", "q.npy"}}), "--value: "},
           {"sparse-forward", Files({{"query", "q.npy"}, {"key", "k.npy"}}) + out, "--sparse-indices"},
           {"indexer", IndexerFiles() + " --sparse-count -1" + Files({{"sparse-indices", "none.npy"}}),
            "--sparse-count: -1, want at least 1"},
           {"indexer", IndexerFiles() + Files({{"sparse-indices", "none.npy"}}), "--sparse-count"}}) {
    const CliResult result = Run(c.command, c.flags);
    EXPECT_EQ(result.exit_code, 2) << c.flags;
    EXPECT_TRUE(result.HasOneLineOfError()) << result.err;
    EXPECT_THAT(result.err, HasSubstr(c.message));
    EXPECT_EQ(scratch_.Read("none.npy"), "");
  }
  const CliResult layout = RunCli("run sparse-forward --layout BNSD" + AttentionFiles() + out);
  EXPECT_EQ(layout.exit_code, 2);
  EXPECT_THAT(layout.err, HasSubstr("--layout: BNSD, want BSND or TND"));
}

}  // namespace
}  // namespace fa::test
