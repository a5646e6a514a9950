#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/cli_run.h"

namespace fa::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(CliBench, JsonHasEveryKeyAndConsistentNumbers) {
  const CliResult result =
      RunShortBench("forward --shape 1,2,1,96,128,32,16 --dtype bf16 --layout BSND --causal --threads 1 --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const json bench = json::parse(result.out);
  EXPECT_EQ(bench["op"], "forward");
  EXPECT_EQ(bench["shape"], json({1, 2, 1, 96, 128, 32, 16}));
  EXPECT_EQ(bench["dtype"], "bf16");
  EXPECT_EQ(bench["mask"], "causal");
  EXPECT_EQ(bench["layout"], "BSND");
  EXPECT_EQ(bench["threads"], 1);
  EXPECT_FALSE(bench["isa"].get<std::string>().empty());
  EXPECT_FALSE(bench["kernel"].get<std::string>().empty());
  const double best = bench["seconds"]["best"], median = bench["seconds"]["median"];
  EXPECT_GT(best, 0);
  EXPECT_GE(median, best);
  // Row i of 96 keeps 33 + i of 128 keys.
  const double flops = 2.0 * 2 * (96 * 33 + 96 * 95 / 2) * (32 + 16);
  EXPECT_DOUBLE_EQ(bench["flops"].get<double>(), flops);
  EXPECT_DOUBLE_EQ(bench["gflops"].get<double>(), flops / best * 1e-9);
  EXPECT_GT(bench["peak_gflops"].get<double>(), 0);
  EXPECT_FALSE(bench["peak"].get<std::string>().empty());
  const int64_t rounds = bench["rounds"]["all"], quiet = bench["rounds"]["quiet"];
  EXPECT_GE(rounds, 3);
  EXPECT_LE(quiet, rounds);
  EXPECT_EQ(bench["fraction"].is_null(), quiet == 0);
  if (quiet > 0) {
    EXPECT_DOUBLE_EQ(bench["fraction"].get<double>(),
                     bench["gflops"].get<double>() / bench["peak_gflops"].get<double>());
    EXPECT_LE(bench["fraction"].get<double>(), 1);
  }
  const double bytes = 2.0 * (2 * 96 * 32 + 128 * 32 + 128 * 16 + 2 * 96 * 16);
  EXPECT_DOUBLE_EQ(bench["bytes_per_second"].get<double>(), bytes / best);
}

TEST(CliBench, DecodeIsHeldAgainstTheRateAtWhichItsMemoryIsRead) {
  const CliResult result = RunShortBench("decode --shape 2,4,2,1,600,64 --dtype bf16 --threads 1 --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json bench = json::parse(result.out);
  EXPECT_EQ(bench["op"], "decode");
  const double best = bench["seconds"]["best"];
  EXPECT_GT(bench["read_bytes_per_second"].get<double>(), 0);
  EXPECT_EQ(bench["read_fraction"].is_null(), bench["rounds"]["quiet"] == 0);
  EXPECT_DOUBLE_EQ(bench["bytes_per_second"].get<double>(), 2.0 * 2 * 2 * 600 * 2 * 64 / best);
}

TEST(CliBench, OtherProgramsMakeFiguresDoubtful) {
  // While the benchmark runs, one other program per CPU spins.
  const CliResult result = RunCommand(
      "for i in $(seq $(nproc)); do (while :; do :; done) & busy=\"$busy $!\"; done; " + std::string(FA_CLI_COMMAND),
      "bench forward --shape 1,1,1,64,64,64 --threads 1 --seconds 0.5; kill $busy", "");
  EXPECT_THAT(result.out, HasSubstr("doubtful other programs used ")) << result.err;
}

TEST(CliBench, DecodeOfAFewBytesHasNoReadRate) {
  const char* call = "decode --shape 1,1,1,1,2,8 --dtype bf16 --threads 1";  // K and V have 32 bytes each
  const CliResult json_result = RunShortBench(std::string(call) + " --json");
  ASSERT_EQ(json_result.exit_code, 0) << json_result.err;
  const json bench = json::parse(json_result.out);
  EXPECT_GT(bench["bytes_per_second"].get<double>(), 0);
  EXPECT_FALSE(bench.contains("read_bytes_per_second"));
  EXPECT_FALSE(bench.contains("read_fraction"));
  const CliResult text = RunShortBench(call);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("GB/s of keys and values\n"));
}

TEST(CliBench, ChecksEveryLayoutAndMaskBeforeTiming) {
  // If a checked row were wrong, the exit code would be 1.
  for (const char* flags : {"--layout SBH --sparse-mode 4 --pre-tokens 20 --next-tokens 3",
                            "--layout TND --dtype f16 --sparse-mode 7 --pre-tokens 70 --next-tokens -2",
                            "--layout BNSD_BSND --sparse-mode 5 --prefix 50,60 --isa portable"}) {
    const CliResult result = RunShortBench(std::string("forward --shape 2,4,2,40,70,24 ") + flags);
    EXPECT_EQ(result.exit_code, 0) << flags << ": " << result.err;
    EXPECT_THAT(result.out, HasSubstr("GFLOP/s")) << flags;
  }
}

TEST(CliBench, BadArgumentsNameTheFlag) {
  for (const auto& [flags, named] :
       std::vector<std::pair<std::string, std::string>>{{"--shape 1,2,2,8,8,16 --dtype int8", "--dtype"},
                                                        {"--shape 1,2,2,8,8,16 --layout DNSB", "--layout"},
                                                        {"--shape 1,2,2,8,8", "--shape"},
                                                        {"--shape 1,2,2,8,8,16 --pre-tokens 4", "--pre-tokens"},
                                                        {"--shape 1,2,2,8,8,16 --seconds long", "--seconds"}}) {
    const CliResult result = RunCli("bench forward " + flags);
    EXPECT_EQ(result.exit_code, 2) << flags;
    EXPECT_TRUE(result.HasOneLineOfError()) << flags;
    EXPECT_THAT(result.err, HasSubstr(named)) << flags;
    EXPECT_EQ(result.out, "") << flags;
  }
}

TEST(CliBench, TimesForAsLongAsAsked) {
  using Clock = std::chrono::steady_clock;
  // --seconds asks for more than the default of 2.5 s. How much longer the call takes depends on the machine.
  constexpr double kSeconds = 3;
  const Clock::time_point begin = Clock::now();
  const CliResult result = RunCli("bench forward --shape 1,1,1,8,8,16 --threads 1 --seconds 3");
  const double took = std::chrono::duration<double>(Clock::now() - begin).count();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GE(took, kSeconds);
}

TEST(CliBench, RowsOfACacheAreComparedWithMemcpy) {
  for (const char* op : {"scatter", "gather"}) {
    for (const char* form : {"BnBsND", "BnNBsD"}) {
      const CliResult result = RunShortBench(std::string(op) + " --rows 300 --heads 3 --head-size 40 --block-size 7 " +
                                             "--threads 1 --json --form " + form);
      ASSERT_EQ(result.exit_code, 0) << result.err;
      const json bench = json::parse(result.out);
      const double best = bench["seconds"]["best"];
      EXPECT_DOUBLE_EQ(bench["rows_per_second"].get<double>(), 600 / best);
      EXPECT_DOUBLE_EQ(bench["bytes_per_second"].get<double>(), 600.0 * 3 * 40 * 2 / best);
      for (const std::string copy : {"copy", "row_copy"}) {
        const double rate = bench[copy + "_bytes_per_second"];
        EXPECT_GT(rate, 0);
        EXPECT_EQ(bench[copy + "_ratio"].is_null(), bench["rounds"]["quiet"] == 0);
        if (bench[copy + "_ratio"].is_null()) continue;
        EXPECT_DOUBLE_EQ(bench[copy + "_ratio"].get<double>(), bench["bytes_per_second"].get<double>() / rate);
      }
    }
  }
  for (const char* flags : {"--rows 0", "--form NZ", "--order up"}) {
    const CliResult result = RunCli(std::string("bench scatter ") + flags);
    EXPECT_EQ(result.exit_code, 2) << flags;
    EXPECT_TRUE(result.HasOneLineOfError()) << flags;
  }
}

TEST(CliBench, SecondsAreAboveZeroAndAtMostADay) {
  for (const char* op : {"forward", "decode", "indexer"}) {
    for (const char* seconds : {"0", "-1", "nan", "inf", "86401"}) {
      const CliResult result = RunCli(std::string("bench ") + op + " --shape 1,2,2,8,8,16 --seconds " + seconds);
      EXPECT_EQ(result.exit_code, 2) << op;
      EXPECT_TRUE(result.HasOneLineOfError()) << op;
      EXPECT_EQ(result.err, std::string("fa: --seconds: ") + seconds + ", want a number above 0 and at most 86400\n")
          << op;
      EXPECT_EQ(result.out, "") << op;
    }
  }
}

}  // namespace
}  // namespace fa::test
