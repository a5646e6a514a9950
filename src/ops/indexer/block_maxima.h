#ifndef FA_OPS_BLOCK_MAXIMA_H_
#define FA_OPS_BLOCK_MAXIMA_H_

#include <cstdint>

#include "ops/tile/head_strips.h"
#include "tiling/row_interval.h"

namespace fa::ops {

/// The largest inner products q k of a token so far, float [head][blocks]. NaN counts as larger than any number.
struct BlockMaxima {
  float* maxima;
  int64_t block_size;  ///< keys per block
  int64_t blocks;      ///< maxima per head

  /// Initialises the maxima of the blocks of these keys.
  void Start(int64_t heads, tiling::Interval keys) const;
  /// Updates the maxima with the inner products of these keys, which lie along the lanes: s[head][width].
  void TakeKeysAlongLanes(const float* s, int64_t heads, int64_t width, tiling::Interval keys) const;
  /// Updates the maxima with the inner products that HeadStrips::Scores has written to s for these keys.
  void TakeHeadsAlongLanes(const HeadStrips& strips, const float* s, tiling::Interval keys) const;

 private:
  [[nodiscard]] float& At(int64_t head, int64_t key) const { return maxima[head * blocks + key / block_size]; }
  /// Returns the end of the keys that share the block of `key`, at most `end`.
  [[nodiscard]] int64_t BlockEnd(int64_t key, int64_t end) const;
};

}  // namespace fa::ops

#endif  // FA_OPS_BLOCK_MAXIMA_H_
