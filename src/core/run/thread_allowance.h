#ifndef FA_CORE_THREAD_ALLOWANCE_H_
#define FA_CORE_THREAD_ALLOWANCE_H_

namespace fa::core {

/// While such an object lives, oneTBB may start threads for `workers` workers. Of itself oneTBB starts no more threads
/// in a process than there are cores, and says so on stderr when asked for more, unless a tbb::global_control permits
/// them. Of all such controls the smallest counts. So the library has one, for the largest number of workers that any
/// executor wants: a small context does not bind a large one. A limit that the program sets stays in force.
class ThreadAllowance {
 public:
  /// Throws std::bad_alloc; then oneTBB has been given up (core/run/scheduler.h).
  explicit ThreadAllowance(int workers);
  ~ThreadAllowance();
  ThreadAllowance(const ThreadAllowance&) = delete;
  ThreadAllowance& operator=(const ThreadAllowance&) = delete;

 private:
  int workers_;
};

}  // namespace fa::core

#endif  // FA_CORE_THREAD_ALLOWANCE_H_
