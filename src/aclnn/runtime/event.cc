// Recording an event queues a job that completes a Record. A wait, by a job or by a caller, waits for the event's last
// Record.
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "aclnn/runtime/handle_table.h"
#include "aclnn/runtime/process.h"
#include "aclnn/runtime/report.h"
#include "aclnn/runtime/stream.h"

namespace fa::aclnn {
namespace {

using Time = std::chrono::steady_clock::time_point;

/// One recording of an event. A record completes when its stream reaches it.
class Record {
 public:
  Record() : fork_depth_(ForkDepth()) {}

  void Complete() noexcept {
    time_ = std::chrono::steady_clock::now();
    complete_.store(true, std::memory_order_release);
    complete_.notify_all();
  }
  void Wait() const { complete_.wait(false, std::memory_order_acquire); }
  [[nodiscard]] bool complete() const { return complete_.load(std::memory_order_acquire); }
  /// Returns the time at which the record completed.
  [[nodiscard]] Time time() const { return time_; }
  /// Returns whether the record will never complete here, because its stream belongs to a parent process.
  [[nodiscard]] bool Lost() const { return !complete() && fork_depth_ != ForkDepth(); }

 private:
  const uint32_t fork_depth_;
  Time time_;
  std::atomic<bool> complete_{false};
};

constinit ForkSafeMutex last_mutex;

/// An event, which may be recorded any number of times.
class Event {
 public:
  /// Returns the last record, or null before the first record.
  [[nodiscard]] std::shared_ptr<Record> Last() const {
    const std::lock_guard lock(last_mutex);
    return last_;
  }
  /// Sets the last record. Call SetLast only after the record is in its queue: a wait that is queued later then stands
  /// behind the record.
  void SetLast(std::shared_ptr<Record> record) noexcept {
    const std::lock_guard lock(last_mutex);
    last_.swap(record);
  }

 private:
  std::shared_ptr<Record> last_;
};

constinit HandleTable<Event> events;

aclError Invalid(const char* message) { return Report({ACL_ERROR_INVALID_PARAM, message}); }

std::shared_ptr<Event> Find(aclrtEvent event) {
  auto found = events.Find(event);
  if (found == nullptr) Invalid("event: not created, or destroyed");
  return found;
}

aclError Lost() { return Invalid("event: recorded before fork on a stream of the parent process"); }

aclError Create(aclrtEvent* event) {
  return Guarded([&]() -> aclError {
    if (event == nullptr) return Invalid("event: null");
    *event = events.Insert(std::make_shared<Event>());
    return ACL_SUCCESS;
  });
}

// Stores the time at which the last record completed.
aclError CompletedAt(aclrtEvent event, Time* time) {
  const std::shared_ptr<Event> found = Find(event);
  if (found == nullptr) return ACL_ERROR_INVALID_PARAM;
  const std::shared_ptr<Record> record = found->Last();
  if (record == nullptr || !record->complete()) return Invalid("event: not recorded, or not complete yet");
  *time = record->time();
  return ACL_SUCCESS;
}

}  // namespace
}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclError aclrtCreateEvent(aclrtEvent* event) { return Create(event); }

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t /*flag*/) { return Create(event); }

aclError aclrtDestroyEvent(aclrtEvent event) {
  return Guarded([&]() -> aclError {
    return events.Remove(event) == nullptr ? Invalid("event: not created, or destroyed") : ACL_SUCCESS;
  });
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  return Guarded([&]() -> aclError {
    const std::shared_ptr<Event> found = Find(event);
    if (found == nullptr) return ACL_ERROR_INVALID_PARAM;
    const auto record = std::make_shared<Record>();
    const auto complete = [record] {
      record->Complete();
      return fa::Status::Ok();
    };
    return PushTo(stream, complete, [&] {
      found->SetLast(record);
      return true;
    });
  });
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream /*stream*/) {
  return Guarded([&]() -> aclError { return Find(event) == nullptr ? ACL_ERROR_INVALID_PARAM : ACL_SUCCESS; });
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  return Guarded([&]() -> aclError {
    const std::shared_ptr<Event> found = Find(event);
    if (found == nullptr) return ACL_ERROR_INVALID_PARAM;
    if (status == nullptr) return Invalid("status: null");
    const std::shared_ptr<Record> record = found->Last();
    if (record != nullptr && record->Lost()) return Lost();
    const bool complete = record == nullptr || record->complete();
    *status = complete ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return ACL_SUCCESS;
  });
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  return Guarded([&]() -> aclError {
    const std::shared_ptr<Event> found = Find(event);
    if (found == nullptr) return ACL_ERROR_INVALID_PARAM;
    const std::shared_ptr<Record> record = found->Last();
    if (record == nullptr) return ACL_SUCCESS;
    if (record->Lost()) return Lost();
    record->Wait();
    return ACL_SUCCESS;
  });
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  return Guarded([&]() -> aclError {
    const std::shared_ptr<Event> found = Find(event);
    if (found == nullptr) return ACL_ERROR_INVALID_PARAM;
    const std::shared_ptr<Record> record = found->Last();
    if (record != nullptr && record->Lost()) return Lost();
    return PushTo(stream, [record] {
      if (record != nullptr) record->Wait();
      return fa::Status::Ok();
    });
  });
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent) {
  return Guarded([&]() -> aclError {
    if (ms == nullptr) return Invalid("ms: null");
    Time from, to;
    if (const aclError error = CompletedAt(startEvent, &from); error != ACL_SUCCESS) return error;
    if (const aclError error = CompletedAt(endEvent, &to); error != ACL_SUCCESS) return error;
    *ms = std::chrono::duration<float, std::milli>(to - from).count();
    return ACL_SUCCESS;
  });
}
