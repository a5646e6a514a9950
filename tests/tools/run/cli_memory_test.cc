// Runs the command line while memory is short. In turn, each allocation of the program fails, alone or with all later
// ones. The program must report the shortage in one line and leave no file, or its result must be right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tools/cli_run.h"
#include "tools/forward_call.h"

namespace fa::test {
namespace {

constexpr int kFailure = 1;
// Each failing allocation takes one process, which runs for some hundredths of a second.
constexpr int64_t kMostRuns = 60, kMostPlaces = 1 << 20;

class CliMemory : public ::testing::TestWithParam<bool> {
 protected:
  CliMemory() : call_("BNSD", {.heads = 2, .heads_kv = 2, .d = 8, .dv = 8, .lengths = {.sq = {40}, .sk = {60}}}) {}

  [[nodiscard]] CliResult RunFailing(const std::string& arguments, int64_t place) const {
    const std::string failing = "FA_FAILING_ALLOCATION=" + std::to_string(place) + (GetParam() ? "+" : "");
    return RunCli(arguments, "FA_NUM_THREADS=2 LD_PRELOAD='" FA_SHORT_OF_MEMORY "' " + failing);
  }
  /// Runs the command again and again. In each run one allocation fails: first the earliest ones, one after another,
  /// then later ones at growing distances. If a run still ends with the exit code `usual`, `right` must accept the
  /// result.
  template <typename Right>
  void Walk(const std::string& arguments, int usual, const Right& right) {
    const std::vector<std::string> before = call_.scratch().Names();
    int64_t place = 1, failures = 0;
    for (int64_t run = 0; run < kMostRuns && place < kMostPlaces; ++run) {
      const CliResult result = RunFailing(arguments, place);
      ASSERT_TRUE(result.exit_code == usual || result.exit_code == kFailure) << result.exit_code << " at " << place;
      if (result.exit_code == usual) {
        ASSERT_TRUE(right(result)) << "at " << place;
      } else {
        ++failures;
        ASSERT_TRUE(result.HasOneLineOfError()) << result.err << "at " << place;
        ASSERT_THAT(result.err, ::testing::HasSubstr("memory")) << "at " << place;
        ASSERT_EQ(call_.scratch().Names(), before) << "at " << place;
      }
      place += 1 + place / kStep;
    }
    EXPECT_GT(failures, kMostRuns / 2);
  }

  static constexpr int64_t kStep = 6;  // with this step, the 60th run reaches allocation 41,960
  ForwardCall call_;
};

TEST_P(CliMemory, RunForward) {
  const std::string out = call_.scratch().Path("out.npy"), arguments = "run forward" + call_.flags + " --out " + out;
  ASSERT_EQ(RunCli(arguments).exit_code, 0);
  const std::string want = call_.OutBytes();
  std::remove(out.c_str());
  Walk(arguments, 0, [&](const CliResult&) {
    const bool same = call_.OutBytes() == want;
    std::remove(out.c_str());
    return same;
  });
}

TEST_P(CliMemory, Plan) {
  const std::string arguments = "plan backward --shape 1,2,2,300,400,64 --causal --threads 4 --json";
  const std::string want = RunCli(arguments).out;
  Walk(arguments, 0, [&](const CliResult& result) { return result.out == want; });
}

TEST_P(CliMemory, AMistake) {
  Walk("run forward --bogus 1", 2,
       [](const CliResult& result) { return result.err == "fa: unknown option --bogus\n"; });
}

INSTANTIATE_TEST_SUITE_P(Allocations, CliMemory, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "AllFromOneOn" : "One"; });

}  // namespace
}  // namespace fa::test
