#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "npy/npy_file.h"
#include "tools/backward_call.h"
#include "tools/cli_run.h"

namespace fa::test {
namespace {

using nlohmann::json;
using npy::ElementType;
using reference::Format;
using reference::Problem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CliBackward, EveryLayoutGivesTheReference) {
  for (const char* layout : {"BNSD", "BSND", "BSH", "SBH", "BNSD_BSND"}) {
    BackwardCall call(layout, SmallProblem());
    EXPECT_TRUE(call.Matches()) << layout;
  }
}

TEST(CliBackward, PackedSequencesGiveTheReference) {
  Problem problem = SmallProblem();
  problem.lengths = {.sq = {3, 0, 17, 9}, .sk = {5, 4, 12, 30}};
  BackwardCall call("TND", problem);
  EXPECT_TRUE(call.Matches());
}

TEST(CliBackward, HalfTypesAreKnownFromFileAndFlag) {
  for (const Format format : {Format::kF16, Format::kBF16}) {
    BackwardCall call("BNSD", SmallProblem(), format);
    EXPECT_TRUE(call.Matches());
  }
}

TEST(CliBackward, SplitHeadsHaveGradientsOfTheirOwn) {
  Problem problem = SmallProblem();
  problem.d_rope = 8;
  BackwardCall call("BSND", problem);
  EXPECT_TRUE(call.Matches());
}

TEST(CliBackward, ScaleMaskSoftcapAndDropoutAreThoseOfTheForward) {
  BackwardCall call("BNSD", SmallProblem());
  call.forward.problem.scale = -0.25;
  call.forward.problem.softcap = 0.5;
  call.forward.problem.mask = {.mode = 3};
  call.forward.problem.seed = reference::Seed{.seed = 12345, .offset = 9};
  call.forward.problem.keep_prob = 0.75;
  call.forward.flags += " --scale -0.25 --softcap 0.5 --causal --seed 12345 --offset 9 --keep-prob 0.75";
  EXPECT_TRUE(call.Matches());
}

TEST(CliBackward, GradientOfPositionBias) {
  for (const int type : {0, 1}) {
    BackwardCall call("BNSD", SmallProblem());
    const std::vector<float> pse = RandomFloats(size_t{2} * 4 * 19 * 33, 7);
    call.forward.problem.pse_type = static_cast<reference::PseType>(type);
    call.forward.problem.pse = {
        .values = {pse.begin(), pse.end()}, .offset = {0, 4 * 19 * 33}, .head = {19 * 33, 19 * 33}, .row = {33, 33}};
    call.forward.AddFile("--pse", ArrayOf(ElementType::kF32, {2, 4, 19, 33}, pse));
    call.forward.flags += " --pse-type " + std::to_string(type);
    call.Want("--dpse");
    EXPECT_TRUE(call.Matches()) << "type " << type;
  }
}

TEST(CliBackward, GradientOfSlopes) {
  for (const int type : {2, 3}) {
    BackwardCall call("BNSD", SmallProblem());
    const std::vector<float> slopes = {0.5F, 0.25F, 0.125F, -0.5F, 0.1F, 0.2F, 0.3F, 0.4F};
    call.forward.problem.pse_type = static_cast<reference::PseType>(type);
    call.forward.problem.slopes = {slopes.begin(), slopes.end()};
    call.forward.AddFile("--pse", ArrayOf(ElementType::kF32, {2, 4}, slopes));
    call.forward.flags += " --pse-type " + std::to_string(type);
    call.Want("--dslopes");
    EXPECT_TRUE(call.Matches()) << "type " << type;
  }
}

TEST(CliBackward, GradientOfSinks) {
  BackwardCall call("BNSD", SmallProblem());
  const std::vector<float> sink = {0.5F, -1, 3, 0};
  call.forward.problem.sink = {sink.begin(), sink.end()};
  call.forward.AddFile("--sink", ArrayOf(ElementType::kF32, {4}, sink));
  call.Want("--dsink");
  EXPECT_TRUE(call.Matches());
}

TEST(CliBackward, StatisticsInTheShapesOfTheDeviceGiveTheSameBits) {
  BackwardCall call("BNSD", SmallProblem());
  ASSERT_EQ(call.RunForward().exit_code, 0);
  ASSERT_EQ(call.RunBackward().exit_code, 0);
  const std::string dq = call.BytesOf("--dq"), dk = call.BytesOf("--dk");
  for (const char* name : {"max.npy", "sum.npy"}) {
    const std::string path = call.forward.scratch().Path(name);
    const npy::Array once = npy::Load(path);
    npy::Array eightfold(ElementType::kF32, {2, 4, 19, 8});
    for (size_t i = 0; i < static_cast<size_t>(eightfold.size()); ++i) {
      eightfold.as<float>()[i] = once.as<float>()[i / 8];
    }
    npy::Save(path, eightfold);
  }
  const CliResult result = call.RunBackward();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(call.BytesOf("--dq"), dq);
  EXPECT_EQ(call.BytesOf("--dk"), dk);
}

TEST(CliBackward, BitsDoNotDependOnThreads) {
  Problem problem = SmallProblem();
  problem.lengths = {.sq = {300, 300}, .sk = {300, 300}};
  BackwardCall call("BNSD", problem);
  ASSERT_EQ(call.RunForward().exit_code, 0);
  ASSERT_EQ(call.RunBackward(" --threads 1").exit_code, 0);
  const std::string dq = call.BytesOf("--dq"), dk = call.BytesOf("--dk"), dv = call.BytesOf("--dv");
  for (const char* threads : {"2", "3"}) {
    ASSERT_EQ(call.RunBackward(std::string(" --threads ") + threads).exit_code, 0);
    EXPECT_EQ(call.BytesOf("--dq"), dq);
    EXPECT_EQ(call.BytesOf("--dk"), dk);
    EXPECT_EQ(call.BytesOf("--dv"), dv);
  }
}

/// Expects exit code 2, one line of error that names the flag, and no file of a gradient.
void ExpectRefused(const BackwardCall& call, const std::string& more, const std::string& flag) {
  const size_t before = call.forward.scratch().Names().size();
  const CliResult result = call.RunBackward(more);
  EXPECT_EQ(result.exit_code, 2) << flag << more;
  EXPECT_TRUE(result.HasOneLineOfError()) << result.err;
  EXPECT_THAT(result.err, HasSubstr(flag)) << more;
  EXPECT_EQ(call.forward.scratch().Names().size(), before) << flag << more;
}

TEST(CliBackward, GradientsOfWhatIsNotThereAreRefused) {
  BackwardCall call("BNSD", SmallProblem());
  ASSERT_EQ(call.RunForward().exit_code, 0);
  for (const char* flag : {"--dpse", "--dslopes", "--dsink", "--dq-rope", "--dk-rope"}) {
    ExpectRefused(call, std::string(" ") + flag + " " + call.PathOf(flag), flag);
  }
}

TEST(CliBackward, InputsOfTheWrongShapeOrTypeAreNamed) {
  BackwardCall call("BNSD", SmallProblem());
  ASSERT_EQ(call.RunForward().exit_code, 0);
  const auto file = [&](const std::string& name, ElementType type, std::vector<int64_t> shape) {
    npy::Array array(type, std::move(shape));
    std::fill_n(array.bytes(), array.size_bytes(), std::byte{0});
    npy::Save(call.forward.scratch().Path(name), array);
  };
  file("--dout.npy", ElementType::kF32, {2, 4, 19, 17});
  ExpectRefused(call, "", "--dout");
  file("--dout.npy", ElementType::kF16, {2, 4, 19, 16});
  ExpectRefused(call, "", "--dout");
  file("--dout.npy", ElementType::kF32, {2, 4, 19, 16});
  file("max.npy", ElementType::kF32, {2, 4, 18});
  ExpectRefused(call, "", "--softmax-max");
  file("max.npy", ElementType::kF32, {2, 4, 19});
  file("sum.npy", ElementType::kF16, {2, 4, 19});
  ExpectRefused(call, "", "--softmax-sum");
}

TEST(CliBackward, MissingRopeGradientIsNamed) {
  Problem problem = SmallProblem();
  problem.d_rope = 8;
  BackwardCall call("BNSD", problem);
  ASSERT_EQ(call.RunForward().exit_code, 0);
  call.outputs = " --dq " + call.PathOf("--dq") + " --dk " + call.PathOf("--dk") + " --dv " + call.PathOf("--dv");
  ExpectRefused(call, "", "--dq-rope");
}

TEST(CliPlanBackward, JsonTilesCoverEveryKeptPairOnce) {
  const CliResult result = RunCli("plan backward --shape 2,4,2,150,200,64,48 --causal --threads 3 --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json plan = json::parse(result.out);
  EXPECT_EQ(plan["op"], "backward");
  EXPECT_EQ(plan["workers"], 3);
  int64_t kept = 0;
  for (int64_t i = 0; i < 150; ++i) kept += i + 51;
  // FLOPs count five matrix products: three with D columns and two with Dv columns.
  EXPECT_DOUBLE_EQ(plan["flops"].get<double>(), 2.0 * 8 * static_cast<double>(kept) * (3 * 64 + 2 * 48));
  std::vector<int> covered(size_t{2} * 4 * 150 * 200);
  for (const json& tile : plan["tiles"]) {
    for (int64_t head = tile["head_begin"]; head < tile["head_end"]; ++head) {
      for (int64_t row = tile["row_begin"]; row < tile["row_end"]; ++row) {
        for (int64_t key = tile["key_begin"]; key < tile["key_end"]; ++key) {
          ++covered[static_cast<size_t>(((tile["batch"].get<int64_t>() * 4 + head) * 150 + row) * 200 + key)];
        }
      }
    }
  }
  for (size_t pair = 0; pair < covered.size(); ++pair) {
    const size_t row = pair / 200 % 150, key = pair % 200;
    ASSERT_LE(covered[pair], 1) << "row " << row << ", key " << key;
    if (key <= row + 50) {
      ASSERT_EQ(covered[pair], 1) << "row " << row << ", key " << key;
    }
  }
}

TEST(CliPlanBackward, TextAndPictureOfMoreWorkersThanTheMachineHas) {
  const ScratchFolder scratch;
  const CliResult result = RunCli(
      "plan backward --shape 1,8,8,2048,2048,128 --layout TND --dtype bf16 --causal "
      "--threads 64 --svg " +
      scratch.Path("plan.svg"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("backward"), HasSubstr("tile"), HasSubstr("worker 63")));
  EXPECT_THAT(scratch.Read("plan.svg"), AllOf(HasSubstr("</svg>"), HasSubstr("backward 1,8,8"), HasSubstr("head 1")));
}

TEST(CliPlanBackward, PicturesOfExtremeShapesAreDrawn) {
  const ScratchFolder scratch;
  for (const char* shape : {"8,32,8,1,4096,128", "1,1,1,4096,1,8", "1,1,1,0,5,8", "1,1,1,5,0,8"}) {
    const CliResult result = RunCli(std::string("plan backward --shape ") + shape + " --svg " + scratch.Path("p.svg"));
    ASSERT_EQ(result.exit_code, 0) << shape << ": " << result.err;
    const std::string svg = scratch.Read("p.svg");
    EXPECT_THAT(svg, HasSubstr("</svg>")) << shape;
    EXPECT_EQ(svg.find("nan"), std::string::npos) << shape;
  }
}

TEST(CliBackward, EmptySequencesGiveEmptyAndZeroGradients) {
  Problem problem = SmallProblem();
  problem.lengths = {.sq = {5, 5}, .sk = {0, 0}};
  BackwardCall call("BNSD", problem);
  ASSERT_EQ(call.RunForward().exit_code, 0);
  const CliResult result = call.RunBackward();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const npy::Array dq = npy::Load(call.PathOf("--dq"));
  ASSERT_EQ(dq.size(), 2 * 4 * 5 * 24);
  for (const float value : dq.as<float>()) EXPECT_EQ(value, 0);
  EXPECT_EQ(npy::Load(call.PathOf("--dk")).size(), 0);
}

TEST(CliBenchBackward, JsonHasTheKeysOfTheForward) {
  const char* flags = " --shape 1,2,1,96,128,32,16 --dtype bf16 --layout BSND --causal --threads 1 --json";
  const CliResult result = RunShortBench(std::string("backward") + flags);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json bench = json::parse(result.out), forward = json::parse(RunShortBench(std::string("forward") + flags).out);
  for (const auto& [key, value] : forward.items()) EXPECT_TRUE(bench.contains(key)) << key;
  EXPECT_EQ(bench.size(), forward.size());
  EXPECT_EQ(bench["op"], "backward");
  EXPECT_DOUBLE_EQ(bench["flops"].get<double>(), 2.0 * 2 * (96 * 33 + 96 * 95 / 2) * (3 * 32 + 2 * 16));
  const double best = bench["seconds"]["best"];
  // The bytes count q, dq, k, dk, v, dv, out and out's gradient in bf16, and two f32 statistics.
  const double bytes = 2.0 * 2 * (2 * 96 * 32 + 128 * 32 + 128 * 16 + 2 * 96 * 16) + 2.0 * 4 * 2 * 96;
  EXPECT_DOUBLE_EQ(bench["bytes_per_second"].get<double>(), bytes / best);
}

TEST(CliBenchBackward, ChecksEveryLayoutAndMaskBeforeTiming) {
  // If a checked row were wrong, the exit code would be 1.
  for (const char* flags : {"--layout SBH --sparse-mode 4 --pre-tokens 20 --next-tokens 3",
                            "--layout TND --dtype f16 --sparse-mode 7 --pre-tokens 70 --next-tokens -2",
                            "--layout BNSD_BSND --sparse-mode 5 --prefix 50,60 --isa portable"}) {
    const CliResult result = RunShortBench(std::string("backward --shape 2,4,2,40,70,24 ") + flags);
    EXPECT_EQ(result.exit_code, 0) << flags << ": " << result.err;
    EXPECT_THAT(result.out, HasSubstr("GFLOP/s")) << flags;
  }
}

TEST(CliBenchBackward, BadArgumentsNameTheFlag) {
  for (const auto& [flags, named] : std::vector<std::pair<std::string, std::string>>{
           {"bench backward --shape 1,2,2,8,8,16 --dtype int8", "--dtype"},
           {"bench backward --shape 1,2,2,8,8", "--shape"},
           {"bench backward --shape 1,3,2,8,8,16", "--shape"},
           {"plan backward --shape 1,3,2,8,8,16", "--shape"},
           {"plan backward --shape 1,2,2,8,8,16 --pre-tokens 4", "--pre-tokens"}}) {
    const CliResult result = RunCli(flags);
    EXPECT_EQ(result.exit_code, 2) << flags;
    EXPECT_TRUE(result.HasOneLineOfError()) << flags;
    EXPECT_THAT(result.err, HasSubstr(named)) << flags;
    EXPECT_EQ(result.out, "") << flags;
  }
}

}  // namespace
}  // namespace fa::test
