// Under mpirun, fa-mpi writes the same files as fa, prints an error only once, and leaves no rank waiting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "npy/npy_file.h"
#include "tools/backward_call.h"
#include "tools/cli_mpi_run.h"
#include "tools/cli_run.h"
#include "tools/forward_call.h"
#include "tools/json_schema.h"

namespace fa::test {
namespace {

using reference::Format;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CliResult RunRanks(int ranks, const std::string& arguments) {
  return RunCommand(MpiCommand(ranks), arguments, kRanksEnvironment);
}

struct RankCase {
  const char* name;
  const char* layout;
  reference::Problem problem;
  std::string flags;  ///< the flags of the call itself
  int ranks;
  std::string cut;  ///< flags that divide the call among the ranks
  Format format = Format::kF32;
};

class FilesOfRanks : public ::testing::TestWithParam<RankCase> {};

TEST_P(FilesOfRanks, AreThoseOfOneProcess) {
  const RankCase& c = GetParam();
  const ForwardCall call(c.layout, c.problem, c.format);
  const std::vector<std::string> outputs = {"out", "softmax-max", "softmax-sum", "lse"};
  const auto flags = [&](const std::string& folder) {
    std::string text = "run forward" + call.flags + " " + c.flags;
    for (const std::string& output : outputs) {
      text += " --" + output + " '" + call.scratch().Path(folder + "_" + output + ".npy") + "'";
    }
    return text;
  };
  const CliResult one = RunCli(flags("one"), "FA_NUM_THREADS=1");
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const CliResult many = RunRanks(c.ranks, flags("many") + " " + c.cut);
  ASSERT_EQ(many.exit_code, 0) << many.err;
  for (const std::string& output : outputs) {
    const std::string want = call.scratch().Read("one_" + output + ".npy");
    EXPECT_GT(want.size(), 128U);
    EXPECT_TRUE(call.scratch().Read("many_" + output + ".npy") == want) << output;
  }
  for (const std::string& name : call.scratch().Names()) EXPECT_EQ(name.find(".part"), std::string::npos) << name;
}

reference::Problem Sizes(std::vector<int64_t> sq, std::vector<int64_t> sk) {
  return {.heads = 4, .heads_kv = 2, .d = 16, .dv = 24, .lengths = {.sq = std::move(sq), .sk = std::move(sk)}};
}

INSTANTIATE_TEST_SUITE_P(
    Calls, FilesOfRanks,
    ::testing::Values(
        RankCase{"OneRank", "BNSD", Sizes({300}, {300}), "--causal", 1, ""},
        RankCase{"ZigzagCausal", "BNSD", Sizes({700, 700}, {700, 700}), "--causal", 2, "--strategy sequence"},
        RankCase{"ContiguousBf16", "BSND", Sizes({520}, {520}), "", 3, "--cut contiguous", Format::kBF16},
        RankCase{"IntervalsOfHeads", "SBH", Sizes({400, 400}, {400, 400}),
                 "--sparse-mode 4 --pre-tokens 90 --next-tokens 5", 4,
                 "--cut 128,256::0,128,384,400:256,384 --strategy heads --heads-in-flight 2"},
        RankCase{"Packed", "TND", Sizes({200, 1, 330}, {200, 90, 300}), "--causal --seed 3 --keep-prob 0.75", 3, ""},
        RankCase{"FewRows", "BNSD_BSND", Sizes({60}, {900}), "--softcap 5", 2, ""}),
    [](const auto& info) { return std::string(info.param.name); });

reference::Problem EqualHeads(std::vector<int64_t> sq, std::vector<int64_t> sk) {
  reference::Problem problem = Sizes(std::move(sq), std::move(sk));
  problem.heads_kv = problem.heads;
  return problem;
}

/// Returns calls for tests of the forward and of the backward, with up to 8 ranks, which may be more than this machine
/// has cores. The calls differ in mask, layout, type and in how they divide the rows among the ranks.
std::vector<RankCase> ManyRanks() {
  return {
      {"FourOfEqualHeads", "BNSD", EqualHeads({500}, {500}), "", 4, "--strategy heads", Format::kBF16},
      {"SixZigzagCausal", "BSH", EqualHeads({1600}, {1600}), "--causal", 6, "--strategy sequence"},
      {"SixContiguousPrefixBf16", "BNSD", Sizes({900, 900}, {900, 900}), "--sparse-mode 5 --prefix 300,700", 6,
       "--cut contiguous", Format::kBF16},
      {"EightZigzagBandBf16", "SBH", Sizes({2100}, {2100}), "--sparse-mode 4 --pre-tokens 500 --next-tokens 40", 8,
       "--strategy sequence", Format::kBF16},
      {"EightContiguousFull", "BSND", EqualHeads({1100}, {1100}), "--seed 5 --keep-prob 0.9", 8,
       "--cut contiguous --strategy sequence"},
      {"EightPacked", "TND", Sizes({700, 1, 630}, {700, 90, 600}), "--causal", 8, ""},
      {"EightPackedBf16", "TND", Sizes({701, 34, 630}, {700, 90, 600}), "--causal", 8, "--strategy sequence",
       Format::kBF16},
  };
}

INSTANTIATE_TEST_SUITE_P(ManyRanks, FilesOfRanks, ::testing::ValuesIn(ManyRanks()),
                         [](const auto& info) { return std::string(info.param.name); });

struct BiasedCall {
  const char* name;
  const char* layout;
  reference::Problem problem;
  std::vector<int64_t> bias, mask;  ///< shapes of both tensors; if a shape is empty, the call lacks the tensor
  std::string flags = {};           ///< the flags of the call itself
  bool gradient = true;             ///< whether the bias has a gradient
};

class RowsOfFiles : public ::testing::TestWithParam<BiasedCall> {};

/// Each rank reads its own query rows of --pse and --atten-mask, and writes its own rows of --dpse. If --pse has one
/// row for all queries, all ranks read this row, and one rank writes the row of --dpse.
TEST_P(RowsOfFiles, OfBiasAndMaskMakeTheFilesOfOneProcess) {
  ForwardCall call(GetParam().layout, GetParam().problem);
  call.flags += " " + GetParam().flags;
  npy::Array bias(npy::ElementType::kF32, GetParam().bias), mask(npy::ElementType::kU8, GetParam().mask);
  uint32_t state = 1;
  const auto draw = [&state] { return (state = state * 1664525 + 1013904223) >> 16; };
  for (float& x : bias.as<float>()) x = static_cast<float>(draw()) / 65536.0f;
  for (uint8_t& dropped : mask.as<uint8_t>()) dropped = draw() % 3 == 0;
  call.AddFile("--pse", bias);
  if (!GetParam().mask.empty()) call.AddFile("--atten-mask", mask);
  const auto file = [&](const std::string& name) { return " '" + call.scratch().Path(name + ".npy") + "'"; };
  const auto outputs = [&](const std::string& folder, const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += " --" + name + file(folder + "_" + name);
    return text;
  };
  const std::vector<std::string> results = {"out", "softmax-max", "softmax-sum"};
  std::vector<std::string> gradients = {"dq", "dk", "dv"};
  if (GetParam().gradient) gradients.emplace_back("dpse");
  const std::string backward = "run backward" + call.flags + outputs("one", results) + " --dout" + file("one_out");
  for (const auto& [command, names] : {std::pair{"run forward" + call.flags, results}, {backward, gradients}}) {
    const CliResult one = RunCli(command + outputs("one", names), "FA_NUM_THREADS=1");
    ASSERT_EQ(one.exit_code, 0) << one.err;
    const CliResult many = RunRanks(2, command + outputs("many", names));
    ASSERT_EQ(many.exit_code, 0) << many.err;
    for (const std::string& name : names) {
      const std::string want = call.scratch().Read("one_" + name + ".npy");
      EXPECT_GT(want.size(), 128U);
      EXPECT_TRUE(call.scratch().Read("many_" + name + ".npy") == want) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Calls, RowsOfFiles,
    ::testing::Values(
        BiasedCall{"Rows", "BSND", Sizes({300}, {260}), {1, 4, 300, 260}, {1, 4, 300, 260}},
        BiasedCall{"PackedRows", "TND", Sizes({200, 130}, {90, 170}), {4 * (200 * 90 + 130 * 170)}, {200, 170}},
        BiasedCall{"OneRow", "BNSD", Sizes({300, 300}, {260, 260}), {1, 4, 1, 260}, {}},
        BiasedCall{"PackedOneRow", "TND", Sizes({200, 130}, {90, 170}), {4 * (90 + 170)}, {200, 170}},
        BiasedCall{"Compressed", "BNSD", Sizes({1200}, {1200}), {1, 4, 1024, 1200}, {}, "--causal", false},
        BiasedCall{
            "PackedCompressed", "TND", Sizes({300, 1100}, {300, 1100}), {1, 4, 1024, 1100}, {}, "--causal", false}),
    [](const auto& info) { return std::string(info.param.name); });

class GradientFilesOfRanks : public ::testing::TestWithParam<RankCase> {};

TEST_P(GradientFilesOfRanks, AreThoseOfOneProcess) {
  const RankCase& c = GetParam();
  BackwardCall call(c.layout, c.problem, c.format);
  call.forward.flags += " " + c.flags;
  call.forward.AddFile("--sink", ArrayOf<float>(npy::ElementType::kF32, {c.problem.heads}, {0.5F, -1.0F, 0.0F, 2.0F}));
  ASSERT_EQ(call.RunForward().exit_code, 0);
  const std::vector<std::string> outputs = {"dq", "dk", "dv", "dsink"};
  const auto words = [&](const std::string& folder) {
    std::string text = call.InputWords();
    for (const std::string& output : outputs) {
      text += " --" + output + " '" + call.forward.scratch().Path(folder + "_" + output + ".npy") + "'";
    }
    return text;
  };
  const CliResult one = RunCli(words("one"), "FA_NUM_THREADS=1");
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const CliResult many = RunRanks(c.ranks, words("many") + " " + c.cut);
  ASSERT_EQ(many.exit_code, 0) << many.err;
  for (const std::string& output : outputs) {
    const std::string want = call.forward.scratch().Read("one_" + output + ".npy");
    EXPECT_GT(want.size(), 128U);
    EXPECT_TRUE(call.forward.scratch().Read("many_" + output + ".npy") == want) << output;
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, GradientFilesOfRanks,
                         ::testing::Values(RankCase{"ZigzagCausal", "BNSD", Sizes({700, 700}, {700, 700}), "--causal",
                                                    2, "--strategy sequence"},
                                           RankCase{"ContiguousBf16", "BSND", Sizes({520}, {520}), "", 3,
                                                    "--cut contiguous", Format::kBF16},
                                           RankCase{"IntervalsOfHeads", "SBH", Sizes({400, 400}, {400, 400}),
                                                    "--sparse-mode 4 --pre-tokens 90 --next-tokens 5", 2,
                                                    "--cut 128,256:0,128,256,400 --strategy heads --heads-in-flight 2"},
                                           RankCase{"Packed", "TND", Sizes({200, 1, 330}, {200, 90, 300}),
                                                    "--causal --seed 3 --keep-prob 0.75", 3, ""}),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(ManyRanks, GradientFilesOfRanks, ::testing::ValuesIn(ManyRanks()),
                         [](const auto& info) { return std::string(info.param.name); });

/// A small forward call with --out. Its tests expect that the ranks refuse the call with one message and write no file.
class RanksRefuse : public ::testing::Test {
 protected:
  RanksRefuse() : call_("BNSD", Sizes({300}, {300})), before_(call_.scratch().Names()) {}

  /// Expects that the message is printed once and that nothing is written.
  void Expect(const CliResult& result, int exit_code, const std::string& message) const {
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_EQ(Occurrences(result.err, "fa-mpi: "), 1U) << result.err;
    EXPECT_THAT(result.err, HasSubstr("fa-mpi: " + message));
    EXPECT_EQ(call_.scratch().Names(), before_);
  }
  [[nodiscard]] std::string Run() const { return "run forward" + call_.flags + Out(); }
  [[nodiscard]] std::string Out() const { return " --out '" + call_.scratch().Path("out.npy") + "'"; }

  ForwardCall call_;
  std::vector<std::string> before_;
};

TEST_F(RanksRefuse, BadFlagsOnce) {
  Expect(RunRanks(3, Run() + " --frobnicate 3"), 2, "unknown option --frobnicate");
  Expect(RunRanks(2, Run() + " --strategy fast"), 2, "--strategy: 'fast'");
  Expect(RunRanks(2, Run() + " --softcap -1"), 2, "--softcap: -1");
  Expect(RunRanks(2, Run() + " --heads-in-flight -1"), 2, "--heads-in-flight: -1, want");
}

TEST_F(RanksRefuse, WrongCuts) {
  Expect(RunRanks(2, Run() + " --cut 0,100:100,299"), 2, "--cut: not held once: row 299");
  Expect(RunRanks(2, Run() + " --cut 0,100:100,200:200,300"), 2, "--cut: 3 lists, want 2");
  Expect(RunRanks(2, Run() + " --cut 0,100,200:100,200"), 2, "--cut: 3 numbers for rank 0");
}

TEST_F(RanksRefuse, FilesThatAreNotThere) {
  Expect(RunRanks(3, "run forward --layout BNSD --query no.npy --key no.npy --value no.npy" + Out()), 1,
         "--query: no.npy: ");
  Expect(RunRanks(3, "run forward" + call_.flags + " --out /no/such/folder/out.npy"), 1,
         "rank 0: --out: /no/such/folder/out.npy: ");
}

TEST_F(RanksRefuse, WhatRanksDoNotTake) {
  const std::string bits = call_.scratch().Path("bits.npy");
  npy::Save(bits, npy::Array(npy::ElementType::kU8, {4 * 300 * 300 / 8}));
  before_ = call_.scratch().Names();
  Expect(RunRanks(2, Run() + " --keep-prob 0.5 --drop-mask '" + bits + "'"), 2,
         "--drop-mask: not taken over ranks, want --seed");
  const std::string mask = call_.scratch().Path("mask.npy");
  npy::Save(mask, npy::Array(npy::ElementType::kU8, {300, 300}));
  before_ = call_.scratch().Names();
  Expect(RunRanks(2, Run() + " --strategy heads --atten-mask '" + mask + "'"), 2,
         "--strategy: heads, want auto or sequence: rows of --atten-mask stay with their rank");
  ASSERT_EQ(mkfifo(call_.scratch().Path("pipe").c_str(), 0600), 0);
  before_ = call_.scratch().Names();
  Expect(RunRanks(2, "run forward" + call_.flags + " --out '" + call_.scratch().Path("pipe") + "'"), 2,
         "rank 0: --out: " + call_.scratch().Path("pipe") + ": not a regular file");
}

TEST_F(RanksRefuse, CommandLinesThatDiffer) {
  const std::string one = std::string(FA_MPI_CLI) + " " + Run();
  const CliResult result =
      RunCommand(FA_MPIEXEC, "-n 1 " + one + " : -n 1 " + one + " --causal", std::string(kRanksEnvironment));
  Expect(result, 2, "rank 1: another command line than rank 0's");
}

/// If a process leaves before the call, MPI ends all other processes.
TEST(RanksThatLeave, BeforeTheCallLeaveNobodyWaiting) {
  const ForwardCall call("BNSD", Sizes({300}, {300}));
  const CliResult result = RunCommand(
      "timeout 60 " + MpiCommand(2),
      "run forward" + call.flags + " --out '" + call.scratch().Path("out.npy") + "' : -n 1 false", kRanksEnvironment);
  constexpr int kTimedOut = 124;
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.exit_code, kTimedOut);
  EXPECT_THAT(call.scratch().Names(), ::testing::Not(::testing::Contains("out.npy")));
}

/// Returns what the schema finds wrong in a result that fa-mpi bench has printed.
std::vector<std::string> SchemaErrors(const nlohmann::json& report) {
  return JsonSchema(nlohmann::json::parse(std::ifstream(FA_JSON_SCHEMA))).Errors("bench_ranks", report);
}

// The tests after this one run each of these commands.
TEST(RanksBench, TheCommandsWithJsonAreThoseOfTheSchema) {
  const nlohmann::json schema = nlohmann::json::parse(std::ifstream(FA_JSON_SCHEMA));
  const nlohmann::json operators = {"forward", "backward"};
  EXPECT_EQ(schema["$defs"]["bench_ranks"]["properties"]["op"]["enum"], operators);
  const CliResult script = RunCommand(FA_MPI_CLI, "completion bash", "");
  ASSERT_EQ(script.exit_code, 0) << script.err;
  EXPECT_EQ(Occurrences(script.out, "--json"), operators.size());
  for (const std::string op : operators)
    EXPECT_THAT(script.out, ContainsRegex("'bench " + op + "'\\) words='.*--json"));
}

TEST(RanksBench, ChecksAndReportsABackward) {
  const CliResult result =
      RunRanks(2, "bench backward --shape 1,4,2,512,512,32 --causal --dtype bf16 --seconds 0.05 --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json report = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaErrors(report), IsEmpty());
  EXPECT_EQ(report["op"], "backward");
  EXPECT_EQ(report["ranks"], 2);
  EXPECT_EQ(report["cut"], "zigzag");
  EXPECT_DOUBLE_EQ(report["flops"].get<double>(), 4 * (512.0 * 513 / 2) * 2 * (3 * 32 + 2 * 32));
  EXPECT_GT(report["seconds"]["best"].get<double>(), 0);
  EXPECT_GT(report["sent_bytes"].get<int64_t>(), 0);
}

TEST(RanksBench, ChecksAndReports) {
  const CliResult result =
      RunRanks(2, "bench forward --shape 1,2,2,512,512,32 --causal --seconds 0.05 --json --cut contiguous");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json report = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaErrors(report), IsEmpty());
  EXPECT_EQ(report["op"], "forward");
  EXPECT_EQ(report["ranks"], 2);
  EXPECT_EQ(report["cut"], "contiguous");
  EXPECT_DOUBLE_EQ(report["flops"].get<double>(), 2.0 * 2 * (512.0 * 513 / 2) * (32 + 32));
  EXPECT_GT(report["seconds"]["best"].get<double>(), 0);
}

}  // namespace
}  // namespace fa::test
