#include "core/graph_run.h"

namespace fa::core {

void FirstFailure::KeepCurrentException() noexcept {
  if (failed_.exchange(true, std::memory_order_relaxed)) return;
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      status_ = Status::OutOfMemory("inside a task");
    } catch (const std::exception& error) {
      status_ = Status::Internal(error.what());
    } catch (...) {
      status_ = Status::Internal("a task threw something that is no std::exception");
    }
  } catch (const std::bad_alloc&) {
    // There was no memory for the text either.
    status_ = Status(StatusCode::kOutOfMemory, {});
  }
}

}  // namespace fa::core
