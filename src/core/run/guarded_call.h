#ifndef FA_CORE_GUARDED_CALL_H_
#define FA_CORE_GUARDED_CALL_H_

#include <string_view>
#include <type_traits>

#include "core/fp_environment.h"
#include "core/kernels/tile_use.h"
#include "fa/status.h"

namespace fa::core {

/// The status for the exception in flight; call it from a catch block. Out of memory (also for a container told to
/// become longer than any may be) names `what`; every other exception is an internal error with its own text.
[[nodiscard]] Status StatusOfCurrentException(std::string_view what) noexcept;

/// Returns what `body` returns, a Status or a Result: the frame of every public function that can fail. The body
/// computes in the library's floating-point environment, and an exception becomes the status.
/// @param what  names what needed memory if memory is short: "the plan"
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
