#include "tiling/sparse/shared_keys.h"

#include <algorithm>

namespace fa::tiling {

Interval SharedKeys::First(const SparseSequence& sequence, int64_t token) const {
  const int64_t keys = sequence.first(), position = Position(sequence, token);
  const auto clamped = [keys](int64_t key) { return std::clamp<int64_t>(key, 0, keys); };
  Interval kept{0, keys};
  if (first_mask == SparseMask::kRightDownCausal) kept.end = clamped(position);
  if (first_mask == SparseMask::kBand) {
    if (left >= 0) kept.begin = clamped(position - left - 1);
    if (right >= 0) kept.end = clamped(position + right);
  }
  return {std::min(kept.begin, kept.end), kept.end};
}

int64_t SharedKeys::SecondEnd(const SparseSequence& sequence, int64_t token) const {
  if (second_mask == SparseMask::kNone) return sequence.second;
  return std::clamp<int64_t>(Position(sequence, token) / ratio, 0, sequence.second);
}

int64_t SharedKeys::KeysAtMost(const SparseSequence& sequence, int64_t token) const {
  const int64_t first = First(sequence, token).size(), second = SecondEnd(sequence, token);
  return (first_entries >= 0 ? std::min(first_entries, first) : first) +
         (second_entries >= 0 ? std::min(second_entries, second) : second);
}

int64_t SharedKeys::MostKeys() const {
  int64_t first = most_first;
  if (first_entries >= 0) {
    first = first_entries;
  } else if (first_mask == SparseMask::kBand && left >= 0 && right >= 0) {
    first = left < most_first && right < most_first ? std::min(first, left + right + 1) : first;
  }
  return first + (second_entries >= 0 ? second_entries : most_second);
}

double SharedKeys::Pairs(const SparseSequences& sequences) const {
  double pairs = 0;
  for (const SparseSequence& sequence : sequences.list) {
    for (int64_t token = 0; token < sequence.sq; ++token) pairs += static_cast<double>(KeysAtMost(sequence, token));
  }
  return pairs;
}

}  // namespace fa::tiling
