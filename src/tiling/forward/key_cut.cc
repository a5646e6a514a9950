#include "tiling/forward/key_cut.h"

#include <algorithm>

#include "core/integer.h"

namespace fa::tiling {
namespace {

using core::CeilDiv;

// 512 keys of 128 f32 are 512 KiB of K and V, which one core reads in some 40 us. That is long compared with claiming a
// task and merging its state. With 32 parts, a long sequence already keeps 32 workers per head busy.
constexpr int64_t kMinPart = 512, kMaxParts = 32;
constexpr int64_t kPartStep = 256;

}  // namespace

int64_t KeysOfAPart(int64_t sq, int64_t sk) {
  if (sq > kDecodeRows || sk <= kMinPart) return std::max<int64_t>(sk, 1);
  return std::max(kMinPart, CeilDiv(CeilDiv(sk, kMaxParts), kPartStep) * kPartStep);
}

int64_t MostParts(int64_t sk) { return std::clamp<int64_t>(CeilDiv(sk, kMinPart), 1, kMaxParts); }

}  // namespace fa::tiling
