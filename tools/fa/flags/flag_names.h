#ifndef FA_TOOLS_FA_FLAG_NAMES_H_
#define FA_TOOLS_FA_FLAG_NAMES_H_

#include <span>
#include <string>
#include <string_view>

namespace fa::tool {

/// An argument of the C++ interface whose flag is not the argument's name with hyphens. `argument` may also be a part
/// of an argument that has a flag, such as "out.dtype".
struct FlagName {
  std::string_view argument;
  const char* flag;
};

/// Returns the flags of arguments that most commands share. Prompt, decode and the sparse commands rename a few more
/// arguments.
[[nodiscard]] std::span<const FlagName> SharedFlagNames();
[[nodiscard]] std::span<const FlagName> InferenceFlagNames();
[[nodiscard]] std::span<const FlagName> SparseFlagNames();
[[nodiscard]] std::span<const FlagName> SharedKvFlagNames();

/// Returns the flag of an argument in `names` or SharedFlagNames(), or null if neither has the argument.
[[nodiscard]] const char* FindFlag(std::string_view argument, std::span<const FlagName> names = {});
/// Returns what FindFlag returns, or if that is null, the argument's name with hyphens.
[[nodiscard]] std::string FlagOf(std::string_view argument, std::span<const FlagName> names = {});

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FLAG_NAMES_H_
