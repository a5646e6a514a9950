#ifndef FA_CORE_AMX_EMULATED_H_
#define FA_CORE_AMX_EMULATED_H_

#include "fa/context.h"

namespace fa::core {

/// An instruction-set level for tests, which computes the tile products of avx512_amx in plain C++, on any CPU. Only a
/// library that is built with its tests has the level, under the name "amx_emulated". The number 31 leaves room for
/// more levels in Isa.
inline constexpr Isa kAmxEmulated = static_cast<Isa>(31);

}  // namespace fa::core

#endif  // FA_CORE_AMX_EMULATED_H_
