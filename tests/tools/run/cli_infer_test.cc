// Tests `fa run`, `fa plan` and `fa bench` for infer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "npy/npy_file.h"
#include "support/cases/random_values.h"
#include "tools/cli_run.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

using npy::ElementType;
using ::testing::HasSubstr;

/// Files for one call in layout BNSD.
class CliInfer : public ::testing::Test {
 protected:
  static constexpr int64_t kBatch = 2, kHeads = 4, kHeadsKv = 2, kRows = 5, kKeys = 50, kD = 8;

  void SetUp() override {
    Save("q.npy", {kBatch, kHeads, kRows, kD}, Tag::kQ);
    Save("k.npy", {kBatch, kHeadsKv, kKeys, kD}, Tag::kK);
    Save("v.npy", {kBatch, kHeadsKv, kKeys, kD}, Tag::kV);
  }
  void Save(const std::string& name, std::vector<int64_t> shape, Tag tag) const {
    npy::Array array(ElementType::kF32, std::move(shape));
    int64_t i = 0;
    for (float& x : array.as<float>()) x = static_cast<float>(RandomNormal(1, tag, {i++}));
    npy::Save(Path(name), array);
  }
  [[nodiscard]] std::string Path(const std::string& name) const { return scratch_.Path(name); }
  [[nodiscard]] CliResult Run(const std::string& command, const std::string& out, const std::string& flags) const {
    return RunCli("run " + command + " --query " + Path("q.npy") + " --key " + Path("k.npy") + " --value " +
                  Path("v.npy") + " --out " + Path(out) + " " + flags);
  }

  ScratchFolder scratch_;
};

TEST_F(CliInfer, HasTheBitsOfAForward) {
  ASSERT_EQ(Run("forward", "want.npy", "--causal").exit_code, 0);
  const CliResult result = Run("infer", "got.npy", "--sparse-mode 3 --lse " + Path("lse.npy"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(scratch_.Read("got.npy"), scratch_.Read("want.npy"));
}

TEST_F(CliInfer, WritesTheOutputInTheLayoutsLastPart) {
  ASSERT_EQ(Run("infer", "plain.npy", "").exit_code, 0);
  const CliResult result = Run("infer", "swapped.npy", "--layout BNSD_NBSD");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const npy::Array plain = npy::Load(Path("plain.npy")), swapped = npy::Load(Path("swapped.npy"));
  ASSERT_EQ(swapped.shape(), (std::vector<int64_t>{kHeads, kBatch, kRows, kD}));
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t n = 0; n < kHeads; ++n) {
      for (int64_t i = 0; i < kRows * kD; ++i) {
        ASSERT_EQ(swapped.as<float>()[(n * kBatch + b) * kRows * kD + i],
                  plain.as<float>()[(b * kHeads + n) * kRows * kD + i]);
      }
    }
  }
}

TEST_F(CliInfer, NamesWrongFlags) {
  const std::pair<std::string, std::string> mistakes[] = {
      {"--layout SBH", "--layout: 'SBH', want BSH, BSND"},
      {"--sparse-mode 5", "--sparse-mode: 5, want 0..4 or 9"},
      {"--heads-kv 3", "--heads-kv: 3, want 2 (--key)"},
      {"--pre-tokens 4", "--pre-tokens: sparse mode 0 ignores it"},
      {"--lse-without-keys 0", "--lse-without-keys: '0', want -inf or inf"},
      {"--q-padding 1", "--actual-seq-lengths: missing (--q-padding is given)"},
      {"--length-prefix 3", "--length-prefix: given, want none (--k-prefix: missing)"},
  };
  for (const auto& [flags, message] : mistakes) {
    const CliResult result = Run("infer", "out.npy", flags);
    EXPECT_NE(result.exit_code, 0) << flags;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

// The block mask covers the used keys of the shared prefix and then the keys of the longest sequence.
TEST_F(CliInfer, TakesAMaskOfBlocksWithAPrefixAndWithPages) {
  constexpr int64_t kPrefix = 9, kAll = kPrefix + kKeys;
  Save("k_prefix.npy", {1, kHeadsKv, kPrefix + 2, kD}, Tag::kKRope);
  Save("v_prefix.npy", {1, kHeadsKv, kPrefix + 2, kD}, Tag::kQRope);
  npy::Array blocks(ElementType::kU8, {1, 8}), dropped(ElementType::kU8, {kRows, kAll});
  for (size_t i = 0; i < 8; ++i) blocks.as<uint8_t>()[i] = i % 3 == 0 ? 1 : 0;
  for (int64_t i = 0; i < kRows * kAll; ++i) dropped.as<uint8_t>()[i] = i % kAll / 8 % 3 == 0 ? 0 : 1;
  npy::Save(Path("blocks.npy"), blocks);
  npy::Save(Path("dropped.npy"), dropped);
  const std::string block_flags = " --block-shape 5,8 --block-mask " + Path("blocks.npy");
  const std::string dense_flags = " --atten-mask " + Path("dropped.npy");
  const std::string prefix =
      "--length-prefix 9 --k-prefix " + Path("k_prefix.npy") + " --v-prefix " + Path("v_prefix.npy");
  ASSERT_EQ(Run("infer", "want.npy", prefix + dense_flags).exit_code, 0);
  const CliResult with_prefix = Run("infer", "got.npy", prefix + block_flags);
  ASSERT_EQ(with_prefix.exit_code, 0) << with_prefix.err;
  EXPECT_EQ(scratch_.Read("got.npy"), scratch_.Read("want.npy"));

  Save("k.npy", {8, kHeadsKv, 16, kD}, Tag::kK);
  Save("v.npy", {8, kHeadsKv, 16, kD}, Tag::kV);
  npy::Array table(ElementType::kI32, {kBatch, 4});
  for (int32_t i = 0; i < 8; ++i) table.as<int32_t>()[i] = 7 - i;
  npy::Save(Path("table.npy"), table);
  const std::string table_flag = "--block-table " + Path("table.npy"),
                    pages = table_flag + " --actual-seq-lengths-kv 59,41";
  EXPECT_THAT(Run("infer", "out.npy", table_flag + block_flags).err, HasSubstr("--actual-seq-lengths-kv: missing"));
  const CliResult dense_pages = Run("infer", "want.npy", pages + dense_flags);
  ASSERT_EQ(dense_pages.exit_code, 0) << dense_pages.err;
  const CliResult with_pages = Run("infer", "got.npy", pages + block_flags);
  ASSERT_EQ(with_pages.exit_code, 0) << with_pages.err;
  EXPECT_EQ(scratch_.Read("got.npy"), scratch_.Read("want.npy"));
}

TEST_F(CliInfer, TakesAMaskOfBlocks) {
  npy::Array blocks(ElementType::kU8, {3, 7});
  for (size_t i = 0; i < 21; ++i) blocks.as<uint8_t>()[i] = i % 4 == 0 || i < 7 ? 1 : 0;
  npy::Save(Path("blocks.npy"), blocks);
  const std::string flags = "--block-shape 2,8 --block-mask " + Path("blocks.npy");
  ASSERT_EQ(Run("forward", "want.npy", flags).exit_code, 0);
  ASSERT_EQ(Run("infer", "all.npy", "").exit_code, 0);
  const CliResult result = Run("infer", "got.npy", flags);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(scratch_.Read("got.npy"), scratch_.Read("want.npy"));
  EXPECT_NE(scratch_.Read("got.npy"), scratch_.Read("all.npy"));
  // In mode 0, a pair is kept if both the band and the mask keep it.
  const CliResult band = Run("infer", "band.npy", flags + " --pre-tokens 3 --next-tokens 9");
  ASSERT_EQ(band.exit_code, 0) << band.err;
  npy::Array dropped(ElementType::kU8, {kRows, kKeys});
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kKeys; ++j) {
      dropped.as<uint8_t>()[i * kKeys + j] = blocks.as<uint8_t>()[i / 2 * 7 + j / 8] == 0 ? 1 : 0;
    }
  }
  npy::Save(Path("dropped.npy"), dropped);
  const std::string dense = "--pre-tokens 3 --next-tokens 9 --atten-mask " + Path("dropped.npy");
  ASSERT_EQ(Run("infer", "dense.npy", dense).exit_code, 0);
  EXPECT_EQ(scratch_.Read("band.npy"), scratch_.Read("dense.npy"));
  EXPECT_NE(scratch_.Read("band.npy"), scratch_.Read("got.npy"));
  EXPECT_THAT(Run("infer", "out.npy", "--block-shape 2,8").err, HasSubstr("--block-shape: needs --block-mask"));
  EXPECT_THAT(Run("decode", "out.npy", flags).err, HasSubstr("--block-mask: given, want none for decode"));
  for (const std::string command : {"plan forward", "plan backward", "plan infer", "bench forward"}) {
    const CliResult planned = RunCli(command + " --shape 2,4,2,5,50,8 " + flags);
    EXPECT_EQ(planned.exit_code, 0) << command << planned.err;
  }
}

// If a query row has scale 0, all its scores are 0. So its output is the mean of the dequantised values.
TEST_F(CliInfer, QueriesOfInt8HaveScalesPerRow) {
  const auto save = [&](const std::string& name, std::vector<int64_t> shape, int step) {
    npy::Array array(ElementType::kI8, std::move(shape));
    int i = 0;
    for (int8_t& x : array.as<int8_t>()) x = static_cast<int8_t>(step * ++i % 100);
    npy::Save(Path(name), array);
    return array;
  };
  const auto number = [&](const std::string& name, std::vector<int64_t> shape, float value) {
    npy::Array array(ElementType::kF32, std::move(shape));
    for (float& x : array.as<float>()) x = value;
    npy::Save(Path(name), array);
  };
  save("q.npy", {kBatch, kHeads, kRows, kD}, 3);
  save("k.npy", {kBatch, kHeadsKv, kKeys, kD}, 7);
  const npy::Array v = save("v.npy", {kBatch, kHeadsKv, kKeys, kD}, 11);
  number("q_scale.npy", {kBatch, kHeads, kRows}, 0);
  number("one.npy", {1, 1, 1, 1}, 0.5F);
  const std::string scales = "--q-scale " + Path("q_scale.npy") + " --k-scale " + Path("one.npy") + " --v-scale " +
                             Path("one.npy") + " --out-dtype f32";
  const CliResult result = Run("infer", "out.npy", scales);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const npy::Array out = npy::Load(Path("out.npy"));
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t n = 0; n < kHeads; ++n) {
      for (int64_t x = 0; x < kD; ++x) {
        double mean = 0;
        for (int64_t j = 0; j < kKeys; ++j) {
          mean += 0.5 / kKeys * v.as<int8_t>()[((b * kHeadsKv + n / 2) * kKeys + j) * kD + x];
        }
        // The sums of integers are exact. Scaling and division round at most four times, and the numbers are below 64.
        EXPECT_NEAR(out.as<float>()[(b * kHeads + n) * kRows * kD + x], mean, 4 * 64 * 0x1p-24);
      }
    }
  }
  EXPECT_EQ(Run("infer", "codes.npy", scales + " --code-dtype f8e4m3").exit_code, 0);
  EXPECT_THAT(Run("infer", "x.npy", scales + " --code-dtype i4").err,
              HasSubstr("--code-dtype: 'i4', want i8 or f8e4m3"));
  EXPECT_THAT(Run("infer", "x.npy", "--q-scale " + Path("q_scale.npy")).err,
              HasSubstr("--k-scale: missing (--q-scale: given)"));
}

TEST(CliInferPlan, CountsTheWorkOfAChunkOverPages) {
  const CliResult plan = RunCli("plan infer --shape 2,4,2,64,900,64 --block-size 16 --layout BSND --causal");
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("infer"));
}

TEST(CliInferBench, ChecksAndTimesAChunk) {
  const CliResult bench =
      RunCli("bench infer --shape 1,2,1,20,64,32 --block-size 16 --layout BSND --causal --threads 1 --seconds 0.01");
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
}

// A call with a single query row keeps every key, also in mode 2.
TEST(CliInferBench, ChecksAndTimesASingleRow) {
  for (const char* mode : {"2", "3"}) {
    const CliResult bench =
        RunCli(std::string("bench infer --shape 1,2,1,1,64,32 --threads 1 --seconds 0.01 --sparse-mode ") + mode);
    EXPECT_EQ(bench.exit_code, 0) << mode << ": " << bench.err;
  }
}

}  // namespace
}  // namespace fa::test
