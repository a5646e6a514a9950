#ifndef FA_ACLNN_STREAM_H_
#define FA_ACLNN_STREAM_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "aclnn/report.h"
#include "fa/status.h"

namespace fa::aclnn {

using Job = std::function<Status()>;

/// An in-order queue with a thread of its own, which starts with the first job. A job that fails does not keep the
/// next ones from running; the first failure is kept until somebody takes it.
class Stream {
 public:
  Stream() = default;
  ~Stream() { Close(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void Push(Job job);
  /// Until what is pushed now has run. @return whether it did in time
  bool Wait(std::optional<std::chrono::milliseconds> timeout = {});
  [[nodiscard]] Failure TakeFailure();
  /// Runs what is pushed and ends the thread; the next Push starts another.
  void Close();

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable pushed_or_closing_, ran_;
  std::deque<Job> jobs_;
  uint64_t jobs_pushed_ = 0, jobs_ran_ = 0;
  bool closing_ = false;
  Failure failure_;
  std::thread thread_;
};

/// A point in a stream, recorded any number of times.
class Event {
 public:
  /// The number of the record that begins now.
  uint64_t Record();
  void Complete(uint64_t record);
  [[nodiscard]] uint64_t recorded();
  void Wait(uint64_t record);
  /// When the last record completed; nothing while it has not.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> completed_at();
  [[nodiscard]] bool complete();

 private:
  std::mutex mutex_;
  std::condition_variable completed_changed_;
  uint64_t recorded_ = 0, completed_ = 0;
  std::chrono::steady_clock::time_point time_;
};

/// Of aclrtCreateStream, or the default stream for null; null for a handle that is not alive.
[[nodiscard]] std::shared_ptr<Stream> FindStream(aclrtStream stream);
/// ACL_ERROR_INVALID_PARAM for a stream that is not alive.
aclError PushTo(aclrtStream stream, Job job);
void WaitForAllStreams();

}  // namespace fa::aclnn

#endif  // FA_ACLNN_STREAM_H_
