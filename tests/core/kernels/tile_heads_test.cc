// Tests, with emulated instructions, that the tile unit's loop of an indexer has the bits of the kernels that it
// replaces: the product of scores, and then the sum over heads. strip_kernels_test.cc and indexer_kernels_test.cc
// compare the replaced kernels with computations in double.

#include <bit>
#include <cmath>
#include <vector>

#include "core/kernels/indexer/indexer_kernel_types.h"
#include "core/kernels/tile_fixture.h"
#include "core/kernels/tile_use.h"

namespace fa::core::kernels {
namespace {

class TileHeads : public TileKernels {};
INSTANTIATE_TEST_SUITE_P(Vectors, TileHeads, testing::Values(false, true), TileKernels::Name);

constexpr int64_t kKeys = 32;

/// Some tokens against a strip of keys, of which the last lanes may be unused.
class Tokens {
 public:
  Tokens(int64_t tokens, int64_t heads, int64_t d, int64_t keys)
      : tokens_(tokens), heads_(heads), d_(d), panel_(Panel(Tiles().strips[0], Rows(keys, d, 51), keys)) {
    for (int64_t i = 0; i < tokens; ++i) {
      queries.emplace_back(heads, d, static_cast<uint32_t>(52 + i));
      weights.emplace_back(1, heads, heads, static_cast<uint32_t>(152 + i));
    }
  }

  [[nodiscard]] std::vector<Matrix> ByLoop() const {
    std::vector<std::vector<float>> tiles;
    std::vector<Matrix> sums = NoSums();
    std::vector<TileHeadToken> strips;
    for (size_t i = 0; i < queries.size(); ++i) {
      tiles.emplace_back(static_cast<size_t>(heads_ * d_ / 2), kNan);
      Tiles().rows->pack_key_tiles(queries[i].block(), heads_, d_, tiles[i].data(), TileHeadArgs::kHeads / 2 * d_);
      strips.push_back({.heads = reinterpret_cast<const char*>(tiles[i].data()),
                        .weight = weights[i].values(),
                        .sum = sums[i].data(),
                        .end = heads_ / TileHeadArgs::kHeads});
    }
    std::vector<float> memory(TileHeadArgs::kMemoryBytes / sizeof(float), kNan);
    const TileScope scope;
    Tiles().strips[0].tile_loops->add_heads({.panel = panel_.data(),
                                             .d = d_,
                                             .strips = strips.data(),
                                             .strip_count = tokens_,
                                             .memory = reinterpret_cast<char*>(memory.data())});
    return sums;
  }
  [[nodiscard]] std::vector<Matrix> ByKernels() const {
    const IndexerKernels& kernels = IndexerKernelsFor(GetLevel());
    std::vector<Matrix> sums = NoSums();
    Matrix s(heads_, kKeys, kKeys, 0);
    const TileScope scope;
    for (size_t i = 0; i < queries.size(); ++i) {
      Tiles().strips[0].scores(queries[i].block(), heads_, panel_.data(), d_, false, s.data(), nullptr);
      kernels.add_heads(s.data(), heads_, kKeys, weights[i].values(), false, sums[i].data());
    }
    return sums;
  }
  void ExpectSameBits() const {
    const std::vector<Matrix> got = ByLoop(), want = ByKernels();
    for (size_t i = 0; i < got.size(); ++i) {
      for (int64_t key = 0; key < kKeys; ++key) {
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i].at(0, key)), std::bit_cast<uint32_t>(want[i].at(0, key)))
            << "token " << i << " key " << key;
      }
      ASSERT_TRUE(got[i].Intact());
    }
  }

  std::vector<Rows> queries;
  std::vector<Matrix> weights;

 private:
  /// Returns a level whose kernels of the indexer have the vectors under test.
  static Isa GetLevel() { return &Tiles() == TilesOnAvx512() ? Isa::kAvx512 : Isa::kPortable; }
  [[nodiscard]] std::vector<Matrix> NoSums() const {
    return std::vector<Matrix>(queries.size(), Matrix(1, kKeys, kKeys, 3, 5));
  }

  int64_t tokens_, heads_, d_;
  std::vector<float> panel_;
};

TEST_P(TileHeads, HaveTheBitsOfScoresAndAddHeads) {
  const auto check = [](int64_t tokens, int64_t heads, int64_t d, int64_t keys) {
    Tokens(tokens, heads, d, keys).ExpectSameBits();
  };
  ForEachCase(check, Axis{"tokens", {1, 2, 7}}, Axis{"heads", {32, 64, 160}}, Axis{"d", {32, 64, 128, 192}},
              Axis{"keys", {5, 32}});
}

TEST_P(TileHeads, KeepTinySumsAndNan) {
  Tokens x(3, 64, 64, 32);
  // Products of about 2^-60 with weights of 2^-80 have subnormal sums.
  for (int64_t head = 0; head < 64; ++head) x.weights[0].at(0, head) = 0x1p-80f;
  for (uint16_t& value : x.queries[0].bits) value = BitsOf(FloatOf(value) * 0x1p-60f);
  x.queries[1].at(40, 3) = BitsOf(kNan);
  ASSERT_NO_FATAL_FAILURE(x.ExpectSameBits());
  const std::vector<Matrix> sums = x.ByLoop();
  bool tiny = false;
  for (int64_t key = 0; key < kKeys; ++key) {
    const float sum = sums[0].at(0, key);
    tiny = tiny || (sum != 0 && sum < 0x1p-126f && sum > -0x1p-126f);
    ASSERT_TRUE(std::isnan(sums[1].at(0, key)));
    ASSERT_TRUE(std::isfinite(sums[2].at(0, key)));
  }
  ASSERT_TRUE(tiny) << "the case has no subnormal sum";
}

TEST_P(TileHeads, TakeWeightsThatAreNotFinite) {
  Tokens x(3, 64, 64, 32);
  x.weights[0].at(0, 40) = kNan;
  x.weights[1].at(0, 40) = kInf;
  const std::vector<Matrix> sums = x.ByLoop(), want = x.ByKernels();
  int infinite = 0, nan = 0;
  for (int64_t key = 0; key < kKeys; ++key) {
    ASSERT_TRUE(std::isnan(sums[0].at(0, key)));
    // inf times a product that ReLU made 0 is NaN.
    ++(std::isnan(sums[1].at(0, key)) ? nan : infinite);
    ASSERT_FALSE(std::isfinite(sums[1].at(0, key)));
    ASSERT_EQ(std::isnan(sums[1].at(0, key)), std::isnan(want[1].at(0, key)));
    ASSERT_TRUE(std::isfinite(sums[2].at(0, key)));
  }
  ASSERT_GT(infinite, 0);
  ASSERT_GT(nan, 0);
}

}  // namespace
}  // namespace fa::core::kernels
