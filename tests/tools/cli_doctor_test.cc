#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "fa/context.h"
#include "tools/cli_run.h"

namespace fa::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kShort = "doctor --seconds 0.01 --threads 1";

TEST(CliDoctor, TestsEveryLevelOfThisCpu) {
  const CliResult result = RunCli(std::string(kShort) + " --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json report = json::parse(result.out);
  EXPECT_EQ(report["ok"], true);
  std::set<std::string> want, got;
  for (const Isa isa : AllIsas()) {
    if (Includes(DetectIsa(), isa) && std::string(Name(isa)) != "amx_emulated") want.insert(Name(isa));
  }
  for (const json& test : report["self_test"]) {
    got.insert(test["isa"]);
    EXPECT_EQ(test["wrong"], json(nullptr)) << test;
    EXPECT_LE(test["error"].get<double>(), 1) << test;
    EXPECT_GT(test["gflops"].get<double>(), 0) << test;
    EXPECT_FALSE(test["peak"].get<std::string>().empty()) << test;
    if (test["fraction"].is_null()) continue;  // no round was quiet enough
    EXPECT_DOUBLE_EQ(test["fraction"].get<double>(), test["gflops"].get<double>() / test["peak_gflops"].get<double>());
    EXPECT_LE(test["fraction"].get<double>(), 1) << test;
  }
  EXPECT_EQ(got, want);
  // Results of random numbers are rounded, so some error is not 0. Errors of 0 everywhere would mean that nothing was
  // compared.
  EXPECT_GT(report["self_test"][0]["error"].get<double>(), 0);
}

TEST(CliDoctor, PageNamesVariablesThatHurt) {
  const CliResult result = RunCli(kShort, "FA_FORCE_ISA=portable OMP_PROC_BIND=close");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* part : {"machine\n", "self-test\n", "findings\n", "  FA_FORCE_ISA=portable: ",
                           "  OMP_PROC_BIND=close: ", "portable (highest here", "backward", "int8"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  EXPECT_THAT(result.out, Not(HasSubstr("wrong\n")));
}

TEST(CliDoctor, ColoursAreForTerminals) {
  constexpr const char* kEscape = "\x1b[33m";
  const std::string words = std::string(FA_CLI_COMMAND) + " " + kShort;
  EXPECT_THAT(RunCli(kShort, "TERM=xterm FA_FORCE_ISA=portable").out, Not(HasSubstr(kEscape)));
  const auto on_terminal = [&](const std::string& environment) {
    return RunCommand("script -qec \"" + words + "\" /dev/null", "", environment + " FA_FORCE_ISA=portable");
  };
  const CliResult coloured = on_terminal("TERM=xterm NO_COLOR=");
  ASSERT_EQ(coloured.exit_code, 0) << coloured.out;
  EXPECT_THAT(coloured.out, HasSubstr(std::string(kEscape) + "FA_FORCE_ISA=portable"));
  for (const char* environment : {"TERM=dumb NO_COLOR=", "TERM=xterm NO_COLOR=1"}) {
    const CliResult plain = on_terminal(environment);
    EXPECT_EQ(plain.exit_code, 0) << environment;
    EXPECT_THAT(plain.out, HasSubstr("FA_FORCE_ISA=portable")) << environment;
    EXPECT_THAT(plain.out, Not(HasSubstr(kEscape))) << environment;
  }
}

// The doctor reports the variable FA_ASSUME_ISA and its value. If the CPU lacks the assumed level, the doctor ends with
// an error that names the variable.
TEST(CliDoctor, ALevelTakenForGrantedIsNamed) {
  const CliResult result = RunCli(kShort, "FA_ASSUME_ISA=avx512_bf16");
  if (result.exit_code == 0) {
    EXPECT_THAT(result.out, HasSubstr("FA_ASSUME_ISA=avx512_bf16"));
    return;
  }
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(result.HasOneLineOfError()) << result.err;
  EXPECT_THAT(result.err, HasSubstr("FA_ASSUME_ISA"));
}

TEST(CliDoctor, BadArgumentsNameTheFlag) {
  for (const char* flags : {"--seconds 0", "--threads -1", "--isa avx3"}) {
    const CliResult result = RunCli(std::string("doctor ") + flags);
    EXPECT_EQ(result.exit_code, 2) << flags;
    EXPECT_TRUE(result.HasOneLineOfError()) << flags;
    EXPECT_EQ(result.out, "") << flags;
  }
}

}  // namespace
}  // namespace fa::test
