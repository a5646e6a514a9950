#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fa/context.h"
#include "fa/operators.h"
#include "fa/version.h"
#include "tools/cli_run.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CliPlan, JsonTilesCoverEveryKeptPairOnce) {
  const CliResult result = RunCli("plan forward --shape 2,4,2,150,200,64,48 --causal --threads 3 --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json plan = json::parse(result.out);
  EXPECT_EQ(plan["op"], "forward");
  EXPECT_EQ(plan["workers"], 3);
  EXPECT_EQ(plan["load"].size(), 3U);
  int64_t kept = 0;
  for (int64_t i = 0; i < 150; ++i) kept += i + 51;
  EXPECT_DOUBLE_EQ(plan["flops"].get<double>(), 2.0 * 8 * static_cast<double>(kept) * (64 + 48));
  EXPECT_DOUBLE_EQ(plan["flops_full"].get<double>(), 2.0 * 8 * 150 * 200 * (64 + 48));
  std::vector<int> covered(size_t{2} * 4 * 150);
  for (const json& tile : plan["tiles"]) {
    EXPECT_LT(tile["worker"].get<int>(), 3);
    for (int64_t head = tile["head_begin"]; head < tile["head_end"]; ++head) {
      for (int64_t row = tile["row_begin"]; row < tile["row_end"]; ++row) {
        ++covered[static_cast<size_t>((tile["batch"].get<int64_t>() * 4 + head) * 150 + row)];
        EXPECT_LE(tile["key_begin"].get<int64_t>(), 0);
        EXPECT_GE(tile["key_end"].get<int64_t>(), row + 51);
      }
    }
  }
  for (const int count : covered) ASSERT_EQ(count, 1);
}

TEST(CliPlan, EveryOperatorIsACommandOfRunAndPlan) {
  const std::string run = RunCli("run --help").out, plan = RunCli("plan --help").out;
  for (const char* name : kOperatorNames) {
    const auto command = ::testing::ContainsRegex("\n  " + std::string(name) + " ");
    EXPECT_THAT(run, command);
    EXPECT_THAT(plan, command);
  }
}

TEST(CliPlan, AMergeIsCutIntoRows) {
  const CliResult result = RunCli("plan merge --shape 2,4,3000,64 --dtype f16 --threads 3 --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json plan = json::parse(result.out);
  EXPECT_EQ(plan["op"], "merge");
  EXPECT_EQ(plan["flops"], 3 * 2 * 4 * 3000 * 64);
  EXPECT_EQ(plan["kernels"], json::array({"merge_portable"}));
  EXPECT_GT(plan["tasks"], 3);
  const CliResult wrong = RunCli("plan merge --shape 2,4,3000");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--shape: 3 sizes, want B,N,S,D"));
}

TEST(CliPlan, WorkersMayExceedTheMachine) {
  const CliResult result = RunCli("plan forward --shape 1,8,8,4096,4096,128 --causal --threads 128 --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json plan = json::parse(result.out);
  EXPECT_EQ(plan["load"].size(), 128U);
  EXPECT_GT(plan["efficiency"].get<double>(), 0);
  EXPECT_LE(plan["efficiency"].get<double>(), 1);
}

TEST(CliPlan, CoresPlanForAnotherMachineOfAnyLevel) {
  struct Wanted {
    const char *isa, *kernel;
  };
  for (const auto& [isa, kernel] :
       {Wanted{"neon_bf16", "bf16_8x12_neon_bf16"}, Wanted{"neon", "f32_6x12_neon"},
        Wanted{"avx512_bf16", "bf16_8x48_avx512_bf16"}, Wanted{"avx512_amx", "bf16_32x32_avx512_amx_attend_tiles"},
        Wanted{"portable", "f32_6x8_portable"}}) {
    const CliResult result =
        RunCli(std::string("plan forward --shape 1,64,8,4096,4096,128 --dtype bf16 --cores 64 --json --isa ") + isa);
    ASSERT_EQ(result.exit_code, 0) << isa << ": " << result.err;
    const json plan = json::parse(result.out);
    EXPECT_EQ(plan["kernels"][0], kernel);
    EXPECT_EQ(plan["load"].size(), 64U);
  }
}

TEST(CliPlan, TheOtherMachinesNumbersAreChecked) {
  for (const char* flags : {"--cores -1", "--cores 100000", "--cores 4 --threads 2", "--cores x"}) {
    const CliResult result = RunCli(std::string("plan forward --shape 1,2,2,8,8,8 ") + flags);
    EXPECT_EQ(result.exit_code, 2) << flags;
    EXPECT_TRUE(result.HasOneLineOfError()) << result.err;
    EXPECT_THAT(result.err,
                HasSubstr(std::string(flags).find("threads") != std::string::npos ? "--threads" : "--cores"));
  }
}

TEST(CliPlan, TextSaysKernelsTilesAndLoad) {
  const CliResult result = RunCli("plan forward --shape 1,2,2,64,64,32");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("kernel"), HasSubstr("tile"), HasSubstr("worker")));
}

TEST(CliPlan, EveryLayoutAndTypeCanBePlanned) {
  for (const char* layout : {"BNSD", "BSND", "BSH", "SBH", "TND", "BNSD_BSND"}) {
    for (const char* dtype : {"f32", "f16", "bf16"}) {
      const CliResult result =
          RunCli(std::string("plan forward --shape 2,4,2,40,50,16 --json --layout ") + layout + " --dtype " + dtype);
      ASSERT_EQ(result.exit_code, 0) << layout << ' ' << dtype << ": " << result.err;
      EXPECT_DOUBLE_EQ(json::parse(result.out)["flops"].get<double>(), 2.0 * 2 * 4 * 40 * 50 * (16 + 16));
    }
  }
}

TEST(CliPlan, PictureShowsOneRectangleForEachTileAndSkipsTheRest) {
  const ScratchFolder scratch;
  const std::string svg_path = scratch.Path("plan.svg");
  const CliResult result =
      RunCli("plan forward --shape 1,2,2,512,512,64 --sparse-mode 2 --threads 4 --json --svg " + svg_path);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string svg = scratch.Read("plan.svg");
  EXPECT_THAT(svg, AllOf(HasSubstr("<svg xmlns"), HasSubstr("</svg>"), HasSubstr("keys j"), HasSubstr("rows i"),
                         HasSubstr("batch 0, head 1"), HasSubstr("Worker")));
  EXPECT_EQ(Occurrences(svg, "<title>rows"), json::parse(result.out)["tiles"].size());
  EXPECT_EQ(Occurrences(svg, "<text "), Occurrences(svg, "</text>"));
}

TEST(CliPlan, PicturesOfExtremeShapesAreDrawn) {
  const ScratchFolder scratch;
  for (const char* arguments : {"--shape 8,32,8,1,4096,128", "--shape 1,1,1,4096,1,8", "--shape 1,1,1,0,5,8",
                                "--shape 1,1,1,5,0,8", "--shape 1,1,1,2048,2048,64 --threads 100"}) {
    const CliResult result = RunCli(std::string("plan forward ") + arguments + " --svg " + scratch.Path("p.svg"));
    ASSERT_EQ(result.exit_code, 0) << arguments << ": " << result.err;
    const std::string svg = scratch.Read("p.svg");
    EXPECT_THAT(svg, HasSubstr("</svg>"));
    EXPECT_EQ(svg.find("nan"), std::string::npos) << arguments;
    EXPECT_EQ(svg.find("inf"), std::string::npos) << arguments;
  }
}

TEST(CliPlan, BadShapesNameTheFlagAndWriteNothing) {
  const ScratchFolder scratch;
  for (const char* shape : {"1,2,3", "1,2,2,3,4,x", "1,2,2,3,4,-8", "1,3,2,4,4,8", "1,2,2,3,4,5000",
                            "4294967296,4294967296,1,4294967296,1,8", "1,2,2,3,4,8,9,10"}) {
    const CliResult result =
        RunCli(std::string("plan forward --shape ") + shape + " --svg " + scratch.Path("plan.svg"));
    EXPECT_EQ(result.exit_code, 2) << shape;
    EXPECT_TRUE(result.HasOneLineOfError()) << shape;
    EXPECT_THAT(result.err, HasSubstr("--shape")) << shape;
    EXPECT_TRUE(scratch.Names().empty()) << shape;
  }
}

TEST(CliPlan, MaskMistakesNameTheMaskFlag) {
  const CliResult result = RunCli("plan forward --shape 1,2,2,8,8,8 --sparse-mode 4 --pre-tokens -5 --next-tokens -5");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--pre-tokens"));
}

TEST(CliInfo, TextAndJsonAgree) {
  const CliResult text = RunCli("info --threads 3 --isa portable"),
                  as_json = RunCli("info --json --threads 3 --isa portable");
  ASSERT_EQ(text.exit_code, 0);
  ASSERT_EQ(as_json.exit_code, 0);
  const json info = json::parse(as_json.out);
  EXPECT_EQ(info["version"], FA_VERSION_STRING);
  EXPECT_EQ(info["isa"], "portable");
  EXPECT_EQ(info["isa_detected"], Name(DetectIsa()));
  EXPECT_EQ(info["isa_not_built"], json::array());  // all levels are built, because builds with tests have every level
  EXPECT_EQ(info["isa_note"], "");                  // the level is right for this CPU, so there is no note
  EXPECT_EQ(info["isa_forced"], "portable");
  EXPECT_EQ(info["threads"], 3);
  EXPECT_GE(info["numa_nodes"].get<int>(), 1);
  for (const char* name : {"oneTBB", "hwloc", "OpenBLAS", "fmt", "CLI11", "nlohmann-json"}) {
    EXPECT_NE(info["dependencies"][name], "not loaded") << name;
    EXPECT_THAT(text.out, HasSubstr(name));
  }
  EXPECT_THAT(text.out, HasSubstr("portable"));
}

TEST(CliInfo, EnvironmentForcesALevel) {
  EXPECT_EQ(json::parse(RunCli("info --json", "FA_FORCE_ISA=portable").out)["isa"], "portable");
  const CliResult result = RunCli("info", "FA_FORCE_ISA=mmx");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("FA_FORCE_ISA"));
}

}  // namespace
}  // namespace fa::test
