#include "peak/read_bandwidth.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "fa/context.h"
#include "peak/peak_loops.h"

namespace fa::bench {
namespace {

/// Page-aligned memory that mmap gives.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(data);
    madvise(data, bytes, MADV_HUGEPAGE);  // if the system refuses, reading is only slower
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

}  // namespace

ReadRate::ReadRate(int threads, std::span<const std::span<const std::byte>> blocks) : team_(threads) {
  constexpr size_t kLine = 64;
  const auto count = static_cast<size_t>(threads);
  for (const std::span<const std::byte> block : blocks) {
    const size_t skip = (kLine - reinterpret_cast<uintptr_t>(block.data()) % kLine) % kLine;
    const size_t part = block.size() <= skip ? 0 : (block.size() - skip) / count / kReadStep * kReadStep;
    if (part == 0) continue;
    parts_.push_back(block.subspan(skip, part));
    bytes_ += part * count;
  }
}

double ReadRate::Measure(double seconds) {
  if (bytes_ == 0) return 0;
  const Isa isa = DetectIsa();
  const double shortest = team_.ShortestRound(seconds, [&](int thread) {
    for (const std::span<const std::byte> part : parts_) {
      ReadLines(isa, part.data() + part.size() * static_cast<size_t>(thread), part.size());
    }
  });
  return static_cast<double>(bytes_) / shortest;
}

double MeasureReadBandwidth(int threads, size_t buffer_bytes, double seconds) {
  const Pages pages(buffer_bytes);
  const std::span<const std::byte> block(pages.data(), pages.bytes());
  // A page that was never written is mapped to one shared page of zeros. So each thread writes to the pages that it
  // will read, which also puts them on its NUMA node.
  constexpr size_t kPage = 4096;
  Team team(threads);
  static_cast<void>(team.ShortestRound(0, [&](int thread) {
    const size_t part = pages.bytes() / static_cast<size_t>(threads);
    std::byte* begin = pages.data() + part * static_cast<size_t>(thread);
    for (size_t i = 0; i < part; i += kPage) begin[i] = std::byte{1};
  }));
  return ReadRate(threads, {&block, 1}).Measure(seconds) * 1e-9;
}

}  // namespace fa::bench
