#include "check/kept_rule.h"

#include <algorithm>

namespace fa::check {

bool Keeps(const Mask& mask, const SequenceFacts& sequence, int64_t i, int64_t j) {
  const int64_t sq = sequence.sq, sk = sequence.sk, delta = sk - sq;
  // The distance between a row and a key is at most sq + sk, so larger bounds of the mask may be cut to that distance.
  const int64_t pre = std::clamp(mask.pre(), -(sq + sk), sq + sk);
  const int64_t next = std::clamp(mask.next(), -(sq + sk), sq + sk);
  switch (mask.kind()) {
    case Mask::Kind::kNone: return true;
    case Mask::Kind::kCausal: return j <= i + delta;
    case Mask::Kind::kCausalTopLeft: return j <= i;
    case Mask::Kind::kBand: return i + delta - pre <= j && j <= i + delta + next;
    case Mask::Kind::kBandTopLeft: return i - pre <= j && j <= i + next;
    case Mask::Kind::kPrefix: return j < mask.prefix()[static_cast<size_t>(sequence.index)] || j <= i + delta;
    case Mask::Kind::kCausalBandLast: return j <= i + delta + (sequence.last_non_empty ? next : 0);
    case Mask::Kind::kCausalBandFirst:
      return j <= (sequence.first_non_empty ? i + sk - std::max<int64_t>(sq - next, 0) : i);
    case Mask::Kind::kRows: {
      const bool shared = std::ssize(mask.row_begin()) == sq;
      const auto row = static_cast<size_t>(i + (shared ? 0 : sequence.index * sq));
      return mask.row_begin()[row] <= j && j < mask.row_end()[row];
    }
  }
  return true;
}

}  // namespace fa::check
