#ifndef FA_CORE_KERNELS_KERNEL_LEVEL_H_
#define FA_CORE_KERNELS_KERNEL_LEVEL_H_

/// Includes that every level's source needs around the shared kernel text. No header with inline functions of the
/// standard library may be used by the kernels: such a function, compiled with AVX-512 in one file, could be the copy
/// that the linker keeps for all (scripts/check_isa_symbols.sh).

#include <cstdint>

#include "core/integer.h"
#include "core/kernels/kernel_types.h"
#include "core/kernels/tile_use.h"

#define FA_INLINE static inline __attribute__((always_inline))
#define FA_NOINLINE __attribute__((noinline))
#define FA_UNROLL _Pragma("GCC unroll 16")
#define FA_NO_UNROLL _Pragma("GCC unroll 1")
#define FA_FEW_ROW_NAME(level, rows) "few_" #rows "_" #level
#define FA_FEW_FLOAT_NAME(level, rows) "few_" #rows "_floats_" #level
#define FA_STRIP_NAME(level, type, rows, width) #type "_" #rows "x" #width "_" #level
#define FA_ROW_STATE_NAME(level, type, rows, width) #type "_" #rows "x" #width "_row_state_" #level
#define FA_IN_PLACE_NAME(level, type, rows, width) #type "_" #rows "x" #width "_in_place_" #level

namespace fa::core::kernels {
namespace portable {
const KernelTable& Table() noexcept;
}
namespace avx2 {
const KernelTable& Table() noexcept;
}
namespace avx512 {
const KernelTable& Table() noexcept;
}
namespace avx512_bf16 {
const KernelTable& Table() noexcept;
/// For rows of f32 and f16.
const KernelTable& FloatTable() noexcept;
}  // namespace avx512_bf16
namespace avx512_amx {
const KernelTable& Table() noexcept;
}
namespace amx_emulated {
const KernelTable& Table() noexcept;
}
namespace neon {
const KernelTable& Table() noexcept;
}
namespace neon_bf16 {
const KernelTable& Table() noexcept;
}
}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_KERNEL_LEVEL_H_
