// `fa plan --ranks` describes a call over processes without running it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/cli_run.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

json PlanOf(const std::string& arguments) {
  const CliResult result = RunCli("plan " + arguments + " --json");
  EXPECT_EQ(result.exit_code, 0) << arguments << ": " << result.err;
  return json::parse(result.out);
}

TEST(CliPlanRanks, EveryRowHasOneRankAndTilesSayWhatItSees) {
  for (const char* cut : {"zigzag", "contiguous", "384,400:0,128,256,384:128,256"}) {
    const json plan =
        PlanOf(std::string("forward --shape 2,4,2,400,400,64 --causal --ranks 3 --strategy sequence --cut ") + cut);
    EXPECT_EQ(plan["workers"], 3);
    EXPECT_EQ(plan["as_one_process"], true);
    std::vector<int> held(400), tiled(size_t{2} * 400);
    for (const json& rank : plan["of_rank"]) {
      for (const json& rows : rank["q_rows"]) {
        for (int64_t row = rows[0]; row < rows[1]; ++row) ++held[static_cast<size_t>(row)];
      }
    }
    for (const json& tile : plan["tiles"]) {
      EXPECT_EQ(tile["head_end"], 4);
      for (int64_t row = tile["row_begin"]; row < tile["row_end"]; ++row) {
        ++tiled[static_cast<size_t>(tile["batch"].get<int64_t>() * 400 + row)];
        EXPECT_GE(tile["key_end"].get<int64_t>(), row + 1);
      }
    }
    EXPECT_THAT(held, ::testing::Each(1)) << cut;
    EXPECT_THAT(tiled, ::testing::Each(1)) << cut;
    EXPECT_DOUBLE_EQ(plan["flops"].get<double>(), 2.0 * 8 * (400.0 * 401 / 2) * (64 + 64));
  }
}

// With 16K rows per rank and 64 ranks, the predicted efficiency must be at least 0.95.
TEST(CliPlanRanks, WeakScalingKeepsRanksBusy) {
  const std::string shape = "--shape 1,32,8,1048576,1048576,128 --causal --dtype bf16 ";
  const json plan = PlanOf("forward " + shape + "--cores 64 --isa avx512 --ranks 64 --network 12.5 --latency 5");
  EXPECT_GE(plan["efficiency"].get<double>(), 0.95);
  const json slow = PlanOf("forward " + shape + "--cores 64 --isa avx512 --ranks 64 --network 0.05");
  EXPECT_LT(slow["efficiency"].get<double>(), plan["efficiency"].get<double>());
  EXPECT_LT(slow["hidden"].get<double>(), plan["hidden"].get<double>());
  const json fast = PlanOf("forward " + shape + "--cores 64 --isa avx512 --ranks 64 --gflops 1000");
  EXPECT_LT(fast["seconds"].get<double>(), plan["seconds"].get<double>());
}

TEST(CliPlanRanks, TextAndPictureSayRanks) {
  const ScratchFolder scratch;
  const CliResult result =
      RunCli("plan forward --shape 1,2,2,1024,1024,64 --causal --ranks 4 --cut 1,1024:0,1:: --svg " +
             scratch.Path("plan.svg"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("ranks: 4"), HasSubstr("bits: of this cut"), HasSubstr("efficiency"),
                                HasSubstr("rank 3: rows none")));
  const std::string svg = scratch.Read("plan.svg");
  EXPECT_THAT(svg,
              AllOf(HasSubstr("Rank, predicted load"), HasSubstr("bits of this cut"), HasSubstr("rank 1, cost 1<")));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(CliPlanRanks, MistakesNameTheFlag) {
  struct Wanted {
    const char *flags, *message;
  };
  for (const auto& [flags, message] :
       {Wanted{"--cut zigzag", "--cut: needs --ranks"}, Wanted{"--network 3", "--network: needs --ranks"},
        Wanted{"--ranks 0", "--ranks: 0, want"}, Wanted{"--ranks 70000", "--ranks: 70000, want"},
        Wanted{"--ranks 2 --network 0", "--network: 0, want"}, Wanted{"--ranks 2 --latency -1", "--latency: -1, want"},
        Wanted{"--ranks 2 --gflops nan", "--gflops: nan, want"}, Wanted{"--ranks 2 --cut fast", "--cut: 'fast', want"},
        Wanted{"--ranks 2 --cut 0,8", "--cut: 1 lists"}, Wanted{"--ranks 1 --cut 0,8,7,16", "--cut: not held once"},
        Wanted{"--ranks 2 --strategy x", "--strategy: 'x', want"},
        Wanted{"--ranks 2 --heads-in-flight -1", "--heads-in-flight: -1, want"}}) {
    const CliResult result = RunCli(std::string("plan forward --shape 1,2,2,16,16,8 ") + flags);
    EXPECT_EQ(result.exit_code, 2) << flags;
    EXPECT_TRUE(result.HasOneLineOfError()) << result.err;
    EXPECT_THAT(result.err, HasSubstr(message)) << flags;
  }
  const CliResult uneven = RunCli("plan forward --shape 1,2,2,16,8,8 --ranks 1 --cut 0,16");
  EXPECT_THAT(uneven.err, HasSubstr("--cut: cut keys where they cut queries"));
}

}  // namespace
}  // namespace fa::test
