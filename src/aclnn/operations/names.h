#ifndef FA_ACLNN_NAMES_H_
#define FA_ACLNN_NAMES_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "fa/operators.h"
#include "fa/status.h"

namespace fa::aclnn {

/// The operators. Each operator has its own parameter names in errors.
enum class Names : uint8_t {
#define FA_VALUE(name, function, args, options, text) k##name,
  FA_OPERATORS(FA_VALUE)
#undef FA_VALUE
      kSharedKvL1Norm,  ///< the L1 norm alone, which is a call of SharedKvAttentionGrad
};

/// An argument of the library, and the name of the parameter that stands for it.
struct Rename {
  std::string_view from, to;
  int64_t first = 0;  ///< index of the parameter's entry that is entry 0 of the library's argument
};

/// Returns the operator's parameter that stands for an argument of the library, without the endings Optional and Out.
/// If the operator has no such parameter, returns the argument itself. Returns "" for an argument that errors name only
/// as an alternative to another, as in "want drop_mask or dropout".
[[nodiscard]] std::string_view ParameterOf(Names names, std::string_view argument);
/// Returns the same error with the names of the operator's parameters. `own` holds names that only this function has,
/// and takes precedence.
[[nodiscard]] Status Renamed(const Status& status, Names names, std::span<const Rename> own = {});

}  // namespace fa::aclnn

#endif  // FA_ACLNN_NAMES_H_
