#include "peak/read_bandwidth.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "fa/context.h"
#include "peak/timed_rounds.h"

namespace fa::bench {
namespace {

// Plain loads, four cache lines a step. Without other instructions a core issues loads faster than memory answers.
constexpr size_t kStep = 256;

void ReadSse(const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kStep) {
    for (size_t j = 0; j < kStep; j += 16) asm volatile("movaps %0, %%xmm0" : : "m"(data[i + j]) : "xmm0");
  }
}

void ReadAvx(const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kStep) {
    for (size_t j = 0; j < kStep; j += 32) asm volatile("vmovaps %0, %%ymm0" : : "m"(data[i + j]) : "xmm0");
  }
  asm volatile("vzeroupper");
}

void ReadAvx512(const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kStep) {
    for (size_t j = 0; j < kStep; j += 64) asm volatile("vmovaps %0, %%zmm0" : : "m"(data[i + j]) : "xmm0");
  }
  asm volatile("vzeroupper");
}

void Read(Isa isa, const std::byte* data, size_t bytes) {
  switch (isa) {
    case Isa::kPortable: return ReadSse(data, bytes);
    case Isa::kAvx2: return ReadAvx(data, bytes);
    default: return ReadAvx512(data, bytes);
  }
}

/// Page-aligned memory straight from the system.
class Pages {
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

}  // namespace

double MeasureReadBandwidth(int threads, size_t buffer_bytes, double seconds) {
  const Isa isa = DetectIsa();
  const size_t part = buffer_bytes / static_cast<size_t>(threads) / kStep * kStep;
  const Pages pages(part * static_cast<size_t>(threads));
  const auto begin = [&](int thread) { return pages.data() + part * static_cast<size_t>(thread); };
  // Untouched pages are all the one zero page; each reader touches its own, so that they lie on its node.
  constexpr size_t kPage = 4096;
  static_cast<void>(ShortestRound(threads, 0, [&](int thread) {
    for (size_t i = 0; i < part; i += kPage) begin(thread)[i] = std::byte{1};
  }));
  const double shortest = ShortestRound(threads, seconds, [&](int thread) { Read(isa, begin(thread), part); });
  return static_cast<double>(part) * threads / shortest * 1e-9;
}

}  // namespace fa::bench
