#ifndef FA_ACLNN_NAMES_H_
#define FA_ACLNN_NAMES_H_

#include <cstdint>
#include <string_view>

#include "fa/status.h"

namespace fa::aclnn {

/// Operators of the device. Operators with equal parameter names share a value.
enum class Names : uint8_t {
  kForward,
  kBackward,
  kMerge,
  kPrompt,
  kDecode,
  kSparseForward,
  kSparseBackward,
  kIndexer,
  kIndexerGrad,
  kIndexerLoss,
  kIndexerLse,
};

/// The operator's parameter that stands for an argument of the library, without the endings Optional and Out. If the
/// operator has no such parameter, it is the argument itself.
[[nodiscard]] std::string_view ParameterOf(Names names, std::string_view argument);
/// The same error with the names of the operator's parameters.
[[nodiscard]] Status Renamed(const Status& status, Names names);

}  // namespace fa::aclnn

#endif  // FA_ACLNN_NAMES_H_
