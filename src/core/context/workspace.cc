#include "fa/workspace.h"

#include <stdlib.h>
#include <sys/mman.h>

#include <cstdint>
#include <string>
#include <utility>

#include "core/integer.h"
#include "core/memory.h"
#include "core/run/guarded_call.h"

namespace fa {
namespace {

constexpr size_t kLineBytes = 64;
// The size of a huge page of x86-64. Huge pages are used only for memory of at least two of them. For less, rounding up
// to huge pages would cost more than they save.
constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kHugeFromBytes = 2 * kHugePageBytes;

}  // namespace

Workspace::~Workspace() { free(data_); }

Workspace::Workspace(Workspace&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Workspace& Workspace::operator=(Workspace&& other) noexcept {
  if (this != &other) {
    free(data_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

Status Workspace::Reserve(size_t bytes) {
  if (bytes <= size_) return Status::Ok();
  // The old block is freed first. Nothing reads it any more, and there may be too little memory for both.
  free(std::exchange(data_, nullptr));
  size_ = 0;

  const bool huge = bytes >= kHugeFromBytes;
  const size_t alignment = huge ? kHugePageBytes : kLineBytes;
  void* block = nullptr;
  if (bytes <= static_cast<size_t>(core::kAddressSpaceBytes)) {  // at this size rounding up cannot overflow
    const auto rounded =
        static_cast<size_t>(core::RoundUp(static_cast<int64_t>(bytes), static_cast<int64_t>(alignment)));
    if (posix_memalign(&block, alignment, rounded) == 0) {
      if (huge) madvise(block, rounded, MADV_HUGEPAGE);  // only a request: Linux may refuse it
      data_ = static_cast<std::byte*>(block);
      size_ = rounded;
      return Status::Ok();
    }
  }
  return core::GuardedCall("a workspace",
                           [&] { return Status::OutOfMemory("workspace of " + std::to_string(bytes) + " bytes"); });
}

}  // namespace fa
