// Tests, with emulated instructions, that the tile unit's loop of a backward has the bits of the kernels that compute
// one product after the other. backward_kernels_test.cc and pair_softmax_test.cc compare those kernels with
// computations in double.

#include <array>
#include <bit>
#include <utility>
#include <vector>

#include "core/integer.h"
#include "core/kernels/tile_fixture.h"
#include "core/kernels/tile_use.h"

namespace fa::core::kernels {
namespace {

class TileGradients : public TileKernels {};
INSTANTIATE_TEST_SUITE_P(Vectors, TileGradients, testing::Values(false, true), TileKernels::Name);

constexpr float kFactor = 0.3f;
constexpr int64_t kLanes = 32, kChunk = TileAttendArgs::kKeys;

/// The results of a backward for some strips: dQ [d][32], and P and dS in bf16. A word of P or dS has two lanes.
struct Gradients {
  Gradients(int64_t strips, int64_t keys, int64_t d) {
    for (int64_t i = 0; i < strips; ++i) {
      dq.emplace_back(d, kLanes, kLanes, 31);
      p.emplace_back(keys, kLanes / 2, kLanes / 2, 32);
      ds.emplace_back(keys, kLanes / 2, kLanes / 2, 33);
    }
  }
  std::vector<Matrix> dq, p, ds;
};

/// Some strips against one column of keys. Keys past the last one, and some keys of strip 1, are masked. Strip 2 has no
/// keys.
class Column {
 public:
  static constexpr int64_t kStrips = 4, kEmpty = 2;
  Column(int64_t keys, int64_t d, int64_t dv) : keys_(keys), d_(d), dv_(dv), k_(keys, d, 21), v_(keys, dv, 22) {
    const RowKernels& rows = *Tiles().rows;
    k_tiles_.assign(static_cast<size_t>(chunks() * 16 * d), kNan);
    v_tiles_.assign(static_cast<size_t>(chunks() * 16 * dv), kNan);
    rows.pack_key_tiles(k_.block(), keys, d, k_tiles_.data(), 16 * d);
    rows.pack_key_tiles(v_.block(), keys, dv, v_tiles_.data(), 16 * dv);
    k_pairs_ = Paired(k_, keys);
    for (uint32_t i = 0; i < kStrips; ++i) {
      const Rows q(kLanes, d, 23 + i), d_out(kLanes, dv, 27 + i);
      panels_.push_back(Panel(Tiles().strips[0], q, kLanes));
      do_panels_.push_back(Panel(Tiles().strips[0], d_out, kLanes));
      statistics_.emplace_back(2, kLanes, kLanes, 34 + i);
      for (int64_t lane = 0; lane < kLanes; ++lane) statistics_.back().at(0, lane) += 20;  // so P is at most about 1
    }
    statistics_[0].at(0, 3) = kInf;  // a row without keys
    statistics_[1].at(0, 5) = kNan;  // masked pairs of this row are 0 nevertheless
    statistics_[1].at(1, 6) = kInf;
    memory_.resize(TileGradientArgs::kMemoryBytes / sizeof(float));
  }
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;

  [[nodiscard]] int64_t chunks() const { return CeilDiv(keys_, kChunk); }
  [[nodiscard]] Gradients Empty() const { return {kStrips, chunks() * kChunk, d_}; }
  [[nodiscard]] bool Sees(int64_t strip, int64_t lane, int64_t key) const {
    return key < keys_ && (strip != 1 || (key + lane) % 5 != 0);
  }

  void RunLoop(bool accumulate, Gradients& to) {
    std::array<TileGradientStrip, kStrips> strips;
    for (int64_t i = 0; i < kStrips; ++i) {
      const auto at = static_cast<size_t>(i);
      strips[at] = {.panel = panels_[at].data(),
                    .do_panel = do_panels_[at].data(),
                    .begin = Begin(i),
                    .end = i == kEmpty ? Begin(i) : chunks(),
                    .plain_begin = i == 1 ? chunks() : Begin(i),
                    .plain_end = keys_ / kChunk,
                    .shift = statistics_[at].data(),
                    .delta = statistics_[at].data() + kLanes,
                    .dq = to.dq[at].data(),
                    .p_lanes = to.p[at].data(),
                    .ds_lanes = to.ds[at].data()};
    }
    const TileScope scope;
    Tiles().strips[0].tile_loops->gradients({.k = reinterpret_cast<const char*>(k_tiles_.data()),
                                             .v = reinterpret_cast<const char*>(v_tiles_.data()),
                                             .k_pairs = reinterpret_cast<const char*>(k_pairs_.data()),
                                             .d = d_,
                                             .dv = dv_,
                                             .factor = kFactor,
                                             .strips = strips.data(),
                                             .strip_count = kStrips,
                                             .accumulate = accumulate,
                                             .memory = reinterpret_cast<char*>(memory_.data()),
                                             .edit = Edit,
                                             .context = this});
  }
  /// Runs the kernels that compute one product after the other.
  void RunProducts(bool accumulate, Gradients& to) {
    const StripKernels& kernels = Tiles().strips[0];
    const TileScope scope;
    const std::vector<float> ones(kLanes, 1);
    for (int64_t i = 0; i < kStrips; ++i) {
      if (i == kEmpty) continue;
      const auto strip = static_cast<size_t>(i);
      const int64_t first = Begin(i) * kChunk, n = keys_ - first;
      Matrix s(RoundUp(n, kChunk), kLanes, kLanes, 0), dp(n, kLanes, kLanes, 0);
      const auto rows = [&](const Rows& of) {
        return RowBlock{of.bits.data() + first * of.stride, DType::kBF16, of.stride};
      };
      kernels.scores(rows(k_), n, panels_[strip].data(), d_, false, s.data(), nullptr);
      kernels.scores(rows(v_), n, do_panels_[strip].data(), dv_, false, dp.data(), nullptr);
      for (int64_t chunk = 0; chunk < CeilDiv(n, kChunk); ++chunk) {
        Edit(this, i, Begin(i) + chunk, s.data() + chunk * kChunk * kLanes);
      }
      std::vector<float> ds_keys(static_cast<size_t>(RoundUp(n, 2) / 2 * kLanes));
      float* statistics = statistics_[strip].data();
      kernels.pairs.backward_pairs({.s = s.data(),
                                    .dp = dp.data(),
                                    .keys = n,
                                    .factor = kFactor,
                                    .shift = statistics,
                                    .delta = statistics + kLanes,
                                    .p_lanes = to.p[strip].data() + first * kLanes / 2,
                                    .ds_lanes = to.ds[strip].data() + first * kLanes / 2,
                                    .ds_keys = ds_keys.data()});
      RowBlock k = Tiles().rows->Paired(k_pairs_.data() + first / 2 * d_, d_);
      kernels.product(k, n, ds_keys.data(), d_, accumulate ? ones.data() : nullptr, to.dq[strip].data());
    }
  }
  static int64_t Begin(int64_t strip) { return strip == 3 ? 1 : 0; }
  [[nodiscard]] int64_t keys() const { return keys_; }

 private:
  static void Edit(const void* context, int64_t strip, int64_t chunk, float* s) {
    const auto& of = *static_cast<const Column*>(context);
    for (int64_t i = 0; i < kChunk * kLanes; ++i) {
      if (!of.Sees(strip, i % kLanes, chunk * kChunk + i / kLanes)) s[i] = kMaskedScore;
    }
  }

  int64_t keys_, d_, dv_;
  Rows k_, v_;
  std::vector<float> k_tiles_, v_tiles_, k_pairs_, memory_;
  std::vector<std::vector<float>> panels_, do_panels_;
  std::vector<Matrix> statistics_;
};

/// Expects the bits of `want` in keys [begin, end) of words of two bf16, and zeros from there to the end.
void ExpectWords(const Matrix& got, const Matrix& want, int64_t begin, int64_t end) {
  const auto half = [](const Matrix& of, int64_t key, int64_t lane) {
    const auto words = std::bit_cast<uint32_t>(of.at(key, lane / 2));
    return FloatOf(static_cast<uint16_t>(lane % 2 == 0 ? words : words >> 16));
  };
  for (int64_t key = begin; key < got.rows(); ++key) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float expected = key < end ? half(want, key, lane) : 0;
      ASSERT_TRUE(EqualBits(half(got, key, lane), expected))
          << "key " << key << " lane " << lane << ": " << half(got, key, lane) << " against " << expected;
    }
  }
  ASSERT_TRUE(got.Intact());
}

TEST_P(TileGradients, TheLoopOfABackwardHasTheBitsOfOneProductAfterTheOther) {
  using Sizes = std::pair<int64_t, int64_t>;
  const auto check = [](int64_t keys, Sizes sizes, bool accumulate) {
    Column column(keys, sizes.first, sizes.second);
    Gradients got = column.Empty(), want = column.Empty();
    column.RunLoop(accumulate, got);
    column.RunProducts(accumulate, want);
    for (int64_t i = 0; i < Column::kStrips; ++i) {
      SCOPED_TRACE(i);
      const auto strip = static_cast<size_t>(i);
      ASSERT_TRUE(SameBits(got.dq[strip], want.dq[strip]));
      if (i == Column::kEmpty) continue;
      const int64_t begin = Column::Begin(i) * kChunk;
      ASSERT_NO_FATAL_FAILURE(ExpectWords(got.p[strip], want.p[strip], begin, keys));
      ASSERT_NO_FATAL_FAILURE(ExpectWords(got.ds[strip], want.ds[strip], begin, keys));
    }
  };
  ForEachCase(check, Axis{"keys", {40, 64, 128}},
              Axis<Sizes>{"sizes", {{32, 32}, {64, 64}, {96, 160}, {160, 128}, {256, 32}}},
              Axis{"accumulate", {false, true}});
}

}  // namespace
}  // namespace fa::core::kernels
