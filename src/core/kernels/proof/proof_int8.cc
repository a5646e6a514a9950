// The int8 kernels and those of the indexer: every level has the same bits.

#include <algorithm>
#include <span>

#include "core/kernels/proof/proof.h"
#include "core/kernels/proof/proof_values.h"

namespace fa::core::kernels {
namespace proof {
namespace {

// More than a block of the tile unit in every dimension, and a tail.
constexpr int64_t kD = 83, kDv = 37, kKeys = 75, kMostRows = 64, kPaddedKeys = 80;

std::vector<int8_t> Bytes(uint32_t of, int64_t count) {
  std::vector<int8_t> bytes;
  for (int64_t i = 0; i < count; ++i) bytes.push_back(static_cast<int8_t>(Value(of, i) * 127));
  bytes.front() = -128;
  return bytes;
}

/// Scores, sums and outputs of rows [first, first + count), row after row.
Floats Compute(const Int8Table& table, const Int8Kernels& kernels, int64_t first, int64_t count) {
  const std::vector<int8_t> q = Bytes(31, kMostRows * kD), k = Bytes(32, kKeys * kD), v = Bytes(33, kKeys * kDv);
  const int64_t width = kernels.width, words = table.Words(kD);
  std::vector<const void*> lanes;
  for (int64_t i = 0; i < count; ++i) lanes.push_back(&q[static_cast<size_t>((first + i) * kD)]);
  std::vector<uint32_t> panel(static_cast<size_t>(words * width)), packed(static_cast<size_t>(words * kPaddedKeys));
  std::vector<int32_t> start(kPaddedKeys), sums(static_cast<size_t>(kDv * width));
  Floats s = FloatsOf(kPaddedKeys * width), row_max = FloatsOf(width, kMaskedScore), row_sum = FloatsOf(width);
  kernels.pack_queries({lanes.data(), DType::kI8, count}, kD, -1, panel.data());
  table.pack_keys({.data = k.data(), .dtype = DType::kI8, .stride = kD}, kKeys, kD, -1, packed.data(), start.data());
  kernels.scores(packed.data(), start.data(), kKeys, words, panel.data(), s.data(), row_max.data());
  const Floats scores = s;
  kernels.softmax(s.data(), kKeys, 1e-4f, 128, 128, row_max.data(), row_sum.data());
  Floats limited = scores, limited_sum = row_sum;
  kernels.softmax(limited.data(), kKeys, 1e-4f, 200, 127, row_max.data(), limited_sum.data());
  std::vector<int32_t> limited_sums(sums);
  const int64_t stride = kPaddedKeys / table.group * table.columns;
  std::vector<uint32_t> values(static_cast<size_t>(table.PanelBlocks(kDv) * stride));
  table.pack_values({.data = v.data(), .dtype = DType::kI8, .stride = kDv}, kKeys, kDv, stride, values.data());
  kernels.product(values.data(), stride, kKeys, reinterpret_cast<const uint32_t*>(s.data()), kDv, sums.data());
  kernels.product(values.data(), stride, kKeys, reinterpret_cast<const uint32_t*>(limited.data()), kDv,
                  limited_sums.data());
  Floats results;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < kKeys; ++j) results.push_back(scores[static_cast<size_t>(j * width + i)]);
    results.push_back(row_max[static_cast<size_t>(i)]);
    results.push_back(row_sum[static_cast<size_t>(i)]);
    results.push_back(limited_sum[static_cast<size_t>(i)]);
    for (const std::vector<int32_t>* of : {&sums, &limited_sums}) {
      for (int64_t c = 0; c < kDv; ++c)
        results.push_back(static_cast<float>((*of)[static_cast<size_t>(c * width + i)]));
    }
  }
  return results;
}

std::vector<int8_t> Quantized(const Int8Table& table) {
  Floats x = {0.5f, 1.5f, -2.5f, 1e9f, -1e9f};
  for (int64_t i = 0; i < 14; ++i) x.push_back(Value(34, i) * 150);
  const float scale = 1, offset = 0;
  std::vector<int8_t> y(x.size());
  table.quantize(x.data(), static_cast<int64_t>(x.size()), {.scale = &scale, .offset = &offset}, y.data());
  return y;
}

/// Everything that the indexer's kernels give for one tile.
Floats Compute(const IndexerKernels& kernels) {
  constexpr int64_t kWidth = 48, kHeads = 37, kScores = 9;  // a multiple of every vector; lanes out of use
  const Values tile(35, kWidth, kWidth), weights(36, 1, kWidth);
  const auto* s = static_cast<const float*>(tile.Row(0, DType::kF32));
  const auto* weight = static_cast<const float*>(weights.Row(0, DType::kF32));
  Floats results = FloatsOf(kWidth), by_lane = FloatsOf(kScores), d_weight = FloatsOf(kWidth);
  kernels.add_heads(s, kHeads, kWidth, weight, false, results.data());
  kernels.sum_lanes(s, kScores, kWidth, kHeads, weight, true, false, by_lane.data());
  Floats gradient(s, s + kScores * kWidth);
  kernels.relu_gradient(gradient.data(), kScores, kWidth, weight, by_lane.data(), d_weight.data());
  std::vector<uint32_t> keys(static_cast<size_t>(kWidth)), within(kWidth + IndexerKernels::kKeysBehind);
  std::vector<int32_t> numbers(within.size());
  kernels.order_scores(s, kWidth, keys.data());
  const int64_t found = kernels.scores_within(s, kWidth, keys[3] / 2, keys[3], within.data(), numbers.data());
  results.insert(results.end(), by_lane.begin(), by_lane.end());
  results.insert(results.end(), gradient.begin(), gradient.end());
  results.insert(results.end(), d_weight.begin(), d_weight.end());
  for (const uint32_t key : keys) results.push_back(static_cast<float>(key >> 8));
  results.push_back(static_cast<float>(kernels.keys_up_to(keys.data(), kWidth, keys[5])));
  for (int64_t i = 0; i < found; ++i) results.push_back(static_cast<float>(numbers[static_cast<size_t>(i)]));
  return results;
}

Floats Powers(const IndexerKernels& kernels) {
  constexpr int64_t kWidth = 16;
  Floats s = FloatsOf(kWidth), shift = FloatsOf(kWidth);
  for (int64_t i = 0; i < kWidth; ++i) {
    s[static_cast<size_t>(i)] = Value(37, i) * 20;
    shift[static_cast<size_t>(i)] = i == 5 ? __builtin_inff() : Value(38, i);
  }
  kernels.probabilities(s.data(), 1, kWidth, 0.25f, shift.data());
  return s;
}

}  // namespace
}  // namespace proof

std::string Disproof(const Int8Table& level, const Int8Table& below) {
  const Int8Kernels& other = below.strips[0];
  for (const Int8Kernels& kernels : std::span(level.strips, static_cast<size_t>(level.strip_count))) {
    proof::Floats want;
    for (int64_t first = 0; first < kernels.width; first += other.width) {
      const proof::Floats some = proof::Compute(below, other, first, std::min(other.width, kernels.width - first));
      want.insert(want.end(), some.begin(), some.end());
    }
    if (proof::Differ(proof::Compute(level, kernels, 0, kernels.width), want, 0)) {
      return "integers of " + std::string(kernels.name);
    }
  }
  return proof::Quantized(level) == proof::Quantized(below) ? ""
                                                            : std::string("quantized outputs of ") + Name(level.isa);
}

std::string Disproof(const IndexerKernels& level, const IndexerKernels& below) {
  if (proof::Differ(proof::Compute(level), proof::Compute(below), 0)) return "sums of " + std::string(level.name);
  // 2 ulp each of numbers up to 64, and the rounding of their arguments.
  constexpr double kPowerError = 2 * (4 + 2 * 6) * proof::kRounding;
  if (proof::Differ(proof::Powers(level), proof::Powers(below), kPowerError)) {
    return "exponentials of " + std::string(level.name);
  }
  return {};
}

}  // namespace fa::core::kernels
