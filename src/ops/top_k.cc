// Scores become 32-bit keys that ascend where scores descend. A histogram of the leading bits of the keys' range finds
// the bucket that holds the k-th; its members alone are looked at further. What lies up to the k-th is collected in
// index order and sorted by a radix sort that keeps the order of equal keys. Two thousand of eight thousand take
// some 30 us beside a busy hyper-thread, 4 % of their scores with 64 heads of 128; std::partial_sort takes 430.

#include "ops/top_k.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace fa::ops {
namespace {

constexpr int kBucketBits = 11;
constexpr int kIndexBits = 32;
constexpr uint32_t kNanKey = std::numeric_limits<uint32_t>::max();

// Below, a comparison sort beats clearing the counters of a radix sort.
constexpr int64_t kRadixEntries = 128;
constexpr int kDigitBits = 9;
constexpr size_t kDigits = size_t{1} << kDigitBits;
constexpr int kMostDigits = (32 + kDigitBits - 1) / kDigitBits;

// Scores looked at together; compilers turn what is done with them into vectors.
constexpr int64_t kChunk = 16;

/// Ascends where scores descend; without a branch, which would keep compilers from vectors.
uint32_t KeyOf(float score) {
  const auto bits = std::bit_cast<int32_t>(score + 0.0F);  // -0 + 0 is +0
  const int32_t nan = (bits & 0x7fffffff) > 0x7f800000 ? -1 : 0;
  return static_cast<uint32_t>((bits ^ (~(bits >> 31) & 0x7fffffff)) | nan);
}

}  // namespace

TopK::TopK(Carver& carver, int64_t max_scores, int64_t k)
    : k_(k),
      keys_(carver.Array<uint32_t>(max_scores)),
      members_(carver.Array<uint32_t>(max_scores)),
      // Collecting writes one entry past the last before it knows that it is none.
      chosen_(carver.Array<uint64_t>(std::min(k, max_scores) + 1)),
      swap_(carver.Array<uint64_t>(std::min(k, max_scores))) {}

int64_t TopK::Select(const float* scores, int64_t count, int32_t* indices) const {
  const int64_t wanted = std::min(k_, count);
  if (wanted <= 0) return 0;
  const auto [least, greatest] = Order(scores, count);
  const Cut cut = wanted < count ? FindCut(count, least, greatest) : Cut{greatest, kAllEqual};
  Collect(count, least, cut);
  const uint64_t* sorted = Sort(wanted, cut.value - least);
  for (int64_t i = 0; i < wanted; ++i) indices[i] = static_cast<int32_t>(sorted[i]);
  return wanted;
}

/// Fills keys_.
TopK::Range TopK::Order(const float* scores, int64_t count) const {
  std::array<uint32_t, kChunk> least{}, greatest{};
  least.fill(kNanKey);
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    std::array<uint32_t, kChunk> keys;
    for (size_t j = 0; j < kChunk; ++j) keys[j] = KeyOf(scores[i + static_cast<int64_t>(j)]);
    for (size_t j = 0; j < kChunk; ++j) {
      least[j] = keys[j] < least[j] ? keys[j] : least[j];
      greatest[j] = keys[j] > greatest[j] ? keys[j] : greatest[j];
    }
    std::copy(keys.begin(), keys.end(), keys_ + i);
  }
  for (; i < count; ++i) {
    keys_[i] = KeyOf(scores[i]);
    least[0] = std::min(least[0], keys_[i]);
    greatest[0] = std::max(greatest[0], keys_[i]);
  }
  return {*std::min_element(least.begin(), least.end()), *std::max_element(greatest.begin(), greatest.end())};
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
    int64_t members = 0;
    for (i = 0; i < count; ++i) {
      const uint32_t key = keys[i];
      members_[members] = key;  // keys may be members_: what is overwritten has been read
      members += (key - least) >> shift == bucket ? 1 : 0;
    }
    keys = members_;
    count = members;
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
    for (int64_t i = 0; i < count; ++i) {
      chosen_[chosen] = entry(i);
      chosen += keys_[i] <= cut.value ? 1 : 0;
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const bool at_cut = keys_[i] == cut.value;
    chosen_[chosen] = entry(i);
    chosen += keys_[i] < cut.value || (at_cut && equal > 0) ? 1 : 0;
    equal -= at_cut ? 1 : 0;
  }
}

/// Least digit first; every pass keeps the order of equal digits.
const uint64_t* TopK::Sort(int64_t count, uint32_t range) const {
  if (count < kRadixEntries) {
    std::sort(chosen_, chosen_ + count);
    return chosen_;
  }
  const int bits = static_cast<int>(std::bit_width(range));
  const int digits = (bits + kDigitBits - 1) / kDigitBits;
  const int digit_bits = digits == 0 ? 0 : (bits + digits - 1) / digits;
  const uint64_t mask = (uint64_t{1} << digit_bits) - 1;
  std::array<std::array<int32_t, kDigits>, kMostDigits> counts{};
  const auto digit = [&](uint64_t entry, int d) {
    return static_cast<size_t>(entry >> (kIndexBits + d * digit_bits) & mask);
  };
  for (int64_t i = 0; i < count; ++i) {
    for (int d = 0; d < digits; ++d) ++counts[static_cast<size_t>(d)][digit(chosen_[i], d)];
  }
  uint64_t *from = chosen_, *to = swap_;
  for (int d = 0; d < digits; ++d) {
    auto& next = counts[static_cast<size_t>(d)];
    int32_t first = 0;
    for (int32_t& n : next) {
      const int32_t size = n;
      n = first;
      first += size;
    }
    for (int64_t i = 0; i < count; ++i) to[next[digit(from[i], d)]++] = from[i];
    std::swap(from, to);
  }
  return from;
}

}  // namespace fa::ops
