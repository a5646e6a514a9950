#include "core/run/thread_allowance.h"

#include <tbb/global_control.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <set>

#include "core/run/scheduler.h"

namespace fa::core {
namespace {

constexpr auto kParameter = tbb::global_control::max_allowed_parallelism;

/// The numbers of workers that all executors want. The object is never destroyed, because an executor may be destroyed
/// after the static objects of this file.
struct Wishes {
  std::mutex mutex;
  std::multiset<int> workers;
  std::unique_ptr<tbb::global_control> control;  ///< the control; null if oneTBB allows enough threads without it
  size_t allowed = 0;                            ///< number of threads that `control` allows

  /// Makes the control for the largest number of workers wanted so far, and keeps it until no executor is left.
  /// Allowing more threads than needed does no harm, but lowering the number would limit the program's own arenas. The
  /// next control is made before the present one is destroyed.
  void Apply() {
    const size_t wanted = workers.empty() ? 0 : static_cast<size_t>(*workers.rbegin());
    if (wanted == 0) control.reset();
    if (wanted == 0) allowed = 0;
    if (wanted <= allowed) return;
    if (control == nullptr && tbb::global_control::active_value(kParameter) >= wanted) return;
    control = std::make_unique<tbb::global_control>(kParameter, wanted);
    allowed = wanted;
  }
};

Wishes& AllWishes() {
  static Wishes* const wishes = new Wishes;
  return *wishes;
}

}  // namespace

ThreadAllowance::ThreadAllowance(int workers) : workers_(workers) {
  AskScheduler([&] {
    Wishes& wishes = AllWishes();
    const std::lock_guard lock(wishes.mutex);
    const auto own = wishes.workers.insert(workers);
    try {
      wishes.Apply();
    } catch (...) {
      wishes.workers.erase(own);
      throw;
    }
  });
}

ThreadAllowance::~ThreadAllowance() {
  Wishes& wishes = AllWishes();
  const std::lock_guard lock(wishes.mutex);
  wishes.workers.erase(wishes.workers.find(workers_));
  if (SchedulerGivenUp()) return;
  try {
    wishes.Apply();
  } catch (...) {
    GiveUpScheduler();
  }
}

}  // namespace fa::core
