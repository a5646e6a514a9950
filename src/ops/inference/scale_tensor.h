#ifndef FA_OPS_SCALE_TENSOR_H_
#define FA_OPS_SCALE_TENSOR_H_

#include <cstdint>

#include "fa/error_text.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::ops {

enum class Need : uint8_t { kForbidden, kOptional, kRequired };

/// A tensor of scales or offsets, and whether the types of a call need it.
struct WantedScale {
  const char* name;
  const TensorView& tensor;
  Need need;
  const ErrorText& reason;  ///< why the call needs the tensor: "q.dtype=f16"
};

[[nodiscard]] Status CheckPresence(const WantedScale& want);

/// Returns the number of elements of a tensor whose shape is checked.
[[nodiscard]] int64_t ElementsOf(const TensorView& tensor);

}  // namespace fa::ops

#endif  // FA_OPS_SCALE_TENSOR_H_
