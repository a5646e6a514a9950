#ifndef FA_CORE_SCHEDULER_H_
#define FA_CORE_SCHEDULER_H_

namespace fa::core {

/// oneTBB asks about the machine when it is first used, once per process; an exception there, for lack of memory,
/// leaves oneTBB waiting for itself for ever (atomic_do_once, read in 2021.8). So the library calls oneTBB only through
/// this header, where the first failure is kept.

/// False once oneTBB found no memory, at its first use or later, and in a process forked after its first use, where its
/// threads are missing and its locks may be held for ever. Then no function of oneTBB may be called any more in this
/// process, and every run is on the caller.
[[nodiscard]] bool SchedulerStarts() noexcept;
/// Whether oneTBB has thrown since the process began.
[[nodiscard]] bool SchedulerGivenUp() noexcept;
/// Makes SchedulerGivenUp true from now on.
void GiveUpScheduler() noexcept;
/// Calls `call`, which calls oneTBB. An exception of `call` is thrown on, and oneTBB is given up: an exception between
/// two updates of its demand for threads, which launch a thread, leaves the next update waiting for ever. A thread that
/// is inside oneTBB at that moment (a caller at the end of its run, or one that leaves an arena) cannot be helped: if
/// oneTBB makes it wait for such an update, it waits for ever.
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
