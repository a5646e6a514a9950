#ifndef FA_CORE_AMX_EMULATED_H_
#define FA_CORE_AMX_EMULATED_H_

#include "fa/context.h"

namespace fa::core {

/// A level for tests, which is no part of the interface. It has the tile products of avx512_amx in plain C++, for any
/// CPU. A library that is built with its tests has it, and AllIsas, Name and ParseIsa know it there as "amx_emulated".
/// Its number leaves room for more levels of the interface.
inline constexpr Isa kAmxEmulated = static_cast<Isa>(31);

}  // namespace fa::core

#endif  // FA_CORE_AMX_EMULATED_H_
