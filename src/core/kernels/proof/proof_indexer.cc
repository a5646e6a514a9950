// The kernels of the indexer: every level has the same bits.

#include "core/kernels/proof/proof.h"
#include "core/kernels/proof/proof_values.h"

namespace fa::core::kernels {
namespace proof {
namespace {

constexpr int64_t kWidth = 48;  // a multiple of every vector

void Append(const Floats& some, Floats& all) { all.insert(all.end(), some.begin(), some.end()); }

/// Sums over heads, which lie along the keys or along the lanes.
/// @param heads  of the lanes in use
Floats Sums(const IndexerKernels& kernels, int64_t heads, int64_t keys) {
  const Floats s = ValuesOf(35, kWidth * kWidth), weight = ValuesOf(36, kWidth);
  Floats results;
  for (const bool accumulate : {false, true}) {
    for (const int64_t width : {kWidth, int64_t{16}, int64_t{32}}) {
      Floats sums = FloatsOf(width, 3);
      kernels.add_heads(s.data(), heads, width, weight.data(), accumulate, sums.data());
      Append(sums, results);
    }
    for (const bool relu : {false, true}) {
      Floats sums = FloatsOf(keys, 3);
      kernels.sum_lanes(s.data(), keys, kWidth, heads, weight.data(), relu, accumulate, sums.data());
      Append(sums, results);
    }
  }
  Floats gradient(s.begin(), s.begin() + keys * kWidth), d_weight = FloatsOf(kWidth, 3);
  kernels.relu_gradient(gradient.data(), keys, kWidth, weight.data(), s.data(), d_weight.data());
  Append(gradient, results);
  Append(d_weight, results);
  return results;
}

/// Some integers as floats that have them all.
template <typename Integer>
void AppendIntegers(const std::vector<Integer>& some, int64_t count, Floats& all) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = static_cast<uint32_t>(some[static_cast<size_t>(i)]);
    all.push_back(static_cast<float>(bits >> 16));
    all.push_back(static_cast<float>(bits & 0xffff));
  }
}

/// Selection among n scores, some of which are no numbers, infinite or a zero of either sign.
Floats Selected(const IndexerKernels& kernels, int64_t n) {
  Floats scores = ValuesOf(39, n), results;
  constexpr float kOdd[] = {kNoNumber, -0.0f, __builtin_inff(), -__builtin_inff(), 1e-40f};
  for (int64_t i = 0; i < n; i += 4) scores[static_cast<size_t>(i)] = kOdd[i / 4 % 5] * (i % 8 == 0 ? 1 : -1);
  std::vector<uint32_t> keys(static_cast<size_t>(n)), within(static_cast<size_t>(n + IndexerKernels::kKeysBehind));
  std::vector<int32_t> numbers(within.size());
  std::vector<uint16_t> bucket(keys.size());
  kernels.order_scores(scores.data(), n, keys.data());
  AppendIntegers(keys, n, results);
  const uint32_t one = keys[static_cast<size_t>(n / 2)], other = keys[static_cast<size_t>(n / 3)];
  const uint32_t first = one < other ? one : other, last = one < other ? other : one;
  results.push_back(static_cast<float>(kernels.keys_up_to(keys.data(), n, last)));
  const int64_t found = kernels.scores_within(scores.data(), n, first, last, within.data(), numbers.data());
  results.push_back(static_cast<float>(found));
  AppendIntegers(within, found, results);
  AppendIntegers(numbers, found, results);
  // No key is that of a NaN. Some scores are below the floor and some beyond the top.
  for (uint32_t& key : keys) key = key == ~uint32_t{0} ? uint32_t{0x7fffffff} : key;
  kernels.bucket_keys(keys.data(), n, {.floor = -0.5f, .rise = 0.25f, .top = 0x3f700000, .shift = 15, .last = 400},
                      bucket.data());
  AppendIntegers(bucket, n, results);
  return results;
}

Floats Powers(const IndexerKernels& kernels) {
  constexpr int64_t kKeys = 2;
  Floats s = ValuesOf(37, kKeys * kWidth), shift = ValuesOf(38, kWidth);
  for (float& x : s) x *= 20;
  shift[5] = shift[20] = __builtin_inff();
  kernels.probabilities(s.data(), kKeys, kWidth, 0.25f, shift.data());
  return s;
}

}  // namespace
}  // namespace proof

std::string Disproof(const IndexerKernels& level, const IndexerKernels& below) {
  const std::string of = " of " + std::string(level.name);
  for (const auto& [heads, keys] : {std::pair(1, 1), std::pair(37, 9), std::pair(48, 33)}) {
    if (proof::Differ(proof::Sums(level, heads, keys), proof::Sums(below, heads, keys), 0)) return "sums" + of;
  }
  for (const int64_t n : {1, 3, 4, 8, 15, 16, 17, 101}) {
    if (proof::Differ(proof::Selected(level, n), proof::Selected(below, n), 0)) return "selections" + of;
  }
  // 2 ulp each of numbers up to 64, and the rounding of their arguments.
  constexpr double kPowerError = 2 * (4 + 2 * 6) * proof::kRounding;
  return proof::Differ(proof::Powers(level), proof::Powers(below), kPowerError) ? "exponentials" + of : "";
}

}  // namespace fa::core::kernels
