// The tool's output with --json must satisfy the schemas in docs/schema.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
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
  std::string schema, words;
};

/// Returns the second word of a command line, which is the operator's name.
std::string OperatorOf(const std::string& words) {
  const size_t begin = words.find(' ') + 1;
  return words.substr(begin, words.find(' ', begin) - begin);
}

// Command lines of commands that have --json. Lines() adds the other commands that have --json, without arguments.
const std::vector<Line> kLines = {
    {"info", "info"},
    {"doctor", "doctor --seconds 0.01 --threads 1"},
    {"plan", "plan forward --shape 1,2,1,300,400,64 --causal"},
    {"plan", "plan forward --shape 1,2,1,300,400,64 --causal --ranks 3"},
    {"plan", "plan backward --shape 1,2,2,300,400,64"},
    {"plan", "plan backward --shape 1,2,2,300,400,64 --ranks 2"},
    {"plan", "plan decode --shape 2,4,1,1,900,64 --block-size 16"},
    {"plan", "plan prompt --shape 1,2,2,30,40,64 --dtype int8"},
    {"plan", "plan infer --shape 2,4,2,20,300,64 --block-size 16"},
    {"plan", "plan sparse-forward --shape 1,8,40,90,64,16,32"},
    {"plan", "plan sparse-backward --shape 1,8,40,90,64,16,32"},
    {"plan", "plan indexer --shape 1,8,40,90,64,32 --isa avx512_bf16 --cores 8"},
    {"plan", "plan indexer-backward --shape 1,8,40,90,64,32"},
    {"plan", "plan indexer-kl-loss --shape 1,8,40,90,64,16,32 --indexer 4,32"},
    {"plan", "plan dense-indexer-lse --shape 1,8,40,90,64"},
    {"plan", "plan dense-indexer-kl-loss --shape 1,8,40,90,64,16 --indexer 4,32"},
    {"plan", "plan index-score --shape 1,8,40,290,64"},
    {"plan", "plan indexer-loss-value --shape 40,90"},
    {"bench", "bench forward --shape 1,1,1,8,8,8 --seconds 0.01"},
    {"bench", "bench backward --shape 1,1,1,8,8,8 --seconds 0.01"},
    {"bench", "bench decode --shape 1,1,1,1,8,8 --block-size 4 --threads 1 --seconds 0.01"},
    {"bench", "bench infer --shape 1,1,1,2,8,8 --block-size 4 --threads 1 --seconds 0.01"},
    {"bench", "bench prompt --shape 1,1,1,8,8,8 --dtype int8 --seconds 0.01"},
    {"bench", "bench sparse-forward --shape 1,2,4,6,8,8,3 --seconds 0.01"},
    {"bench", "bench sparse-backward --shape 1,2,4,6,8,8,3 --seconds 0.01"},
    {"bench", "bench indexer --shape 1,2,4,6,8,3 --seconds 0.01"},
    {"bench", "bench indexer-backward --shape 1,2,4,6,8,3 --seconds 0.01"},
    {"bench", "bench index-score --shape 1,2,4,6,8 --seconds 0.01"},
    {"bench", "bench indexer-kl-loss --shape 1,2,4,6,8,8,3 --seconds 0.01"},
    {"bench", "bench dense-indexer-kl-loss --shape 1,2,4,6,8,8 --seconds 0.01"},
    {"bench_rows", "bench scatter --rows 40 --heads 2 --head-size 32 --seconds 0.01"},
    {"bench_rows", "bench gather --rows 40 --heads 2 --head-size 32 --form BnNBsD --seconds 0.01"},
};

/// Returns at least one line for each command that has --json.
std::vector<Line> Lines() {
  CLI::App app;
  tool::AddCommands(app);
  const auto all = [](const CLI::App*) { return true; };
  std::vector<Line> lines = kLines;
  const auto add = [&lines](const CLI::App* command, const std::string& schema, const std::string& words) {
    if (command->get_option_no_throw("--json") == nullptr) return;
    const auto is_here = [&](const Line& line) { return (line.words + " ").starts_with(words + " "); };
    if (std::none_of(kLines.begin(), kLines.end(), is_here)) lines.push_back({schema, words});
  };
  for (const CLI::App* group : app.get_subcommands(all)) {
    add(group, group->get_name(), group->get_name());
    for (const CLI::App* command : group->get_subcommands(all)) {
      add(command, group->get_name(), group->get_name() + " " + command->get_name());
    }
  }
  return lines;
}

TEST(CliJson, OfEveryCommandIsWhatTheSchemaSays) {
  for (const Line& line : Lines()) {
    const CliResult result = RunCli(line.words + " --json");
    ASSERT_EQ(result.exit_code, 0) << line.words << ": " << result.err;
    EXPECT_EQ(result.err, "") << line.words;
    const json answer = json::parse(result.out);
    EXPECT_THAT(Schema().Errors(line.schema, answer), IsEmpty()) << line.words;
    if (line.schema == "bench") {
      EXPECT_EQ(answer["op"], OperatorOf(line.words));
    }
  }
}

// Each change below makes a valid answer invalid. JsonSchema checks every keyword of the schema, so it reports each
// change.
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
