// A PairMask gives the bits of the dense mask that keeps the same pairs: forward, backward, prompt and decode, on every
// level. This holds for any shape, any heads or batch elements that share a mask, and any Mask beside the PairMask.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "fa/fa.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

struct Sizes {
  int64_t batch = 2, heads = 4, heads_kv = 2, rows = 1, keys = 1, columns = 16;
};

/// How random pairs are dropped.
enum class Pattern : uint8_t { kPairs, kTiles, kAll, kNone };

const char* NameOf(Pattern pattern) {
  constexpr const char* kNames[] = {"Pairs", "Tiles", "All", "None"};
  return kNames[static_cast<int>(pattern)];
}

/// Returns bytes [planes, rows, keys], 1 = drop.
std::vector<uint8_t> Drawn(Pattern pattern, int64_t planes, int64_t rows, int64_t keys, std::mt19937& random) {
  std::vector<uint8_t> drop(static_cast<size_t>(planes * rows * keys));
  for (int64_t p = 0; p < planes; ++p) {
    std::vector<uint8_t> tiles(static_cast<size_t>((rows / 128 + 1) * (keys / 128 + 1)));
    for (uint8_t& tile : tiles) tile = static_cast<uint8_t>(random() % 3);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < keys; ++j) {
        const uint8_t tile = tiles[static_cast<size_t>(i / 128 * (keys / 128 + 1) + j / 128)];
        const uint8_t pair = random() % 2;
        drop[static_cast<size_t>((p * rows + i) * keys + j)] = pattern == Pattern::kPairs ? pair
                                                               : pattern == Pattern::kTiles
                                                                   ? (tile == 0 ? pair : tile - 1)
                                                                   : (pattern == Pattern::kAll ? 1 : 0);
      }
    }
  }
  return drop;
}

/// The same mask as a PairMask and as a dense mask. `planes` and `heads` count the planes and heads of the mask.
struct BothMasks {
  BothMasks(const Sizes& sizes, Pattern pattern, int64_t batch, int64_t heads, std::mt19937& random)
      : shape{batch, heads, sizes.rows, sizes.keys},
        drop(Drawn(pattern, batch * heads, sizes.rows, sizes.keys, random)) {
    const auto made = PairMask::FromBytes(View(drop, shape), /*drops=*/true);
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) pairs = *made;
    // A dense mask has all planes of the call.
    full_shape = {sizes.batch, sizes.heads, sizes.rows, sizes.keys};
    for (int64_t b = 0; b < sizes.batch; ++b) {
      for (int64_t n = 0; n < sizes.heads; ++n) {
        const int64_t plane = (batch == 1 ? 0 : b) * heads + n / (sizes.heads / heads);
        const auto begin = drop.begin() + plane * sizes.rows * sizes.keys;
        full.insert(full.end(), begin, begin + sizes.rows * sizes.keys);
      }
    }
  }
  Dims shape, full_shape;
  std::vector<uint8_t> drop, full;
  PairMask pairs;
};

template <typename T>
void Append(const std::vector<T>& tensor, std::vector<std::byte>& all) {
  const auto bytes = std::as_bytes(std::span(tensor));
  all.insert(all.end(), bytes.begin(), bytes.end());
}

/// Inputs of a call. 16-bit elements are random bf16 numbers.
class Inputs {
 public:
  Inputs(const Sizes& sizes, DType dtype, uint32_t seed) : sizes_(sizes), dtype_(dtype) {
    std::mt19937 random(seed);
    q = Drawn(sizes.heads * sizes.rows, random);
    d_out = Drawn(sizes.heads * sizes.rows, random);
    k = Drawn(sizes.heads_kv * sizes.keys, random);
    v = Drawn(sizes.heads_kv * sizes.keys, random);
  }
  [[nodiscard]] TensorView Queries(const std::vector<std::byte>& x) const { return Rows(x, sizes_.heads, sizes_.rows); }
  [[nodiscard]] TensorView Keys(const std::vector<std::byte>& x) const { return Rows(x, sizes_.heads_kv, sizes_.keys); }
  [[nodiscard]] MutableTensorView Out(std::vector<std::byte>& x, bool keys = false) const {
    const TensorView like = keys ? Keys(x) : Queries(x);
    return {x.data(), dtype_, like.shape, {}};
  }
  std::vector<std::byte> q, k, v, d_out;

 private:
  [[nodiscard]] TensorView Rows(const std::vector<std::byte>& x, int64_t heads, int64_t rows) const {
    return {x.data(), dtype_, Dims{sizes_.batch, heads, rows, sizes_.columns}, {}};
  }
  [[nodiscard]] std::vector<std::byte> Drawn(int64_t rows, std::mt19937& random) const {
    std::vector<std::byte> tensor;
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < sizes_.batch * rows * sizes_.columns; ++i) {
      const float x = normal(random);
      const auto* bytes = reinterpret_cast<const std::byte*>(&x);  // the upper half of an f32 is a bf16 number
      tensor.insert(tensor.end(), bytes + (dtype_ == DType::kBF16 ? 2 : 0), bytes + sizeof x);
    }
    return tensor;
  }

  Sizes sizes_;
  DType dtype_;
};

/// Returns all results of a forward and its backward.
std::vector<std::byte> Trained(const Sizes& sizes, const Inputs& in, const TensorView& dense, const PairMask* pairs,
                               const Mask& rule, Context* context) {
  const Dims stats{sizes.batch, sizes.heads, sizes.rows};
  std::vector<float> max(static_cast<size_t>(sizes.batch * sizes.heads * sizes.rows)), sum(max.size());
  std::vector<std::byte> out(in.q.size()), dq(in.q.size()), dk(in.k.size()), dv(in.k.size());
  AttentionArgs args;
  args.q = in.Queries(in.q);
  args.k = in.Keys(in.k);
  args.v = in.Keys(in.v);
  args.dense_mask = dense;
  args.pair_mask = pairs;
  args.out = in.Out(out);
  args.softmax_max = View(max, stats);
  args.softmax_sum = View(sum, stats);
  AttentionOptions options;
  options.mask = rule;
  const Status forward = FlashAttention(args, options, context);
  EXPECT_TRUE(forward.ok()) << forward.message();
  AttentionGradArgs grads;
  grads.q = args.q;
  grads.k = args.k;
  grads.v = args.v;
  grads.dense_mask = dense;
  grads.pair_mask = pairs;
  grads.out = args.out;
  grads.d_out = in.Queries(in.d_out);
  grads.softmax_max = args.softmax_max;
  grads.softmax_sum = args.softmax_sum;
  grads.dq = in.Out(dq);
  grads.dk = in.Out(dk, true);
  grads.dv = in.Out(dv, true);
  const Status backward = FlashAttentionGrad(grads, options, context);
  EXPECT_TRUE(backward.ok()) << backward.message();
  std::vector<std::byte> all = out;
  Append(max, all), Append(sum, all), Append(dq, all), Append(dk, all), Append(dv, all);
  return all;
}

std::vector<std::byte> Prompted(const Inputs& in, const TensorView& dense, const PairMask* pairs, const Mask& rule,
                                Context* context) {
  std::vector<std::byte> out(in.q.size());
  PromptAttentionArgs args;
  args.q = in.Queries(in.q);
  args.k = in.Keys(in.k);
  args.v = in.Keys(in.v);
  args.dense_mask = dense;
  args.pair_mask = pairs;
  args.out = in.Out(out);
  PromptAttentionOptions options;
  options.mask = rule;
  const Status status = PromptFlashAttention(args, options, context);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

std::vector<std::byte> Decoded(const Inputs& in, const TensorView& dense, const PairMask* pairs, const Mask& rule,
                               Context* context) {
  std::vector<std::byte> out(in.q.size());
  const TensorView keys = in.Keys(in.k), values = in.Keys(in.v);
  DecodeAttentionArgs args;
  args.q = in.Queries(in.q);
  args.k = {&keys, 1};
  args.v = {&values, 1};
  args.dense_mask = dense;
  args.pair_mask = pairs;
  args.out = in.Out(out);
  DecodeAttentionOptions options;
  options.mask = rule;
  const Status status = DecodeAttention(args, options, context);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

/// Expects that every operator gives the same bits with both forms of the mask.
void ExpectSameBits(const Sizes& sizes, const BothMasks& masks, DType dtype, const Mask& rule, Context* context) {
  const Inputs in(sizes, dtype, 7);
  const TensorView dense = View(masks.full, masks.full_shape);
  EXPECT_TRUE(Trained(sizes, in, dense, nullptr, rule, context) == Trained(sizes, in, {}, &masks.pairs, rule, context));
  EXPECT_TRUE(Prompted(in, dense, nullptr, rule, context) == Prompted(in, {}, &masks.pairs, rule, context));
  EXPECT_TRUE(Decoded(in, dense, nullptr, rule, context) == Decoded(in, {}, &masks.pairs, rule, context));
}

TEST(PairMask, GivesTheBitsOfTheDenseMaskForAllSmallShapes) {
  std::mt19937 random(1);
  for (int64_t rows = 0; rows <= 9; ++rows) {
    for (int64_t keys = 0; keys <= 9; ++keys) {
      const Sizes sizes{.rows = rows, .keys = keys};
      for (const int64_t batch : {1, 2}) {
        for (const int64_t heads : {1, 2, 4}) {
          SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(keys) + " keys, planes " +
                       std::to_string(batch) + "x" + std::to_string(heads));
          const BothMasks masks(sizes, Pattern::kPairs, batch, heads, random);
          ExpectSameBits(sizes, masks, DType::kF32, Mask::None(), ContextOf(DetectIsa()));
        }
      }
    }
  }
}

class PairMaskShapes : public ::testing::TestWithParam<std::tuple<Pattern, DType>> {};

TEST_P(PairMaskShapes, GiveTheBitsOfTheDenseMask) {
  const auto [pattern, dtype] = GetParam();
  std::mt19937 random(2);
  const int64_t shapes[][2] = {{1, 700}, {31, 129}, {33, 64}, {127, 257}, {128, 128}, {130, 300}, {257, 8400}};
  for (const auto& [rows, keys] : shapes) {
    const Sizes sizes{.batch = keys > 8192 ? 1 : 2, .rows = rows, .keys = keys};
    const int64_t heads = random() % 2 == 0 ? 2 : 4;
    const BothMasks masks(sizes, pattern, sizes.batch, heads, random);
    for (const Isa isa : keys > 8192 ? std::vector{DetectIsa()} : IsaLevels()) {
      SCOPED_TRACE(std::string(Name(isa)) + " " + std::to_string(rows) + "x" + std::to_string(keys));
      ExpectSameBits(sizes, masks, dtype, Mask::None(), ContextOf(isa));
      if (rows <= keys) ExpectSameBits(sizes, masks, dtype, Mask::Causal(), ContextOf(isa));
    }
  }
}

// If head sizes are multiples of 32 and there are many rows, the loops of the tile unit (AMX) compute the heads.
TEST_P(PairMaskShapes, GiveTheBitsOfTheDenseMaskInTheLoopsOfTheTileUnit) {
  const auto [pattern, dtype] = GetParam();
  std::mt19937 random(9);
  const Sizes sizes{.batch = 1, .rows = 300, .keys = 500, .columns = 64};
  const BothMasks masks(sizes, pattern, 1, 2, random);
  for (const Isa isa : IsaLevels()) {
    SCOPED_TRACE(Name(isa));
    ExpectSameBits(sizes, masks, dtype, Mask::None(), ContextOf(isa));
    ExpectSameBits(sizes, masks, dtype, Mask::Causal(), ContextOf(isa));
  }
}

INSTANTIATE_TEST_SUITE_P(All, PairMaskShapes,
                         ::testing::Combine(::testing::Values(Pattern::kPairs, Pattern::kTiles, Pattern::kAll,
                                                              Pattern::kNone),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& info) {
                           const std::string pattern = NameOf(std::get<0>(info.param));
                           return pattern + "_" + Name(std::get<1>(info.param));
                         });

TEST(PairMask, OnePairMatters) {
  const Sizes sizes{.rows = 130, .keys = 300};
  std::mt19937 random(3);
  const Inputs in(sizes, DType::kF32, 7);
  const BothMasks masks(sizes, Pattern::kNone, 1, 1, random);
  std::vector<uint8_t> drop = masks.drop;
  drop[129 * 300 + 299] = 1;
  const auto other = PairMask::FromBytes(View(drop, {130, 300}), true);
  ASSERT_TRUE(other.ok());
  Context* context = ContextOf(DetectIsa());
  EXPECT_FALSE(Prompted(in, {}, &masks.pairs, Mask::None(), context) ==
               Prompted(in, {}, &*other, Mask::None(), context));
}

TEST(PairMask, KeysThatNoRowKeepsChangeNothing) {
  const Sizes sizes{.batch = 1, .heads = 2, .heads_kv = 2, .rows = 200, .keys = 600};
  std::mt19937 random(10);
  std::vector<uint8_t> drop = Drawn(Pattern::kPairs, 1, sizes.rows, sizes.keys, random);
  for (size_t i = 0; i < drop.size(); ++i) {
    const size_t key = i % 600;  // a tile, its neighbour's half, and single keys are dropped for every row
    if ((key >= 128 && key < 300) || key % 50 == 7) drop[i] = 1;
  }
  const auto mask = PairMask::FromBytes(View(drop, {1, 1, sizes.rows, sizes.keys}), true);
  ASSERT_TRUE(mask.ok());
  Inputs zeros(sizes, DType::kF32, 7), poison = zeros;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kZero = 0;
  for (int64_t row = 0; row < sizes.heads_kv * sizes.keys; ++row) {
    const int64_t key = row % sizes.keys;
    if ((key < 128 || key >= 300) && key % 50 != 7) continue;
    for (int64_t c = 0; c < sizes.columns; ++c) {
      const int64_t at = (row * sizes.columns + c) * static_cast<int64_t>(sizeof(float));
      std::memcpy(zeros.k.data() + at, &kZero, sizeof kZero);
      std::memcpy(zeros.v.data() + at, &kZero, sizeof kZero);
      std::memcpy(poison.k.data() + at, &kNan, sizeof kNan);
      std::memcpy(poison.v.data() + at, &kNan, sizeof kNan);
    }
  }
  for (const Isa isa : IsaLevels()) {
    Context* context = ContextOf(isa);
    EXPECT_TRUE(Trained(sizes, zeros, {}, &*mask, Mask::None(), context) ==
                Trained(sizes, poison, {}, &*mask, Mask::None(), context))
        << Name(isa);
    EXPECT_TRUE(Decoded(zeros, {}, &*mask, Mask::None(), context) == Decoded(poison, {}, &*mask, Mask::None(), context))
        << Name(isa);
  }
}

TEST(PairMask, BitsDoNotDependOnThreads) {
  const Sizes sizes{.rows = 300, .keys = 500};
  std::mt19937 random(4);
  const Inputs in(sizes, DType::kF32, 7);
  const BothMasks masks(sizes, Pattern::kTiles, 2, 4, random);
  const auto run = [&](int threads) {
    Context* context = ContextOf(DetectIsa(), threads);
    const auto made = PairMask::FromBytes(View(masks.drop, masks.shape), true, context);
    EXPECT_TRUE(made.ok());
    return Trained(sizes, in, {}, &*made, Mask::None(), context);
  };
  const std::vector<std::byte> one = run(1);
  for (const int threads : {2, 7}) EXPECT_TRUE(run(threads) == one) << threads;
}

TEST(PairMask, OneRowStandsForAllRowsOfADecode) {
  const Sizes sizes{.rows = 3, .keys = 400}, row{.rows = 1, .keys = 400};
  std::mt19937 random(5);
  const BothMasks one(row, Pattern::kPairs, 2, 1, random);
  BothMasks all(sizes, Pattern::kNone, 2, 4, random);
  for (size_t i = 0; i < all.full.size(); ++i) {
    all.full[i] = one.drop[i / (4 * 3 * 400) * 400 + i % 400];
  }
  const Inputs in(sizes, DType::kF32, 7);
  Context* context = ContextOf(DetectIsa());
  EXPECT_TRUE(Decoded(in, View(all.full, all.full_shape), nullptr, Mask::None(), context) ==
              Decoded(in, {}, &one.pairs, Mask::None(), context));
}

TEST(PairMask, APlanTakesAnotherMaskOfItsShape) {
  const Sizes sizes{.rows = 140, .keys = 270};
  std::mt19937 random(6);
  const Inputs in(sizes, DType::kF32, 7);
  const BothMasks first(sizes, Pattern::kTiles, 2, 1, random), second(sizes, Pattern::kPairs, 2, 1, random);
  std::vector<std::byte> out(in.q.size());
  AttentionArgs args;
  args.q = in.Queries(in.q);
  args.k = in.Keys(in.k);
  args.v = in.Keys(in.v);
  args.pair_mask = &first.pairs;
  args.out = in.Out(out);
  Context* context = ContextOf(DetectIsa());
  auto plan = PlanFlashAttention(args, {}, context);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_NE(plan->Describe().find("dense mask"), std::string::npos);
  for (const BothMasks* masks : {&first, &second, &first}) {
    args.pair_mask = &masks->pairs;
    ASSERT_TRUE(plan->Run(args).ok());
    EXPECT_TRUE(out == Prompted(in, {}, &masks->pairs, Mask::None(), context));
  }
  const auto refused = [&](const PairMask* mask, const std::string& text) {
    args.pair_mask = mask;
    EXPECT_EQ(plan->Run(args).message(), "invalid argument: " + text);
  };
  const BothMasks shared(sizes, Pattern::kTiles, 1, 1, random);
  refused(&shared.pairs, "pair_mask.shape=[1,1,140,270], want [2,1,140,270] (as planned)");
  refused(nullptr, "pair_mask: missing, want it given (as planned)");
  args.pair_mask = nullptr;
  plan = PlanFlashAttention(args, {}, context);
  ASSERT_TRUE(plan.ok());
  refused(&first.pairs, "pair_mask: given, want none (as planned)");
}

TEST(PairMask, PackedSequencesShareOneMask) {
  const int64_t ends_q[] = {70, 220}, ends_kv[] = {200, 340};
  std::mt19937 random(8);
  const std::vector<uint8_t> drop = Drawn(Pattern::kPairs, 1, 150, 200, random);
  const auto mask = PairMask::FromBytes(View(drop, {150, 200}), true);
  ASSERT_TRUE(mask.ok());
  std::normal_distribution<float> normal;
  std::vector<float> q(220 * 16), k(340 * 16), out(q.size()), other(q.size());
  for (std::vector<float>* tensor : {&q, &k}) {
    for (float& x : *tensor) x = normal(random);
  }
  AttentionArgs args;
  args.q = View(q, {220, 1, 16});
  args.k = args.v = View(k, {340, 1, 16});
  args.cu_q = ends_q;
  args.cu_kv = ends_kv;
  args.out = View(out, {220, 1, 16});
  AttentionOptions options;
  options.layout = Layout::kTND;
  args.pair_mask = &*mask;
  ASSERT_TRUE(FlashAttention(args, options).ok());
  args.pair_mask = nullptr;
  args.dense_mask = View(drop, {150, 200});
  args.out = View(other, {220, 1, 16});
  ASSERT_TRUE(FlashAttention(args, options).ok());
  EXPECT_EQ(out, other);
}

TEST(PairMask, CallsRefuseWrongMasks) {
  const Sizes sizes{.rows = 7, .keys = 9};
  std::mt19937 random(9);
  const Inputs in(sizes, DType::kF32, 7);
  std::vector<std::byte> out(in.q.size(), std::byte{0x5a});
  const std::vector<std::byte> before = out;
  AttentionArgs args;
  args.q = in.Queries(in.q);
  args.k = in.Keys(in.k);
  args.v = in.Keys(in.v);
  args.out = in.Out(out);
  const auto refused = [&](const Dims& shape, const std::string& text) {
    const std::vector<uint8_t> drop(static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
    const auto mask = PairMask::FromBytes(View(drop, shape), true);
    ASSERT_TRUE(mask.ok());
    args.pair_mask = &*mask;
    const Status status = FlashAttention(args, {});
    EXPECT_EQ(status.message(), "invalid argument: " + text);
    EXPECT_EQ(status.argument(), "pair_mask");
  };
  refused({2, 1, 8, 9}, "pair_mask.shape[2]=8, want 7 (q.shape[2])");
  refused({2, 1, 7, 10}, "pair_mask.shape[3]=10, want 9 (k.shape[2])");
  refused({3, 1, 7, 9}, "pair_mask.shape[0]=3, want 2 (q.shape[0])");
  refused({2, 3, 7, 9}, "pair_mask.shape[1]=3, want 1, 2 (key heads) or 4 (query heads)");
  const PairMask none;
  args.pair_mask = &none;
  EXPECT_EQ(FlashAttention(args, {}).message(), "invalid argument: pair_mask: has no mask");
  const BothMasks masks(sizes, Pattern::kPairs, 1, 1, random);
  args.pair_mask = &masks.pairs;
  args.dense_mask = View(masks.full, masks.full_shape);
  EXPECT_EQ(FlashAttention(args, {}).message(),
            "invalid argument: pair_mask: given together with dense_mask, want one of them");
  EXPECT_TRUE(out == before);
}

}  // namespace
}  // namespace fa::test
