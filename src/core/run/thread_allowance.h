#ifndef FA_CORE_THREAD_ALLOWANCE_H_
#define FA_CORE_THREAD_ALLOWANCE_H_

namespace fa::core {

/// While such an object lives, oneTBB may start threads for `workers` workers. By itself oneTBB starts at most one
/// thread per core. A tbb::global_control permits more, and the smallest of all controls applies. So the library has
/// one control only, for the largest number of workers that any executor wants.
class ThreadAllowance {
 public:
  /// Throws std::bad_alloc, after which nothing may call oneTBB any more (SchedulerGivenUp in core/run/scheduler.h).
  explicit ThreadAllowance(int workers);
  ~ThreadAllowance();
  ThreadAllowance(const ThreadAllowance&) = delete;
  ThreadAllowance& operator=(const ThreadAllowance&) = delete;

 private:
  int workers_;
};

}  // namespace fa::core

#endif  // FA_CORE_THREAD_ALLOWANCE_H_
