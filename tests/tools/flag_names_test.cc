// Every argument of every operator that the command line runs has a flag, and the operator's command has this flag.
#include "flags/flag_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
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
  std::vector<std::string> others;  ///< names in errors that are no tensors or lengths, such as options
};

std::span<const FlagName> NoNames() { return {}; }

template <typename Args>
CallFields Fields() {
  static Args args;
  return FieldsOf(&args);
}

/// Returns the function that lists the arguments whose flags have special names in this operator's command. If there
/// are none, returns NoNames.
template <typename Args, typename Options>
auto NamesOf() {
  if constexpr (requires(Options options) { options.mask = SparseMask::kNone; }) return tool::SparseFlagNames;
  if constexpr (requires(Args args) { args.quant_scale2; }) return tool::InferenceFlagNames;
  if constexpr (requires(Args args) { args.cmp_residual; }) return tool::SharedKvFlagNames;
  return NoNames;
}

/// Returns the names of an operator's options, and the other names in its errors except those of tensors and lengths.
template <typename Args, typename Options>
std::vector<std::string> OthersOf() {
  std::vector<std::string> others = {"threads", "isa"};
  const auto add = [&](bool has, std::initializer_list<const char*> names) {
    if (has) others.insert(others.end(), names.begin(), names.end());
  };
  add(requires(Options options) { options.layout; }, {"layout"});
  add(requires(Options options) { options.heads; }, {"heads"});
  add(requires(Options options) { options.scale; }, {"scale"});
  add(requires(Options options) { options.block_size; }, {"block_size"});
  add(requires(Options options) { options.pse_type; }, {"pse_type"});
  add(requires(Options options) { options.dropout; }, {"dropout"});
  add(requires(Options options) { options.mask = SparseMask::kNone; }, {"mask"});
  add(requires(Options options) { options.mask = Mask::None(); },
      {"mask.pre", "mask.next", "mask.prefix", "sparse_mode"});
  add(requires(Args args) { args.quant_scale2; }, {"out.dtype"});
  add(requires(Args args) { args.cmp_residual; },
      {"cmp_ratio", "ori_mask", "cmp_mask", "window_left", "window_right", "ori_indices_are_slots"});
  ForEachNumber([&](const char* name, auto, auto) { add(true, {name}); }, Options());
  return others;
}

std::vector<Command> Commands() {
  return {
#define FA_COMMAND(name, function, Args, Options, text) \
  {text, NamesOf<Args, Options>(), Fields<Args>(), OthersOf<Args, Options>()},
      FA_OPERATORS(FA_COMMAND)
#undef FA_COMMAND
  };
}

/// Returns the arguments that a command's errors may name.
std::vector<std::string> ArgumentsOf(const Command& command) {
  std::vector<std::string> arguments = command.others;
  for (const TensorField& field : command.fields.tensors) arguments.push_back(field.name());
  for (const LengthsField& field : command.fields.lengths) arguments.push_back(field.name);
  if (std::string(command.name) == "decode") arguments.insert(arguments.end(), {"k", "v"});
  return arguments;
}

// An entry that no argument of any command uses is outdated or misspelled.
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
  // Several commands run over ranks and have these arguments, but no operator lists them.
  for (const char* argument : {"shards.intervals", "shards.strategy", "shards.heads_in_flight", "machines.ranks"})
    use(tool::SharedFlagNames(), argument);
  use(tool::SharedFlagNames(), "pair_mask");  // no operator lists it, because it is no tensor
  for (const char* member : {"row_format", "row_format.tile", "row_format.rope", "row_format.columns"}) {
    use(tool::SparseFlagNames(), member);
    use(tool::SharedKvFlagNames(), member);
  }
  for (const auto names :
       {tool::SharedFlagNames(), tool::InferenceFlagNames(), tool::SparseFlagNames(), tool::SharedKvFlagNames()}) {
    for (const FlagName& entry : names) EXPECT_TRUE(used.contains(&entry)) << entry.argument << " " << entry.flag;
  }
}

TEST(FlagNames, OfEveryArgumentOfEveryCommand) {
  for (const Command& command : Commands()) {
    const CliResult help = RunCli(std::string("run ") + command.name + " --help");
    ASSERT_EQ(help.exit_code, 0) << command.name << ": " << help.err;
    const std::vector<std::string> arguments = ArgumentsOf(command);
    for (const std::string& argument : arguments) {
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
