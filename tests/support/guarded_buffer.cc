#include "support/guarded_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

namespace fa::test {
namespace {

constexpr size_t kAlignment = 64;
// The canaries are longer than any vector, so a store just outside the bytes changes some of them.
constexpr size_t kCanaryBytes = 256;

}  // namespace

GuardedBuffer::GuardedBuffer(size_t bytes, Place place, size_t past_alignment) : size_(bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t before = kCanaryBytes + past_alignment;
  const size_t inner = (bytes + before + kCanaryBytes + kAlignment + page - 1) / page * page;
  mapping_bytes_ = inner + 2 * page;
  void* mapping = mmap(nullptr, mapping_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<std::byte*>(mapping);
  whole_ = {mapping_ + page, inner};
  if (mprotect(whole_.data(), inner, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  std::memset(whole_.data(), 0xFF, inner);
  switch (place) {
    case Place::kInside: data_ = whole_.data() + before; break;
    case Place::kAtEnd: data_ = whole_.data() + inner - bytes; break;
    case Place::kAtStart: data_ = whole_.data(); break;
  }
}

GuardedBuffer::~GuardedBuffer() { munmap(mapping_, mapping_bytes_); }

}  // namespace fa::test
