#ifndef FA_CORE_AMX_EMULATED_H_
#define FA_CORE_AMX_EMULATED_H_

#include "fa/context.h"

namespace fa::core {

/// For tests, and no part of the interface: the tile products of avx512_amx in plain C++, on any CPU, in a library that
/// is built with its tests. AllIsas, Name and ParseIsa ("amx_emulated") know it there.
inline constexpr Isa kAmxEmulated = static_cast<Isa>(static_cast<uint8_t>(Isa::kNeonBf16) + 1);

}  // namespace fa::core

#endif  // FA_CORE_AMX_EMULATED_H_
