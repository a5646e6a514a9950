#include "ranks/run/unit_progress.h"

#include "core/run/guarded_call.h"
#include "ranks/rows/messenger.h"

namespace fa::ops {

bool UnitProgress::idle() { return !transport_.CanTest() || First() == nullptr; }

Transport::Request* UnitProgress::First() {
  for (Requests& requests : under_way_) {
    while (!requests.empty() && requests.front() == kNoRequest) requests = requests.subspan(1);
    if (!requests.empty()) return &requests.front();
  }
  return nullptr;
}

Status UnitProgress::Poll(core::OnArrival /*arrived*/) {
  failed_ = core::GuardedCall("messages of units", [&] {
    while (Transport::Request* first = First()) {
      bool done = false;
      if (Status status = transport_.Test(*first, &done); !status.ok() || !done) return status;
      *first = kNoRequest;
    }
    return Status::Ok();
  });
  return failed_;
}

}  // namespace fa::ops
