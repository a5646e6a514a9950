// "Device" memory is zero-filled host memory from mmap, larger than the program asks for. Programs for the device may
// read an f16 tensor as f32, and then copy back twice the tensor's bytes. Untouched pages take no memory.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <string>

#include "aclnn/runtime/process.h"
#include "aclnn/runtime/report.h"
#include "aclnn/runtime/stream.h"

namespace fa::aclnn {
namespace {

constexpr size_t kGranule = size_t{2} << 20;
// More than this cannot be mapped on x86-64 with 4-level page tables, and twice this number does not overflow.
constexpr size_t kLargestBytes = size_t{1} << 46;
// For smaller sizes, rounding up to huge pages costs more time than TLB misses.
constexpr size_t kHugeFromBytes = 2 * kGranule;

size_t WholeGranules(size_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

/// The live mappings by address. This object exists from the start and is never destroyed, since programs may free
/// buffers in their own static destructors.
class Mappings {
 public:
  constexpr Mappings() = default;

  void* Map(size_t size, bool huge) {
    if (size > kLargestBytes) return nullptr;
    const size_t bytes = WholeGranules(std::max(2 * size, kGranule));
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    if (huge && bytes >= kHugeFromBytes) madvise(memory, bytes, MADV_HUGEPAGE);  // Linux may refuse this request
    try {
      const std::lock_guard lock(mutex_);
      if (bytes_ == nullptr) bytes_ = new std::map<uintptr_t, size_t>;
      bytes_->emplace(reinterpret_cast<uintptr_t>(memory), bytes);
    } catch (...) {
      munmap(memory, bytes);
      throw;
    }
    return memory;
  }

  bool Unmap(void* memory) {
    size_t bytes = 0;
    {
      const std::lock_guard lock(mutex_);
      if (bytes_ == nullptr) return false;
      const auto found = bytes_->find(reinterpret_cast<uintptr_t>(memory));
      if (found == bytes_->end()) return false;
      bytes = found->second;
      bytes_->erase(found);
    }
    munmap(memory, bytes);
    return true;
  }

  [[nodiscard]] bool Has(const void* memory) const {
    const std::lock_guard lock(mutex_);
    return bytes_ != nullptr && bytes_->count(reinterpret_cast<uintptr_t>(memory)) > 0;
  }

  /// Returns the bytes from `memory` to the end of its mapping, or SIZE_MAX if aclrtMalloc did not map it.
  [[nodiscard]] size_t Left(const void* memory) const {
    const auto address = reinterpret_cast<uintptr_t>(memory);
    const std::lock_guard lock(mutex_);
    if (bytes_ == nullptr) return SIZE_MAX;
    auto next = bytes_->upper_bound(address);
    if (next == bytes_->begin()) return SIZE_MAX;
    --next;
    const uintptr_t inside = address - next->first;
    return inside < next->second ? next->second - inside : SIZE_MAX;
  }

 private:
  mutable ForkSafeMutex mutex_;
  std::map<uintptr_t, size_t>* bytes_ = nullptr;  // size of each mapping; made with the first mapping
};

constinit Mappings mappings;

aclError Invalid(const std::string& message) { return Report({ACL_ERROR_INVALID_PARAM, message}); }

aclError Allocate(void** pointer, size_t size, bool huge) {
  return Guarded([&]() -> aclError {
    if (pointer == nullptr) return Invalid("pointer: null");
    *pointer = nullptr;
    *pointer = mappings.Map(size, huge);
    if (*pointer != nullptr) return ACL_SUCCESS;
    return Report({ACL_ERROR_BAD_ALLOC, "out of memory: " + std::to_string(size) + " bytes"});
  });
}

aclError Free(void* pointer) {
  return Guarded([&]() -> aclError {
    if (pointer == nullptr) return Invalid("pointer: null");
    if (!mappings.Has(pointer)) return Invalid("pointer: not allocated by aclrtMalloc or aclrtMallocHost");
    WaitForAllStreams();
    return mappings.Unmap(pointer) ? ACL_SUCCESS : Invalid("pointer: freed by another thread meanwhile");
  });
}

struct Copy {
  void* dst;
  size_t dst_max;
  const void* src;
  size_t count;
};

aclError CheckKind(aclrtMemcpyKind kind) {
  if (kind >= ACL_MEMCPY_HOST_TO_HOST && kind <= ACL_MEMCPY_DEFAULT) return ACL_SUCCESS;
  return Invalid("kind=" + std::to_string(static_cast<int>(kind)) + ", want 0..4");
}

aclError CheckRoom(size_t count, const char* name, size_t room) {
  if (count <= room) return ACL_SUCCESS;
  return Invalid("count=" + std::to_string(count) + ", want <= " + std::to_string(room) + " (" + name + ")");
}

aclError CheckCopy(const Copy& copy, aclrtMemcpyKind kind) {
  if (const aclError error = CheckKind(kind); error != ACL_SUCCESS) return error;
  if (copy.count == 0) return ACL_SUCCESS;
  if (copy.dst == nullptr) return Invalid("dst: null");
  if (copy.src == nullptr) return Invalid("src: null");
  aclError error = CheckRoom(copy.count, "destMax", copy.dst_max);
  if (error == ACL_SUCCESS) error = CheckRoom(copy.count, "the memory at dst", mappings.Left(copy.dst));
  if (error == ACL_SUCCESS) error = CheckRoom(copy.count, "the memory at src", mappings.Left(copy.src));
  return error;
}

/// Rows of `width` bytes that begin `pitch` bytes apart.
struct Rows {
  const char* name;
  const char* pitch_name;
  const void* memory;
  size_t pitch, width, height;
};

aclError CheckRows(const Rows& rows) {
  if (rows.width == 0 || rows.height == 0) return ACL_SUCCESS;
  if (rows.memory == nullptr) return Invalid(std::string(rows.name) + ": null");
  if (rows.pitch < rows.width) {
    return Invalid("width=" + std::to_string(rows.width) + ", want <= " + std::to_string(rows.pitch) + " (" +
                   rows.pitch_name + ")");
  }
  size_t bytes = 0;
  if (__builtin_mul_overflow(rows.height - 1, rows.pitch, &bytes) ||
      __builtin_add_overflow(bytes, rows.width, &bytes)) {
    return Invalid("height=" + std::to_string(rows.height) + ", want fewer than 2^64 bytes");
  }
  const size_t room = mappings.Left(rows.memory);
  if (bytes <= room) return ACL_SUCCESS;
  return Invalid(std::string(rows.name) + " has " + std::to_string(room) + " bytes, want " + std::to_string(bytes));
}

// Returns the bytes that programs can still take. MemAvailable includes the caches that Linux would drop for programs.
size_t AvailableBytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  for (size_t kib = 0; meminfo >> name >> kib; meminfo.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return static_cast<size_t>(sysconf(_SC_PAGESIZE)) * static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES));
}

struct Fill {
  void* memory;
  size_t max_count;
  int32_t value;
  size_t count;
};

aclError CheckFill(const Fill& fill) {
  if (fill.count > 0 && fill.memory == nullptr) return Invalid("devPtr: null");
  const size_t room = std::min(fill.max_count, mappings.Left(fill.memory));
  if (fill.count <= room) return ACL_SUCCESS;
  return Invalid("count=" + std::to_string(fill.count) + ", want <= " + std::to_string(room) + " (maxCount)");
}

void Run(const Copy& copy) {
  if (copy.count > 0) std::memmove(copy.dst, copy.src, copy.count);
}
void Run(const Fill& fill) {
  if (fill.count > 0) std::memset(fill.memory, fill.value, fill.count);
}

template <typename Work>
aclError Enqueue(const Work& work, aclrtStream stream) {
  return PushTo(stream, [work] {
    Run(work);
    return Status::Ok();
  });
}

}  // namespace
}  // namespace fa::aclnn

using fa::aclnn::Guarded;

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  const bool huge = policy != ACL_MEM_MALLOC_NORMAL_ONLY && policy != ACL_MEM_MALLOC_NORMAL_ONLY_P2P;
  return fa::aclnn::Allocate(devPtr, size, huge);
}

aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return aclrtMalloc(devPtr, size, policy);
}

aclError aclrtFree(void* devPtr) { return fa::aclnn::Free(devPtr); }

aclError aclrtMallocHost(void** hostPtr, size_t size) { return fa::aclnn::Allocate(hostPtr, size, /*huge=*/false); }

aclError aclrtFreeHost(void* hostPtr) { return fa::aclnn::Free(hostPtr); }

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind) {
  return Guarded([&] {
    const fa::aclnn::Copy copy{dst, destMax, src, count};
    const aclError error = CheckCopy(copy, kind);
    if (error == ACL_SUCCESS) Run(copy);
    return error;
  });
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream) {
  return Guarded([&] {
    const fa::aclnn::Copy copy{dst, destMax, src, count};
    const aclError error = CheckCopy(copy, kind);
    return error == ACL_SUCCESS ? Enqueue(copy, stream) : error;
  });
}

aclError aclrtMemcpy2d(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                       aclrtMemcpyKind kind) {
  return Guarded([&]() -> aclError {
    aclError error = fa::aclnn::CheckKind(kind);
    if (error == ACL_SUCCESS) error = fa::aclnn::CheckRows({"dst", "dpitch", dst, dpitch, width, height});
    if (error == ACL_SUCCESS) error = fa::aclnn::CheckRows({"src", "spitch", src, spitch, width, height});
    if (error != ACL_SUCCESS) return error;
    for (size_t row = 0; width > 0 && row < height; ++row) {
      std::memmove(static_cast<char*>(dst) + row * dpitch, static_cast<const char*>(src) + row * spitch, width);
    }
    return ACL_SUCCESS;
  });
}

aclError aclrtGetMemInfo(aclrtMemAttr /*attr*/, size_t* free, size_t* total) {
  return Guarded([&]() -> aclError {
    if (free == nullptr) return fa::aclnn::Invalid("free: null");
    if (total == nullptr) return fa::aclnn::Invalid("total: null");
    *free = fa::aclnn::AvailableBytes();
    *total = static_cast<size_t>(sysconf(_SC_PAGESIZE)) * static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
    return ACL_SUCCESS;
  });
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  return Guarded([&] {
    const fa::aclnn::Fill fill{devPtr, maxCount, value, count};
    const aclError error = CheckFill(fill);
    if (error == ACL_SUCCESS) Run(fill);
    return error;
  });
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
  return Guarded([&] {
    const fa::aclnn::Fill fill{devPtr, maxCount, value, count};
    const aclError error = CheckFill(fill);
    return error == ACL_SUCCESS ? Enqueue(fill, stream) : error;
  });
}
