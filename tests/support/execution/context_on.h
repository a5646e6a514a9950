#ifndef FA_TESTS_SUPPORT_CONTEXT_ON_H_
#define FA_TESTS_SUPPORT_CONTEXT_ON_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "core/run/executor.h"
#include "fa/context.h"

namespace fa::test {

enum class ExecutorKind : uint8_t {
  kSerial,    ///< the calling thread runs tasks in claim order
  kShuffled,  ///< the calling thread runs the tasks in a random order and under random worker numbers
  kThreads,   ///< std::threads run the tasks in parallel
  kFlow,      ///< oneTBB runs the tasks, as in the library's own contexts
};

/// Returns an executor of `workers` workers, or of one worker if it is kSerial.
[[nodiscard]] std::unique_ptr<core::Executor> MakeExecutor(ExecutorKind kind, int workers);

/// Returns a context of `workers` workers whose plans run on executors of that kind.
[[nodiscard]] std::unique_ptr<Context> ContextOn(ExecutorKind kind, Isa isa, int workers);
/// Returns a context whose executors `make` returns.
[[nodiscard]] std::unique_ptr<Context> ContextOn(std::function<std::unique_ptr<core::Executor>()> make, Isa isa,
                                                 int workers);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_CONTEXT_ON_H_
