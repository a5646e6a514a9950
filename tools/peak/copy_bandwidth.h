#ifndef FA_PEAK_COPY_BANDWIDTH_H_
#define FA_PEAK_COPY_BANDWIDTH_H_

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "peak/team.h"

namespace fa::bench {

/// The rate at which several threads at once copy memory with memcpy. Each thread copies its part of every block.
class CopyRate {
 public:
  struct Block {
    std::span<const std::byte> from;
    std::byte* to = nullptr;
  };
  CopyRate(int threads, std::vector<Block> blocks) : team_(threads), blocks_(std::move(blocks)) {}

  /// Runs passes for about `seconds`, at least one. Returns the bytes per second of the fastest pass. A byte that is
  /// read and written counts once.
  [[nodiscard]] double Measure(double seconds);

 private:
  Team team_;
  std::vector<Block> blocks_;
};

}  // namespace fa::bench

#endif  // FA_PEAK_COPY_BANDWIDTH_H_
