#ifndef FA_OPS_PLANNED_TENSORS_H_
#define FA_OPS_PLANNED_TENSORS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "fa/status.h"
#include "fa/tensor.h"
#include "ops/bind/call_tensors.h"

namespace fa::ops {

/// What a plan keeps about a tensor, to compare it with the tensor in Run. If the tensor is absent, only `present` has
/// a meaning.
struct PlannedTensor {
  bool present = false;
  DType dtype = DType::kF32;
  Dims shape, stride;
  int64_t span_bytes = 0;  ///< bytes from the tensor's first byte to the end of its last element
};

/// Returns what a plan keeps about checked tensors: one entry per tensor, in the same order.
[[nodiscard]] std::vector<PlannedTensor> KeepPlanned(std::span<const CallTensor> tensors);

/// Checks that the tensor is the planned one: shape, stride, type, presence.
[[nodiscard]] Status CheckPlanned(const CallTensor& got, const PlannedTensor& planned);
[[nodiscard]] Status CheckPlannedLengths(const char* name, std::span<const int64_t> got,
                                         std::span<const int64_t> planned);
/// Checks that the output shares no element with the other tensor.
[[nodiscard]] Status CheckApart(const CallTensor& output, const PlannedTensor& planned, const CallTensor& other,
                                const PlannedTensor& other_planned);
/// Check all tensors of a call. CheckAllPlanned calls CheckPlanned for each tensor. CheckAllApart calls CheckApart for
/// every output and every tensor before it.
[[nodiscard]] Status CheckAllPlanned(std::span<const CallTensor> tensors, std::span<const PlannedTensor> planned);
[[nodiscard]] Status CheckAllApart(std::span<const CallTensor> tensors, std::span<const PlannedTensor> planned);

}  // namespace fa::ops

#endif  // FA_OPS_PLANNED_TENSORS_H_
