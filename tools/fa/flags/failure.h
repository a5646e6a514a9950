#ifndef FA_TOOLS_FA_FLAGS_FAILURE_H_
#define FA_TOOLS_FA_FLAGS_FAILURE_H_

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fa/status.h"

namespace fa::tool {

/// A mistake of the caller: exit code 2. what() is one line that names the argument.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A problem with files or memory, or a defect: exit code 1.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws what a status says: UsageError for bad arguments and for what this machine cannot do, else Failure. The
/// message begins with an argument, and the flag is found from it.
void ThrowUnlessOk(const Status& status);
/// The same for commands whose flags differ from the default: names of the C++ interface and their flags.
struct FlagName {
  std::string_view argument;
  const char* flag;
};
void ThrowUnlessOk(const Status& status, std::span<const FlagName> names);
/// The same with this flag.
void ThrowUnlessOk(const char* flag, const Status& status);
/// The same for commands in which --shape stands for all tensors.
void ThrowUnlessOkFromShape(const Status& status);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FLAGS_FAILURE_H_
