#ifndef FA_CORE_SCHEDULER_H_
#define FA_CORE_SCHEDULER_H_

#include <vector>

namespace fa::core {

/// oneTBB finds out about the machine when it is first asked, once per process; an exception there, for want of memory,
/// leaves it waiting for itself for ever (atomic_do_once, read in 2021.8). So the library asks only through here, where
/// the first failure is kept.

/// False once oneTBB found no memory, when the library first asked or later, and in a process forked after it was
/// asked, where its threads are missing and its locks may be held for ever: then no function of it may be called any
/// more in this process, and every run is one on the caller.
[[nodiscard]] bool SchedulerStarts() noexcept;
/// Whether oneTBB has thrown since the process began.
[[nodiscard]] bool SchedulerGivenUp() noexcept;
/// From now on SchedulerGivenUp.
void GiveUpScheduler() noexcept;
/// Calls `call`, which calls oneTBB. What that throws is thrown on, and oneTBB is given up: an exception between two
/// updates of its demand for threads, which launch a thread, leaves the next update waiting for ever. A thread that is
/// inside oneTBB at that moment, a caller at the end of its run or one that leaves an arena, cannot be fetched out: if
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

/// The NUMA nodes that oneTBB can bind threads to; none if it found no memory when first asked. @throws std::bad_alloc
[[nodiscard]] std::vector<int> BindableNumaNodes();

}  // namespace fa::core

#endif  // FA_CORE_SCHEDULER_H_
