#ifndef FA_OPS_FETCH_RUNS_H_
#define FA_OPS_FETCH_RUNS_H_

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/integer.h"
#include "core/kernels/kernel_types.h"

namespace fa::ops {

/// A list of cache lines that kernels are to prefetch. The list lies in the caller's memory.
class FetchRuns {
 public:
  using Run = core::kernels::FetchList::Run;
  static constexpr int64_t kLineBytes = core::kernels::kLineBytes;

  /// @param memory  room for as many runs as are added
  explicit FetchRuns(std::span<Run> memory) : runs_(memory.data()), most_(std::ssize(memory)) {}

  /// Adds the line at `data` and one line for every further 64 bytes.
  void Add(const void* data, int64_t bytes) {
    assert(count_ < most_ && bytes >= 0);
    const auto* begin = static_cast<const char*>(data);
    runs_[count_++] = {begin, begin + bytes};
    lines_ += core::CeilDiv(bytes, kLineBytes);
  }

  /// Adds every line in which one of these bytes lies. `data` may point into the middle of a line.
  void AddLines(const void* data, int64_t bytes) {
    const auto before = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % kLineBytes);
    Add(static_cast<const char*>(data) - before, before + bytes);
  }

  /// Adds `count` rows of `row_bytes` bytes, which are `apart` bytes apart. Rows that follow each other without a gap
  /// become one run. Rows for which the list has no room are left out.
  void AddRows(const std::byte* first, int64_t count, int64_t row_bytes, int64_t apart) {
    if (apart == row_bytes) {
      row_bytes *= count;
      count = std::min<int64_t>(count, 1);
    }
    for (; count > 0 && count_ < most_; --count, first += apart) Add(first, row_bytes);
  }

  /// Moves the next `lines` lines of `from` to this list, or fewer if this list has no room for their runs.
  void Take(core::kernels::FetchList& from, int64_t lines) {
    while (lines > 0 && count_ < most_) {
      if (from.at >= from.at_end) {
        if (from.run == from.end) return;
        from.at = from.run->begin;
        from.at_end = from.run->end;
        ++from.run;
      }
      const int64_t taken = std::min(lines, core::CeilDiv(from.at_end - from.at, kLineBytes));
      Add(from.at, taken * kLineBytes);
      from.at += taken * kLineBytes;
      lines -= taken;
    }
  }

  [[nodiscard]] int64_t lines() const { return lines_; }
  [[nodiscard]] core::kernels::FetchList list() const { return {.run = runs_, .end = runs_ + count_}; }

  /// Prefetches all listed lines into L2 at once.
  void Fetch() const {
    for (const Run* run = runs_; run < runs_ + count_; ++run) {
      for (const char* at = run->begin; at < run->end; at += kLineBytes) __builtin_prefetch(at, 0, 2);
    }
  }

 private:
  Run* runs_;
  int64_t most_;
  int64_t count_ = 0, lines_ = 0;
};

}  // namespace fa::ops

#endif  // FA_OPS_FETCH_RUNS_H_
