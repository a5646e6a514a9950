#include "aclnn/runtime/stream.h"

#include <atomic>
#include <cstdlib>
#include <exception>
#include <utility>

#include "aclnn/runtime/handle_table.h"
#include "fa/context.h"

namespace fa::aclnn {
namespace {

constinit HandleTable<Stream>
    streams;  // all streams, including the default streams of this process and of its ancestors
constinit std::atomic<Stream*> default_stream{nullptr};
constinit std::atomic<bool> ending{false};  // whether the process has begun to end, by exit or by the end of main
constinit std::atomic<uint64_t> streams_made{0};
constinit ForkSafeMutex handler_mutex;
constinit bool handler_registered = false;

// A program may end while work is queued. The exit handler finishes that work before the libraries that this one uses
// are destroyed. If static destructors queue work later, Push runs the work on the thread of the destructors. In a
// forked child the handler closes the child's own streams.
void CloseAllStreamsAtExit() {
  const std::lock_guard lock(handler_mutex);
  if (handler_registered) return;
  handler_registered = std::atexit([] {
                         ending = true;
                         const auto busy = [](const Stream& stream) { return stream.OfThisProcess() && stream.busy(); };
                         while (const auto stream = streams.FindIf(busy)) stream->Close();
                       }) == 0;
}

Failure FailureOfJob(const Job& job) noexcept {
  try {
    return FailureOf(job());
  } catch (...) {
    return FailureOfException(ACLNN_ERR_RUNTIME_ERROR);
  }
}

aclError NotAlive() { return Report({ACL_ERROR_INVALID_PARAM, "stream: not created, or destroyed"}); }

// Returns the default stream, which the first call of a process makes.
std::shared_ptr<Stream> DefaultStream() {
  while (true) {
    Stream* known = default_stream;
    auto stream = streams.Find(known);
    if (stream != nullptr && stream->OfThisProcess()) return stream;
    stream = std::make_shared<Stream>();
    streams.Insert(stream);
    if (default_stream.compare_exchange_strong(known, stream.get())) return stream;
    streams.Remove(stream.get());  // another thread made the default stream first
  }
}

// Calls visit(stream) for every stream that exists now.
template <typename Visit>
void ForEachStreamOfThisProcess(const Visit& visit) {
  const uint64_t last = streams_made;
  uint64_t visited = 0;
  while (const auto stream = streams.Next(visited, last)) {
    if (stream->OfThisProcess()) visit(*stream);
    visited = stream->number();
  }
}

aclError Synchronize(aclrtStream handle, std::optional<std::chrono::milliseconds> timeout) {
  return Guarded([&]() -> aclError {
    const std::shared_ptr<Stream> stream = FindStream(handle);
    if (stream == nullptr) return ACL_ERROR_INVALID_PARAM;
    if (!stream->Wait(timeout)) return Report({ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "stream: timeout"});
    return Report(stream->TakeFailure());
  });
}

std::optional<std::chrono::milliseconds> LimitOf(int32_t timeout) {
  if (timeout < 0) return {};
  return std::chrono::milliseconds(timeout);
}

aclError SynchronizeAll(std::optional<std::chrono::milliseconds> timeout) {
  return Guarded([&]() -> aclError {
    const auto begin = std::chrono::steady_clock::now();
    bool in_time = true;
    ForEachStreamOfThisProcess([&](Stream& stream) {
      auto left = timeout;
      if (left)
        *left -= std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
      in_time = stream.Wait(left) && in_time;
    });
    if (!in_time) return Report({ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "device: timeout"});
    Failure first;
    ForEachStreamOfThisProcess([&](Stream& stream) {
      if (first.code == ACL_SUCCESS) first = stream.TakeFailure();
    });
    return Report(first);
  });
}

}  // namespace

Stream::Stream() : fork_depth_(ForkDepth()), number_(++streams_made) {}

bool Stream::Push(Job job, const std::function<bool()>& commit) {
  std::list<Job> queued;
  queued.push_back(std::move(job));
  std::unique_lock lock(mutex_);
  if (destroyed_) return false;
  const bool idle = !busy_;
  // busy_ is set before `ending` is read. So if the exit handler has set `ending`, this thread sees it, or the handler
  // sees that the stream is busy.
  busy_ = true;
  const bool here = idle && ending;
  if (idle && !here) Start();
  if (commit && !commit()) {
    if (here) Idle();
    return false;
  }
  jobs_.splice(jobs_.end(), queued);
  ++jobs_pushed_;
  pushed_or_closing_.notify_one();
  if (here) {
    RunAll(lock);
  } else if (ending) {
    ran_.wait(lock, [this] { return !busy_; });  // waits until the exit handler has ended the stream's thread
    busy_ = true;
    RunAll(lock);
  }
  return true;
}

void Stream::Start() {
  try {
    Context::Default();  // made before the exit handler is registered, and therefore destroyed after the handler has
                         // run
    CloseAllStreamsAtExit();
    thread_ = std::thread([this] { Work(); });
  } catch (...) {
    Idle();
    throw;
  }
}

void Stream::Idle() {
  busy_ = false;
  ran_.notify_all();
}

bool Stream::Wait(std::optional<std::chrono::milliseconds> timeout) {
  std::unique_lock lock(mutex_);
  const auto done = [this, last = jobs_pushed_] { return jobs_ran_ >= last; };
  if (timeout) return ran_.wait_for(lock, *timeout, done);
  ran_.wait(lock, done);
  return true;
}

Failure Stream::TakeFailure() {
  const std::lock_guard lock(mutex_);
  return std::exchange(failure_, {});
}

void Stream::Close() {
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) {
    // Waits until the thread that closes the stream has ended the stream's thread.
    ran_.wait(lock, [this] { return !busy_; });
    return;
  }
  closing_ = true;
  std::thread thread = std::move(thread_);
  pushed_or_closing_.notify_one();
  lock.unlock();
  thread.join();
  lock.lock();
  closing_ = false;
  Idle();
}

void Stream::Destroy() {
  {
    const std::lock_guard lock(mutex_);
    destroyed_ = true;
  }
  Close();
}

void Stream::Work() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    pushed_or_closing_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    RunNext(lock);
  }
}

void Stream::RunNext(std::unique_lock<std::mutex>& lock) noexcept {
  std::list<Job> job;
  job.splice(job.end(), jobs_, jobs_.begin());
  lock.unlock();
  Failure failure = FailureOfJob(job.front());
  job.clear();  // frees what the job refers to before a waiting thread learns that the job has ended
  lock.lock();
  if (failure_.code == ACL_SUCCESS) failure_ = std::move(failure);
  ++jobs_ran_;
  ran_.notify_all();
}

void Stream::RunAll(std::unique_lock<std::mutex>& lock) noexcept {
  while (!jobs_.empty()) RunNext(lock);
  Idle();
}

std::shared_ptr<Stream> FindStream(aclrtStream stream) {
  if (stream == nullptr) return DefaultStream();
  auto found = streams.Find(stream);
  if (found != nullptr && found->OfThisProcess()) return found;
  if (found == nullptr) {
    NotAlive();
  } else {
    Report({ACL_ERROR_INVALID_PARAM, "stream: made before fork by the parent process, want one of this process"});
  }
  return nullptr;
}

aclError PushTo(aclrtStream stream, Job job, const std::function<bool()>& commit) {
  const std::shared_ptr<Stream> found = FindStream(stream);
  if (found == nullptr) return ACL_ERROR_INVALID_PARAM;
  return found->Push(std::move(job), commit) ? ACL_SUCCESS : NotAlive();
}

void WaitForAllStreams() {
  ForEachStreamOfThisProcess([](Stream& stream) { stream.Wait(); });
}

}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclError aclrtCreateStream(aclrtStream* stream) {
  return Guarded([&]() -> aclError {
    if (stream == nullptr) return Report({ACL_ERROR_INVALID_PARAM, "stream: null"});
    *stream = streams.Insert(std::make_shared<Stream>());
    return ACL_SUCCESS;
  });
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t /*priority*/, uint32_t /*flag*/) {
  return aclrtCreateStream(stream);
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return Guarded([&]() -> aclError {
    if (stream == nullptr) return NotAlive();
    if (FindStream(stream) == nullptr) return ACL_ERROR_INVALID_PARAM;
    const std::shared_ptr<Stream> removed = streams.Remove(stream);
    if (removed == nullptr) return NotAlive();  // another thread removed the stream meanwhile
    removed->Destroy();
    return Report(removed->TakeFailure());
  });
}

aclError aclrtSynchronizeStream(aclrtStream stream) { return Synchronize(stream, {}); }

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  return Synchronize(stream, LimitOf(timeout));
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  return Guarded([&]() -> aclError {
    if (status == nullptr) return Report({ACL_ERROR_INVALID_PARAM, "status: null"});
    const std::shared_ptr<Stream> found = FindStream(stream);
    if (found == nullptr) return ACL_ERROR_INVALID_PARAM;
    const bool done = found->Wait(std::chrono::milliseconds(0));
    *status = done ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    return ACL_SUCCESS;
  });
}

aclError aclrtSynchronizeDevice() { return SynchronizeAll({}); }

aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout) { return SynchronizeAll(LimitOf(timeout)); }
