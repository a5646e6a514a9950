// Tests `fa plan` and `fa bench` for the sparse operators.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tools/cli_run.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CliSparsePlan, EveryOperatorHasOneAndItsPicture) {
  const ScratchFolder scratch;
  for (const auto& [op, shape] :
       std::vector<std::pair<std::string, std::string>>{{"sparse-forward", "1,4,64,300,32,8,64"},
                                                        {"sparse-backward", "1,4,64,300,32,8,64"},
                                                        {"shared-kv", "1,4,64,300,32,16"},
                                                        {"shared-kv-backward", "1,4,64,300,32,16"},
                                                        {"indexer", "1,4,64,300,32,64"},
                                                        {"indexer-backward", "1,4,64,300,32,64"},
                                                        {"indexer-kl-loss", "1,4,64,300,32,8,64"},
                                                        {"dense-indexer-lse", "1,4,64,300,32"},
                                                        {"dense-indexer-kl-loss", "1,4,64,300,32,8"},
                                                        {"index-score", "1,4,64,300,32"}}) {
    const CliResult result = RunCli("plan " + op + " --shape " + shape + " --json --svg " + scratch.Path("plan.svg"));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json plan = json::parse(result.out);
    EXPECT_GT(plan["flops"].get<double>(), 0) << op;
    EXPECT_GT(plan["workspace_bytes"].get<int64_t>(), 0) << op;
    const std::string svg = scratch.Read("plan.svg");
    EXPECT_THAT(svg, AllOf(HasSubstr("<svg xmlns"), HasSubstr("</svg>"), HasSubstr("keys j"), HasSubstr(op))) << op;
    EXPECT_EQ(svg.find("nan"), std::string::npos) << op;
    EXPECT_GE(Occurrences(svg, "<title>rows"), plan["tiles"].size()) << op;
    EXPECT_EQ(Occurrences(svg, "<text "), Occurrences(svg, "</text>")) << op;
  }
  const CliResult short_shape = RunCli("plan sparse-forward --shape 1,4,64");
  EXPECT_EQ(short_shape.exit_code, 2);
  EXPECT_THAT(short_shape.err, HasSubstr("--shape: 3 sizes, want B,N,S1,S2,D,Drope,K"));
}

// If a checked row were wrong, the exit code would be 1.
TEST(CliSparseBench, ChecksResultsBeforeTiming) {
  for (const char* flags :
       {"sparse-forward --shape 2,3,5,70,24,8,16 --layout TND --sparse-mode 0",
        "sparse-backward --shape 1,3,5,70,24,8,16 --dtype f32 --separate-value",
        "indexer --shape 2,3,5,70,24,80 --dtype f16", "indexer-backward --shape 1,3,5,70,24,16",
        "sparse-forward --shape 2,3,5,70,24,8,16 --block-size 16 --separate-value",
        "shared-kv --shape 2,3,5,70,24,8 --window 20", "shared-kv --shape 1,3,5,70,24,0 --cmp-ratio 7 --dtype f16",
        "shared-kv-backward --shape 2,3,5,70,24,8 --window 20 --dtype f32",
        "shared-kv-backward --shape 2,3,5,70,24,8 --l1-norm", "shared-kv-backward --shape 1,3,5,70,24,0 --l1-norm",
        "index-score --shape 2,3,5,300,24", "index-score --shape 1,3,5,2,24 --sparse-mode 0 --dtype f32",
        "index-score --shape 1,2,5,2,24 --dtype f16", "indexer-kl-loss --shape 1,3,5,70,24,0,16 --indexer 2,20",
        "dense-indexer-kl-loss --shape 2,3,5,70,24,8 --indexer 4,20 --layout TND"}) {
    const CliResult result = RunShortBench(std::string(flags) + " --threads 2 --json");
    ASSERT_EQ(result.exit_code, 0) << flags << ": " << result.err;
    const json bench = json::parse(result.out);
    EXPECT_GT(bench["gflops"].get<double>(), 0) << flags;
    EXPECT_TRUE(std::string(flags).starts_with(bench["op"].get<std::string>() + " ")) << flags;
  }
}

TEST(CliSparseBench, SaysHowLargeThePagesAre) {
  const CliResult result = RunShortBench("indexer --shape 2,3,5,70,24,80 --layout TND --block-size 16 --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["block_size"], 16);
  for (const char* op : {"sparse-forward", "indexer"}) {
    const CliResult refused = RunCli(std::string("bench ") + op + " --block-size -1");
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr("--block-size: -1, want at least 0"));
  }
  EXPECT_EQ(RunCli("bench sparse-backward --block-size 16").exit_code, 2);  // this command takes no pages
}

}  // namespace
}  // namespace fa::test
