#include "peak/copy_bandwidth.h"

#include <cstring>

namespace fa::bench {

double CopyRate::Measure(double seconds) {
  const auto threads = static_cast<size_t>(team_.threads());
  size_t bytes = 0;
  for (const Block& block : blocks_) bytes += block.from.size();
  const double shortest = team_.ShortestRound(seconds, [&](int thread) {
    for (const Block& block : blocks_) {
      const size_t size = block.from.size(), number = static_cast<size_t>(thread);
      const size_t begin = size / threads * number, end = number + 1 == threads ? size : size / threads * (number + 1);
      std::memcpy(block.to + begin, block.from.data() + begin, end - begin);
    }
  });
  return static_cast<double>(bytes) / shortest;
}

}  // namespace fa::bench
