#ifndef FA_CORE_LEVEL_ORDER_H_
#define FA_CORE_LEVEL_ORDER_H_

#include "core/amx_emulated.h"
#include "fa/context.h"

namespace fa::core {

/// Returns whether a CPU of `level` can run code that needs the level `part`. The function can be used in constant
/// expressions. Levels ascend within a family of processors.
[[nodiscard]] constexpr bool IsPartOf(Isa level, Isa part) {
  if (part == Isa::kPortable || level == part) return true;
  if (level == kAmxEmulated || part == kAmxEmulated) return false;
  return level > part && (level >= Isa::kNeon) == (part >= Isa::kNeon);
}

}  // namespace fa::core

#endif  // FA_CORE_LEVEL_ORDER_H_
