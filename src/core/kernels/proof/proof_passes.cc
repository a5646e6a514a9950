// The passes over a tile of scores, forward and backward, by every strip of a level.

#include <algorithm>
#include <array>

#include "core/kernels/proof/proof_values.h"

namespace fa::core::kernels::proof {
namespace {

constexpr int64_t kKeys = 7, kLanesInAll = 64;
constexpr float kCap = 2, kFactor = 0.75f;

/// What a lane is told, of all lanes; strips take theirs from `first` on.
struct Lanes {
  Lanes() {
    for (int64_t i = 0; i < kLanesInAll; ++i) {
      const auto at = static_cast<size_t>(i);
      slope[at] = Value(11, i);
      shift[at] = Value(12, i);
      delta[at] = Value(13, i);
      distance[at] = static_cast<int32_t>(i % 9) - 4;
      begin[at] = static_cast<int32_t>(i % 3);
      end[at] = static_cast<int32_t>(i % kKeys) + 1;
      bits[at] = static_cast<uint32_t>(i * 37 % 128);
      bias[at] = values.Row(i, DType::kF32);
      for (int64_t key = 0; key < kKeys; ++key) bytes[at][static_cast<size_t>(key)] = (i * 5 + key) % 3 == 0 ? 1 : 0;
      drop[at] = bytes[at].data();
    }
  }
  Values values{14, kLanesInAll, kKeys};
  std::array<float, kLanesInAll> slope, shift, delta;
  std::array<int32_t, kLanesInAll> distance, begin, end;
  std::array<uint32_t, kLanesInAll> bits;
  std::array<std::array<uint8_t, kKeys>, kLanesInAll> bytes;
  std::array<const void*, kLanesInAll> bias, drop;
};

/// s and dp: tiles of a strip whose lane 0 is lane `first` of all.
struct Tile {
  const Lanes& lanes;
  int64_t first, width;
  Floats s, dp;
};

Tile TileOf(const Lanes& lanes, int64_t first, int64_t width) {
  Tile tile{lanes, first, width, FloatsOf(kKeys * width), FloatsOf(kKeys * width)};
  for (int64_t key = 0; key < kKeys; ++key) {
    for (int64_t lane = 0; lane < width; ++lane) {
      const auto at = static_cast<size_t>(key * width + lane);
      tile.s[at] = Value(15, key * kLanesInAll + first + lane);
      tile.dp[at] = Value(16, key * kLanesInAll + first + lane);
    }
  }
  return tile;
}

/// A pass, and by how much two levels may differ: numbers are 8 or less, and a pass is a few operations (a dozen for
/// the hyperbolic tangent and the exponential, each 4 ulp or less).
struct Pass {
  const char* name;
  double tolerance;
  void (*run)(const StripKernels& kernels, Tile& tile);
};
constexpr double kFewOperations = 2 * 4 * kRounding, kFunction = 2 * 16 * kRounding;

const Pass kPasses[] = {
    {"scaled scores", kFewOperations,
     [](const StripKernels& k, Tile& t) { k.scale_scores(t.s.data(), kKeys, 0.3f, 0, nullptr); }},
    {"softcap", kFunction,
     [](const StripKernels& k, Tile& t) { k.scale_scores(t.s.data(), kKeys, 0.3f, kCap, t.dp.data()); }},
    {"bias", kFewOperations,
     [](const StripKernels& k, Tile& t) {
       k.add_bias(t.s.data(), kKeys, 0.3f, 1.5f, {t.lanes.bias.data() + t.first, DType::kF32, t.width}, t.dp.data());
     }},
    {"slopes", kFewOperations,
     [](const StripKernels& k, Tile& t) {
       const float* slope = t.lanes.slope.data() + t.first;
       const int32_t* distance = t.lanes.distance.data() + t.first;
       k.add_slopes(t.dp.data(), kKeys, 0.3f, slope, distance, true, nullptr);
       k.add_slopes(t.s.data(), kKeys, 0.3f, slope, distance, false, t.dp.data());
     }},
    {"mask of an interval", 0,
     [](const StripKernels& k, Tile& t) {
       k.mask_interval(t.s.data(), kKeys, t.lanes.begin.data() + t.first, t.lanes.end.data() + t.first, kMaskedScore);
     }},
    {"mask of bytes", 0,
     [](const StripKernels& k, Tile& t) {
       const LaneRows drop{t.lanes.drop.data() + t.first, DType::kU8, t.width};
       k.mask_bytes(t.s.data(), kKeys, drop, kMaskedScore, t.dp.data());
     }},
    {"maximum", 0, [](const StripKernels& k, Tile& t) { k.block_max(t.s.data(), kKeys, t.dp.data()); }},
    {"softmax of the backward", kFunction,
     [](const StripKernels& k, Tile& t) {
       k.backward_softmax(t.s.data(), t.dp.data(), kKeys, kFactor, t.lanes.shift.data() + t.first,
                          t.lanes.delta.data() + t.first);
     }},
    {"softmax with dropout of the backward", kFunction,
     [](const StripKernels& k, Tile& t) {
       k.backward_softmax_dropout(t.s.data(), t.dp.data(), kKeys, kFactor, t.lanes.shift.data() + t.first,
                                  t.lanes.delta.data() + t.first, {t.lanes.bits.data() + t.first, 2});
     }},
    {"gradient of the softcap", kFewOperations,
     [](const StripKernels& k, Tile& t) { k.softcap_gradient(t.s.data(), t.dp.data(), kKeys, kCap); }},
    {"gradient of slopes", kKeys* kFewOperations,
     [](const StripKernels& k, Tile& t) {
       k.slope_gradient(t.s.data(), kKeys, t.lanes.distance.data() + t.first, true, t.dp.data());
     }},
};

/// The lanes [0, width) of all tiles, group after group, as one tile.
Tile Run(const Pass& pass, const StripKernels& kernels, const Lanes& lanes, int64_t width) {
  Tile whole = TileOf(lanes, 0, width);
  for (int64_t first = 0; first < width; first += kernels.width) {
    Tile part = TileOf(lanes, first, kernels.width);
    pass.run(kernels, part);
    for (int64_t key = 0; key < kKeys; ++key) {
      const int64_t from = key * kernels.width, to = key * width + first;
      const int64_t lanes_left = std::min(kernels.width, width - first);
      std::copy_n(part.s.begin() + from, lanes_left, whole.s.begin() + to);
      std::copy_n(part.dp.begin() + from, lanes_left, whole.dp.begin() + to);
    }
  }
  return whole;
}

}  // namespace

std::string PassDisproof(const KernelTable& level, const KernelTable& below) {
  const Lanes lanes;
  for (int i = 0; i < level.strip_count; ++i) {
    const StripKernels& kernels = level.strips[i];
    for (const Pass& pass : kPasses) {
      const Tile got = Run(pass, kernels, lanes, kernels.width);
      const Tile want = Run(pass, below.narrowest(), lanes, kernels.width);
      if (Differ(got.s, want.s, pass.tolerance) || Differ(got.dp, want.dp, pass.tolerance)) {
        return pass.name + (" of " + std::string(kernels.name));
      }
    }
  }
  return {};
}

}  // namespace fa::core::kernels::proof
