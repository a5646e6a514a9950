// Scores become 32-bit keys that ascend where scores descend. A sample of the keys gives a cut, which should be
// slightly above the wanted keys. One pass over all keys collects the candidates below the cut. If there are too few,
// the cut is raised, so the result is always exact. A counting sort puts the candidates into buckets of close keys,
// about one candidate per bucket. Then Settle puts the candidates of each bucket in order.

#include "ops/indexer/top_k.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/integer.h"

namespace fa::ops {

using core::kernels::IndexerKernels;
using core::kernels::KeyBuckets;

namespace {

constexpr uint32_t kLeastKey = 0x00800000;     // key of the largest finite float
constexpr uint32_t kGreatestKey = 0xff7fffff;  // key of the lowest finite float
constexpr uint32_t kNanKey = 0xffffffff;
constexpr int kIndexBits = 32;

// The number of sampled keys. If 2048 of 8192 scores are wanted, this sample gives about a quarter more candidates than
// wanted.
constexpr int64_t kSamples = 512;

// The base-2 logarithm of the number of buckets. If 2048 of 8192 scores are wanted, there is about one candidate per
// bucket. With twice as many buckets, adding up their counters costs more than smaller buckets save.
constexpr int kBucketBits = 12;
constexpr int32_t kBuckets = 1 << kBucketBits;
// The first bucket holds all candidates whose distance from the cut is at least 2^16 times that distance of the middle
// candidate. So a single very large score does not widen the other buckets.
constexpr int32_t kReach = 16 << 23;

// Up to this number of entries, std::sort is faster than clearing and adding up the counters of a counting sort.
constexpr int64_t kFewEntries = 64;

// The number of registers through which entries pass (Settle). A bucket of at most kRegisters + 1 entries comes out in
// order. With 2 or 4 registers, 2048 of 8192 normal scores took 5 to 15 % longer.
constexpr int kRegisters = 3;
constexpr int64_t kRun = kRegisters + 1;

float FiniteScore(uint32_t key) {
  key = std::clamp(key, kLeastKey, kGreatestKey);
  return std::bit_cast<float>(static_cast<int32_t>(key) < 0 ? key : key ^ 0x7fffffff);
}

uint64_t Entry(uint32_t key, int32_t index) {
  return static_cast<uint64_t>(key) << kIndexBits | static_cast<uint32_t>(index);
}

}  // namespace

/// A sample: the keys of scores that lie at equal distances in the row.
class ScoreSample {
 public:
  ScoreSample(const IndexerKernels& kernels, const float* scores, int64_t count) : kernels_(kernels) {
    // The distance is odd. So if scores have a period that is a power of two, the sample still covers the whole period.
    const int64_t distance = core::CeilDiv(count, kSamples) | 1;
    std::array<float, kSamples> values;
    for (int64_t i = 0; i < count; i += distance) values[static_cast<size_t>(size_++)] = scores[i];
    kernels.order_scores(values.data(), size_, keys_.data());
  }
  /// Returns a rank r: at least `wanted` of all `count` scores should lie at or below the sample's r-th key. With
  /// independent scores this fails in one case in a thousand, because r is three standard deviations above the expected
  /// number.
  [[nodiscard]] int64_t SafeRank(int64_t wanted, int64_t count) const {
    const double share = static_cast<double>(wanted) / static_cast<double>(count), size = static_cast<double>(size_);
    return static_cast<int64_t>(share * size + 3 * std::sqrt(share * (1 - share) * size)) + 1;
  }
  /// Returns the number of keys that are at most `last`.
  [[nodiscard]] int64_t UpTo(uint32_t last) const { return kernels_.keys_up_to(keys_.data(), size_, last); }
  /// Returns a bound: `rank` keys of the sample are at most the bound, or more if keys are equal. If the sample has
  /// fewer keys than `rank`, returns kNanKey.
  [[nodiscard]] uint32_t AtRank(int64_t rank) const {
    if (rank > size_) return kNanKey;
    uint32_t first = 0, last = kNanKey;
    while (first < last) {
      const uint32_t middle = first + (last - first) / 2;
      const int64_t count = UpTo(middle);
      if (count == rank) return middle;
      if (count > rank) {
        last = middle;
      } else {
        first = middle + 1;
      }
    }
    return first;
  }

 private:
  const IndexerKernels& kernels_;
  int64_t size_ = 0;
  std::array<uint32_t, kSamples> keys_;
};

namespace {

/// Makes the buckets. The upper bits of the float `score - floor + rise` give a score's bucket. So buckets are wider
/// farther above the floor, where scores are rarer. `rise` is the distance from the floor to the middle candidate.
KeyBuckets BucketsOf(const ScoreSample& sample, uint32_t cut) {
  // If all scores are wanted, the lowest 64th of them shares the last bucket, so that no outlier widens the buckets of
  // the other scores.
  const int64_t finite = sample.UpTo(kGreatestKey);
  const uint32_t lowest = cut <= kGreatestKey ? cut : sample.AtRank(std::max<int64_t>(finite - finite / 64 - 1, 1));
  const float floor = FiniteScore(lowest);
  const float rise =
      std::max(FiniteScore(sample.AtRank(std::max<int64_t>(sample.UpTo(lowest - 1) / 2, 1))) - floor, 0.0F);
  const auto bottom = std::bit_cast<int32_t>(rise);
  const auto top = std::bit_cast<int32_t>(std::max(FiniteScore(sample.AtRank(1)) - floor, 0.0F) + rise);
  const int32_t span = rise > 0 ? std::min(top - bottom, kReach) : top - bottom;
  const int shift = std::max(static_cast<int>(std::bit_width(static_cast<uint32_t>(span))) - kBucketBits, 0);
  return {.floor = floor, .rise = rise, .top = bottom + span, .shift = shift, .last = span >> shift};
}

/// Passes all entries, bucket after bucket, through registers. A register keeps the greater of its own entry and the
/// new one, and passes the other one on. Buckets of at most kRun entries come out in order.
void Settle(const uint64_t* entries, int64_t wanted, int32_t* indices) {
  std::array<uint64_t, kRegisters> kept{};
  for (int64_t i = 0; i < wanted + kRegisters; ++i) {
    uint64_t entry = entries[i];
#pragma GCC unroll 8
    for (uint64_t& k : kept) {
      const uint64_t least = entry < k ? entry : k;
      k = entry < k ? k : entry;
      entry = least;
    }
    if (i >= kRegisters) indices[i - kRegisters] = static_cast<int32_t>(entry);
  }
}

}  // namespace

TopK::TopK(const IndexerKernels& kernels, Carver& carver, int64_t max_scores, int64_t k)
    : kernels_(kernels),
      k_(k),
      keys_(carver.Array<uint32_t>(max_scores + IndexerKernels::kKeysBehind)),
      indices_(carver.Array<int32_t>(max_scores + IndexerKernels::kKeysBehind)),
      bucket_(carver.Array<uint16_t>(max_scores)),
      entries_(carver.Array<uint64_t>(max_scores + kRegisters)),
      ends_(carver.Array<int32_t>(kBuckets)),
      crowded_(carver.Array<uint16_t>(kBuckets)) {}

int64_t TopK::Select(const float* scores, int64_t count, int32_t* indices) const {
  const int64_t wanted = std::min(k_, count);
  if (wanted <= 0) return 0;
  const ScoreSample sample(kernels_, scores, count);
  uint32_t cut;
  int64_t below = 0;
  for (int64_t rank = sample.SafeRank(wanted, count);; rank *= 2) {
    cut = sample.AtRank(rank);
    below = kernels_.scores_within(scores, count, 0, cut - 1, keys_, indices_);
    if (below >= wanted) break;
    const int64_t tied = kernels_.scores_within(scores, count, cut, cut, keys_ + below, indices_ + below);
    if (below + tied >= wanted) break;
  }
  const int64_t sorted = std::min(below, wanted);
  Sort(below, sorted, sample, cut, indices);
  // These entries have the score of the cut, and are written in the order of their indices.
  std::copy(indices_ + sorted, indices_ + wanted, indices + sorted);
  return wanted;
}

void TopK::Sort(int64_t count, int64_t wanted, const ScoreSample& sample, uint32_t cut, int32_t* indices) const {
  if (count <= kFewEntries) {
    for (int64_t i = 0; i < count; ++i) entries_[i] = Entry(keys_[i], indices_[i]);
    std::sort(entries_, entries_ + count);
    for (int64_t i = 0; i < wanted; ++i) indices[i] = static_cast<int32_t>(entries_[i]);
    return;
  }
  const KeyBuckets buckets = BucketsOf(sample, cut);
  kernels_.bucket_keys(keys_, count, buckets, bucket_);
  Place(count, wanted, buckets.last);
  std::fill(entries_ + count, entries_ + count + kRegisters, ~uint64_t{0});
  Settle(entries_, wanted, indices);
}

void TopK::Place(int64_t count, int64_t wanted, int32_t last_bucket) const {
  std::fill(ends_, ends_ + last_bucket + 1, 0);
  int64_t crowds = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (++ends_[bucket_[i]] == kRun + 1) crowded_[crowds++] = bucket_[i];
  }
  int32_t end = 0;
  for (int32_t bucket = 0; bucket <= last_bucket; ++bucket) {
    const int32_t size = ends_[bucket];
    ends_[bucket] = end;
    end += size;
  }
  // ends_[b] starts as the position of bucket b's first entry and becomes its end.
  for (int64_t i = 0; i < count; ++i) entries_[ends_[bucket_[i]]++] = Entry(keys_[i], indices_[i]);
  for (int64_t i = 0; i < crowds; ++i) {
    const uint16_t bucket = crowded_[i];
    uint64_t* const first = entries_ + (bucket == 0 ? 0 : ends_[bucket - 1]);
    uint64_t* const behind = entries_ + ends_[bucket];
    if (first < entries_ + wanted && !std::is_sorted(first, behind)) std::sort(first, behind);
  }
}

}  // namespace fa::ops
