#ifndef FA_TOOLS_FA_FLAG_NAMES_H_
#define FA_TOOLS_FA_FLAG_NAMES_H_

#include <span>
#include <string>
#include <string_view>

namespace fa::tool {

/// An argument of the C++ interface whose flag is not its name with hyphens. "out.dtype" is a part of one that has a
/// flag of its own.
struct FlagName {
  std::string_view argument;
  const char* flag;
};

/// What commands call otherwise than most: prompt and decode / the sparse family.
[[nodiscard]] std::span<const FlagName> InferenceFlagNames();
[[nodiscard]] std::span<const FlagName> SparseFlagNames();

/// Looks into `names`, then into those that most commands share. Null where the argument is in neither.
[[nodiscard]] const char* FindFlag(std::string_view argument, std::span<const FlagName> names = {});
/// The flag of an argument: that, or its name with hyphens.
[[nodiscard]] std::string FlagOf(std::string_view argument, std::span<const FlagName> names = {});

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FLAG_NAMES_H_
