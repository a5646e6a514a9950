#ifndef FA_ACLNN_NAMES_H_
#define FA_ACLNN_NAMES_H_

#include <cstdint>
#include <string_view>

#include "fa/operators.h"
#include "fa/status.h"

namespace fa::aclnn {

/// Whose parameter names an error uses: kForward and so on.
enum class Names : uint8_t {
#define FA_VALUE(name, function, args, options, text) k##name,
  FA_OPERATORS(FA_VALUE)
#undef FA_VALUE
};

/// The operator's parameter that stands for an argument of the library, without the endings Optional and Out. If the
/// operator has no such parameter, it is the argument itself, or "" if errors only offer the argument as an
/// alternative.
[[nodiscard]] std::string_view ParameterOf(Names names, std::string_view argument);
/// The same error with the names of the operator's parameters.
[[nodiscard]] Status Renamed(const Status& status, Names names);

}  // namespace fa::aclnn

#endif  // FA_ACLNN_NAMES_H_
