#ifndef FA_ACLNN_NAMES_H_
#define FA_ACLNN_NAMES_H_

#include <cstdint>
#include <string_view>

#include "fa/status.h"

namespace fa::aclnn {

/// The operators by how their parameters are called.
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

/// The operator's parameter, without the endings Optional and Out, that stands for an argument of the library's; where
/// it has none, the argument.
[[nodiscard]] std::string_view ParameterOf(Names names, std::string_view argument);
/// The same error in the operator's terms.
[[nodiscard]] Status Renamed(const Status& status, Names names);

}  // namespace fa::aclnn

#endif  // FA_ACLNN_NAMES_H_
