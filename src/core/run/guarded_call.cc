#include "core/run/guarded_call.h"

#include <exception>
#include <new>
#include <stdexcept>

namespace fa::core {

Status StatusOfCurrentException(std::string_view what) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Status::OutOfMemory(what);
  } catch (const std::length_error&) {
    return Status::OutOfMemory(what);
  } catch (const std::exception& error) {
    return Status::Internal(error.what());
  } catch (...) {
    return Status::Internal("something was thrown that is no std::exception");
  }
}

}  // namespace fa::core
