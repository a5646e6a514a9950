#include "ops/ranks/run/unit_progress.h"

#include "core/run/guarded_call.h"
#include "ops/ranks/rows/messenger.h"

namespace fa::ops {

bool UnitProgress::idle() const { return !transport_.CanTest() || (left_[0].empty() && left_[1].empty()); }

Status UnitProgress::Poll(core::GateOpener& /*opener*/) {
  failed_ = core::GuardedCall("messages of units", [&] {
    for (Requests& requests : left_) {
      for (; !requests.empty(); requests = requests.subspan(1)) {
        bool done = false;
        if (Status status = transport_.Test(requests.front(), &done); !status.ok() || !done) return status;
        requests.front() = kNoRequest;
      }
    }
    return Status::Ok();
  });
  return failed_;
}

}  // namespace fa::ops
