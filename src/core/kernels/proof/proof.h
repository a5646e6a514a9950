#ifndef FA_CORE_KERNELS_PROOF_H_
#define FA_CORE_KERNELS_PROOF_H_

#include <string>

#include "core/kernels/indexer/indexer_kernel_types.h"
#include "core/kernels/int8/int8_kernel_types.h"
#include "core/kernels/kernel_types.h"

/// Kernels tried on this CPU: a fixed set of small problems, computed by a level and by the one below it. Every kernel
/// of a table is in some problem, with every branch that its arguments choose, full blocks and tails. Up to ten
/// milliseconds for a table of floats, one for the others.
namespace fa::core::kernels {

/// @return what differs by more than rounding ("scores of f32_6x12_neon"); empty: nothing
[[nodiscard]] std::string Disproof(const KernelTable& level, const KernelTable& below);
/// What differs at all: integers, and floats that all levels compute in one order.
[[nodiscard]] std::string Disproof(const Int8Table& level, const Int8Table& below);
[[nodiscard]] std::string Disproof(const IndexerKernels& level, const IndexerKernels& below);

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_PROOF_H_
