// The shared-kv commands write the bytes that the library's own calls give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fa/shared_kv_attention.h"
#include "fa/shared_kv_attention_grad.h"
#include "npy/npy_file.h"
#include "support/cases/random_values.h"
#include "tools/cli_run.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

using npy::ElementType;

constexpr int64_t kSharedQueries = 6, kSharedKeys = 40, kSharedCmp = 10, kSharedHeads = 3, kSharedD = 16,
                  kSharedEntries = 4;

MutableTensorView SharedView(npy::Array& array) {
  const DType dtype = array.type() == ElementType::kI32 ? DType::kI32 : DType::kF32;
  return {array.bytes(), dtype, Dims(std::span(array.shape())), {}};
}

/// Files for a call of one sequence in layout BSND, and the same arrays in memory.
class CliSharedKv : public ::testing::Test {
 protected:
  void SetUp() override {
    q_ = Random("q.npy", {1, kSharedQueries, kSharedHeads, kSharedD}, Tag::kQ);
    ori_ = Random("ori.npy", {1, kSharedKeys, 1, kSharedD}, Tag::kK);
    cmp_ = Random("cmp.npy", {1, kSharedCmp, 1, kSharedD}, Tag::kV);
    d_out_ = Random("dout.npy", {1, kSharedQueries, kSharedHeads, kSharedD}, Tag::kDOut);
    sink_ = Random("sink.npy", {kSharedHeads}, Tag::kSink);
    lists_ = npy::Array(ElementType::kI32, {1, kSharedQueries, 1, kSharedEntries});
    for (int64_t i = 0; i < lists_.size(); ++i) lists_.as<int32_t>()[i] = static_cast<int32_t>(i * 7 % kSharedCmp);
    npy::Save(Path("lists.npy"), lists_);
  }

  [[nodiscard]] npy::Array Random(const std::string& name, std::vector<int64_t> shape, Tag tag) const {
    npy::Array array(ElementType::kF32, std::move(shape));
    for (int64_t i = 0; i < array.size(); ++i) array.as<float>()[i] = static_cast<float>(RandomNormal(1, tag, {i}));
    npy::Save(Path(name), array);
    return array;
  }
  [[nodiscard]] std::string Path(const std::string& name) const { return scratch_.Path(name); }
  [[nodiscard]] std::string Inputs() const {
    return " --query " + Path("q.npy") + " --ori-kv " + Path("ori.npy") + " --cmp-kv " + Path("cmp.npy") +
           " --cmp-indices " + Path("lists.npy") + " --sink " + Path("sink.npy") +
           " --cmp-ratio 4 --ori-mask 4 --window-left 9 --window-right 0 --used-ori 37";
  }
  template <typename Args>
  [[nodiscard]] Args Call() {
    static constexpr int64_t kUsed[] = {37};
    Args args;
    args.q = SharedView(q_);
    args.ori_kv = SharedView(ori_);
    args.cmp_kv = SharedView(cmp_);
    args.cmp_indices = SharedView(lists_);
    args.sink = SharedView(sink_);
    args.used_ori = kUsed;
    return args;
  }
  void ExpectFile(const std::string& name, const npy::Array& want) const {
    const npy::Array got = npy::Load(Path(name));
    ASSERT_EQ(got.shape(), want.shape()) << name;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(got.bytes()), got.size_bytes()),
              std::string(reinterpret_cast<const char*>(want.bytes()), want.size_bytes()))
        << name;
  }

  static constexpr SharedKvOptions kOptions = {
      .cmp_ratio = 4, .ori_mask = SparseMask::kBand, .window_left = 9, .window_right = 0};
  ScratchFolder scratch_;
  npy::Array q_, ori_, cmp_, d_out_, sink_, lists_;
};

TEST_F(CliSharedKv, WritesTheBytesOfTheLibrary) {
  npy::Array out(ElementType::kF32, q_.shape()), lse(ElementType::kF32, {1, 1, kSharedQueries, kSharedHeads});
  auto forward = Call<SharedKvArgs>();
  forward.out = SharedView(out);
  forward.lse = SharedView(lse);
  ASSERT_TRUE(SharedKvAttention(forward, kOptions).ok());
  const CliResult run = RunCli("run shared-kv" + Inputs() + " --out " + Path("out.npy") + " --lse " + Path("lse.npy"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  ExpectFile("out.npy", out);
  ExpectFile("lse.npy", lse);

  npy::Array dq(ElementType::kF32, q_.shape()), d_ori(ElementType::kF32, ori_.shape());
  npy::Array d_cmp(ElementType::kF32, cmp_.shape()), dsink(ElementType::kF32, {kSharedHeads});
  npy::Array norm(ElementType::kF32, lists_.shape());
  auto backward = Call<SharedKvGradArgs>();
  backward.out = SharedView(out);
  backward.d_out = SharedView(d_out_);
  backward.lse = SharedView(lse);
  backward.dq = SharedView(dq);
  backward.d_ori_kv = SharedView(d_ori);
  backward.d_cmp_kv = SharedView(d_cmp);
  backward.dsink = SharedView(dsink);
  backward.cmp_l1_norm = SharedView(norm);
  ASSERT_TRUE(SharedKvAttentionGrad(backward, kOptions).ok());
  const CliResult grad = RunCli("run shared-kv-backward" + Inputs() + " --dout " + Path("dout.npy") + " --out " +
                                Path("out.npy") + " --lse " + Path("lse.npy") + " --dq " + Path("dq.npy") +
                                " --d-ori-kv " + Path("d_ori.npy") + " --d-cmp-kv " + Path("d_cmp.npy") + " --dsink " +
                                Path("dsink.npy") + " --cmp-l1-norm " + Path("norm.npy"));
  ASSERT_EQ(grad.exit_code, 0) << grad.err;
  ExpectFile("dq.npy", dq);
  ExpectFile("d_ori.npy", d_ori);
  ExpectFile("d_cmp.npy", d_cmp);
  ExpectFile("dsink.npy", dsink);
  ExpectFile("norm.npy", norm);
}

TEST_F(CliSharedKv, ErrorsNameTheFlag) {
  const std::pair<std::string, std::string> mistakes[] = {
      {" --cu-q 6", "--cu-q: given, want none in layout BSND"},
      {" --cmp-mask 4", "--cmp-mask: 4, want 0 or 3"},
      {" --cmp-mask 259", "--cmp-mask: 259, want 0 or 3"},
      {" --used-q 7", "--used-q: [0]=7, want 0..6"},
  };
  for (const auto& [flags, message] : mistakes) {
    const CliResult run = RunCli("run shared-kv" + Inputs() + flags + " --out " + Path("never.npy"));
    EXPECT_NE(run.exit_code, 0) << flags;
    EXPECT_THAT(run.err, ::testing::HasSubstr(message));
  }
}

}  // namespace
}  // namespace fa::test
