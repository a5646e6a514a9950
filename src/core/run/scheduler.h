#ifndef FA_CORE_SCHEDULER_H_
#define FA_CORE_SCHEDULER_H_

namespace fa::core {

/// oneTBB asks about the machine at its first use in a process. If memory is short and that throws, oneTBB waits for
/// itself forever (atomic_do_once of version 2021.8). So the library calls oneTBB only through this header, which keeps
/// the first failure.

/// Returns false once oneTBB has found no memory, at its first use or later. It also returns false in a child that is
/// forked after the first use: there threads are missing, and locks may be held forever. After false, nothing in this
/// process may call oneTBB, and every run is on the caller.
[[nodiscard]] bool SchedulerStarts() noexcept;
/// Whether oneTBB has thrown since the process began.
[[nodiscard]] bool SchedulerGivenUp() noexcept;
/// Makes SchedulerGivenUp true from now on.
void GiveUpScheduler() noexcept;
/// Calls `call`, which calls oneTBB. If `call` throws, oneTBB is given up, and the exception goes on to the caller.
/// oneTBB launches threads when it updates its demand for threads. If that throws between two updates, the next update
/// waits forever. A thread may be inside oneTBB at that moment: a caller at the end of its run, or a thread that leaves
/// an arena. If oneTBB makes that thread wait for such an update, it waits forever, and nothing can be done for it.
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
