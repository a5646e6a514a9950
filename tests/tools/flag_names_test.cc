// Every argument of every operator that the command line runs has a flag that the command really has.
#include "flags/flag_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "fa/operators.h"
#include "support/cases/call_fields.h"
#include "tools/cli_run.h"

namespace fa::test {
namespace {

using tool::FlagName;
using tool::FlagOf;

struct Command {
  const char* name;
  std::span<const FlagName> (*names)();
  CallFields fields;
  std::vector<std::string> others;   ///< options that errors name
  std::vector<std::string> without;  ///< fields that the command has no flag for
};

std::span<const FlagName> NoNames() { return {}; }

template <typename Args>
CallFields Fields() {
  static Args args;
  return FieldsOf(&args);
}

std::vector<Command> Commands() {
  const std::vector<std::string> mask = {"mask.pre", "mask.next", "mask.prefix", "sparse_mode"};
  std::vector<std::string> dense = mask;
  dense.insert(dense.end(), {"layout", "heads", "scale", "pse_type", "q_start", "kv_start", "softcap", "keep_prob",
                             "dropout", "threads", "isa"});
  std::vector<std::string> prompt = mask;
  prompt.insert(prompt.end(), {"layout", "heads", "scale", "softcap", "out.dtype"});
  std::vector<std::string> biased = prompt;
  biased.insert(biased.end(), {"pse_type", "q_start", "kv_start"});
  const std::vector<std::string> sparse = {"layout", "scale", "block_size", "mask"};
  return {
      {"forward", NoNames, Fields<AttentionArgs>(), dense, {}},
      {"backward", NoNames, Fields<AttentionGradArgs>(), dense, {}},
      {"merge", NoNames, Fields<MergeArgs>(), {"layout", "heads"}, {}},
      {"prompt", tool::InferenceFlagNames, Fields<PromptAttentionArgs>(), biased, {}},
      {"decode", tool::InferenceFlagNames, Fields<DecodeAttentionArgs>(), prompt, {}},
      {"sparse-forward", tool::SparseFlagNames, Fields<SparseAttentionArgs>(), sparse, {}},
      {"sparse-backward", tool::SparseFlagNames, Fields<SparseAttentionGradArgs>(), sparse, {}},
      {"indexer", tool::SparseFlagNames, Fields<LightningIndexerArgs>(), {"layout", "mask"}, {}},
      {"indexer-backward", tool::SparseFlagNames, Fields<LightningIndexerGradArgs>(), {"layout", "mask"}, {}},
      {"dense-indexer-lse", tool::SparseFlagNames, Fields<DenseIndexerLseArgs>(), {"layout", "mask"}, {}},
      {"indexer-kl-loss", tool::SparseFlagNames, Fields<SparseIndexerLossArgs>(), {"layout", "scale", "mask"}, {}},
      {"dense-indexer-kl-loss", tool::SparseFlagNames, Fields<DenseIndexerLossArgs>(), {"layout", "scale", "mask"}, {}},
  };
}

TEST(FlagNames, AreTestedOfEveryOperator) {
  std::vector<std::string> commands;
  for (const Command& command : Commands()) commands.emplace_back(command.name);
  EXPECT_THAT(commands, ::testing::UnorderedElementsAreArray(kOperatorNames));
}

/// The arguments that a command's errors may name.
std::vector<std::string> ArgumentsOf(const Command& command) {
  std::vector<std::string> arguments = command.others;
  for (const TensorField& field : command.fields.tensors) arguments.push_back(field.name());
  for (const LengthsField& field : command.fields.lengths) arguments.push_back(field.name);
  if (std::string(command.name) == "decode") arguments.insert(arguments.end(), {"k", "v"});
  return arguments;
}

// An entry that no argument of any command uses would belong to an argument that is gone or misspelled.
TEST(FlagNames, HaveNoEntryThatNoArgumentUses) {
  std::set<const FlagName*> used;
  const auto use = [&used](std::span<const FlagName> names, const std::string& argument) {
    const auto entry =
        std::find_if(names.begin(), names.end(), [&](const auto& of) { return of.argument == argument; });
    return entry != names.end() && (used.insert(&*entry), true);
  };
  for (const Command& command : Commands()) {
    for (const std::string& argument : ArgumentsOf(command)) {
      if (!use(command.names(), argument)) use(tool::SharedFlagNames(), argument);
    }
  }
  // Arguments of calls over ranks, which belong to several commands.
  for (const char* argument : {"shards.intervals", "shards.strategy", "shards.heads_in_flight", "machines.ranks"})
    use(tool::SharedFlagNames(), argument);
  for (const auto names : {tool::SharedFlagNames(), tool::InferenceFlagNames(), tool::SparseFlagNames()}) {
    for (const FlagName& entry : names) EXPECT_TRUE(used.contains(&entry)) << entry.argument << " " << entry.flag;
  }
}

TEST(FlagNames, OfEveryArgumentOfEveryCommand) {
  for (const Command& command : Commands()) {
    const CliResult help = RunCli(std::string("run ") + command.name + " --help");
    ASSERT_EQ(help.exit_code, 0) << command.name << ": " << help.err;
    const std::vector<std::string> arguments = ArgumentsOf(command);
    ASSERT_GT(arguments.size(), command.without.size());
    for (const std::string& argument : arguments) {
      if (std::count(command.without.begin(), command.without.end(), argument) > 0) continue;
      const std::string flag = FlagOf(argument, command.names());
      EXPECT_THAT(help.out, ::testing::ContainsRegex(flag + "[ ,]")) << command.name << ": " << argument;
    }
  }
}

TEST(FlagNames, AnOutputsTypeIsAFlagOfItsOwn) {
  EXPECT_STREQ(tool::FindFlag("out.dtype", tool::InferenceFlagNames()), "--out-dtype");
  EXPECT_EQ(tool::FindFlag("out.dtype"), nullptr);
  EXPECT_EQ(FlagOf("out", tool::InferenceFlagNames()), "--out");
}

}  // namespace
}  // namespace fa::test
