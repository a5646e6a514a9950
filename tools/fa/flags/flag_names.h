#ifndef FA_TOOLS_FA_FLAG_NAMES_H_
#define FA_TOOLS_FA_FLAG_NAMES_H_

#include <span>
#include <string>
#include <string_view>

namespace fa::tool {

/// An argument of the C++ interface whose flag is not its name with hyphens. "out.dtype" is a part of an argument that
/// has a flag of its own.
struct FlagName {
  std::string_view argument;
  const char* flag;
};

/// The names that most commands share, and those of commands that differ from them: prompt and decode, and the sparse
/// family.
[[nodiscard]] std::span<const FlagName> SharedFlagNames();
[[nodiscard]] std::span<const FlagName> InferenceFlagNames();
[[nodiscard]] std::span<const FlagName> SparseFlagNames();

/// The flag in `names`, else in SharedFlagNames(). Null if the argument is in neither.
[[nodiscard]] const char* FindFlag(std::string_view argument, std::span<const FlagName> names = {});
/// The flag of an argument: FindFlag, or else its name with hyphens.
[[nodiscard]] std::string FlagOf(std::string_view argument, std::span<const FlagName> names = {});

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FLAG_NAMES_H_
