#ifndef FA_CORE_SCHEDULER_H_
#define FA_CORE_SCHEDULER_H_

namespace fa::core {

/// At its first use in a process, oneTBB asks the system about the machine. If this first use throws for lack of
/// memory, the next use waits forever for it to end (atomic_do_once of version 2021.8). So the library calls oneTBB
/// only through this header, which remembers the first failure.

/// Returns whether this process may use oneTBB. The result is false once oneTBB has found no memory, and in a child
/// that is forked after the first use. Then nothing in this process may call oneTBB, and every run uses only the
/// caller's thread.
[[nodiscard]] bool SchedulerStarts() noexcept;
/// Returns whether oneTBB has thrown since the process began.
[[nodiscard]] bool SchedulerGivenUp() noexcept;
/// Makes SchedulerGivenUp true from now on.
void GiveUpScheduler() noexcept;
/// Calls `call`, which calls oneTBB. If `call` throws, SchedulerGivenUp becomes true, and the exception goes on to the
/// caller. Another thread that is inside oneTBB at that moment may wait forever, because oneTBB's update of its demand
/// for threads never ends.
template <typename Call>
void AskScheduler(const Call& call) {
  try {
    call();
  } catch (...) {
    GiveUpScheduler();
    throw;
  }
}

}  // namespace fa::core

#endif  // FA_CORE_SCHEDULER_H_
