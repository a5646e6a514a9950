#ifndef FA_ACLNN_STREAM_H_
#define FA_ACLNN_STREAM_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "aclnn/runtime/process.h"
#include "aclnn/runtime/report.h"
#include "fa/status.h"

namespace fa::aclnn {

using Job = std::function<Status()>;

/// An in-order queue with a thread of its own, which starts with the first job. If a job fails or throws, the next jobs
/// run all the same. The first failure is kept until a caller takes it. After the process has begun to end, jobs run on
/// the thread that calls Push.
///
/// A stream serves the process that made it. A forked child has the queue but not the thread, and does not run the
/// jobs.
class Stream {
 public:
  Stream();
  ~Stream() { Close(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Returns whether this process made the stream. If not, no other member may be called.
  [[nodiscard]] bool OfThisProcess() const { return fork_depth_ == ForkDepth(); }

  /// Streams are counted from 1 on, in the order in which they were made.
  [[nodiscard]] uint64_t number() const { return number_; }

  /// Queues a job. `commit` is called while the queue is locked, when queueing can no longer fail. `commit` must not
  /// throw.
  /// @return true if the job is queued; false after Destroy or if commit() returns false
  bool Push(Job job, const std::function<bool()>& commit = {});
  /// Waits until the jobs pushed so far have run.
  /// @return whether the jobs have run within the timeout
  bool Wait(std::optional<std::chrono::milliseconds> timeout = {});
  [[nodiscard]] Failure TakeFailure();
  /// Runs the pushed jobs and ends the thread; the next Push starts another thread.
  void Close();
  /// Closes the stream for good, so that Push takes no more jobs.
  void Destroy();
  /// Returns whether there is a thread, or a caller of Push, that runs the jobs.
  [[nodiscard]] bool busy() const { return busy_; }

 private:
  void Start();
  void Work() noexcept;
  void RunNext(std::unique_lock<std::mutex>& lock) noexcept;
  void RunAll(std::unique_lock<std::mutex>& lock) noexcept;
  void Idle();

  const uint32_t fork_depth_;
  const uint64_t number_;
  std::mutex mutex_;
  std::condition_variable pushed_or_closing_, ran_;
  std::list<Job> jobs_;
  uint64_t jobs_pushed_ = 0, jobs_ran_ = 0;
  std::atomic<bool> busy_ = false;  // whether the thread, or a caller of Push, may run jobs
  bool closing_ = false, destroyed_ = false;
  Failure failure_;
  std::thread thread_;
};

/// Returns the stream of the handle. A null handle stands for the default stream of this process. If there is no such
/// stream, reports ACL_ERROR_INVALID_PARAM and returns null.
[[nodiscard]] std::shared_ptr<Stream> FindStream(aclrtStream stream);
/// Pushes the job.
/// @return ACL_ERROR_INVALID_PARAM if the stream is not alive in this process
aclError PushTo(aclrtStream stream, Job job, const std::function<bool()>& commit = {});
void WaitForAllStreams();

}  // namespace fa::aclnn

#endif  // FA_ACLNN_STREAM_H_
