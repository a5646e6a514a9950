#ifndef FA_TOOLS_FA_FLAGS_FAILURE_H_
#define FA_TOOLS_FA_FLAGS_FAILURE_H_

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fa/status.h"

namespace fa::tool {

/// The caller's mistake: exit code 2. what() is one line that names the argument.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Files, memory, defects: exit code 1.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws what a status says: UsageError for bad arguments and for what this machine cannot do, else Failure. The flag
/// is found from the argument that the message begins with.
void ThrowUnlessOk(const Status& status);
/// The same where flags are called otherwise than by default: names of the C++ interface and their flags.
struct FlagName {
  std::string_view argument;
  const char* flag;
};
void ThrowUnlessOk(const Status& status, std::span<const FlagName> names);
/// The same with this flag.
void ThrowUnlessOk(const char* flag, const Status& status);
/// The same where --shape stands for all tensors.
void ThrowUnlessOkFromShape(const Status& status);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FLAGS_FAILURE_H_
