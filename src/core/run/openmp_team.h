#ifndef FA_CORE_OPENMP_TEAM_H_
#define FA_CORE_OPENMP_TEAM_H_

#include <string_view>

#include "core/function_ref.h"
#include "fa/status.h"

namespace fa::core {

/// The threads of an OpenMP runtime that the program has named (ShareOpenMpThreads). After a parallel region such
/// threads spin for a while, so a program whose other operators run on them has no core left for oneTBB's threads.
class OpenMpTeam {
 public:
  /// As ShareOpenMpThreads.
  [[nodiscard]] static Result<bool> Share(std::string_view runtime);

  using Body = FunctionRef<void(int)>;  ///< called with the worker

  /// Calls `body`, which must not throw, on up to `workers` threads of the shared runtime, on the caller as worker 0,
  /// and returns true when all have returned. Returns false and calls nothing where no runtime is shared, where it has
  /// another number of threads for this caller, where the caller is inside a parallel region, where another thread of
  /// the program has the team, after runs whose threads came too late, and in a forked child, where the threads are
  /// missing.
  [[nodiscard]] static bool Run(int workers, Body body) noexcept;
};

}  // namespace fa::core

#endif  // FA_CORE_OPENMP_TEAM_H_
