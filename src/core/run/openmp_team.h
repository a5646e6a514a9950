#ifndef FA_CORE_OPENMP_TEAM_H_
#define FA_CORE_OPENMP_TEAM_H_

#include <string_view>

#include "core/function_ref.h"
#include "fa/status.h"

namespace fa::core {

/// The threads of the OpenMP runtime that the program has named (ShareOpenMpThreads). OpenMP threads spin for a while
/// after a parallel region. So if a program's other operators run on them, no core is left for oneTBB's threads.
class OpenMpTeam {
 public:
  /// Does the work of fa::ShareOpenMpThreads, as fa/context.h documents it.
  [[nodiscard]] static Result<bool> Share(std::string_view runtime);

  using Body = FunctionRef<void(int)>;  ///< called with the worker's number

  /// Calls `body`, which must not throw, on up to `workers` threads of the shared runtime. The caller is worker 0.
  /// Returns true when all calls of `body` have returned. Returns false without a call of `body` in these cases:
  /// - no runtime is shared, or its number of threads for this caller differs from `workers`;
  /// - the caller is inside a parallel region, or another thread of the program owns the team;
  /// - the threads came too late in earlier runs, and the runtime does not bind its threads to CPUs;
  /// - the process is a forked child, which lacks the threads.
  [[nodiscard]] static bool Run(int workers, Body body) noexcept;
};

}  // namespace fa::core

#endif  // FA_CORE_OPENMP_TEAM_H_
