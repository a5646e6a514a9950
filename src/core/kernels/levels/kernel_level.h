#ifndef FA_CORE_KERNELS_KERNEL_LEVEL_H_
#define FA_CORE_KERNELS_KERNEL_LEVEL_H_

/// The includes that every level's source needs for the shared text of kernels. Kernels include no standard header that
/// defines inline functions. A file compiled with AVX-512 could contain a copy of such a function, and the linker could
/// keep that copy for all files (scripts/check_isa_symbols.sh).
///
/// A level's source includes its vec_*.h, which define the vector functions, and kernels (*.inc) inside its own
/// namespace, so that no two levels share a symbol. A kernel file includes the kernel files that it needs, but no
/// vec_*.h. The source defines some of the functions that registry.cc declares for its level.

#include <cstdint>

#include "core/integer.h"
#include "core/kernels/indexer/indexer_kernel_types.h"
#include "core/kernels/kernel_set.h"
#include "core/kernels/kernel_types.h"
#include "core/kernels/tile_use.h"

#define FA_INLINE static inline __attribute__((always_inline))
#define FA_NOINLINE __attribute__((noinline))
#define FA_UNROLL _Pragma("GCC unroll 16")
#define FA_NO_UNROLL _Pragma("GCC unroll 1")

#endif  // FA_CORE_KERNELS_KERNEL_LEVEL_H_
