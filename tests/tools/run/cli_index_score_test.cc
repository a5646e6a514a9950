// `fa run index-score` and `fa run indexer-loss-value` write the bytes of the library's calls, and name wrong flags.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fa/indexer_kl_loss.h"
#include "fa/msa_index_score.h"
#include "fa/view.h"
#include "npy/npy_file.h"
#include "tools/cli_run.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

using npy::ElementType;
using ::testing::HasSubstr;

class CliIndexScore : public ::testing::Test {
 protected:
  template <typename T>
  std::string Save(const std::string& name, ElementType type, std::vector<int64_t> shape,
                   const std::vector<T>& values) {
    npy::Array array(type, std::move(shape));
    std::copy(values.begin(), values.end(), array.as<T>().begin());
    npy::Save(scratch_.Path(name), array);
    return scratch_.Path(name);
  }
  std::vector<float> Load(const std::string& name) {
    const npy::Array array = npy::Load(scratch_.Path(name));
    const std::span<const float> values = array.as<float>();
    return {values.begin(), values.end()};
  }
  static std::vector<float> Waves(int64_t count, float step) {
    std::vector<float> x;
    for (int64_t i = 0; i < count; ++i) x.push_back(std::sin(step * static_cast<float>(i + 1)));
    return x;
  }

  ScratchFolder scratch_;
};

TEST_F(CliIndexScore, WritesTheBytesOfTheLibrary) {
  constexpr int64_t kRows = 5, kHeads = 3, kSize = 8, kKeys = 400;
  const std::vector<float> q = Waves(kRows * kHeads * kSize, 0.7F), scale = Waves(kKeys, 0.2F);
  std::vector<int8_t> k;
  for (const float x : Waves(kKeys * kSize, 0.3F)) k.push_back(static_cast<int8_t>(100 * x));
  std::vector<float> want(kHeads * kRows * 3);
  const int64_t sums_q[] = {2, 5}, sums_k[] = {130, 400}, blocks[] = {0, 2};
  ASSERT_TRUE(MsaIndexScore({.q = View(q, {kRows, kHeads, kSize}),
                             .k = View(static_cast<const void*>(k.data()), DType::kI8, {kKeys, 1, kSize}),
                             .k_scale = View(scale, {kKeys}),
                             .lengths_q = sums_q,
                             .lengths_kv = sums_k,
                             .start_loc = blocks,
                             .score = View(want, {kHeads, kRows, 3})},
                            {.init_blocks = 1, .local_blocks = 1})
                  .ok());
  const std::string keys = Save("k", ElementType::kI8, {kKeys, 1, kSize}, k);
  const std::string inputs = "run index-score --query " + Save("q", ElementType::kF32, {kRows, kHeads, kSize}, q) +
                             " --key " + keys + " --start-loc 0,2 --init-blocks 1 --local-blocks 1 --score " +
                             scratch_.Path("score") + " --actual-seq-qlen 2,5";
  const std::string scales = " --key-scale " + Save("scale", ElementType::kF32, {kKeys}, scale);
  const CliResult result = RunCli(inputs + scales + " --actual-seq-kvlen 130,400");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Load("score"), want);

  const std::string table = Save<int32_t>("table", ElementType::kI32, {2, 27}, [] {
    std::vector<int32_t> pages(54, -1);
    for (int32_t page = 0; page < 13; ++page) pages[static_cast<size_t>(page)] = page;
    for (int32_t page = 0; page < 27; ++page) pages[static_cast<size_t>(27 + page)] = 13 + page;
    return pages;
  }());
  Save("k", ElementType::kI8, {40, 10, 1, kSize}, k);
  Save("scale", ElementType::kF32, {40, 10}, scale);
  const CliResult paged = RunCli(inputs + scales + " --block-table " + table + " --actual-seq-kvlen 130,270");
  ASSERT_EQ(paged.exit_code, 0) << paged.err;
  EXPECT_EQ(Load("score"), want);
}

TEST_F(CliIndexScore, ErrorsNameTheFlag) {
  const std::string q = Save("q", ElementType::kF32, {2, 1, 4}, Waves(8, 1));
  const std::string inputs = "run index-score --query " + q + " --key " +
                             Save("k", ElementType::kF32, {3, 1, 4}, Waves(12, 1)) + " --score " +
                             scratch_.Path("score") + " --actual-seq-qlen 2 ";
  const struct {
    const char *flags, *text;
  } cases[] = {{"--actual-seq-kvlen 4", "--actual-seq-kvlen: [0]=4, want <= 3 (shape[0] of --key)"},
               {"--actual-seq-kvlen 3 --local-blocks -1", "--local-blocks: -1, want at least 0"},
               {"--actual-seq-kvlen 3 --start-loc -1", "--start-loc: [0]=-1, want 0..2^60"},
               {"--actual-seq-kvlen 3 --sparse-mode 1", "--sparse-mode: 1, want 0 or 3"},
               {"--actual-seq-kvlen 9223372036854775807", "--actual-seq-kvlen"}};
  for (const auto& [flags, text] : cases) {
    const CliResult result = RunCli(inputs + flags);
    EXPECT_EQ(result.exit_code, 2) << flags;
    EXPECT_THAT(result.err, HasSubstr(text));
    EXPECT_EQ(scratch_.Read("score"), "");
  }
  const CliResult scaled = RunCli(inputs + "--actual-seq-kvlen 3 --key-scale " + q);
  EXPECT_EQ(scaled.exit_code, 2);
  EXPECT_THAT(scaled.err, HasSubstr("--key-scale: given, want none without"));
}

TEST_F(CliIndexScore, LossValueWritesTheBytesOfTheLibrary) {
  std::vector<float> target, probabilities;
  for (int64_t i = 0; i < 12; ++i) target.push_back(0.1F * static_cast<float>(i)), probabilities.push_back(0.25F);
  const std::string inputs = "run indexer-loss-value --target " + Save("t", ElementType::kF32, {3, 4}, target) +
                             " --probabilities " + Save("p", ElementType::kF32, {3, 4}, probabilities) + " --loss " +
                             scratch_.Path("loss");
  for (const bool normalised : {false, true}) {
    std::vector<float> want(1);
    ASSERT_TRUE(
        IndexerKLLoss(
            {.target = View(target, {3, 4}), .probabilities = View(probabilities, {3, 4}), .loss = View(want, {1})},
            {.eps = 0.01, .weight = normalised ? IndexerKLLossWeight::kNormalised : IndexerKLLossWeight::kTarget})
            .ok());
    const CliResult result = RunCli(inputs + " --eps 0.01" + (normalised ? " --weight normalised" : ""));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(Load("loss"), want);
  }
  const CliResult weight = RunCli(inputs + " --weight mean");
  EXPECT_EQ(weight.exit_code, 2);
  EXPECT_THAT(weight.err, HasSubstr("--weight: 'mean', want target or normalised"));
  const CliResult eps = RunCli(inputs + " --eps -1");
  EXPECT_EQ(eps.exit_code, 2);
  EXPECT_THAT(eps.err, HasSubstr("--eps: -1, want a finite number of at least 0"));
}

}  // namespace
}  // namespace fa::test
