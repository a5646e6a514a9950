#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "npy/npy_file.h"
#include "tools/cli_run.h"
#include "tools/forward_call.h"

namespace fa::test {
namespace {

using npy::ElementType;
using reference::Format;
using reference::Problem;

TEST(CliForward, EveryLayoutGivesTheReference) {
  for (const char* layout : {"BNSD", "BSND", "BSH", "SBH", "BNSD_BSND"}) {
    ForwardCall call(layout, SmallProblem());
    EXPECT_TRUE(call.Matches()) << layout;
  }
}

TEST(CliForward, PackedSequencesGiveTheReference) {
  Problem problem = SmallProblem();
  problem.lengths = {.sq = {3, 0, 17, 9}, .sk = {5, 4, 12, 30}};
  ForwardCall call("TND", problem);
  EXPECT_TRUE(call.Matches());
}

TEST(CliForward, HalfTypesAreKnownFromFileAndFlag) {
  for (const Format format : {Format::kF16, Format::kBF16}) {
    ForwardCall call("BNSD", SmallProblem(), format);
    EXPECT_TRUE(call.Matches());
  }
}

TEST(CliForward, ScaleReplacesTheDefault) {
  ForwardCall call("BNSD", SmallProblem());
  call.problem.scale = -0.25;
  call.flags += " --scale -0.25";
  EXPECT_TRUE(call.Matches());
}

TEST(CliForward, SplitHeads) {
  Problem problem = SmallProblem();
  problem.d_rope = 8;
  ForwardCall call("BSND", problem);
  EXPECT_TRUE(call.Matches());
}

TEST(CliForward, Softcap) {
  ForwardCall call("BNSD", SmallProblem());
  call.problem.softcap = 0.5;
  call.flags += " --softcap 0.5";
  EXPECT_TRUE(call.Matches());
}

TEST(CliForward, Sinks) {
  ForwardCall call("BNSD", SmallProblem());
  const std::vector<float> sink = {0.5F, -1, 3, 0};
  call.problem.sink = {sink.begin(), sink.end()};
  call.AddFile("--sink", ArrayOf(ElementType::kF32, {4}, sink));
  EXPECT_TRUE(call.Matches());
}

TEST(CliForward, PositionBiasOfTypes0And1) {
  for (const int type : {0, 1}) {
    ForwardCall call("BNSD", SmallProblem());
    const std::vector<float> pse = RandomFloats(size_t{2} * 4 * 19 * 33, 7);
    call.problem.pse_type = static_cast<reference::PseType>(type);
    call.problem.pse = {
        .values = {pse.begin(), pse.end()}, .offset = {0, 4 * 19 * 33}, .head = {19 * 33, 19 * 33}, .row = {33, 33}};
    call.AddFile("--pse", ArrayOf(ElementType::kF32, {2, 4, 19, 33}, pse));
    if (type == 0) call.flags += " --pse-type 0";  // without the flag, the type is 1
    EXPECT_TRUE(call.Matches()) << "type " << type;
  }
}

TEST(CliForward, SlopesOfTypes2And3) {
  for (const int type : {2, 3}) {
    ForwardCall call("BNSD", SmallProblem());
    const std::vector<float> slopes = {0.5F, 0.25F, 0.125F, -0.5F};
    call.problem.pse_type = static_cast<reference::PseType>(type);
    call.problem.slopes = {slopes.begin(), slopes.end()};
    call.problem.slopes.insert(call.problem.slopes.end(), slopes.begin(), slopes.end());
    call.problem.q_start = 3;
    call.problem.kv_start = -2;
    call.AddFile("--pse", ArrayOf(ElementType::kF32, {4}, slopes));
    call.flags += " --pse-type " + std::to_string(type) + " --q-start 3 --kv-start -2";
    EXPECT_TRUE(call.Matches()) << "type " << type;
  }
}

TEST(CliForward, DropoutByMask) {
  ForwardCall call("BNSD", SmallProblem());
  std::mt19937_64 random(5);
  std::vector<uint8_t> bits(size_t{2} * 4 * 19 * 33 / 8 + 1);
  for (uint8_t& byte : bits) byte = static_cast<uint8_t>(random());
  call.problem.drop_bits = bits;
  call.problem.keep_prob = 0.5;
  call.AddFile("--drop-mask", ArrayOf(ElementType::kU8, {static_cast<int64_t>(bits.size())}, bits));
  call.flags += " --keep-prob 0.5";
  EXPECT_TRUE(call.Matches());
}

TEST(CliForward, DropoutBySeedAndOffset) {
  ForwardCall call("BNSD", SmallProblem());
  call.problem.seed = reference::Seed{.seed = 18446744073709551615U, .offset = 9};
  call.problem.keep_prob = 0.75;
  call.flags += " --seed 18446744073709551615 --offset 9 --keep-prob 0.75";
  EXPECT_TRUE(call.Matches());
}

TEST(CliForward, FortranOrderGivesTheSameBits) {
  ForwardCall call("BNSD", SmallProblem());
  ASSERT_EQ(call.Run().exit_code, 0);
  const std::string row_major = call.OutBytes();
  // The file holds the same query in column-major order.
  const npy::Array query = call.InLayout(call.problem.q, 4, {19, 19}, 24);
  std::string file("\x93NUMPY\x01\x00", 8);
  const std::string dictionary = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 4, 19, 24), }\n";
  file += static_cast<char>(dictionary.size());
  file += '\0' + dictionary;
  for (int64_t n = 0; n < query.size(); ++n) {
    const int64_t b = n % 2, h = n / 2 % 4, i = n / 8 % 19, d = n / 152;
    const float value = query.as<float>()[static_cast<size_t>(((b * 4 + h) * 19 + i) * 24 + d)];
    file.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  const std::string path = call.scratch().Write("fortran.npy", file);
  const size_t at = call.flags.find("--query ");
  call.flags.replace(at, call.flags.find(".npy", at) + 4 - at, "--query " + path);
  ASSERT_EQ(call.Run().exit_code, 0);
  EXPECT_EQ(call.OutBytes(), row_major);
}

TEST(CliForward, ThreadsNeverChangeABit) {
  ForwardCall call("BSND", SmallProblem());
  const std::string flags = call.flags + " --causal";
  std::string first;
  for (const char* threads : {"1", "2", "3", "8"}) {
    call.flags = flags + " --threads " + threads;
    ASSERT_EQ(call.Run().exit_code, 0);
    if (first.empty()) first = call.OutBytes();
    EXPECT_EQ(call.OutBytes(), first) << threads << " threads";
  }
}

TEST(CliForward, ForcedLevelsAndAccumulationModes) {
  for (const char* flags : {"--isa portable", "--accumulation atomic-free", "--accumulation deterministic"}) {
    ForwardCall call("BNSD", SmallProblem());
    call.flags += std::string(" ") + flags;
    EXPECT_TRUE(call.Matches()) << flags;
  }
}

TEST(CliForward, EmptyTensorsAreFine) {
  Problem problem = SmallProblem();
  problem.lengths = {.sq = {5}, .sk = {0}};
  ForwardCall no_keys("BNSD", problem);
  EXPECT_TRUE(no_keys.Matches());
  problem.lengths = {.sq = {0}, .sk = {5}};
  ForwardCall no_queries("BNSD", problem);
  EXPECT_TRUE(no_queries.Matches());
}

TEST(CliForward, WritesOnlyWhatItIsAskedFor) {
  ForwardCall call("BNSD", SmallProblem());
  const size_t before = call.scratch().Names().size();
  const CliResult result = RunCli("run forward" + call.flags + " --out " + call.scratch().Path("o.npy"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(call.scratch().Names().size(), before + 1);
}

TEST(CliForward, OverwritesAnOutputAndFollowsItsLink) {
  ForwardCall call("BNSD", SmallProblem());
  ASSERT_EQ(call.Run().exit_code, 0);
  const std::string want = call.OutBytes();
  const std::string target = call.scratch().Write("target.npy", "old");
  ASSERT_EQ(symlink("target.npy", call.scratch().Path("link.npy").c_str()), 0);
  EXPECT_EQ(RunCli("run forward" + call.flags + " --out " + call.scratch().Path("link.npy")).exit_code, 0);
  EXPECT_EQ(call.scratch().Read("target.npy"), want);
}

TEST(CliForward, WritesToADeviceInPlace) {
  ForwardCall call("BNSD", SmallProblem());
  EXPECT_EQ(RunCli("run forward" + call.flags + " --out /dev/null").exit_code, 0);
  struct stat facts {};
  ASSERT_EQ(stat("/dev/null", &facts), 0);
  EXPECT_TRUE(S_ISCHR(facts.st_mode));
}

}  // namespace
}  // namespace fa::test
