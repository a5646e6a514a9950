#ifndef FA_CORE_LEVEL_ORDER_H_
#define FA_CORE_LEVEL_ORDER_H_

#include "core/amx_emulated.h"
#include "fa/context.h"

namespace fa::core {

/// Returns whether a CPU of `level` can run code that needs the level `part`. Within a family of processors, each level
/// includes the lower ones.
[[nodiscard]] constexpr bool IsPartOf(Isa level, Isa part) {
  if (part == Isa::kPortable || level == part) return true;
  if (level == kAmxEmulated || part == kAmxEmulated) return false;
  return level > part && (level >= Isa::kNeon) == (part >= Isa::kNeon);
}

}  // namespace fa::core

#endif  // FA_CORE_LEVEL_ORDER_H_
