#include "ops/indexer/block_maxima.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/integer.h"
#include "ops/tile/strip.h"

namespace fa::ops {
namespace {

// So many maxima are kept side by side, which compilers turn into vectors of any level.
constexpr int64_t kSideBySide = 16;

/// Returns the larger number, or NaN if either is NaN.
float LargerOrNan(float max, float score) {
  // The bitwise form has no branches.
  const bool take = static_cast<bool>(static_cast<int>(score > max) | static_cast<int>(score != score));
  return take ? score : max;
}

float LargestOrNan(float max, const float* scores, int64_t n) {
  int64_t i = 0;
  if (n >= kSideBySide) {
    std::array<float, kSideBySide> lanes;
    lanes.fill(max);
    for (; i + kSideBySide <= n; i += kSideBySide) {
      for (size_t lane = 0; lane < lanes.size(); ++lane) {
        lanes[lane] = LargerOrNan(lanes[lane], scores[i + static_cast<int64_t>(lane)]);
      }
    }
    for (const float lane : lanes) max = LargerOrNan(max, lane);
  }
  for (; i < n; ++i) max = LargerOrNan(max, scores[i]);
  return max;
}

}  // namespace

int64_t BlockMaxima::BlockEnd(int64_t key, int64_t end) const {
  return std::min(end, (key / block_size + 1) * block_size);
}

void BlockMaxima::Start(int64_t heads, tiling::Interval keys) const {
  const int64_t begin = keys.begin / block_size, end = core::CeilDiv(keys.end, block_size);
  for (int64_t head = 0; head < heads; ++head) {
    float* row = maxima + head * blocks;
    if (begin < end) std::fill(row + begin, row + end, -std::numeric_limits<float>::infinity());
  }
}

void BlockMaxima::TakeKeysAlongLanes(const float* s, int64_t heads, int64_t width, tiling::Interval keys) const {
  for (int64_t head = 0; head < heads; ++head, s += width) {
    for (int64_t key = keys.begin; key < keys.end;) {
      const int64_t end = BlockEnd(key, keys.end);
      At(head, key) = LargestOrNan(At(head, key), s + key - keys.begin, end - key);
      key = end;
    }
  }
}

void BlockMaxima::TakeHeadsAlongLanes(const HeadStrips& strips, const float* s, tiling::Interval keys) const {
  for (int64_t strip = 0; strip < strips.strips(); ++strip, s += keys.size() * strips.width()) {
    const int64_t first = strips.First(strip), count = strips.Count(strip);
    for (int64_t key = keys.begin; key < keys.end;) {
      const int64_t end = BlockEnd(key, keys.end);
      LaneArray<float> lanes;
      for (int64_t lane = 0; lane < count; ++lane) lanes[lane] = At(first + lane, key);
      for (int64_t at = key; at < end; ++at) {
        const float* row = s + (at - keys.begin) * strips.width();
        for (int64_t lane = 0; lane < count; ++lane) lanes[lane] = LargerOrNan(lanes[lane], row[lane]);
      }
      for (int64_t lane = 0; lane < count; ++lane) At(first + lane, key) = lanes[lane];
      key = end;
    }
  }
}

}  // namespace fa::ops
