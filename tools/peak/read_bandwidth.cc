#include "peak/read_bandwidth.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <vector>

#include "fa/context.h"
#include "peak/peak_loops.h"
#include "peak/timed_rounds.h"

namespace fa::bench {
namespace {

constexpr size_t kStep = kReadStep;

}  // namespace

/// Page-aligned memory straight from the system.
class ReadBuffer::Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(data);
    madvise(data, bytes, MADV_HUGEPAGE);  // a refusal only costs speed
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

ReadBuffer::ReadBuffer(int threads, size_t bytes)
    : threads_(threads),
      part_(bytes / static_cast<size_t>(threads) / kStep * kStep),
      pages_(std::make_unique<const Pages>(part_ * static_cast<size_t>(threads))) {
  // Untouched pages are all the same page of zeros. Each reader touches its own pages, so that they lie on its node.
  constexpr size_t kPage = 4096;
  static_cast<void>(ShortestRound(threads, 0, [&](int thread) {
    std::byte* begin = pages_->data() + part_ * static_cast<size_t>(thread);
    for (size_t i = 0; i < part_; i += kPage) begin[i] = std::byte{1};
  }));
}

ReadBuffer::~ReadBuffer() = default;

double ReadBuffer::Measure(double seconds) const {
  const Isa isa = DetectIsa();
  const double shortest = ShortestRound(threads_, seconds, [&](int thread) {
    ReadLines(isa, pages_->data() + part_ * static_cast<size_t>(thread), part_);
  });
  return static_cast<double>(part_) * threads_ / shortest * 1e-9;
}

double MeasureReadRate(int threads, std::span<const std::span<const std::byte>> blocks, double seconds) {
  constexpr size_t kLine = 64;
  const Isa isa = DetectIsa();
  const auto count = static_cast<size_t>(threads);
  std::vector<std::span<const std::byte>> parts;  // of thread 0; the other threads' follow each
  size_t bytes = 0;
  for (const std::span<const std::byte> block : blocks) {
    const size_t skip = (kLine - reinterpret_cast<uintptr_t>(block.data()) % kLine) % kLine;
    const size_t part = block.size() <= skip ? 0 : (block.size() - skip) / count / kStep * kStep;
    if (part == 0) continue;
    parts.push_back(block.subspan(skip, part));
    bytes += part * count;
  }
  if (parts.empty()) return 0;
  const double shortest = ShortestRound(threads, seconds, [&](int thread) {
    for (const std::span<const std::byte> part : parts) {
      ReadLines(isa, part.data() + part.size() * static_cast<size_t>(thread), part.size());
    }
  });
  return static_cast<double>(bytes) / shortest * 1e-9;
}

double MeasureReadBandwidth(int threads, size_t buffer_bytes, double seconds) {
  return ReadBuffer(threads, buffer_bytes).Measure(seconds);
}

}  // namespace fa::bench
