// Tests, with emulated instructions, what only kernels of the tile unit can do. Their products may begin in the middle
// of a group of rows, one loop computes whole strips, and outer products take sums in groups of columns.
// pair_kernels_test.cc tests what all kernels of bf16 pairs can do.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/integer.h"
#include "core/kernels/kernel_facts.h"
#include "core/kernels/tile_fixture.h"
#include "core/kernels/tile_use.h"

namespace fa::core::kernels {
namespace {

INSTANTIATE_TEST_SUITE_P(Vectors, TileKernels, testing::Values(false, true), TileKernels::Name);

TEST_P(TileKernels, AreOneOrTwoTilesOfLanes) {
  ASSERT_EQ(Tiles().strip_count, 2);
  EXPECT_EQ(Tiles().strips[0].width, 32);
  EXPECT_EQ(Tiles().strips[1].width, 16);
  EXPECT_EQ(Tiles().rows->pair_group, 32);
  const LevelFacts own = FactsOf(Isa::kAvx512Amx, DType::kBF16);
  EXPECT_STREQ(own.strips[0].name, "bf16_32x32_avx512_amx");
  EXPECT_STREQ(own.strips[1].name, "bf16_32x16_avx512_amx");
}

TEST_P(TileKernels, AProductMayBeginInsideAGroupWhoseOtherRowsAreNan) {
  constexpr int64_t kRows = 71, kDv = 19;
  const auto check = [&](int64_t strip, int64_t begin, int64_t end) {
    const StripKernels& kernels = Tiles().strips[strip];
    const int64_t width = kernels.width;
    Rows v(kRows, kDv, 1);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kDv && (r < begin || r >= end); ++c) v.at(r, c) = BitsOf(kNan);
    }
    const std::vector<float> words = Paired(v, kRows);
    RowBlock block = Tiles().rows->Paired(words.data(), kDv);
    block.data = words.data() + begin / 32 * 16 * kDv;
    block.skip = begin % 32;
    Matrix p(end - begin, width, width, 2), o(kDv, width, width, 3), alpha(1, width, width, 4);
    kernels.pairs.pair_keys(p.data(), end - begin, p.data());
    const Matrix before = o;
    kernels.product(block, end - begin, p.data(), kDv, alpha.data(), o.data());
    kernels.pairs.unpair_keys(p.data(), end - begin);
    ExpectSums(
        o, width, end - begin, kRows + 2,
        [&](int64_t c, int64_t lane) { return double{alpha.at(0, lane)} * before.at(c, lane); },
        [&](int64_t c, int64_t lane, int64_t r) { return double{FloatOf(v.at(begin + r, c))} * p.at(r, lane); });
  };
  ForEachCase(check, Axis{"strip", {0, 1}}, Axis{"begin", {0, 8, 24, 32, 40, 64}}, Axis{"end", {int64_t{66}, kRows}});
}

TEST_P(TileKernels, TheBitsOfALaneDoNotDependOnTheWidth) {
  constexpr int64_t kKeys = 37, kD = 45;
  const Rows q(32, kD, 5), k(kKeys, kD, 6), v(kKeys, kD, 7);
  const std::vector<float> words = Paired(v, kKeys);
  const StripKernels &wide = Tiles().strips[0], &narrow = Tiles().strips[1];
  Matrix s(kKeys, 32, 32, 8), o(kD, 32, 32, 9), narrow_s(kKeys, 16, 16, 8), narrow_o(kD, 16, 16, 9);
  wide.scores(k.block(), kKeys, Panel(wide, q, 32).data(), kD, false, s.data(), nullptr);
  narrow.scores(k.block(), kKeys, Panel(narrow, q, 16).data(), kD, false, narrow_s.data(), nullptr);
  for (int64_t key = 0; key < kKeys; ++key) {
    for (int64_t lane = 0; lane < 16; ++lane) ASSERT_EQ(narrow_s.at(key, lane), s.at(key, lane)) << key;
  }
  wide.pairs.pair_keys(s.data(), kKeys, s.data());
  narrow.pairs.pair_keys(narrow_s.data(), kKeys, narrow_s.data());
  const RowBlock block = Tiles().rows->Paired(words.data(), kD);
  wide.product(block, kKeys, s.data(), kD, nullptr, o.data());
  narrow.product(block, kKeys, narrow_s.data(), kD, nullptr, narrow_o.data());
  for (int64_t c = 0; c < kD; ++c) {
    for (int64_t lane = 0; lane < 16; ++lane) ASSERT_EQ(narrow_o.at(c, lane), o.at(c, lane)) << c;
  }
}

/// Strips that attend_tiles computes, and their keys. Keys past `keys`, and some keys of strip 1, are masked. Strip 2
/// has no keys.
class Attended {
 public:
  static constexpr int64_t kStrips = 4, kKeys = 32, kEmpty = 2;
  Attended(int64_t keys, int64_t d, int64_t dv, bool whole_sums, float scale = 1)
      : keys_(keys),
        d_(d),
        dv_(dv),
        q_(kStrips * 32, d, 10),
        k_(keys, d, 11),
        v_(keys, dv, 12),
        whole_sums_(whole_sums) {
    for (uint16_t& value : q_.bits) value = BitsOf(FloatOf(value) * scale);
    const RowKernels& rows = *Tiles().rows;
    const int64_t chunks = CeilDiv(keys, kKeys);
    k_tiles_.assign(static_cast<size_t>(chunks * 16 * d), kNan);
    v_tiles_.assign(static_cast<size_t>(chunks * 16 * dv), kNan);
    rows.pack_key_tiles(k_.block(), keys, d, k_tiles_.data(), 16 * d);
    rows.pack_value_tiles(v_.block(), keys, dv, v_tiles_.data(), chunks * 512);
    for (int64_t i = 0; i < kStrips; ++i) {
      Rows q(32, d, 0);
      std::copy_n(q_.bits.begin() + i * 32 * d, 32 * d, q.bits.begin());
      panels_.push_back(Panel(Tiles().strips[0], q, 32));
      states_.emplace_back(dv, 32, 32, 13);
      lanes_.emplace_back(5, 32, 32, 14);
    }
    memory_.resize(TileAttendArgs::kMemoryBytes / sizeof(float));
  }
  Attended(const Attended&) = delete;
  Attended& operator=(const Attended&) = delete;

  void Run(int64_t group, int64_t blocks) {
    const int64_t chunks = CeilDiv(keys_, kKeys);
    std::array<TileAttendStrip, kStrips> strips;
    for (int64_t i = 0; i < kStrips; ++i) {
      Matrix& lanes = lanes_[static_cast<size_t>(i)];
      const auto row = [&](int64_t r) { return lanes.data() + r * 32; };
      strips[static_cast<size_t>(i)] = {.panel = panels_[static_cast<size_t>(i)].data(),
                                        .begin = Begin(i),
                                        .end = i == kEmpty ? Begin(i) : chunks,
                                        .plain_begin = i == 1 ? chunks : Begin(i),
                                        .plain_end = keys_ / kKeys,
                                        .o = states_[static_cast<size_t>(i)].data(),
                                        .row_max = row(0),
                                        .row_sum = row(1),
                                        .shift = row(2),
                                        .largest = whole_sums_ ? row(3) : nullptr,
                                        .whole_sum = whole_sums_ ? row(4) : nullptr};
    }
    const TileScope scope;
    Tiles().strips[0].tile_loops->attend({.k = reinterpret_cast<const char*>(k_tiles_.data()),
                                          .v = reinterpret_cast<const char*>(v_tiles_.data()),
                                          .value_chunks = chunks,
                                          .d = d_,
                                          .dv = dv_,
                                          .factor = kFactor,
                                          .strips = strips.data(),
                                          .strip_count = kStrips,
                                          .whole_sums = whole_sums_,
                                          .group = group,
                                          .chunks = blocks,
                                          .memory = reinterpret_cast<char*>(memory_.data()),
                                          .edit = Edit,
                                          .context = this});
  }
  /// Returns whether the lane of a strip sees a key.
  [[nodiscard]] bool Sees(int64_t strip, int64_t lane, int64_t key) const {
    return key < keys_ && key >= Begin(strip) * kKeys &&
           (strip != 1 || ((key + lane) % 5 != 0 && (lane < 16 || key >= kKeys)));
  }
  /// Expects that O and the statistics agree with computations in double.
  void ExpectRight() const {
    // The relative error of a probability is half an ulp of bf16, 2^-8, and the polynomial's 7.5e-5. A sum of rounded
    // probabilities has the same error. Sums of probabilities before rounding have the error 4e-6 of their polynomial.
    // Errors of scores come on top: a product of d terms of magnitude A is off by less than (d + 8) 2^-24 A.
    constexpr double kUnit = 0x1p-8 + 7.5e-5, kWholeUnit = 4e-6;
    for (int64_t i = 0; i < kStrips; ++i) {
      const Matrix &lanes = lanes_[static_cast<size_t>(i)], &o = states_[static_cast<size_t>(i)];
      for (int64_t lane = 0; lane < 32; ++lane) {
        if (i == kEmpty) {
          ASSERT_EQ(lanes.at(0, lane), kMaskedScore);
          ASSERT_EQ(lanes.at(1, lane), 0);
          continue;
        }
        std::vector<double> s(static_cast<size_t>(keys_), -INFINITY);
        double most = -INFINITY, first = -INFINITY, magnitude = 0;
        int64_t first_chunk = -1;
        for (int64_t key = 0; key < keys_; ++key) {
          if (!Sees(i, lane, key)) continue;
          double sum = 0, size = 0;
          for (int64_t c = 0; c < d_; ++c) {
            const double term = double{FloatOf(q_.at(i * 32 + lane, c))} * FloatOf(k_.at(key, c));
            sum += term;
            size += std::fabs(term);
          }
          s[static_cast<size_t>(key)] = sum;
          magnitude = std::fmax(magnitude, size);
          most = std::fmax(most, sum);
          if (first_chunk < 0) first_chunk = key / kKeys;
          if (key / kKeys == first_chunk) first = std::fmax(first, sum);
        }
        const double score_error = static_cast<double>(d_ + 8) * 0x1p-24 * magnitude;
        ASSERT_NEAR(lanes.at(0, lane), first, score_error) << "strip " << i << " lane " << lane;
        double sum = 0;
        std::vector<double> want(static_cast<size_t>(dv_)), size(static_cast<size_t>(dv_));
        for (int64_t key = 0; key < keys_; ++key) {
          const double p = std::exp2(double{kFactor} * (s[static_cast<size_t>(key)] - first));
          sum += p;
          for (int64_t c = 0; c < dv_; ++c) {
            want[static_cast<size_t>(c)] += p * FloatOf(v_.at(key, c));
            size[static_cast<size_t>(c)] += p * std::fabs(FloatOf(v_.at(key, c)));
          }
        }
        const double relative = 2 * double{kFactor} * score_error + static_cast<double>(keys_) * 0x1p-23;
        ASSERT_NEAR(lanes.at(1, lane), sum, (kUnit + relative) * sum) << "strip " << i << " lane " << lane;
        for (int64_t c = 0; c < dv_; ++c) {
          const double allowed = 2 * (kUnit + relative) * size[static_cast<size_t>(c)] / sum;
          ASSERT_NEAR(o.at(c, lane) / double{lanes.at(1, lane)}, want[static_cast<size_t>(c)] / sum, allowed)
              << "strip " << i << " lane " << lane << " column " << c;
        }
        if (!whole_sums_) continue;
        ASSERT_NEAR(lanes.at(3, lane), most, score_error);
        ASSERT_NEAR(lanes.at(4, lane), sum, (kWholeUnit + relative) * sum);
      }
      ASSERT_TRUE(o.Intact());
      ASSERT_TRUE(lanes.Intact());
    }
  }
  /// Expects that the states, references and sums have the bits of `other`.
  void ExpectBitsOf(const Attended& other) const {
    for (size_t i = 0; i < kStrips; ++i) {
      ASSERT_TRUE(SameBits(states_[i], other.states_[i]));
      for (int64_t lane = 0; lane < 64; ++lane) {
        ASSERT_EQ(lanes_[i].at(lane / 32, lane % 32), other.lanes_[i].at(lane / 32, lane % 32)) << i << " " << lane;
      }
    }
  }

 private:
  static constexpr float kFactor = 0.2f;
  /// Returns the first chunk of a strip.
  static int64_t Begin(int64_t strip) { return strip / 2; }
  static void Edit(const void* context, int64_t strip, int64_t chunk, float* s) {
    const auto& of = *static_cast<const Attended*>(context);
    for (int64_t i = 0; i < kKeys * 32; ++i) {
      if (!of.Sees(strip, i % 32, chunk * kKeys + i / 32)) s[i] = kMaskedScore;
    }
  }

  int64_t keys_, d_, dv_;
  Rows q_, k_, v_;
  bool whole_sums_;
  std::vector<float> k_tiles_, v_tiles_, memory_;
  std::vector<std::vector<float>> panels_;
  std::vector<Matrix> states_, lanes_;
};

TEST_P(TileKernels, AttendedStripsAgreeWithDouble) {
  using Sizes = std::pair<int64_t, int64_t>;
  const auto check = [](int64_t keys, Sizes sizes, int64_t whole_sums) {
    Attended x(keys, sizes.first, sizes.second, whole_sums != 0);
    x.Run(1, 4);
    x.ExpectRight();
  };
  ForEachCase(check, Axis{"keys", {40, 64, 300}}, Axis<Sizes>{"sizes", {{32, 32}, {64, 64}, {64, 128}, {160, 128}}},
              Axis{"whole_sums", {0, 1}});
}

TEST_P(TileKernels, TheBitsOfAttendedStripsDoNotDependOnGroupsBlocksOrStatistics) {
  Attended plain(330, 64, 96, false);
  plain.Run(1, 4);
  for (const auto& [group, chunks] : {std::pair<int64_t, int64_t>{1, 1}, {1, 2}, {2, 3}, {2, 8}, {8, 8}, {8, 5}}) {
    for (const bool whole_sums : {false, true}) {
      Attended other(330, 64, 96, whole_sums);
      other.Run(group, chunks);
      ASSERT_NO_FATAL_FAILURE(other.ExpectBitsOf(plain)) << group << " " << chunks << " " << whole_sums;
    }
  }
}

/// C in groups of 32 columns has the bits that it has row by row, also at the edges.
TEST_P(TileKernels, OuterProductsOfGroupedColumnsHaveTheSameBits) {
  const StripKernels& kernels = Tiles().strips[0];
  const auto check = [&](int64_t keys, int64_t rows, int64_t accumulate) {
    constexpr int64_t kColumns = 96, kRoom = 80;
    const int64_t strips = CeilDiv(rows, 32), tile = keys * kernels.OuterWidth();
    const Rows b(rows, kColumns, 18);
    std::vector<float> panel(static_cast<size_t>((rows + 1) / 2 * kColumns), kNan);
    Tiles().rows->pack_rows(b.block(), rows, kColumns, panel.data());
    Matrix a(strips * keys, 32, 32, 19);
    std::vector<float> values(static_cast<size_t>(strips * tile));
    for (int64_t strip = 0; strip < strips; ++strip) {
      kernels.pairs.pair_lanes(a.data() + strip * keys * 32, keys, values.data() + strip * tile);
    }
    Matrix c(keys, kColumns, kColumns, 20);
    std::vector<float> grouped(kColumns / 32 * kRoom * 32, kNan);
    const auto place = [](int64_t key, int64_t column) {
      return static_cast<size_t>((column / 32 * kRoom + key) * 32 + column % 32);
    };
    for (int64_t key = 0; key < keys; ++key) {
      for (int64_t column = 0; column < kColumns; ++column) grouped[place(key, column)] = c.at(key, column);
    }
    OuterArgs args{.a = values.data(),
                   .strip_stride = tile,
                   .width = 32,
                   .rows = rows,
                   .b = panel.data(),
                   .b_rows = rows,
                   .keys = keys,
                   .columns = kColumns,
                   .c = c.data(),
                   .c_stride = kColumns,
                   .accumulate = accumulate != 0};
    const TileScope scope;
    Tiles().rows->outer(args);
    args.c = grouped.data();
    args.c_stride = 32;
    args.c_group = kRoom * 32;
    Tiles().rows->outer(args);
    for (int64_t key = 0; key < kRoom; ++key) {
      for (int64_t column = 0; column < kColumns; ++column) {
        const float got = grouped[place(key, column)];
        if (key < keys) {
          ASSERT_EQ(got, c.at(key, column)) << key << " " << column;
        } else {
          ASSERT_TRUE(std::isnan(got));
        }
      }
    }
  };
  ForEachCase(check, Axis{"keys", {8, 32, 40, 72}}, Axis{"rows", {20, 32, 96, 105}}, Axis{"accumulate", {0, 1}});
}

TEST_P(TileKernels, OuterProductsAddToRowsAnywhere) {
  constexpr int64_t kKeys = 35, kColumns = 21;
  const StripKernels& kernels = Tiles().strips[0];
  const int64_t rows = 41, strips = 2, tile = kKeys * kernels.OuterWidth();
  const Rows b(rows, kColumns, 18);
  std::vector<float> panel(static_cast<size_t>((rows + 1) / 2 * Tiles().rows->PanelColumns(kColumns)), kNan);
  Tiles().rows->pack_rows(b.block(), rows, kColumns, panel.data());
  Matrix a(strips * kKeys, kernels.width, kernels.width, 19);
  std::vector<float> values(static_cast<size_t>(strips * tile));
  for (int64_t strip = 0; strip < strips; ++strip) {
    kernels.pairs.pair_lanes(a.data() + strip * kKeys * kernels.width, kKeys, values.data() + strip * tile);
  }
  Matrix c(kKeys, kColumns, kColumns, 20), scattered(kKeys, kColumns, kColumns + 5, 20);
  std::vector<float*> targets;
  for (int64_t key = 0; key < kKeys; ++key) {
    float* row = scattered.data() + (key * 8 % kKeys) * scattered.stride();
    std::memcpy(row, c.data() + key * kColumns, sizeof(float) * kColumns);
    targets.push_back(row);
  }
  OuterArgs args{.a = values.data(),
                 .strip_stride = tile,
                 .width = kernels.width,
                 .rows = rows,
                 .b = panel.data(),
                 .b_rows = rows,
                 .keys = kKeys,
                 .columns = kColumns,
                 .c = c.data(),
                 .c_stride = kColumns,
                 .accumulate = true};
  Tiles().rows->outer(args);
  args.c_rows = targets.data();
  Tiles().rows->outer(args);
  for (int64_t key = 0; key < kKeys; ++key) {
    for (int64_t column = 0; column < kColumns; ++column) {
      ASSERT_EQ(targets[static_cast<size_t>(key)][column], c.at(key, column)) << key << " " << column;
    }
  }
  ASSERT_TRUE(scattered.Intact());
}

}  // namespace
}  // namespace fa::core::kernels
