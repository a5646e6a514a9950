#ifndef FA_CORE_THREAD_ALLOWANCE_H_
#define FA_CORE_THREAD_ALLOWANCE_H_

namespace fa::core {

/// While such an object lives, oneTBB may start threads for `workers` workers. By itself oneTBB starts no more threads
/// per process than there are cores, and warns on stderr if a caller asks for more. A tbb::global_control permits more
/// threads. If there are several such controls, the smallest number applies. So the library has only one control, for
/// the largest number of workers that any executor wants. A context with few workers then does not limit a context with
/// many. A limit that the program sets stays in force.
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
