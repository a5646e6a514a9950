#ifndef FA_OPS_STREAM_ROWS_H_
#define FA_OPS_STREAM_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace fa::ops {

/// The unit in which memory is written. StreamLines writes whole lines.
inline constexpr int64_t kLineOfMemory = 64;

/// Copies lines past the caches. A usual store first reads its line from memory; these stores do not. Other threads see
/// the lines after EndStream. A CPU without such stores copies the lines as usual.
/// @param to     a multiple of kLineOfMemory
/// @param bytes  a multiple of kLineOfMemory
inline void StreamLines(std::byte* to, const std::byte* from, int64_t bytes) {
#if defined(__x86_64__)
  auto* line = reinterpret_cast<__m128i*>(to);
  const auto* source = reinterpret_cast<const __m128i*>(from);
  for (int64_t at = 0; at < bytes; at += kLineOfMemory, line += 4, source += 4) {
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(line, a);
    _mm_stream_si128(line + 1, b);
    _mm_stream_si128(line + 2, c);
    _mm_stream_si128(line + 3, d);
  }
#else
  std::memcpy(to, from, static_cast<size_t>(bytes));
#endif
}

/// Makes the lines that this thread streamed visible before its later writes.
inline void EndStream() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

/// Copies a row of any size to any address; whole lines are streamed.
inline void StreamRow(std::byte* to, const std::byte* from, int64_t bytes) {
  const auto in_line = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLineOfMemory);
  const int64_t head = in_line == 0 ? 0 : std::min(bytes, kLineOfMemory - in_line);
  const int64_t tail = (bytes - head) % kLineOfMemory, lines_end = bytes - tail;
  if (head > 0) std::memcpy(to, from, static_cast<size_t>(head));
  StreamLines(to + head, from + head, lines_end - head);
  if (tail > 0) std::memcpy(to + lines_end, from + lines_end, static_cast<size_t>(tail));
}

}  // namespace fa::ops

#endif  // FA_OPS_STREAM_ROWS_H_
