#ifndef FA_BENCHMARKS_KERNELS_BENCHMARKS_H_
#define FA_BENCHMARKS_KERNELS_BENCHMARKS_H_

#include "core/kernels/int8/int8_kernel_types.h"
#include "core/kernels/kernel_types.h"

namespace fa::core::kernels {

// Each function registers benchmarks. A benchmark checks its kernel's result before it times the kernel.

/// Registers the kernels of one line of kernels.inc, except passes that another line registers.
void RegisterLine(const KernelTable& table, const StripKernels& kernels);
void RegisterRowKernels(const KernelTable& table);
void RegisterPairRows(const KernelTable& table);
/// Registers the loops of a level with a tile unit.
void RegisterTileLoops(const KernelTable& table);
/// Registers the int8 kernels of one line of kernels.inc.
void RegisterInt8Line(const Int8Table& table, const Int8Kernels& kernels);

}  // namespace fa::core::kernels

#endif  // FA_BENCHMARKS_KERNELS_BENCHMARKS_H_
