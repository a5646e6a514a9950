#ifndef FA_CORE_THREAD_ALLOWANCE_H_
#define FA_CORE_THREAD_ALLOWANCE_H_

namespace fa::core {

/// While such an object lives, oneTBB may start threads for `workers` workers. By itself oneTBB starts no more threads
/// per process than there are cores, and warns on stderr if it is asked for more. A tbb::global_control permits more.
/// The smallest of all such controls counts. So the library has one control, for the largest number of workers that any
/// executor wants, and a small context does not bind a large one. A limit that the program sets stays in force.
class ThreadAllowance {
 public:
  /// Throws std::bad_alloc. oneTBB has then been given up (core/run/scheduler.h).
  explicit ThreadAllowance(int workers);
  ~ThreadAllowance();
  ThreadAllowance(const ThreadAllowance&) = delete;
  ThreadAllowance& operator=(const ThreadAllowance&) = delete;

 private:
  int workers_;
};

}  // namespace fa::core

#endif  // FA_CORE_THREAD_ALLOWANCE_H_
