#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "npy/npy_file.h"
#include "support/cases/random_values.h"
#include "tools/cli_run.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

using nlohmann::json;
using npy::ElementType;
using ::testing::HasSubstr;

constexpr int64_t kBatch = 2, kHeads = 4, kHeadsKv = 2, kKeys = 50, kD = 8;

/// Files for one decode in layout BNSD, and the output of `fa run forward` on them.
class CliDecode : public ::testing::Test {
 protected:
  void SetUp() override {
    Save("q.npy", {kBatch, kHeads, 1, kD}, Tag::kQ);
    k_ = Save("k.npy", {kBatch, kHeadsKv, kKeys, kD}, Tag::kK);
    v_ = Save("v.npy", {kBatch, kHeadsKv, kKeys, kD}, Tag::kV);
  }

  npy::Array Save(const std::string& name, std::vector<int64_t> shape, Tag tag) const {
    npy::Array array(ElementType::kF32, std::move(shape));
    int64_t i = 0;
    for (float& x : array.as<float>()) x = static_cast<float>(RandomNormal(1, tag, {i++}));
    npy::Save(Path(name), array);
    return array;
  }

  /// Saves rows [B,Nkv,S,D] as pages [pages, page size, Nkv*D]. Consecutive pages belong to the sequences in turn.
  void SavePages(const std::string& name, const npy::Array& dense, int64_t page_size) const {
    const int64_t pages = (kKeys + page_size - 1) / page_size;
    npy::Array array(ElementType::kF32, {kBatch * pages, page_size, kHeadsKv * kD});
    for (float& x : array.as<float>()) x = NAN;
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t n = 0; n < kHeadsKv; ++n) {
        for (int64_t j = 0; j < kKeys; ++j) {
          const int64_t page = j / page_size * kBatch + b;
          for (int64_t c = 0; c < kD; ++c) {
            array.as<float>()[((page * page_size + j % page_size) * kHeadsKv + n) * kD + c] =
                dense.as<float>()[((b * kHeadsKv + n) * kKeys + j) * kD + c];
          }
        }
      }
    }
    npy::Save(Path(name), array);
    npy::Array table(ElementType::kI32, {kBatch, pages});
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t page = 0; page < pages; ++page) {
        table.as<int32_t>()[b * pages + page] = static_cast<int32_t>(page * kBatch + b);
      }
    }
    npy::Save(Path("table.npy"), table);
  }

  [[nodiscard]] std::string Path(const std::string& name) const { return scratch_.Path(name); }
  [[nodiscard]] CliResult Run(const std::string& command, const std::string& key, const std::string& value,
                              const std::string& flags) const {
    return RunCli("run " + command + " --layout BNSD --query " + Path("q.npy") + " --key " + Path(key) + " --value " +
                  Path(value) + " " + flags);
  }
  [[nodiscard]] std::string ForwardBytes() const {
    const CliResult result = Run("forward", "k.npy", "v.npy", "--out " + Path("want.npy"));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return scratch_.Read("want.npy");
  }

  ScratchFolder scratch_;
  npy::Array k_, v_;
};

TEST_F(CliDecode, GivesTheBytesOfForwardOnOneTensor) {
  const CliResult result =
      Run("decode", "k.npy", "v.npy", "--out " + Path("out.npy") + " --lse " + Path("lse.npy") + " --threads 2");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(scratch_.Read("out.npy"), ForwardBytes());
  EXPECT_EQ(npy::Load(Path("lse.npy")).shape(), (std::vector<int64_t>{kBatch, kHeads, 1}));
}

TEST_F(CliDecode, ReadsPages) {
  for (const int64_t page_size : {1, 16, 64}) {
    SavePages("kp.npy", k_, page_size);
    SavePages("vp.npy", v_, page_size);
    const CliResult result = Run("decode", "kp.npy", "vp.npy",
                                 "--block-table " + Path("table.npy") + " --block-size " + std::to_string(page_size) +
                                     " --actual-seq-lengths-kv 50 --out " + Path("out.npy"));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(scratch_.Read("out.npy"), ForwardBytes()) << page_size;
  }
}

TEST_F(CliDecode, ReadsPagesForPackedQueriesWithSinksPerRow) {
  SavePages("kp.npy", k_, 16);
  SavePages("vp.npy", v_, 16);
  Save("qt.npy", {kBatch, kHeads, kD}, Tag::kQ);
  Save("sink.npy", {kBatch, kHeads, 1}, Tag::kSink);
  Save("sink_of_tokens.npy", {kBatch, kHeads}, Tag::kSink);
  const CliResult forward =
      Run("forward", "k.npy", "v.npy", "--sink " + Path("sink.npy") + " --out " + Path("want.npy"));
  ASSERT_EQ(forward.exit_code, 0) << forward.err;
  const CliResult result =
      RunCli("run decode --layout TND --query " + Path("qt.npy") + " --key " + Path("kp.npy") + " --value " +
             Path("vp.npy") + " --block-table " + Path("table.npy") + " --actual-seq-lengths 1,2 --sink " +
             Path("sink_of_tokens.npy") + " --actual-seq-lengths-kv 50 --out " + Path("out.npy"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  npy::Array want = npy::Load(Path("want.npy")), got = npy::Load(Path("out.npy"));
  EXPECT_EQ(got.shape(), (std::vector<int64_t>{kBatch, kHeads, kD}));
  ASSERT_EQ(got.size(), want.size());
  for (int64_t x = 0; x < want.size(); ++x) EXPECT_EQ(got.as<float>()[x], want.as<float>()[x]) << x;
}

TEST_F(CliDecode, TakesSplitHeads) {
  Save("qr.npy", {kBatch, kHeads, 1, 4}, Tag::kQRope);
  Save("kr.npy", {kBatch, kHeadsKv, kKeys, 4}, Tag::kKRope);
  const std::string rope = "--query-rope " + Path("qr.npy") + " --key-rope " + Path("kr.npy");
  const CliResult forward = Run("forward", "k.npy", "v.npy", rope + " --out " + Path("want.npy"));
  ASSERT_EQ(forward.exit_code, 0) << forward.err;
  const CliResult decode = Run("decode", "k.npy", "v.npy", rope + " --out " + Path("out.npy"));
  ASSERT_EQ(decode.exit_code, 0) << decode.err;
  EXPECT_EQ(scratch_.Read("out.npy"), scratch_.Read("want.npy"));
  const CliResult one = Run("decode", "k.npy", "v.npy", "--query-rope " + Path("qr.npy") + " --out " + Path("out.npy"));
  EXPECT_EQ(one.exit_code, 2);
  EXPECT_THAT(one.err, HasSubstr("--key-rope: missing (--query-rope is given)"));
}

TEST_F(CliDecode, TakesInt8QueriesAsPromptDoes) {
  for (const char* file : {"q8.npy", "k8.npy", "v8.npy"}) {
    const bool query = file[0] == 'q';
    npy::Array bytes(ElementType::kI8, {kBatch, query ? kHeads : kHeadsKv, query ? 1 : kKeys, kD});
    for (int64_t i = 0; i < bytes.size(); ++i) {
      bytes.as<int8_t>()[i] = static_cast<int8_t>(RandomBits(3, Tag::kK, {file[0], i}) % 41 - 20);
    }
    npy::Save(Path(file), bytes);
  }
  std::string flags = "--layout BNSD --query " + Path("q8.npy") + " --key " + Path("k8.npy") + " --value " +
                      Path("v8.npy") + " --actual-seq-lengths-kv 50,30";
  for (const auto& [name, value] : {std::pair{"deq-scale1", 0.01F}, {"quant-scale1", 127.0F}, {"deq-scale2", 0.1F}}) {
    npy::Array scale(ElementType::kF32, {1});
    scale.as<float>()[0] = value;
    npy::Save(Path(std::string(name) + ".npy"), scale);
    flags += std::string(" --") + name + " " + Path(std::string(name) + ".npy");
  }
  const CliResult prompt = RunCli("run prompt " + flags + " --out " + Path("want.npy"));
  ASSERT_EQ(prompt.exit_code, 0) << prompt.err;
  const CliResult decode = RunCli("run decode " + flags + " --out " + Path("out.npy"));
  ASSERT_EQ(decode.exit_code, 0) << decode.err;
  EXPECT_EQ(npy::Load(Path("out.npy")).type(), ElementType::kF16);
  EXPECT_EQ(scratch_.Read("out.npy"), scratch_.Read("want.npy"));
}

TEST_F(CliDecode, ReadsInt8Keys) {
  // A forward on the dequantised keys and values gives the same output.
  npy::Array scale(ElementType::kF32, {2}), offset(ElementType::kF32, {2});
  scale.as<float>()[0] = 0.5F;
  scale.as<float>()[1] = 0.25F;
  offset.as<float>()[0] = 3;
  offset.as<float>()[1] = -7;
  npy::Save(Path("scale.npy"), scale);
  npy::Save(Path("offset.npy"), offset);
  for (int side = 0; side < 2; ++side) {
    npy::Array bytes(ElementType::kI8, k_.shape()), floats(ElementType::kF32, k_.shape());
    for (int64_t i = 0; i < bytes.size(); ++i) {
      const auto value = static_cast<int8_t>(RandomBits(2, Tag::kK, {side, i}) % 21);
      bytes.as<int8_t>()[i] = value;
      floats.as<float>()[i] = (static_cast<float>(value) + offset.as<float>()[side]) * scale.as<float>()[side];
    }
    npy::Save(Path(side == 0 ? "k8.npy" : "v8.npy"), bytes);
    npy::Save(Path(side == 0 ? "k.npy" : "v.npy"), floats);
  }
  const CliResult result = Run("decode", "k8.npy", "v8.npy",
                               "--antiquant-scale " + Path("scale.npy") + " --antiquant-offset " + Path("offset.npy") +
                                   " --out " + Path("out.npy"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(scratch_.Read("out.npy"), ForwardBytes());
}

TEST_F(CliDecode, CountsASinkIn) {
  npy::Array sink(ElementType::kF32, {kHeads});
  for (int64_t n = 0; n < kHeads; ++n) sink.as<float>()[n] = 0.5F * static_cast<float>(n);
  npy::Save(Path("sink.npy"), sink);
  const std::string flags = "--sink " + Path("sink.npy") + " --out " + Path("out.npy");
  ASSERT_EQ(Run("forward", "k.npy", "v.npy", flags).exit_code, 0);
  const std::string want = scratch_.Read("out.npy");
  EXPECT_NE(want, ForwardBytes());
  const CliResult result = Run("decode", "k.npy", "v.npy", flags);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(scratch_.Read("out.npy"), want);
}

TEST_F(CliDecode, ReadsOneScalePerKey) {
  npy::Array bytes(ElementType::kI8, k_.shape());
  for (int64_t i = 0; i < bytes.size(); ++i) bytes.as<int8_t>()[i] = static_cast<int8_t>(i % 21);
  npy::Save(Path("k8.npy"), bytes);
  npy::Array one(ElementType::kF32, {2}), every(ElementType::kF32, {2, kBatch, k_.shape()[2]});
  for (float& x : one.as<float>()) x = 0.25F;
  for (float& x : every.as<float>()) x = 0.25F;
  npy::Save(Path("one.npy"), one);
  npy::Save(Path("every.npy"), every);
  const std::string out = " --out " + Path("out.npy");
  ASSERT_EQ(Run("decode", "k8.npy", "k8.npy", "--antiquant-scale " + Path("one.npy") + out).exit_code, 0);
  const std::string want = scratch_.Read("out.npy");
  const std::string flags = "--antiquant-scale " + Path("every.npy") + out + " --antiquant-mode ";
  const CliResult result = Run("decode", "k8.npy", "k8.npy", flags + "1");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(scratch_.Read("out.npy"), want);
  EXPECT_NE(Run("decode", "k8.npy", "k8.npy", flags + "2").exit_code, 0);
  npy::Array rows(ElementType::kF32, {kBatch, 1, k_.shape()[2], 1});
  for (float& x : rows.as<float>()) x = 0.25F;
  npy::Save(Path("rows.npy"), rows);
  const std::string separate = "--k-scale " + Path("rows.npy") + " --v-scale " + Path("rows.npy") + out;
  const CliResult rows_result = Run("decode", "k8.npy", "k8.npy", separate);
  ASSERT_EQ(rows_result.exit_code, 0) << rows_result.err;
  EXPECT_EQ(scratch_.Read("out.npy"), want);
}

TEST_F(CliDecode, WritesInt8) {
  static_cast<void>(ForwardBytes());
  const npy::Array want = npy::Load(Path("want.npy"));
  npy::Array scale(ElementType::kF32, {1});
  scale.as<float>()[0] = 64;
  npy::Save(Path("scale.npy"), scale);
  const CliResult result = Run("decode", "k.npy", "v.npy",
                               "--out-dtype int8 --quant-scale2 " + Path("scale.npy") + " --out " + Path("out.npy"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const npy::Array out = npy::Load(Path("out.npy"));
  ASSERT_EQ(out.shape(), want.shape());
  for (int64_t i = 0; i < out.size(); ++i) {
    // The bound is half an int8 step. Multiplying a float by 64 is exact.
    EXPECT_LE(std::fabs(static_cast<float>(out.as<int8_t>()[i]) - 64 * want.as<float>()[i]), 0.5F) << i;
  }
}

TEST_F(CliDecode, LengthsCountFromTheFront) {
  const std::string out = " --out " + Path("out.npy");
  ASSERT_EQ(Run("decode", "k.npy", "v.npy", "--actual-seq-lengths-kv 50,50 --causal" + out).exit_code, 0);
  EXPECT_EQ(scratch_.Read("out.npy"), ForwardBytes());
  ASSERT_EQ(Run("decode", "k.npy", "v.npy", "--actual-seq-lengths-kv 0,0" + out).exit_code, 0);
  const npy::Array empty = npy::Load(Path("out.npy"));
  for (const float x : empty.as<float>()) EXPECT_EQ(x, 0);
}

TEST_F(CliDecode, BadArgumentsNameTheFlagAndWriteNothing) {
  SavePages("kp.npy", k_, 16);
  SavePages("vp.npy", v_, 16);
  const std::string table = "--block-table " + Path("table.npy");
  struct Case {
    std::string key, value, flags, message;
  };
  for (const Case& c : std::vector<Case>{
           {"k.npy", "v.npy", "--actual-seq-lengths-kv 51",
            "--actual-seq-lengths-kv: [0]=51, want 0..50 (shape[2] of --key)"},
           {"k.npy", "v.npy", "--actual-seq-lengths 2", "--actual-seq-lengths: [0]=2, want 0..1 (shape[2] of --query)"},
           {"k.npy", "v.npy", "--block-size 16", "--block-size: needs --block-table"},
           {"kp.npy", "vp.npy", table + " --block-size 15 --actual-seq-lengths-kv 50", "--block-size: 15"},
           {"kp.npy", "vp.npy", table, "--actual-seq-lengths-kv: "},
           {"kp.npy", "vp.npy", table + " --actual-seq-lengths-kv 65", "--actual-seq-lengths-kv: "},
           {"kp.npy", "vp.npy", "--block-table " + Path("q.npy") + " --actual-seq-lengths-kv 9", "--block-table: "},
           {"k.npy", "v.npy", "--antiquant-scale " + Path("q.npy"), "--antiquant-scale: "}}) {
    const CliResult result = Run("decode", c.key, c.value, c.flags + " --out " + Path("none.npy"));
    EXPECT_EQ(result.exit_code, 2) << c.flags;
    EXPECT_TRUE(result.HasOneLineOfError()) << result.err;
    EXPECT_THAT(result.err, HasSubstr(c.message));
    EXPECT_EQ(scratch_.Read("none.npy"), "");
  }
}

TEST_F(CliDecode, APageThatDoesNotExistIsRefused) {
  SavePages("kp.npy", k_, 16);
  SavePages("vp.npy", v_, 16);
  npy::Array table = npy::Load(Path("table.npy"));
  table.as<int32_t>()[1] = 8;
  npy::Save(Path("table.npy"), table);
  const CliResult result =
      Run("decode", "kp.npy", "vp.npy",
          "--block-table " + Path("table.npy") + " --actual-seq-lengths-kv 50 --out " + Path("none.npy"));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--block-table: [0][1]=8, want 0..7 (shape[0] of --key)"));
}

TEST(CliDecodePlan, TellsHowKeysAreCut) {
  const CliResult result = RunCli("plan decode --shape 2,8,2,1,3000,64 --block-size 16 --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json plan = json::parse(result.out);
  EXPECT_EQ(plan["op"], "decode");
  EXPECT_EQ(plan["tiles"].size(), 4U * 6) << "parts of 512 keys";
  const CliResult text = RunCli("plan decode --shape 2,8,2,1,3000,64 --dtype int8");
  EXPECT_THAT(text.out, HasSubstr("the keys of 4 tiles are cut into 24 parts"));
}

TEST(CliDecodeBench, ChecksPagesAndInt8BeforeTiming) {
  const CliResult result =
      RunShortBench("decode --shape 2,4,2,1,300,64 --dtype int8 --block-size 16 --threads 1 --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json bench = json::parse(result.out);
  EXPECT_EQ(bench["dtype"], "int8");
  EXPECT_EQ(bench["block_size"], 16);
  const double best = bench["seconds"]["best"];
  EXPECT_DOUBLE_EQ(bench["bytes_per_second"].get<double>(), 2.0 * 2 * 2 * 300 * 64 / best);
}

}  // namespace
}  // namespace fa::test
