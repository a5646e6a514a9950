#ifndef FA_TOOLS_FA_FLAGS_FAILURE_H_
#define FA_TOOLS_FA_FLAGS_FAILURE_H_

#include <span>
#include <stdexcept>
#include <string>

#include "fa/status.h"
#include "flags/flag_names.h"

namespace fa::tool {

/// A mistake of the user, after which the tool ends with exit code 2. what() is one line that names the argument.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A problem with files or memory, or a defect, after which the tool ends with exit code 1.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws the error of a status, with flags instead of arguments. Throws UsageError for bad arguments and for calls
/// that this machine cannot run, and otherwise Failure.
/// @param names  flags that differ in this command from SharedFlagNames()
void ThrowUnlessOk(const Status& status, std::span<const FlagName> names = {});
/// Works like ThrowUnlessOk, for commands in which --shape describes all tensors.
void ThrowUnlessOkFromShape(const Status& status);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FLAGS_FAILURE_H_
