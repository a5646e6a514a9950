#include "aclnn/stream.h"

#include <unistd.h>

#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#include "aclnn/handle_table.h"
#include "fa/context.h"

namespace fa::aclnn {
namespace {

HandleTable<Stream>& Streams() {
  static auto& streams = *new HandleTable<Stream>;
  return streams;
}

HandleTable<Event>& Events() {
  static auto& events = *new HandleTable<Event>;
  return events;
}

std::shared_ptr<Stream>& DefaultStream() {
  static auto& stream = *new std::shared_ptr<Stream>(std::make_shared<Stream>());
  return stream;
}

std::vector<std::shared_ptr<Stream>> AllStreams() {
  std::vector<std::shared_ptr<Stream>> streams = Streams().All();
  streams.push_back(DefaultStream());
  return streams;
}

// A program may end with work in a queue: it is done before the libraries below are taken down. In a forked child the
// threads do not exist.
void CloseAllStreamsAtExit() {
  static const pid_t process = getpid();
  static const int registered = std::atexit([] {
    if (getpid() != process) return;
    for (const auto& stream : AllStreams()) stream->Close();
  });
  static_cast<void>(registered);
}

Status RunJob(const Job& job) {
  try {
    return job();
  } catch (const std::bad_alloc&) {
    return Status::OutOfMemory("an operator on a stream");
  }
}

aclError NotAlive(const char* what) {
  return Report({ACL_ERROR_INVALID_PARAM, std::string(what) + ": not created, or destroyed"});
}

aclError Create(aclrtEvent* event) {
  return Guarded([&]() -> aclError {
    if (event == nullptr) return Report({ACL_ERROR_INVALID_PARAM, "event: null"});
    *event = Events().Insert(std::make_shared<Event>());
    return ACL_SUCCESS;
  });
}

aclError Synchronize(aclrtStream handle, std::optional<std::chrono::milliseconds> timeout) {
  return Guarded([&]() -> aclError {
    const std::shared_ptr<Stream> stream = FindStream(handle);
    if (stream == nullptr) return NotAlive("stream");
    if (!stream->Wait(timeout)) return Report({ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "stream: timeout"});
    return Report(stream->TakeFailure());
  });
}

}  // namespace

void Stream::Push(Job job) {
  std::unique_lock lock(mutex_);
  ran_.wait(lock, [this] { return !closing_; });
  if (!thread_.joinable()) {
    Context::Default();  // made before the exit handler is registered, so that the handler runs before it goes
    CloseAllStreamsAtExit();
    thread_ = std::thread([this] { Work(); });
  }
  jobs_.push_back(std::move(job));
  ++jobs_pushed_;
  pushed_or_closing_.notify_one();
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
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) return;
    closing_ = true;
    thread = std::move(thread_);
    pushed_or_closing_.notify_one();
  }
  thread.join();
  const std::lock_guard lock(mutex_);
  closing_ = false;
  ran_.notify_all();
}

void Stream::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    pushed_or_closing_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    Failure failure = FailureOf(RunJob(job));
    job = nullptr;  // what it keeps alive goes before anybody is told
    lock.lock();
    if (failure_.code == ACL_SUCCESS) failure_ = std::move(failure);
    ++jobs_ran_;
    ran_.notify_all();
  }
}

uint64_t Event::Record() {
  const std::lock_guard lock(mutex_);
  return ++recorded_;
}

void Event::Complete(uint64_t record) {
  const std::lock_guard lock(mutex_);
  if (record > completed_) {
    completed_ = record;
    time_ = std::chrono::steady_clock::now();
  }
  completed_changed_.notify_all();
}

uint64_t Event::recorded() {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

void Event::Wait(uint64_t record) {
  std::unique_lock lock(mutex_);
  completed_changed_.wait(lock, [&] { return completed_ >= record; });
}

std::optional<std::chrono::steady_clock::time_point> Event::completed_at() {
  const std::lock_guard lock(mutex_);
  if (recorded_ == 0 || completed_ < recorded_) return {};
  return time_;
}

bool Event::complete() {
  const std::lock_guard lock(mutex_);
  return completed_ >= recorded_;
}

std::shared_ptr<Stream> FindStream(aclrtStream stream) {
  return stream == nullptr ? DefaultStream() : Streams().Find(stream);
}

aclError PushTo(aclrtStream stream, Job job) {
  const std::shared_ptr<Stream> found = FindStream(stream);
  if (found == nullptr) return NotAlive("stream");
  found->Push(std::move(job));
  return ACL_SUCCESS;
}

void WaitForAllStreams() {
  for (const auto& stream : AllStreams()) stream->Wait();
}

}  // namespace fa::aclnn

using fa::aclnn::Event;
using fa::aclnn::Guarded;
using fa::aclnn::Report;
using fa::aclnn::Stream;

aclError aclrtCreateStream(aclrtStream* stream) {
  return Guarded([&]() -> aclError {
    if (stream == nullptr) return Report({ACL_ERROR_INVALID_PARAM, "stream: null"});
    *stream = fa::aclnn::Streams().Insert(std::make_shared<Stream>());
    return ACL_SUCCESS;
  });
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t /*priority*/, uint32_t /*flag*/) {
  return aclrtCreateStream(stream);
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return Guarded([&]() -> aclError {
    const std::shared_ptr<Stream> removed = fa::aclnn::Streams().Remove(stream);
    if (removed == nullptr) return fa::aclnn::NotAlive("stream");
    removed->Close();
    return Report(removed->TakeFailure());
  });
}

aclError aclrtSynchronizeStream(aclrtStream stream) { return fa::aclnn::Synchronize(stream, {}); }

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  if (timeout < 0) return fa::aclnn::Synchronize(stream, {});
  return fa::aclnn::Synchronize(stream, std::chrono::milliseconds(timeout));
}

aclError aclrtSynchronizeDevice() {
  return Guarded([&]() -> aclError {
    const auto streams = fa::aclnn::AllStreams();
    for (const auto& stream : streams) stream->Wait();
    for (const auto& stream : streams) {
      if (const aclError error = Report(stream->TakeFailure()); error != ACL_SUCCESS) return error;
    }
    return ACL_SUCCESS;
  });
}

aclError aclrtCreateEvent(aclrtEvent* event) { return fa::aclnn::Create(event); }

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t /*flag*/) { return fa::aclnn::Create(event); }

aclError aclrtDestroyEvent(aclrtEvent event) {
  return Guarded([&]() -> aclError {
    return fa::aclnn::Events().Remove(event) == nullptr ? fa::aclnn::NotAlive("event") : ACL_SUCCESS;
  });
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  return Guarded([&]() -> aclError {
    const std::shared_ptr<Event> found = fa::aclnn::Events().Find(event);
    if (found == nullptr) return fa::aclnn::NotAlive("event");
    const std::shared_ptr<Stream> queue = fa::aclnn::FindStream(stream);
    if (queue == nullptr) return fa::aclnn::NotAlive("stream");
    const uint64_t record = found->Record();
    try {
      queue->Push([found, record] {
        found->Complete(record);
        return fa::Status::Ok();
      });
    } catch (...) {
      found->Complete(record);  // nobody else will
      throw;
    }
    return ACL_SUCCESS;
  });
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream /*stream*/) {
  return Guarded([&]() -> aclError {
    return fa::aclnn::Events().Find(event) == nullptr ? fa::aclnn::NotAlive("event") : ACL_SUCCESS;
  });
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  return Guarded([&]() -> aclError {
    const std::shared_ptr<Event> found = fa::aclnn::Events().Find(event);
    if (found == nullptr) return fa::aclnn::NotAlive("event");
    if (status == nullptr) return Report({ACL_ERROR_INVALID_PARAM, "status: null"});
    *status = found->complete() ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return ACL_SUCCESS;
  });
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  return Guarded([&]() -> aclError {
    const std::shared_ptr<Event> found = fa::aclnn::Events().Find(event);
    if (found == nullptr) return fa::aclnn::NotAlive("event");
    found->Wait(found->recorded());
    return ACL_SUCCESS;
  });
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  return Guarded([&]() -> aclError {
    const std::shared_ptr<Event> found = fa::aclnn::Events().Find(event);
    if (found == nullptr) return fa::aclnn::NotAlive("event");
    return fa::aclnn::PushTo(stream, [found, record = found->recorded()] {
      found->Wait(record);
      return fa::Status::Ok();
    });
  });
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent) {
  return Guarded([&]() -> aclError {
    const std::shared_ptr<Event> start = fa::aclnn::Events().Find(startEvent);
    const std::shared_ptr<Event> end = fa::aclnn::Events().Find(endEvent);
    if (start == nullptr || end == nullptr) return fa::aclnn::NotAlive("event");
    if (ms == nullptr) return Report({ACL_ERROR_INVALID_PARAM, "ms: null"});
    const auto from = start->completed_at();
    const auto to = end->completed_at();
    if (!from || !to) return Report({ACL_ERROR_INVALID_PARAM, "event: not recorded, or not complete yet"});
    *ms = std::chrono::duration<float, std::milli>(*to - *from).count();
    return ACL_SUCCESS;
  });
}
