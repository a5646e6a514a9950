#ifndef FA_CORE_GUARDED_CALL_H_
#define FA_CORE_GUARDED_CALL_H_

#include <string_view>
#include <type_traits>

#include "core/fp_environment.h"
#include "core/kernels/tile_use.h"
#include "fa/status.h"

namespace fa::core {

/// Returns the status for the exception that is being handled. Call this function from a catch block. If memory is
/// short, or a container would be longer than its type allows, the status names `what`. Every other exception is an
/// internal error with its own text.
[[nodiscard]] Status StatusOfCurrentException(std::string_view what) noexcept;

/// Returns what `body` returns, a Status or a Result. Every public function that can fail runs its body through
/// GuardedCall. The body computes in the library's floating-point environment. An exception from the body becomes a
/// status.
/// @param what  what the memory was for, in an out-of-memory status: "the plan"
template <typename Body>
[[nodiscard]] std::invoke_result_t<const Body&> GuardedCall(std::string_view what, const Body& body) noexcept {
  const FpEnvironment environment;
  const kernels::TileScope tiles;
  try {
    return body();
  } catch (...) {
    return StatusOfCurrentException(what);
  }
}

}  // namespace fa::core

#endif  // FA_CORE_GUARDED_CALL_H_
