#include "core/run/graph_run.h"

#include "core/run/guarded_call.h"

namespace fa::core {

void FirstFailure::KeepCurrentException() noexcept {
  if (failed_.exchange(true, std::memory_order_relaxed)) return;
  status_ = StatusOfCurrentException(kInsideATask);
}

}  // namespace fa::core
