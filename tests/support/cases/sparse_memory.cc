#include "support/cases/sparse_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "support/execution/emulator.h"

namespace fa::test {
namespace {

// qemu-user 7.2 keeps 24 bytes for each page that was ever mapped, which is 6 MiB per GiB. So under qemu-user, new
// objects reuse the addresses of earlier ones. The addresses begin here.
constexpr uintptr_t kFirstAddress = uintptr_t{1} << 44;
constexpr size_t kGranule = size_t{1} << 21;
constinit std::atomic<uintptr_t> next_address{kFirstAddress};
constinit std::atomic<int> alive{0};

void* WishedAddress(size_t bytes) {
  if (!Emulated()) return nullptr;
  return reinterpret_cast<void*>(next_address.fetch_add((bytes + kGranule - 1) / kGranule * kGranule));
}

}  // namespace

SparseMemory::SparseMemory(size_t bytes) : bytes_(bytes) {
  ++alive;
  memory_ =
      mmap(WishedAddress(bytes), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED) memory_ = nullptr;
}

SparseMemory::~SparseMemory() {
  if (ok()) munmap(memory_, bytes_);
  if (--alive == 0) next_address = kFirstAddress;
}

void CopyRows(const TensorView& from, const MutableTensorView& to) {
  const int inner = from.shape.rank() - 1;
  const auto element = static_cast<int64_t>(SizeOf(from.dtype));
  int64_t rows = 1;
  for (int x = 0; x < inner; ++x) rows *= from.shape[x];
  for (int64_t row = 0; row < rows; ++row) {
    int64_t from_offset = 0, to_offset = 0, rest = row;
    for (int x = inner - 1; x >= 0; --x) {
      from_offset += rest % from.shape[x] * from.stride[x];
      to_offset += rest % from.shape[x] * to.stride[x];
      rest /= from.shape[x];
    }
    auto* to_row = static_cast<std::byte*>(to.data) + to_offset * element;
    const auto* from_row = static_cast<const std::byte*>(from.data) + from_offset * element;
    if (from.stride[inner] == 1 && to.stride[inner] == 1) {
      std::memcpy(to_row, from_row, static_cast<size_t>(from.shape[inner] * element));
      continue;
    }
    for (int64_t x = 0; x < from.shape[inner]; ++x) {
      std::memcpy(to_row + x * to.stride[inner] * element, from_row + x * from.stride[inner] * element,
                  static_cast<size_t>(element));
    }
  }
}

}  // namespace fa::test
