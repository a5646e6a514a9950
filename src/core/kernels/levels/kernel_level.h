#ifndef FA_CORE_KERNELS_KERNEL_LEVEL_H_
#define FA_CORE_KERNELS_KERNEL_LEVEL_H_

/// Includes that every level's source needs around the shared kernel text. No header with inline functions of the
/// standard library may be used by the kernels: such a function, compiled with AVX-512 in one file, could be the copy
/// that the linker keeps for all (scripts/check_isa_symbols.sh).
///
/// A level's source includes vocabularies (vec_*.h) and kernels (*.inc) inside its own namespace, so that no two levels
/// share a symbol. Each of these files includes those that it needs; a kernel needs a vocabulary before it.

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

namespace fa::core::kernels {

// Each sets the functions of kernels whose facts a set has. SetFunctions of pairs: the set has the f32 functions
// (TakeFunctions).
namespace portable {
void SetFunctions(KernelSet& set) noexcept;
void SetInt8Functions(Int8Set& set) noexcept;
const IndexerFunctions& Indexer() noexcept;
}  // namespace portable
namespace avx2 {
void SetFunctions(KernelSet& set) noexcept;
void SetInt8Functions(Int8Set& set) noexcept;
const IndexerFunctions& Indexer() noexcept;
}  // namespace avx2
namespace avx512 {
void SetFunctions(KernelSet& set) noexcept;
const IndexerFunctions& Indexer() noexcept;
}  // namespace avx512
namespace avx512_vnni {
void SetInt8Functions(Int8Set& set) noexcept;
}
namespace avx512_bf16 {
void SetFunctions(KernelSet& set) noexcept;
/// Those of few rows of f32 and f16.
void SetAttending(KernelSet& set) noexcept;
}  // namespace avx512_bf16
namespace avx512_amx {
void SetFunctions(KernelSet& set) noexcept;
void SetInt8Functions(Int8Set& set) noexcept;
}  // namespace avx512_amx
namespace amx_emulated {
void SetFunctions(KernelSet& set) noexcept;
void SetInt8Functions(Int8Set& set) noexcept;
}  // namespace amx_emulated
namespace neon {
void SetFunctions(KernelSet& set) noexcept;
void SetInt8Functions(Int8Set& set) noexcept;
const IndexerFunctions& Indexer() noexcept;
}  // namespace neon
namespace neon_dotprod {
void SetInt8Functions(Int8Set& set) noexcept;
}
namespace neon_bf16 {
void SetFunctions(KernelSet& set) noexcept;
void SetInt8Functions(Int8Set& set) noexcept;
}  // namespace neon_bf16

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_KERNEL_LEVEL_H_
