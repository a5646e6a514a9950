#include "ops/bind/pair_tiles.h"

#include <algorithm>
#include <cstring>

namespace fa::ops {

uint64_t WordOfBytes(const uint8_t* bytes, int64_t count) {
  constexpr uint64_t kLow = 0x7f7f7f7f7f7f7f7f;
  uint64_t word = 0;
  for (int64_t j = 0; j < count; j += 8) {
    uint64_t eight = 0;
    if (count - j >= 8) {
      std::memcpy(&eight, bytes + j, 8);
    } else {
      std::memcpy(&eight, bytes + j, static_cast<size_t>(count - j));
    }
    const uint64_t high = (((eight & kLow) + kLow) | eight) & ~kLow;  // the high bit of every byte that is not 0
    word |= ((high >> 7) * 0x0102040810204080 >> 56) << j;
  }
  return word;
}

void FindKinds(const uint64_t* words, int64_t stride, int64_t rows, int64_t keys, uint8_t* kinds) {
  constexpr int64_t kTile = PairTileLayout::kTile, kWordBits = PairTileLayout::kWordBits;
  for (int64_t begin = 0; begin < keys; begin += kTile, words += PairTileLayout::kTileWords) {
    uint64_t dropped = 0, kept = 0;
    for (int64_t w = 0; w < PairTileLayout::kTileWords && begin + w * kWordBits < keys; ++w) {
      const uint64_t inside = LowBits(std::min(keys - begin - w * kWordBits, kWordBits));
      for (int64_t r = 0; r < rows; ++r) {
        const uint64_t word = words[r * stride + w];
        dropped |= word & inside;
        kept |= ~word & inside;
      }
    }
    *kinds++ = dropped == 0 ? PairTiles::kFull : kept == 0 ? PairTiles::kEmpty : PairTiles::kPartial;
  }
}

}  // namespace fa::ops
