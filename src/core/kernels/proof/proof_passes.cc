// The passes over a tile of scores, forward and backward, by every strip of a level.

#include <algorithm>
#include <array>

#include "core/integer.h"
#include "core/kernels/proof/proof_values.h"

namespace fa::core::kernels::proof {
namespace {

// A line of 64 keys, which words of bytes take at once (lines of a bias have 16 or 32), a word of 32, and a tail.
constexpr int64_t kKeys = 101, kKeepWords = CeilDiv(kKeys, kKeepBits);
constexpr float kCap = 2, kFactor = 0.75f;
constexpr int64_t kMaskBytes = 128;  ///< per lane

/// Rows of a bias, one per lane.
class BiasRows {
 public:
  /// @param apart  16 lanes at a time 2 KiB from each other, else close together
  BiasRows(DType dtype, bool apart) : memory_(kBytes * 17) {
    constexpr int64_t kTogether = 16;
    for (int64_t lane = 0; lane < kMostRows; ++lane) {
      const int64_t close = lane * (kKeys + 1) * static_cast<int64_t>(SizeOf(dtype));
      const int64_t far = lane % kTogether * kBytes + lane / kTogether * (kBytes / 4);
      char* row = memory_.data() + (apart ? far : close);
      for (int64_t key = 0; key < kKeys; ++key) Put(row, dtype, key, Value(14, lane * kKeys + key));
      rows_[static_cast<size_t>(lane)] = row;
    }
  }
  [[nodiscard]] const void* const* From(int64_t lane) const { return rows_.data() + lane; }

 private:
  static constexpr int64_t kBytes = 2048;  ///< four rows of 128 floats
  std::vector<char> memory_;
  std::array<const void*, kMostRows> rows_;
};

/// What a lane is told, of all lanes; strips take theirs from `first` on.
struct Lanes {
  Lanes() : s(ValuesOf(15, kKeys * kMostRows)), dp(ValuesOf(16, kKeys * kMostRows)) {
    for (int64_t i = 0; i < kMostRows; ++i) {
      const auto at = static_cast<size_t>(i);
      slope[at] = Value(11, i);
      shift[at] = Value(12, i);
      delta[at] = Value(13, i);
      distance[at] = static_cast<int32_t>(i % 90) - 60;
      begin[at] = static_cast<int32_t>(i % 3);
      end[at] = static_cast<int32_t>(i * 7 % kKeys) + 1;
      for (int64_t key = 0; key < kKeys; ++key) {
        if ((i * 5 + key) % 3 == 0) bytes[at][static_cast<size_t>(key)] = static_cast<uint8_t>(1 + (i + key) % 255);
      }
      drop[at] = bytes[at].data();
      keep_all[at] = zeros.data();
    }
  }
  /// Keep bits of a strip's lanes, [key / kKeepBits][lane].
  [[nodiscard]] static std::vector<uint32_t> Bits(int64_t first, int64_t width) {
    std::vector<uint32_t> bits;
    for (int64_t word = 0; word < kKeepWords; ++word) {
      for (int64_t i = first; i < first + width; ++i)
        bits.push_back(static_cast<uint32_t>(i * 37 + word) * 2654435761u);
    }
    return bits;
  }

  Floats s, dp;  ///< [key][lane]
  BiasRows bias{DType::kF32, false}, far_bias{DType::kF32, true}, bf16_bias{DType::kBF16, false},
      far_bf16_bias{DType::kBF16, true}, f16_bias{DType::kF16, false}, far_f16_bias{DType::kF16, true};
  std::array<float, kMostRows> slope, shift, delta;
  std::array<int32_t, kMostRows> distance, begin, end;
  std::array<std::array<uint8_t, kMaskBytes>, kMostRows> bytes{};
  std::array<uint8_t, kMaskBytes> zeros{};
  std::array<const void*, kMostRows> drop, keep_all;
};

/// s and dp: tiles of a strip whose lane 0 is lane `first` of all.
struct Tile {
  const Lanes& lanes;
  int64_t first, width;
  int64_t in_use;  ///< lanes
  Floats s, dp;

  [[nodiscard]] LaneRows RowsOf(const BiasRows& rows, DType dtype) const { return {rows.From(first), dtype, in_use}; }
  /// In place of dp, what does not belong to one lane.
  void Tell(float fact) { std::fill(dp.begin() + width, dp.end(), fact); }
};

/// Lanes [first, first + width) of a tile of all lanes.
Floats PartOf(const Floats& all, int64_t first, int64_t width) {
  Floats part = FloatsOf(kKeys * width);
  for (int64_t key = 0; key < kKeys; ++key) {
    std::copy_n(all.begin() + key * kMostRows + first, width, part.begin() + key * width);
  }
  return part;
}
void PutPart(const Floats& part, int64_t first, int64_t width, Floats& all) {
  for (int64_t key = 0; key < kKeys; ++key) {
    std::copy_n(part.begin() + key * width, width, all.begin() + key * kMostRows + first);
  }
}

/// A pass, and by how much two levels may differ: numbers are 8 or less, and a pass is a few operations (a dozen for
/// the hyperbolic tangent and the exponential, each 4 ulp or less).
struct Pass {
  const char* name;
  double tolerance;
  void (*run)(const StripKernels& kernels, Tile& tile);
  bool by_row = false;       ///< reads or writes a row per lane, of the lanes in use
  bool exponential = false;  ///< of which kernels of pairs take the short one
};
constexpr double kFewOperations = 2 * 4 * kRounding, kFunction = 2 * 16 * kRounding;
constexpr double kShortExponential = 2 * 2.9e-6;  // the error of Exp2OfFractionShort (exp2.inc)

/// A bias of rows that are close together and then one of distant ones.
template <DType dtype, BiasRows Lanes::*close, BiasRows Lanes::*distant>
void AddBias(const StripKernels& k, Tile& t) {
  k.add_bias(t.s.data(), kKeys, 1, 1, t.RowsOf(t.lanes.*distant, dtype), nullptr);
  k.add_bias(t.s.data(), kKeys, 0.3f, 1.5f, t.RowsOf(t.lanes.*close, dtype), t.dp.data());
  k.add_bias(t.s.data(), kKeys, 0.3f, 1.5f, t.RowsOf(t.lanes.*distant, dtype), t.dp.data());
}

/// dp = the gradient that was written, after one that was added to a bias.
template <DType dtype>
void BiasGradient(const StripKernels& k, Tile& t) {
  const auto row_bytes = kKeys * static_cast<int64_t>(SizeOf(dtype));
  std::vector<char> memory(static_cast<size_t>(t.in_use * row_bytes));
  std::vector<void*> rows;
  for (int64_t lane = 0; lane < t.in_use; ++lane) {
    rows.push_back(memory.data() + lane * row_bytes);
    for (int64_t key = 0; key < kKeys; ++key)
      Put(rows.back(), dtype, key, t.dp[static_cast<size_t>(key * t.width + lane)]);
  }
  const Floats ds = t.s;
  for (const bool accumulate : {true, false}) {
    k.bias_gradient(ds.data(), kKeys, accumulate ? 0.5f : 0.3f, accumulate, rows.data(), dtype, t.in_use);
    for (int64_t lane = 0; lane < t.in_use; ++lane) {
      for (int64_t key = 0; key < kKeys; ++key) {
        (accumulate ? t.s : t.dp)[static_cast<size_t>(key * t.width + lane)] =
            Element(rows[static_cast<size_t>(lane)], dtype, key);
      }
    }
  }
}

/// Probabilities from 1 down to 0, and pairs that are masked.
void BackwardSoftmax(const StripKernels& k, Tile& t, float factor, bool drops) {
  const std::vector<uint32_t> bits = Lanes::Bits(t.first, t.width);
  Floats shift = FloatsOf(t.width);
  for (int64_t lane = 0; lane < t.width; ++lane) {
    shift[static_cast<size_t>(lane)] = factor * 7 / 8 + t.lanes.shift[static_cast<size_t>(t.first + lane)];
    for (int64_t key = lane % 4; key < kKeys; key += 5) t.s[static_cast<size_t>(key * t.width + lane)] = kMaskedScore;
  }
  const float* delta = t.lanes.delta.data() + t.first;
  if (drops) {
    k.backward_softmax_dropout(t.s.data(), t.dp.data(), kKeys, factor, shift.data(), delta, {bits.data(), 2});
  } else {
    k.backward_softmax(t.s.data(), t.dp.data(), kKeys, factor, shift.data(), delta);
  }
}

const Pass kPasses[] = {
    {"scaled scores", kFewOperations,
     [](const StripKernels& k, Tile& t) {
       k.scale_scores(t.dp.data(), kKeys, 0.3f, 0, nullptr);
       k.scale_scores(t.s.data(), kKeys, 0.3f, 0, t.dp.data());
     }},
    {"softcap", kFunction,
     [](const StripKernels& k, Tile& t) {  // of small scores alone, and of any
       k.scale_scores(t.s.data(), kKeys, 0.3f, kCap, t.dp.data());
       k.scale_scores(t.s.data(), kKeys, 10, kCap, nullptr);
     }},
    {"softcap", kFunction,
     [](const StripKernels& k, Tile& t) { k.scale_scores(t.s.data(), kKeys, 1e30f, 1e-9f, t.dp.data()); }},
    {"bias", 3 * kFewOperations, AddBias<DType::kF32, &Lanes::bias, &Lanes::far_bias>, true},
    {"bias of f16", 3 * kFewOperations, AddBias<DType::kF16, &Lanes::f16_bias, &Lanes::far_f16_bias>, true},
    {"bias of bf16", 3 * kFewOperations, AddBias<DType::kBF16, &Lanes::bf16_bias, &Lanes::far_bf16_bias>, true},
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
       const LaneRows drop{t.lanes.drop.data() + t.first, DType::kU8, t.in_use};
       const LaneRows none{t.lanes.keep_all.data() + t.first, DType::kU8, t.in_use};
       const bool some = k.mask_bytes(t.s.data(), kKeys, drop, kMaskedScore, t.dp.data());
       t.Tell(some && !k.mask_bytes(t.s.data(), kKeys, none, kMaskedScore, nullptr) ? 1 : 0);
     },
     true},
    {"maximum", 0, [](const StripKernels& k, Tile& t) { k.block_max(t.s.data(), kKeys, t.dp.data()); }},
    {"softmax of the backward", kFunction,
     [](const StripKernels& k, Tile& t) { BackwardSoftmax(k, t, kFactor, false); }, false, true},
    {"softmax of the backward", kFunction, [](const StripKernels& k, Tile& t) { BackwardSoftmax(k, t, 100, false); },
     false, true},
    {"softmax with dropout of the backward", kFunction,
     [](const StripKernels& k, Tile& t) { BackwardSoftmax(k, t, kFactor, true); }, false, true},
    {"gradient of the softcap", kFewOperations,
     [](const StripKernels& k, Tile& t) { k.softcap_gradient(t.s.data(), t.dp.data(), kKeys, kCap); }},
    {"gradient of the bias", 0, BiasGradient<DType::kF32>, true},
    {"gradient of a bias in f16", 0, BiasGradient<DType::kF16>, true},
    {"gradient of a bias in bf16", 0, BiasGradient<DType::kBF16>, true},
    {"gradient of slopes", kKeys* kFewOperations,
     [](const StripKernels& k, Tile& t) {
       const int32_t* distance = t.lanes.distance.data() + t.first;
       k.slope_gradient(t.s.data(), kKeys, distance, true, t.dp.data());
       k.slope_gradient(t.s.data(), kKeys, distance, false, t.dp.data() + t.width);
     }},
};

/// What a strip makes of its lanes, the first of which is lane `first` of all.
Tile Run(const Pass& pass, const StripKernels& kernels, const Lanes& lanes, int64_t first, int64_t in_use) {
  const int64_t width = kernels.width;
  Tile tile{lanes, first, width, in_use, PartOf(lanes.s, first, width), PartOf(lanes.dp, first, width)};
  pass.run(kernels, tile);
  return tile;
}

/// Whether a lane in use has other numbers than in a tile of all lanes.
bool Differs(const Floats& got, const Floats& all, const Tile& tile, double tolerance) {
  for (int64_t key = 0; key < kKeys; ++key) {
    const auto from = static_cast<size_t>(key * tile.width), to = static_cast<size_t>(key * kMostRows);
    const auto lanes = static_cast<size_t>(tile.in_use);
    if (Differ(std::span(got).subspan(from, lanes), std::span(all).subspan(to, lanes), tolerance)) return true;
  }
  return false;
}

/// Pairs: a tile rounded to words and back. The words' order is that of the products.
bool PairsDiffer(const StripKernels& kernels, const RowKernels& below) {
  for (const int64_t keys : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4}, kKeys}) {
    const int64_t count = keys * kernels.width;
    Floats s = ValuesOf(17, count), rounded = FloatsOf(count), words = FloatsOf(count + kernels.width);
    std::vector<uint16_t> narrow(static_cast<size_t>(count));
    for (float& x : s) x *= 1.2345678f;
    below.narrow(s.data(), count, 1, count, 1, {narrow.data(), DType::kBF16, count});
    below.widen({.data = narrow.data(), .dtype = DType::kBF16, .stride = count}, 1, count, rounded.data(), count);
    kernels.pair_lanes(s.data(), keys, words.data());
    if (std::memcmp(words.data(), narrow.data(), narrow.size() * sizeof(uint16_t)) != 0) return true;
    kernels.pair_keys(s.data(), keys, words.data());
    kernels.unpair_keys(words.data(), keys);
    words.resize(s.size());
    if (Differ(words, rounded, 0)) return true;
  }
  return false;
}

/// Pairs: P and dS of a backward that are rounded in one pass have the bits of those that are rounded apart.
bool BackwardPairsDiffer(const StripKernels& kernels, const Lanes& lanes) {
  const std::vector<uint32_t> bits = Lanes::Bits(0, kernels.width);
  const Floats shift(static_cast<size_t>(kernels.width), 0.5f);
  const float* delta = lanes.delta.data();
  for (const int64_t keys : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4}, kKeys}) {
    const int64_t count = keys * kernels.width, words = (keys + 1) / 2 * kernels.width;
    for (const bool drops : {false, true}) {
      for (const float multiplier : {1.0f, 0.5f}) {
        constexpr float kQuarter = 0.25f;
        Floats s = ValuesOf(18, count), dp = ValuesOf(19, count);
        s[0] = kMaskedScore;
        Floats p = s, ds = dp;
        const KeepArgs keep = drops ? KeepArgs{bits.data(), 2} : KeepArgs{};
        if (drops) {
          kernels.backward_softmax_dropout(p.data(), ds.data(), keys, kQuarter, shift.data(), delta, keep);
        } else {
          kernels.backward_softmax(p.data(), ds.data(), keys, kQuarter, shift.data(), delta);
        }
        for (float& x : ds) x *= multiplier;
        Floats want[3] = {FloatsOf(count / 2), FloatsOf(count / 2), FloatsOf(words)};
        Floats got[3] = {want[0], want[1], want[2]};
        kernels.pair_lanes(p.data(), keys, want[0].data());
        kernels.pair_lanes(ds.data(), keys, want[1].data());
        kernels.pair_keys(ds.data(), keys, want[2].data());
        kernels.backward_pairs({.s = s.data(),
                                .dp = dp.data(),
                                .keys = keys,
                                .factor = kQuarter,
                                .shift = shift.data(),
                                .delta = delta,
                                .keep = keep,
                                .ds_multiplier = multiplier,
                                .p_lanes = got[0].data(),
                                .ds_lanes = got[1].data(),
                                .ds_keys = got[2].data()});
        for (int i = 0; i < 3; ++i) {
          if (std::memcmp(got[i].data(), want[i].data(), got[i].size() * sizeof(float)) != 0) return true;
        }
      }
    }
  }
  return false;
}

}  // namespace

std::string PassDisproof(const KernelTable& level, const KernelTable& below) {
  const Lanes lanes;
  const StripKernels& other = below.narrowest();
  const std::vector<QueryKernels> own = OwnKernels(level, below);
  for (const Pass& pass : kPasses) {
    Floats s = lanes.s, dp = lanes.dp;
    for (int64_t first = 0; first < MostRows(own); first += other.width) {
      const Tile some = Run(pass, other, lanes, first, other.width);
      PutPart(some.s, first, other.width, s);
      PutPart(some.dp, first, other.width, dp);
    }
    for (const QueryKernels& query : own) {
      for (const int64_t idle : {0, 1}) {
        if (idle > 0 && !pass.by_row) continue;
        const Tile got = Run(pass, query.kernels, lanes, 0, query.kernels.width - idle);
        const double tolerance = pass.tolerance + (pass.exponential && query.pairs() ? kShortExponential : 0);
        if (Differs(got.s, s, got, tolerance) || Differs(got.dp, dp, got, tolerance)) {
          return pass.name + (" of " + std::string(query.kernels.name));
        }
      }
    }
  }
  for (const QueryKernels& query : own) {
    if (query.pairs() && PairsDiffer(query.kernels, *below.rows)) {
      return "words of " + std::string(query.kernels.name);
    }
    if (query.pairs() && BackwardPairsDiffer(query.kernels, lanes)) {
      return "pairs of the backward of " + std::string(query.kernels.name);
    }
  }
  return {};
}

}  // namespace fa::core::kernels::proof
