#ifndef FA_TESTS_OPS_LIMITS_CLAIMED_TENSORS_H_
#define FA_TESTS_OPS_LIMITS_CLAIMED_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::test {

constexpr int64_t Power(int exponent) { return int64_t{1} << exponent; }

/// Returns an input of any size that has memory of a few bytes. Every stride except the innermost is 0.
[[nodiscard]] TensorView Claim(const Dims& shape, DType dtype = DType::kF32);
/// Returns a dense output of any size that has no memory.
[[nodiscard]] MutableTensorView ClaimOutput(const Dims& shape, DType dtype = DType::kF32);

/// Returns the sizes 2^31, 2^31 + 1, 2^32, 2^32 + 1, 2^40, 2^48, 2^55, 2^60, 2^61, 2^62, 2^63 - 1 that are at least
/// `least`.
[[nodiscard]] std::vector<int64_t> AbsurdSizes(int64_t least = 0);

/// Expects an error that ExpectRefused accepts, or a plan whose workspace is below 2^47 bytes.
void ExpectRefusedOrSmall(const Result<Plan>& plan, const std::string& what);
template <typename Args>
void ExpectRefusedOrSmall(const Result<PlanFor<Args>>& plan, const std::string& what) {
  ExpectRefusedOrSmall(AnyPlan(plan), what);
}
/// Expects kInvalidArgument or kOutOfMemory. The message must have at least two numbers: the wanted one and the given
/// one.
void ExpectRefused(const Status& status, const std::string& what);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_LIMITS_CLAIMED_TENSORS_H_
