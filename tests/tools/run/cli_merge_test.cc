#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "npy/npy_file.h"
#include "tools/cli_run.h"
#include "tools/forward_call.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

using npy::ElementType;
using ::testing::HasSubstr;

constexpr float kMax = std::numeric_limits<float>::max();

/// Partial results of one head with one column. Row i is (out[i], max[i], sum[i]).
struct Partial {
  std::vector<float> out, max, sum;
};

class CliMerge : public ::testing::Test {
 protected:
  void Save(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values) {
    npy::Save(scratch_.Path(name + ".npy"), ArrayOf(ElementType::kF32, std::move(shape), values));
  }
  /// Saves both partial results. Returns the flags for their files and for the outputs.
  std::string Files(const Partial& prev, const Partial& cur, const std::vector<int64_t>& out_shape,
                    const std::vector<int64_t>& stats_shape) {
    std::string flags;
    for (const auto& [name, partial] : {std::pair{"prev", &prev}, std::pair{"cur", &cur}}) {
      const std::string part = name;
      Save(part + "_out", out_shape, partial->out);
      Save(part + "_max", stats_shape, partial->max);
      Save(part + "_sum", stats_shape, partial->sum);
      for (const char* kind : {"out", "max", "sum"}) {
        flags += " --" + part + "-" + kind + " " + scratch_.Path(part + "_" + kind + ".npy");
      }
    }
    return flags + " --out " + scratch_.Path("out.npy") + " --softmax-max " + scratch_.Path("max.npy") +
           " --softmax-sum " + scratch_.Path("sum.npy");
  }
  float Result(const char* name, size_t row) { return npy::Load(scratch_.Path(name)).as<float>()[row]; }

  ScratchFolder scratch_;
};

TEST_F(CliMerge, JoinsRowsAndPassesOverAbsentPartials) {
  const Partial prev = {.out = {1, 2, 3, 4}, .max = {0, -kMax, 1, 5}, .sum = {2, kMax, 4, 0}};
  const Partial cur = {.out = {5, 6, 7, 8}, .max = {1, 2, -kMax, -kMax}, .sum = {3, 5, kMax, kMax}};
  const std::string files = Files(prev, cur, {4, 1, 1}, {1, 1, 4});
  const CliResult result = RunCli("run merge --layout SBH" + files);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  // Row 0 has keys in both partial results. Its sum is s = 2/e + 3, relative to the maximum 1. Each of some ten
  // operations has the roundoff u of f32.
  const double sum = 2 * std::exp(-1.0) + 3, out = (1 * 2 * std::exp(-1.0) + 5 * 3) / sum;
  EXPECT_EQ(Result("max.npy", 0), 1);
  EXPECT_NEAR(Result("sum.npy", 0), sum, 16 * 0x1p-24 * sum);
  EXPECT_NEAR(Result("out.npy", 0), out, 16 * 0x1p-24 * out);
  // Row 1 has keys only in the second partial result, row 2 only in the first, and row 3 in neither.
  EXPECT_EQ(Result("out.npy", 1), 6);
  EXPECT_EQ(Result("max.npy", 1), 2);
  EXPECT_EQ(Result("sum.npy", 1), 5);
  EXPECT_EQ(Result("out.npy", 2), 3);
  EXPECT_EQ(Result("max.npy", 2), 1);
  EXPECT_EQ(Result("sum.npy", 2), 4);
  EXPECT_EQ(Result("out.npy", 3), 0);
  EXPECT_EQ(Result("max.npy", 3), -kMax);
  EXPECT_EQ(Result("sum.npy", 3), kMax);
}

TEST_F(CliMerge, PackedLayoutTakesLengthsAndChecksThem) {
  const Partial part = {.out = {1, 2, 3, 4}, .max = {0, 1, 2, 3}, .sum = {1, 1, 1, 1}};
  const std::string files = Files(part, part, {4, 1, 1}, {4, 1});
  EXPECT_EQ(RunCli("run merge --layout TND --actual-seq-qlen 1,4" + files).exit_code, 0);
  EXPECT_EQ(Result("sum.npy", 2), 2);
  for (const char* flags : {"--layout TND --actual-seq-qlen 3,2", "--layout TND --actual-seq-qlen 1,5",
                            "--layout TND --actual-seq-qlen 1,x", "--layout SBH --actual-seq-qlen 4"}) {
    const CliResult result = RunCli(std::string("run merge ") + flags + files);
    EXPECT_EQ(result.exit_code, 2) << flags;
    EXPECT_TRUE(result.HasOneLineOfError());
    EXPECT_THAT(result.err, HasSubstr("--actual-seq-qlen")) << flags;
  }
}

TEST_F(CliMerge, NoHeadsAreAMistake) {
  const Partial part = {.out = {1, 2, 3, 4}, .max = {0, 1, 2, 3}, .sum = {1, 1, 1, 1}};
  const std::string files = Files(part, part, {4, 1, 1}, {1, 1, 4});
  EXPECT_EQ(RunCli("run merge --layout SBH --head-num 1" + files).exit_code, 0);
  for (const std::string heads : {"0", "-1"}) {
    const CliResult result = RunCli("run merge --layout SBH --head-num " + heads + files);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.err, "fa: --head-num: " + heads + ", want at least 1\n");
  }
}

TEST_F(CliMerge, HalvesOfTheKeysJoinToAllOfThem) {
  // The test compares attention over 40 keys with the merge of the first 24 and the last 16 keys.
  reference::Problem problem = {.heads = 2, .heads_kv = 2, .d = 16, .dv = 16, .lengths = {.sq = {7}, .sk = {40}}};
  ForwardCall all("BNSD", problem);
  ASSERT_EQ(all.Run().exit_code, 0);
  const std::vector<float> k = {all.problem.k.begin(), all.problem.k.end()};
  const std::vector<float> v = {all.problem.v.begin(), all.problem.v.end()};
  const auto part = [&](const std::vector<float>& rows, int64_t begin, int64_t end) {
    std::vector<float> values;
    for (int64_t n = 0; n < 2; ++n) {
      values.insert(values.end(), rows.begin() + (n * 40 + begin) * 16, rows.begin() + (n * 40 + end) * 16);
    }
    return values;
  };
  std::string merge = "run merge --layout BNSD --out " + scratch_.Path("out.npy") + " --softmax-max " +
                      scratch_.Path("max.npy") + " --softmax-sum " + scratch_.Path("sum.npy");
  for (const auto& [name, begin, end] : {std::tuple{"prev", 0, 24}, std::tuple{"cur", 24, 40}}) {
    const std::string prefix = name;
    Save(prefix + "_k", {1, 2, end - begin, 16}, part(k, begin, end));
    Save(prefix + "_v", {1, 2, end - begin, 16}, part(v, begin, end));
    const std::string query = all.flags.substr(all.flags.find("--query "), all.flags.find(" --key") - 1);
    ASSERT_EQ(
        RunCli("run forward --layout BNSD " + query + " --key " + scratch_.Path(prefix + "_k.npy") + " --value " +
               scratch_.Path(prefix + "_v.npy") + " --out " + scratch_.Path(prefix + "_out.npy") + " --softmax-max " +
               scratch_.Path(prefix + "_max.npy") + " --softmax-sum " + scratch_.Path(prefix + "_sum.npy"))
            .exit_code,
        0);
    for (const char* kind : {"out", "max", "sum"}) {
      merge += " --" + prefix + "-" + kind + " " + scratch_.Path(prefix + "_" + kind + ".npy");
    }
  }
  ASSERT_EQ(RunCli(merge).exit_code, 0);
  const npy::Array merged = npy::Load(scratch_.Path("out.npy")), whole = npy::Load(all.scratch().Path("out.npy"));
  ASSERT_EQ(merged.shape(), whole.shape());
  // Both results are within the bound of a forward over 40 keys, (2 (D + 6) A + 2 Sk + 8) u max|v|. A is the sum of the
  // magnitudes of a score's terms, and is below 8 here. The merge adds a dozen roundings.
  double largest_v = 0;
  for (const float value : v) largest_v = std::max(largest_v, static_cast<double>(std::fabs(value)));
  const double bound = 2 * (2 * (16 + 6) * 8 + 2 * 40 + 8 + 12) * 0x1p-24 * largest_v;
  for (size_t i = 0; i < static_cast<size_t>(whole.size()); ++i) {
    EXPECT_NEAR(merged.as<float>()[i], whole.as<float>()[i], bound);
  }
}

TEST_F(CliMerge, WrongShapesNameTheFlag) {
  const Partial part = {.out = {1, 2, 3, 4}, .max = {0, 1, 2, 3}, .sum = {1, 1, 1, 1}};
  const std::string files = Files(part, part, {4, 1, 1}, {1, 1, 4});
  Save("cur_max", {1, 4, 1}, part.max);
  const CliResult result = RunCli("run merge --layout SBH" + files);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(result.HasOneLineOfError());
  EXPECT_THAT(result.err, HasSubstr("--cur-max"));
  EXPECT_EQ(scratch_.Read("out.npy"), "");
}

}  // namespace
}  // namespace fa::test
