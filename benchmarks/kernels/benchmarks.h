#ifndef FA_BENCHMARKS_KERNELS_BENCHMARKS_H_
#define FA_BENCHMARKS_KERNELS_BENCHMARKS_H_

#include "core/kernels/int8/int8_kernel_types.h"
#include "core/kernels/kernel_types.h"

namespace fa::core::kernels {

// Each function registers benchmarks that check a kernel's result before they time it.

/// Registers one line of kernels.inc, without the passes that it shares with another line. A kernel set of few rows
/// shares the passes of the strip that it is built on. A strip that keeps its state by rows has its own product, and
/// its own scores if it reads keys in place; it shares the other passes.
void RegisterLine(const KernelTable& table, const StripKernels& kernels);
void RegisterRowKernels(const KernelTable& table);
void RegisterPairRows(const KernelTable& table);
/// Registers the int8 kernels of one line of kernels.inc.
void RegisterInt8Line(const Int8Table& table, const Int8Kernels& kernels);

}  // namespace fa::core::kernels

#endif  // FA_BENCHMARKS_KERNELS_BENCHMARKS_H_
