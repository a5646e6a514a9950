#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "fa/version.h"
#include "npy/npy_file.h"
#include "tools/cli_run.h"
#include "tools/forward_call.h"

namespace fa::test {
namespace {

using npy::ElementType;
using ::testing::HasSubstr;

constexpr int kFailure = 1, kBadArgument = 2;

/// A valid call, into which each test puts one mistake.
class CliErrors : public ::testing::Test {
 protected:
  CliErrors() : call_("BNSD", {.heads = 2, .heads_kv = 2, .d = 8, .dv = 8, .lengths = {.sq = {4}, .sk = {6}}}) {}

  /// Expects the exit code, one line of error that names the flag, and no new file.
  void ExpectRefusal(const std::string& flags, int exit_code, const std::string& named) {
    const std::vector<std::string> before = call_.scratch().Names();
    call_.flags = valid_ + " " + flags;
    const CliResult result = call_.Run();
    EXPECT_EQ(result.exit_code, exit_code) << flags << ": " << result.err;
    EXPECT_TRUE(result.HasOneLineOfError()) << flags << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr(named)) << flags;
    EXPECT_EQ(call_.scratch().Names(), before) << flags;
  }
  std::string File(const std::string& name, const npy::Array& array) {
    npy::Save(call_.scratch().Path(name), array);
    return call_.scratch().Path(name);
  }
  /// Replaces the value of one flag of the valid call.
  void Replace(const std::string& flag, const std::string& value) {
    const size_t at = valid_.find(flag + " ");
    const size_t end = valid_.find(' ', at + flag.size() + 1);
    valid_.replace(at, end - at, flag + " " + value);
  }

  ForwardCall call_;
  std::string valid_ = call_.flags;
};

TEST_F(CliErrors, TheCallItselfIsValid) { EXPECT_TRUE(call_.Matches()); }

TEST(CliUsage, WithoutACommandTheHelpNamesThem) {
  for (const auto& [words, line, command] :
       {std::tuple{"", "fa: 'fa' wants the name of a command\n", "doctor"},
        std::tuple{"run", "fa: 'fa run' wants the name of a command\n", "indexer-kl-loss"},
        std::tuple{"bench", "fa: 'fa bench' wants the name of a command\n", "decode"}}) {
    const CliResult result = RunCli(words);
    EXPECT_EQ(result.exit_code, kBadArgument) << words;
    EXPECT_EQ(result.err, line);
    EXPECT_EQ(result.out, RunCli(std::string(words) + " --help").out);
    EXPECT_THAT(result.out, HasSubstr(command)) << words;
  }
}

TEST_F(CliErrors, WithoutALayoutItIsThatOfBench) {
  const size_t at = call_.flags.find("--layout BNSD");
  ASSERT_NE(at, std::string::npos);
  call_.flags.erase(at, std::string("--layout BNSD").size());
  EXPECT_TRUE(call_.Matches());
}

// Control characters in a word could move a terminal's cursor, and so hide the message.
TEST_F(CliErrors, ControlCharactersOfWordsAreNotShown) {
  const CliResult result = RunCli("plan forward --shape \"$(printf '1,2\\r\\033[K\\n3')\"");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(result.HasOneLineOfError()) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--shape: '2  [K 3' in '1,2  [K 3'"));
}

TEST_F(CliErrors, FlagsNameThemselves) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"--bogus 1", "--bogus"},
      {"--threads x", "--threads"},
      {"--threads -1", "--threads"},
      {"--isa sse", "--isa"},
      {"--accumulation fast", "--accumulation"},
      {"--dtype f64", "--dtype"},
      {"--dtype bf16", "--query"},
      {"--scale nan", "--scale"},
      {"--scale inf", "--scale"},
      {"--softcap -1", "--softcap"},
      {"--keep-prob 0", "--keep-prob"},
      {"--keep-prob 0.5", "--keep-prob"},
      {"--keep-prob 1.5 --seed 1", "--keep-prob"},
      {"--offset 1", "--offset"},
      {"--seed -1", "--seed"},
      {"--pse-type 4", "--pse-type"},
      {"--pse-type 2", "--pse"},
      {"--actual-seq-qlen 4", "--actual-seq-qlen"},
      {"--actual-seq-kvlen 6", "--actual-seq-kvlen"},
      {"--query-rope missing.npy", "--key-rope"},
  };
  for (const auto& [flags, named] : mistakes) ExpectRefusal(flags, kBadArgument, named);
}

TEST_F(CliErrors, MaskFlagsThatContradictEachOther) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"--sparse-mode 9", "--sparse-mode"},
      {"--sparse-mode -1", "--sparse-mode"},
      {"--pre-tokens 3", "--pre-tokens"},
      {"--next-tokens 3", "--next-tokens"},
      {"--sparse-mode 0 --pre-tokens 3", "--pre-tokens"},
      {"--causal --sparse-mode 2", "--causal"},
      {"--causal --next-tokens 2", "--next-tokens"},
      {"--prefix 3", "--prefix"},
      {"--sparse-mode 5", "--prefix"},
      {"--sparse-mode 6", "--prefix"},
      {"--sparse-mode 5 --prefix 3,x", "--prefix"},
      {"--sparse-mode 5 --prefix 3,4", "--prefix"},
      {"--sparse-mode 5 --prefix 99", "--prefix"},
      {"--sparse-mode 4 --pre-tokens -3 --next-tokens -3", "--pre-tokens"},
      {"--sparse-mode 7", "--sparse-mode"},
  };
  for (const auto& [flags, named] : mistakes) ExpectRefusal(flags, kBadArgument, named);
}

TEST_F(CliErrors, ShapesAndTypesNameTheirTensor) {
  const npy::Array three(ElementType::kF32, {2, 4, 8});
  Replace("--query", File("three.npy", three));
  ExpectRefusal("", kBadArgument, "--query");
  valid_ = call_.flags;
}

TEST_F(CliErrors, KeysOfAnotherHeadSizeNameTheKey) {
  npy::Array key(ElementType::kF32, {1, 2, 6, 7});
  std::fill_n(key.as<float>().begin(), key.size(), 0.0F);
  Replace("--key", File("key.npy", key));
  ExpectRefusal("", kBadArgument, "--key");
}

TEST_F(CliErrors, ElementTypesThatNoOperatorTakes) {
  Replace("--value", File("value.npy", npy::Array(ElementType::kF64, {1, 2, 6, 8})));
  ExpectRefusal("", kBadArgument, "--value: elements are float64");
}

TEST_F(CliErrors, Bf16BitsNeedTheFlag) {
  Replace("--key", File("key.npy", npy::Array(ElementType::kU16, {1, 2, 6, 8})));
  ExpectRefusal("", kBadArgument, "--dtype bf16");
}

TEST_F(CliErrors, UnusableFilesNameFlagAndFile) {
  const std::string bytes = call_.scratch().Read("input0.npy");
  const auto refuse = [this](const std::string& contents, const char* reason) {
    Replace("--query", call_.scratch().Write("bad.npy", contents));
    ExpectRefusal("", kBadArgument, "--query: " + call_.scratch().Path("bad.npy"));
    EXPECT_THAT(call_.Run().err, HasSubstr(reason));
  };
  refuse(bytes.substr(0, bytes.size() - 1), "truncated");
  refuse("text", "truncated");
  refuse("some text that is longer", "not a .npy file");
  std::string other = bytes;
  other.replace(other.find("<f4"), 3, ">f4");
  refuse(other, "big endian");
  other.replace(other.find(">f4"), 3, "|O ");
  refuse(other, "object");
}

TEST_F(CliErrors, FilesThatAreNotThereAreFailures) {
  Replace("--query", call_.scratch().Path("missing.npy"));
  ExpectRefusal("", kFailure, "--query: " + call_.scratch().Path("missing.npy"));
}

TEST_F(CliErrors, OutputsThatCannotBeWrittenAreFailures) {
  const auto run = [this](const std::string& out) { return RunCli("run forward" + valid_ + " --out " + out); };
  for (const std::string& out : {call_.scratch().Path("no/such/folder.npy"), call_.scratch().Path("")}) {
    const CliResult result = run(out);
    EXPECT_EQ(result.exit_code, kFailure);
    EXPECT_TRUE(result.HasOneLineOfError());
    EXPECT_THAT(result.err, HasSubstr("--out"));
  }
  EXPECT_EQ(run("/dev/full").exit_code, kFailure);
}

TEST_F(CliErrors, TwoOutputsMustNotBeOneFile) {
  const std::string path = call_.scratch().Path("one.npy");
  const CliResult result = RunCli("run forward" + valid_ + " --out " + path + " --lse " + path);
  EXPECT_EQ(result.exit_code, kBadArgument);
  EXPECT_THAT(result.err, HasSubstr("--lse"));
  EXPECT_EQ(call_.scratch().Read("one.npy"), "");
}

TEST_F(CliErrors, TwoOutputsMustNotBecomeOneFileUnderTwoNames) {
  const std::string folder = call_.scratch().Path("");
  const CliResult result =
      RunCli("run forward" + valid_ + " --out " + folder + "one.npy --lse " + folder + "./no/../one.npy");
  EXPECT_EQ(result.exit_code, kBadArgument);
  EXPECT_THAT(result.err, HasSubstr("--out and --lse name one file"));
  EXPECT_EQ(call_.scratch().Read("one.npy"), "");
}

TEST_F(CliErrors, AnOutputMustNotBeAnInputWhateverItsName) {
  namespace fs = std::filesystem;
  const std::string query = call_.scratch().Path("input0.npy"), key = call_.scratch().Path("input1.npy");
  const std::string before = call_.scratch().Read("input0.npy"), key_before = call_.scratch().Read("input1.npy");
  const std::string soft = call_.scratch().Path("soft.npy"), hard = call_.scratch().Path("hard.npy");
  fs::create_symlink("input0.npy", soft);
  fs::create_hard_link(query, hard);
  const auto refuse = [&](const std::string& outputs, const std::string& message) {
    const CliResult result = RunCli("run forward" + valid_ + outputs);
    EXPECT_EQ(result.exit_code, kBadArgument) << outputs;
    EXPECT_TRUE(result.HasOneLineOfError()) << result.err;
    EXPECT_THAT(result.err, HasSubstr(message)) << outputs;
    EXPECT_EQ(call_.scratch().Read("input0.npy"), before);
    EXPECT_EQ(call_.scratch().Read("input1.npy"), key_before);
    EXPECT_TRUE(fs::is_symlink(soft));
  };
  for (const std::string& name : {query, soft, hard, call_.scratch().Path("./input0.npy")}) {
    refuse(" --out " + name, "--out: " + name + ": is the file of --query");
  }
  const std::string out = call_.scratch().Path("fresh.npy");
  refuse(" --out " + out + " --lse " + key, "--lse: " + key + ": is the file of --key");
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(CliErrors, EmptyValuesAreErrorsOfEveryFlag) {
  for (const std::string flag : {"--query",
                                 "--key",
                                 "--layout",
                                 "--head-num",
                                 "--dtype",
                                 "--scale",
                                 "--query-rope",
                                 "--atten-mask",
                                 "--sparse-mode",
                                 "--pre-tokens",
                                 "--next-tokens",
                                 "--prefix",
                                 "--pse",
                                 "--pse-type",
                                 "--q-start",
                                 "--kv-start",
                                 "--drop-mask",
                                 "--seed",
                                 "--offset",
                                 "--keep-prob",
                                 "--sink",
                                 "--softcap",
                                 "--actual-seq-qlen",
                                 "--actual-seq-kvlen",
                                 "--out",
                                 "--softmax-max",
                                 "--lse",
                                 "--threads",
                                 "--isa",
                                 "--accumulation"}) {
    ExpectRefusal(flag + " ''", kBadArgument, "fa: " + flag + ": an empty value");
    ExpectRefusal(flag + "=", kBadArgument, "fa: " + flag + ": an empty value");
  }
}

TEST_F(CliErrors, MessagesSpeakOfFlags) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"--keep-prob 0.5", "fa: --keep-prob: 0.5, want --drop-mask or --seed"},
      {"--keep-prob 0", "fa: --keep-prob: 0, want more than 0 and at most 1"},
      {"--softcap -1", "fa: --softcap: -1, want a finite number >= 0"},
      {"--scale nan", "fa: --scale: nan, want a finite number"},
      {"--sparse-mode 4 --pre-tokens -3 --next-tokens -3", "fa: --pre-tokens: -3, want >= 3 (minus --next-tokens"},
  };
  for (const auto& [flags, message] : mistakes) ExpectRefusal(flags, kBadArgument, message);
}

TEST_F(CliErrors, AWrongNumberOfHeadsIsNamedByItsFlag) {
  Replace("--head-num", "3");
  ExpectRefusal("", kBadArgument, "fa: --head-num: 3, want 2 (shape[1] of --query, --layout BNSD)");
}

TEST_F(CliErrors, NoHeadsAreAMistakeOfEveryCommand) {
  const std::string fresh = call_.scratch().Path("fresh.npy"), out = " --out " + fresh;
  const std::string unread = call_.scratch().Path("unread.npy");
  const std::string gradients = " --dout " + unread + " --out " + unread + " --softmax-max " + unread +
                                " --softmax-sum " + unread + " --dq " + fresh + " --dk " + fresh + " --dv " + fresh;
  for (const std::string heads : {"0", "-1"}) {
    for (const char* layout : {"BNSD", "BSH"}) {
      Replace("--layout", layout);
      Replace("--head-num", heads);
      for (const std::string command : {"forward", "backward", "prompt", "decode"}) {
        const CliResult result = RunCli("run " + command + valid_ + (command == "backward" ? gradients : out));
        EXPECT_EQ(result.exit_code, kBadArgument) << command;
        EXPECT_EQ(result.err, "fa: --head-num: " + heads + ", want at least 1\n") << command << " " << layout;
      }
    }
  }
  EXPECT_FALSE(std::filesystem::exists(fresh));
}

TEST_F(CliErrors, KeysThatDoNotFitAreNamedByTheirFlags) {
  npy::Array key(ElementType::kF32, {1, 2, 6, 7});
  std::fill_n(key.as<float>().begin(), key.size(), 0.0F);
  Replace("--key", File("short.npy", key));
  ExpectRefusal("", kBadArgument, "fa: --key: shape[3]=7, want 8 (shape[3] of --query)");
}

TEST_F(CliErrors, AnOldOutputSurvivesAFailure) {
  const std::string out = call_.scratch().Write("old.npy", "old");
  EXPECT_EQ(RunCli("run forward" + valid_ + " --keep-prob 2 --out " + out).exit_code, kBadArgument);
  EXPECT_EQ(call_.scratch().Read("old.npy"), "old");
}

TEST(CliUsage, MissingFlagsAndCommandsAreNamed) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"frobnicate", "frobnicate"}, {"run sideways", "sideways"}, {"run forward", "--query"},
      {"plan forward", "--shape"},  {"bench forward", "--shape"}, {"run merge --layout SBH", "--prev-out"}};
  for (const auto& [arguments, named] : mistakes) {
    const CliResult result = RunCli(arguments);
    EXPECT_EQ(result.exit_code, kBadArgument) << arguments;
    EXPECT_TRUE(result.HasOneLineOfError()) << arguments;
    EXPECT_THAT(result.err, HasSubstr(named)) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
  }
}

TEST(CliUsage, UnknownOptionsAreNamedInTheirOrder) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"run decode --lsee l.npy --bogus", "fa: unknown option --lsee, --bogus"},
      {"plan forward --shape 1,1,1,8,8,8 --topk=3", "fa: unknown option --topk"},
      {"--bogus", "fa: unknown option --bogus"},
      {"plan forward --shape 1,1,1,8,8,8 one two", "fa: unexpected: one two"}};
  for (const auto& [arguments, message] : mistakes) {
    const CliResult result = RunCli(arguments);
    EXPECT_EQ(result.exit_code, kBadArgument) << arguments;
    EXPECT_EQ(result.err, message + "\n") << arguments;
  }
}

TEST(CliUsage, TheEnvironmentNamesTheThreadsAndIsNamedWhereItIsWrong) {
  EXPECT_THAT(RunCli("info", "FA_NUM_THREADS=3").out, HasSubstr("\nthreads: 3 "));
  EXPECT_THAT(RunCli("info --threads 2", "FA_NUM_THREADS=3").out, HasSubstr("\nthreads: 2 "));
  const CliResult wrong = RunCli("info", "FA_NUM_THREADS=many");
  EXPECT_EQ(wrong.exit_code, kBadArgument);
  EXPECT_THAT(wrong.err, HasSubstr("fa: FA_NUM_THREADS=many, want 1.."));
}

TEST(CliUsage, SizesOfShapesAreNamedByTheirLetters) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"plan forward --shape 1,1,1,8,8,0", "fa: --shape: D=0, want 1 to 1024"},
      {"plan backward --shape 1,1,1,8,8,8,2000", "fa: --shape: Dv=2000, want 1 to 1024"},
      {"plan forward --shape 1,0,1,8,8,8", "fa: --shape: N=0, want at least 1"},
      {"bench forward --shape 1,4,3,8,8,8", "fa: --shape: Nkv=3, want a divisor of 4 (N)"},
      {"plan sparse-forward --shape 1,0,8,8,8,0,8", "fa: --shape: N=0, want at least 1"},
      {"plan indexer --shape 1,1,8,8,0,8", "fa: --shape: D=0, want 1 to 1024"},
      {"plan forward --layout TND --shape 1099511627776,1,1,8,8,8",
       "fa: --shape: B=1099511627776, want at most 134217728"}};
  for (const auto& [arguments, message] : mistakes) {
    const CliResult result = RunCli(arguments);
    EXPECT_EQ(result.exit_code, kBadArgument) << arguments;
    EXPECT_EQ(result.err, message + "\n") << arguments;
  }
}

TEST(CliUsage, PlansOfAbsurdSizesAreRefusedWithWhatTheyWantAndWhatThereIs) {
  const CliResult result = RunCli("plan backward --shape 1,1,1,1000000000000,1,64");
  EXPECT_EQ(result.exit_code, kFailure);
  EXPECT_THAT(result.err, HasSubstr(" tasks, want at most "));
}

TEST(CliUsage, HeadCountIsNeededWhereHeadsAreFolded) {
  ForwardCall call("BSH", {.heads = 2, .heads_kv = 2, .d = 8, .dv = 8, .lengths = {.sq = {4}, .sk = {6}}});
  call.flags.erase(call.flags.find(" --head-num 2"), 13);
  EXPECT_THAT(call.Run().err, HasSubstr("--head-num"));
  call.flags += " --head-num 5";
  const CliResult result = call.Run();
  EXPECT_EQ(result.exit_code, kBadArgument);
  EXPECT_THAT(result.err, HasSubstr("--query"));
}

TEST(CliUsage, PackedLayoutNeedsLengths) {
  ForwardCall call("TND", {.heads = 2, .heads_kv = 2, .d = 8, .dv = 8, .lengths = {.sq = {4, 3}, .sk = {6, 2}}});
  const std::string flags = call.flags;
  const size_t at = flags.find(" --actual-seq-kvlen");
  call.flags = flags.substr(0, at);
  EXPECT_THAT(call.Run().err, HasSubstr("--actual-seq-kvlen"));
  call.flags = flags.substr(0, at) + " --actual-seq-kvlen 6,9";
  const CliResult result = call.Run();
  EXPECT_EQ(result.exit_code, kBadArgument);
  EXPECT_THAT(result.err, HasSubstr("--actual-seq-kvlen"));
}

TEST(CliUsage, HelpAndVersionSucceed) {
  EXPECT_EQ(RunCli("--version").out, FA_VERSION_STRING "\n");
  const CliResult help = RunCli("run forward --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--actual-seq-kvlen"));
}

TEST(CliUsage, AFullDiskBelowStandardOutputIsAFailure) {
  const CliResult result = RunCli("info >/dev/full");
  EXPECT_EQ(result.exit_code, kFailure);
  EXPECT_TRUE(result.HasOneLineOfError());
}

}  // namespace
}  // namespace fa::test
