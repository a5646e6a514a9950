// The tool's output with --json follows docs/schema.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "command_line.h"
#include "tools/cli_run.h"
#include "tools/json_schema.h"

namespace fa::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const JsonSchema& Schema() {
  static const JsonSchema schema(json::parse(std::ifstream(FA_JSON_SCHEMA)));
  return schema;
}

struct Line {
  const char* schema;
  const char* words;
};

/// The second of the words.
std::string OperatorOf(const std::string& words) {
  const size_t begin = words.find(' ') + 1;
  return words.substr(begin, words.find(' ', begin) - begin);
}

// One line for each command that has --json.
constexpr Line kLines[] = {
    {"info", "info"},
    {"doctor", "doctor --seconds 0.01 --threads 1"},
    {"plan", "plan forward --shape 1,2,1,300,400,64 --causal"},
    {"plan", "plan forward --shape 1,2,1,300,400,64 --causal --ranks 3"},
    {"plan", "plan backward --shape 1,2,2,300,400,64"},
    {"plan", "plan backward --shape 1,2,2,300,400,64 --ranks 2"},
    {"plan", "plan merge"},
    {"plan", "plan decode --shape 2,4,1,1,900,64 --block-size 16"},
    {"plan", "plan prompt --shape 1,2,2,30,40,64 --dtype int8"},
    {"plan", "plan sparse-forward --shape 1,8,40,90,64,16,32"},
    {"plan", "plan sparse-backward --shape 1,8,40,90,64,16,32"},
    {"plan", "plan indexer --shape 1,8,40,90,64,32 --isa avx512_bf16 --cores 8"},
    {"plan", "plan indexer-backward --shape 1,8,40,90,64,32"},
    {"plan", "plan indexer-kl-loss --shape 1,8,40,90,64,16,32 --indexer 4,32"},
    {"plan", "plan dense-indexer-lse --shape 1,8,40,90,64"},
    {"plan", "plan dense-indexer-kl-loss --shape 1,8,40,90,64,16 --indexer 4,32"},
    {"bench", "bench forward --shape 1,1,1,8,8,8 --seconds 0.01"},
    {"bench", "bench backward --shape 1,1,1,8,8,8 --seconds 0.01"},
    {"bench", "bench decode --shape 1,1,1,1,8,8 --block-size 4 --threads 1 --seconds 0.01"},
    {"bench", "bench prompt --shape 1,1,1,8,8,8 --dtype int8 --seconds 0.01"},
    {"bench", "bench sparse-forward --shape 1,2,4,6,8,8,3 --seconds 0.01"},
    {"bench", "bench sparse-backward --shape 1,2,4,6,8,8,3 --seconds 0.01"},
    {"bench", "bench indexer --shape 1,2,4,6,8,3 --seconds 0.01"},
    {"bench", "bench indexer-backward --shape 1,2,4,6,8,3 --seconds 0.01"},
    {"bench", "bench indexer-kl-loss --shape 1,2,4,6,8,8,3 --seconds 0.01"},
    {"bench", "bench dense-indexer-kl-loss --shape 1,2,4,6,8,8 --seconds 0.01"},
};

TEST(CliJson, OfEveryCommandIsWhatTheSchemaSays) {
  for (const Line& line : kLines) {
    const CliResult result = RunCli(std::string(line.words) + " --json");
    ASSERT_EQ(result.exit_code, 0) << line.words << ": " << result.err;
    EXPECT_EQ(result.err, "") << line.words;
    const json answer = json::parse(result.out);
    EXPECT_THAT(Schema().Errors(line.schema, answer), IsEmpty()) << line.words;
    if (answer.contains("op")) {
      EXPECT_EQ(answer["op"], OperatorOf(line.words));
    }
  }
}

TEST(CliJson, EveryCommandWithTheFlagIsTried) {
  CLI::App app;
  tool::AddCommands(app);
  const auto all = [](const CLI::App*) { return true; };
  std::set<std::string> tried;
  for (const Line& line : kLines) {
    const std::string words = line.words;
    const size_t first = words.find(' ');
    const std::string group = words.substr(0, first);
    const bool has_operator = group == "plan" || group == "bench";
    tried.insert(has_operator ? words.substr(0, words.find(' ', first + 1)) : group);
  }
  std::set<std::string> have;
  for (const CLI::App* group : app.get_subcommands(all)) {
    if (group->get_option_no_throw("--json") != nullptr) have.insert(group->get_name());
    for (const CLI::App* command : group->get_subcommands(all)) {
      if (command->get_option_no_throw("--json") == nullptr) continue;
      have.insert(group->get_name() + " " + command->get_name());
    }
  }
  EXPECT_EQ(tried, have);
}

// The schema checks each of its own words: it finds each of these changes to a right answer.
TEST(JsonSchema, FindsWhatIsWrong) {
  const CliResult result = RunCli("plan forward --shape 1,1,1,8,8,8 --ranks 2 --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json right = json::parse(result.out);
  const auto errors = [](const json& value) { return Schema().Errors("plan", value); };
  ASSERT_THAT(errors(right), IsEmpty());
  for (const auto& [pointer, value] : std::vector<std::pair<const char*, json>>{{"/tasks", "many"},
                                                                                {"/tasks", 1.5},
                                                                                {"/workers", 0},
                                                                                {"/isa", "avx3"},
                                                                                {"/kernels/0", 1},
                                                                                {"/tiles/0/cost", -1},
                                                                                {"/tiles/0/name", "x"},
                                                                                {"/of_rank/0/q_rows/0", json::array()},
                                                                                {"/network_bytes_per_second", 0},
                                                                                {"/unknown", 1}}) {
    json wrong = right;
    wrong[json::json_pointer(pointer)] = value;
    EXPECT_THAT(errors(wrong), Not(IsEmpty())) << pointer;
  }
  for (const char* name : {"tiles", "of_rank"}) {
    json wrong = right;
    wrong.erase(name);
    EXPECT_THAT(errors(wrong), Not(IsEmpty())) << name;
  }
  EXPECT_THAT(JsonSchema(json::parse(R"({"$defs": {"a": {"pattern": "x"}}})")).Errors("a", 1), Not(IsEmpty()));
}

}  // namespace
}  // namespace fa::test
