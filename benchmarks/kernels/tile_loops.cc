// Times the loops of the tile unit alone. The forward has 256 rows (eight strips) and 2048 keys. The backward has 256
// rows and 128 keys. The sums of dK or dV have 256 or 512 rows. The indexer has 16 tokens and 32 keys (one strip).

#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/benchmarks.h"
#include "kernels/operands.h"
#include "kernels/timing.h"

namespace fa::core::kernels {
namespace {

constexpr int64_t kLanes = 32, kStrips = 8, kRows = kStrips * kLanes, kChunk = TileAttendArgs::kKeys;
constexpr int64_t kHeadKeys = 2048, kColumnKeys = 128;
// Checks look at every 37th row, because the sums in double take longer than the kernels.
constexpr int64_t kCheckedRows = 37;
// Probabilities and dS are rounded to bf16, which changes a sum by at most 2^-8 of its terms' magnitudes. Roundings to
// f32 change the sum by less than that, so 2^-7 bounds all roundings.
constexpr double kRoundedSums = 0x1p-7;

using Floats = std::vector<float>;

void CheckWithin(const std::string& what, double got, double want, double allowed) {
  if (std::fabs(got - want) <= allowed) return;
  throw std::runtime_error(what + ": " + std::to_string(got) + ", want " + std::to_string(want));
}

const char* Bytes(const Floats& of) { return reinterpret_cast<const char*>(of.data()); }
char* Bytes(Floats& of) { return reinterpret_cast<char*>(of.data()); }

Floats KeyTilesOf(const RowKernels& rows, const RandomRows& of, int64_t keys, int64_t d) {
  Floats packed(static_cast<size_t>(keys * d / 2));
  rows.pack_key_tiles(of.block(), keys, d, packed.data(), kChunk / 2 * d);
  return packed;
}

/// Returns the panels of the strips, one after the other.
Floats PanelsOf(const StripKernels& kernels, const RandomRows& of, int64_t d) {
  Floats panels(static_cast<size_t>(kRows * d / 2));
  for (int64_t strip = 0; strip < kStrips; ++strip) {
    LaneRows lanes = of.lanes();
    lanes.rows += strip * kLanes;
    lanes.count = kLanes;
    kernels.pack_queries(lanes, d, 1, panels.data() + strip * kLanes * d / 2);
  }
  return panels;
}

double Dot(const RandomRows& a, int64_t row, const RandomRows& b, int64_t other, int64_t d) {
  double sum = 0;
  for (int64_t c = 0; c < d; ++c) sum += a.at(row, c) * b.at(other, c);
  return sum;
}

double TimeLoop(benchmark::State& state, const StripKernels& kernels, double flops, const Call& call) {
  return TimeProduct(state, kernels.isa, DType::kBF16, "GFLOP/s", flops, call);
}

void Attend(benchmark::State& state, const RowKernels& rows, const StripKernels& kernels, int64_t d) {
  const RandomRows q(DType::kBF16, kRows, d, 1), k(DType::kBF16, kHeadKeys, d, 2), v(DType::kBF16, kHeadKeys, d, 3);
  const Floats keys = KeyTilesOf(rows, k, kHeadKeys, d), panels = PanelsOf(kernels, q, d);
  Floats values(keys.size()), o(static_cast<size_t>(kRows * d)), lanes(static_cast<size_t>(3 * kRows)),
      memory(TileAttendArgs::kMemoryBytes / sizeof(float));
  constexpr int64_t kChunks = kHeadKeys / kChunk;
  rows.pack_value_tiles(v.block(), kHeadKeys, d, values.data(), kChunks * kChunk / 2 * TileAttendArgs::kColumns);
  std::array<TileAttendStrip, kStrips> strips;
  for (int64_t i = 0; i < kStrips; ++i) {
    float* of_lanes = lanes.data() + i * 3 * kLanes;
    strips[static_cast<size_t>(i)] = {.panel = panels.data() + i * kLanes * d / 2,
                                      .end = kChunks,
                                      .plain_end = kChunks,
                                      .o = o.data() + i * kLanes * d,
                                      .row_max = of_lanes,
                                      .row_sum = of_lanes + kLanes,
                                      .shift = of_lanes + 2 * kLanes};
  }
  const float factor = 1.4426950f / std::sqrt(static_cast<float>(d));
  // K and V of heads with more than 128 columns do not stay in L2. The library then computes groups of strips, and so
  // does this benchmark.
  const bool grouped = d > 128;
  const Call call = [&] {
    kernels.tile_loops->attend({.k = Bytes(keys),
                                .v = Bytes(values),
                                .value_chunks = kChunks,
                                .d = d,
                                .dv = d,
                                .factor = factor,
                                .strips = strips.data(),
                                .strip_count = kStrips,
                                .group = grouped ? kStrips : 1,
                                .chunks = grouped ? TileAttendArgs::kMostChunks : 4,
                                .memory = Bytes(memory)});
  };
  call();
  for (int64_t row = 0; row < kRows; row += kCheckedRows) {
    const int64_t strip = row / kLanes, lane = row % kLanes;
    const float* of_lanes = lanes.data() + strip * 3 * kLanes + lane;
    std::vector<double> p;
    double sum = 0;
    for (int64_t key = 0; key < kHeadKeys; ++key) {
      p.push_back(std::exp2(double{factor} * (Dot(q, row, k, key, d) - of_lanes[0])));
      sum += p.back();
    }
    CheckWithin("sum of probabilities", of_lanes[kLanes], sum, kRoundedSums * sum);
    for (int64_t c = 0; c < d; c += kLanes) {
      double want = 0, magnitude = 0;
      for (int64_t key = 0; key < kHeadKeys; ++key) {
        const double term = p[static_cast<size_t>(key)] * v.at(key, c);
        want += term;
        magnitude += std::fabs(term);
      }
      CheckWithin("output", o[static_cast<size_t>((strip * d + c) * kLanes + lane)], want, kRoundedSums * magnitude);
    }
  }
  TimeLoop(state, kernels, 4.0 * static_cast<double>(kRows * kHeadKeys * d), call);
}

void Gradients(benchmark::State& state, const RowKernels& rows, const StripKernels& kernels, int64_t d) {
  const RandomRows q(DType::kBF16, kRows, d, 1), d_out(DType::kBF16, kRows, d, 2);
  const RandomRows k(DType::kBF16, kColumnKeys, d, 3), v(DType::kBF16, kColumnKeys, d, 4);
  const Floats key_tiles = KeyTilesOf(rows, k, kColumnKeys, d), value_tiles = KeyTilesOf(rows, v, kColumnKeys, d);
  const Floats panels = PanelsOf(kernels, q, d), do_panels = PanelsOf(kernels, d_out, d);
  Floats pairs(static_cast<size_t>(rows.PairedFloats(kColumnKeys, d)));
  rows.pair_rows(k.block(), kColumnKeys, d, pairs.data(), d);
  const Floats shift(kLanes, 4), delta(kLanes, 0.5f);
  constexpr int64_t kWords = kColumnKeys * kLanes / 2;
  Floats dq(static_cast<size_t>(kRows * d)), p(kStrips * kWords), ds(kStrips * kWords),
      memory(TileGradientArgs::kMemoryBytes / sizeof(float));
  std::array<TileGradientStrip, kStrips> strips;
  for (int64_t i = 0; i < kStrips; ++i) {
    strips[static_cast<size_t>(i)] = {.panel = panels.data() + i * kLanes * d / 2,
                                      .do_panel = do_panels.data() + i * kLanes * d / 2,
                                      .end = kColumnKeys / kChunk,
                                      .plain_end = kColumnKeys / kChunk,
                                      .shift = shift.data(),
                                      .delta = delta.data(),
                                      .dq = dq.data() + i * kLanes * d,
                                      .p_lanes = p.data() + i * kWords,
                                      .ds_lanes = ds.data() + i * kWords};
  }
  const float factor = 1.4426950f / std::sqrt(static_cast<float>(d));
  const Call call = [&] {
    kernels.tile_loops->gradients({.k = Bytes(key_tiles),
                                   .v = Bytes(value_tiles),
                                   .k_pairs = Bytes(pairs),
                                   .d = d,
                                   .dv = d,
                                   .factor = factor,
                                   .strips = strips.data(),
                                   .strip_count = kStrips,
                                   .memory = Bytes(memory)});
  };
  call();
  for (int64_t row = 0; row < kRows; row += kCheckedRows) {
    std::vector<double> of_keys;
    for (int64_t key = 0; key < kColumnKeys; ++key) {
      const double probability = std::exp2(double{factor} * Dot(q, row, k, key, d) - 4);
      of_keys.push_back(probability * (Dot(d_out, row, v, key, d) - 0.5));
    }
    for (int64_t c = 0; c < d; c += kLanes) {
      double want = 0, magnitude = 0;
      for (int64_t key = 0; key < kColumnKeys; ++key) {
        const double term = of_keys[static_cast<size_t>(key)] * k.at(key, c);
        want += term;
        magnitude += std::fabs(term);
      }
      const float got = dq[static_cast<size_t>((row / kLanes * d + c) * kLanes + row % kLanes)];
      CheckWithin("dQ", got, want, kRoundedSums * magnitude);
    }
  }
  TimeLoop(state, kernels, 6.0 * static_cast<double>(kRows * kColumnKeys * d), call);
}

/// Times the sums of dK or dV over kDepth rows. Columns of the sums lie in groups of 32, as in the backward.
template <int64_t kDepth>
void Outer(benchmark::State& state, const RowKernels& rows, const StripKernels& kernels, int64_t d) {
  constexpr int64_t kWords = kColumnKeys * kLanes / 2;
  const RandomRows b(DType::kBF16, kDepth, d, 1);
  const Floats a = RandomFloats(kDepth * kColumnKeys, 2, -1, 1, /*as_bf16=*/true);
  Floats words(static_cast<size_t>(kDepth / kLanes * kWords)), panel(static_cast<size_t>(kDepth * d / 2));
  for (int64_t strip = 0; strip < kDepth / kLanes; ++strip) {
    kernels.pairs.pair_lanes(a.data() + strip * kColumnKeys * kLanes, kColumnKeys, words.data() + strip * kWords);
  }
  rows.pack_rows(b.block(), kDepth, d, panel.data());
  Floats c = RandomFloats(kColumnKeys * d, 3, -1, 1);
  const Floats before(c);
  const Call call = [&] {
    rows.outer({.a = words.data(),
                .strip_stride = kWords,
                .width = kLanes,
                .rows = kDepth,
                .b = panel.data(),
                .b_rows = kDepth,
                .keys = kColumnKeys,
                .columns = d,
                .c = c.data(),
                .c_stride = kLanes,
                .c_group = kColumnKeys * kLanes,
                .accumulate = true});
  };
  call();
  for (int64_t key = 0; key < kColumnKeys; key += kCheckedRows) {
    for (int64_t column = 0; column < d; ++column) {
      const auto at = static_cast<size_t>((column / kLanes * kColumnKeys + key) * kLanes + column % kLanes);
      WantedSum want;
      want.Add(before[at]);
      for (int64_t row = 0; row < kDepth; ++row) {
        const int64_t of_key = (row / kLanes * kColumnKeys + key) * kLanes + row % kLanes;
        want.Add(double{a[static_cast<size_t>(of_key)]} * b.at(row, column));
      }
      want.Check("sum", c[at]);
    }
  }
  TimeLoop(state, kernels, 2.0 * static_cast<double>(kDepth * kColumnKeys * d), call);
}

/// Times an indexer's scores of 32 keys (one strip) for 16 tokens of 64 heads.
void Heads(benchmark::State& state, const RowKernels& rows, const StripKernels& kernels, int64_t d) {
  constexpr int64_t kTokens = 16, kHeads = 64;
  const RandomRows q(DType::kBF16, kTokens * kHeads, d, 1), k(DType::kBF16, kLanes, d, 2);
  const Floats tiles = KeyTilesOf(rows, q, kTokens * kHeads, d), weight = RandomFloats(kTokens * kHeads, 3, -1, 1);
  Floats panel(static_cast<size_t>(kLanes * d / 2)), sums(kTokens * kLanes),
      memory(TileHeadArgs::kMemoryBytes / sizeof(float));
  kernels.pack_queries(k.lanes(), d, 1, panel.data());
  std::array<TileHeadToken, kTokens> tokens;
  for (int64_t i = 0; i < kTokens; ++i) {
    tokens[static_cast<size_t>(i)] = {.heads = Bytes(tiles) + i * kHeads * d * 2,
                                      .weight = weight.data() + i * kHeads,
                                      .sum = sums.data() + i * kLanes,
                                      .end = kHeads / TileHeadArgs::kHeads};
  }
  const Call call = [&] {
    kernels.tile_loops->add_heads(
        {.panel = panel.data(), .d = d, .strips = tokens.data(), .strip_count = kTokens, .memory = Bytes(memory)});
  };
  call();
  for (int64_t i = 0; i < kTokens * kLanes; i += kCheckedRows) {
    const int64_t token = i / kLanes, key = i % kLanes;
    WantedSum want;
    for (int64_t head = token * kHeads; head < (token + 1) * kHeads; ++head) {
      if (Dot(q, head, k, key, d) <= 0) continue;
      const double of_head = weight[static_cast<size_t>(head)];
      for (int64_t c = 0; c < d; ++c) want.Add(of_head * q.at(head, c) * k.at(key, c));
    }
    want.Check("score", sums[static_cast<size_t>(i)]);
  }
  TimeLoop(state, kernels, 2.0 * static_cast<double>(kTokens * kHeads * kLanes * d), call);
}

}  // namespace

void RegisterTileLoops(const KernelTable& table) {
  using Run = void (*)(benchmark::State&, const RowKernels&, const StripKernels&, int64_t);
  constexpr std::pair<const char*, Run> kLoops[] = {{"tile_attend", Attend},
                                                    {"tile_gradients", Gradients},
                                                    {"tile_outer_256", Outer<256>},
                                                    {"tile_outer_512", Outer<512>},
                                                    {"tile_heads", Heads}};
  const StripKernels& kernels = table.widest();
  for (const auto& [name, run] : kLoops) {
    for (const int64_t d : kHeadSizes) {
      Register(CaseName(name, kernels.name, DType::kBF16, d),
               [run = run, &table, &kernels, d](benchmark::State& state) { run(state, *table.rows, kernels, d); });
    }
  }
}

}  // namespace fa::core::kernels
