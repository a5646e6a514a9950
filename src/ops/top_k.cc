// Scores become 32-bit keys that ascend where scores descend. A histogram of the leading bits of the keys' range finds
// the bucket that holds the k-th; its members alone are looked at further. What lies up to the k-th is collected in
// index order and sorted by a radix sort that keeps the order of equal keys.

#include "ops/top_k.h"

#include <algorithm>
#include <array>
#include <bit>

namespace fa::ops {
namespace {

constexpr int kBucketBits = 11;
constexpr int kIndexBits = 32;

// As many are partitioned sooner than the counters of another round are cleared and added up.
constexpr int64_t kFewMembers = 256;

// Below, a comparison sort beats clearing the counters of a radix sort.
constexpr int64_t kRadixEntries = 128;
constexpr int kDigitBits = 9;
constexpr size_t kDigits = size_t{1} << kDigitBits;

}  // namespace

TopK::TopK(const core::kernels::IndexerKernels& kernels, Carver& carver, int64_t max_scores, int64_t k)
    : kernels_(kernels),
      k_(k),
      keys_(carver.Array<uint32_t>(max_scores)),
      members_(carver.Array<uint32_t>(max_scores)),
      chosen_(carver.Array<uint64_t>(std::min(k, max_scores) + core::kernels::IndexerKernels::kEntriesBehind)),
      swap_(carver.Array<uint64_t>(std::min(k, max_scores))) {}

int64_t TopK::Select(const float* scores, int64_t count, int32_t* indices) const {
  const int64_t wanted = std::min(k_, count);
  if (wanted <= 0) return 0;
  uint32_t range[2];
  kernels_.order_scores(scores, count, keys_, range);
  const auto [least, greatest] = range;
  const Cut cut = wanted < count ? FindCut(count, least, greatest) : Cut{greatest, kAllEqual};
  Collect(count, least, cut);
  const uint64_t* sorted = Sort(wanted, cut.value - least);
  for (int64_t i = 0; i < wanted; ++i) indices[i] = static_cast<int32_t>(sorted[i]);
  return wanted;
}

TopK::Cut TopK::FindCut(int64_t count, uint32_t least, uint32_t greatest) const {
  const uint32_t* keys = keys_;
  int64_t wanted = k_;  // of the keys still looked at, which are those in [least, greatest]
  for (;;) {
    const int shift = std::max(static_cast<int>(std::bit_width(greatest - least)) - kBucketBits, 0);
    // Neighbours often fall into one bucket; two counters each keep such increments from waiting for one another.
    std::array<std::array<int32_t, 2>, size_t{1} << kBucketBits> buckets{};
    int64_t i = 0;
    for (; i + 2 <= count; i += 2) {
      ++buckets[(keys[i] - least) >> shift][0];
      ++buckets[(keys[i + 1] - least) >> shift][1];
    }
    if (i < count) ++buckets[(keys[i] - least) >> shift][0];
    uint32_t bucket = 0;
    int64_t inside = 0;
    for (;; ++bucket) {
      inside = int64_t{buckets[bucket][0]} + buckets[bucket][1];
      if (inside >= wanted) break;
      wanted -= inside;
    }
    const uint32_t first = least + (bucket << shift);
    const uint32_t last = first + std::min(greatest - first, (uint32_t{1} << shift) - 1);
    if (inside == wanted) return {last, kAllEqual};
    if (shift == 0) return {first, wanted};
    count = kernels_.keys_within(keys, count, first, last, members_);
    if (count <= kFewMembers) {
      std::nth_element(members_, members_ + wanted - 1, members_ + count);
      const uint32_t value = members_[wanted - 1];
      const auto below = std::count_if(members_, members_ + count, [&](uint32_t key) { return key < value; });
      const auto equal = std::count(members_, members_ + count, value);
      return {value, below + equal == wanted ? kAllEqual : wanted - below};
    }
    keys = members_;
    least = first;
    greatest = last;
  }
}

void TopK::Collect(int64_t count, uint32_t least, Cut cut) const {
  int64_t chosen = 0, equal = cut.equal;
  const auto entry = [&](int64_t i) {
    return static_cast<uint64_t>(keys_[i] - least) << kIndexBits | static_cast<uint64_t>(i);
  };
  if (equal == kAllEqual) {
    kernels_.entries_within(keys_, count, least, cut.value, chosen_);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const bool at_cut = keys_[i] == cut.value;
    chosen_[chosen] = entry(i);
    chosen += keys_[i] < cut.value || (at_cut && equal > 0) ? 1 : 0;
    equal -= at_cut ? 1 : 0;
  }
}

const uint64_t* TopK::Sort(int64_t count, uint32_t range) const {
  if (count < kRadixEntries) {
    std::sort(chosen_, chosen_ + count);
    return chosen_;
  }
  const int bits = static_cast<int>(std::bit_width(range));
  switch ((bits + kDigitBits - 1) / kDigitBits) {
    case 0: return chosen_;
    case 1: return SortDigits<1>(count, bits);
    case 2: return SortDigits<2>(count, bits);
    case 3: return SortDigits<3>(count, bits);
    default: return SortDigits<4>(count, bits);
  }
}

/// Least digit first; every pass keeps the order of equal digits.
template <int Digits>
const uint64_t* TopK::SortDigits(int64_t count, int bits) const {
  static_assert(4 * kDigitBits >= 32);
  const int digit_bits = (bits + Digits - 1) / Digits;
  const uint64_t mask = (uint64_t{1} << digit_bits) - 1;
  std::array<std::array<int32_t, kDigits>, Digits> counts{};
  const auto digit = [&](uint64_t entry, int d) {
    return static_cast<size_t>(entry >> (kIndexBits + d * digit_bits) & mask);
  };
  for (int64_t i = 0; i < count; ++i) {
    for (int d = 0; d < Digits; ++d) ++counts[static_cast<size_t>(d)][digit(chosen_[i], d)];
  }
  uint64_t *from = chosen_, *to = swap_;
  for (int d = 0; d < Digits; ++d) {
    auto& next = counts[static_cast<size_t>(d)];
    int32_t first = 0;
    for (size_t value = 0; value <= mask; ++value) {
      const int32_t size = next[value];
      next[value] = first;
      first += size;
    }
    for (int64_t i = 0; i < count; ++i) to[next[digit(from[i], d)]++] = from[i];
    std::swap(from, to);
  }
  return from;
}

}  // namespace fa::ops
