#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tools/backward_call.h"
#include "tools/forward_call.h"

namespace fa::test {
namespace {

using npy::ElementType;
using reference::Problem;
using ::testing::HasSubstr;

constexpr int64_t kLarge = 1 << 30;

Problem Sized(std::vector<int64_t> sq, std::vector<int64_t> sk) {
  return {.heads = 2, .heads_kv = 2, .d = 16, .dv = 16, .lengths = {.sq = std::move(sq), .sk = std::move(sk)}};
}

/// Returns the compressed mask that the device expects. It has 2048 rows in modes 2, 3, 4, 7 and 8, and 3072 rows in
/// mode 6.
npy::Array CompressedMask(int64_t rows) {
  npy::Array mask(ElementType::kU8, {rows, 2048});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < 2048; ++j) {
      const bool drop = i < 2048 ? j > i : j >= 1024;
      mask.as<uint8_t>()[static_cast<size_t>(i * 2048 + j)] = drop ? 1 : 0;
    }
  }
  return mask;
}

struct DenseMask {
  reference::PairValues<uint8_t> pairs;
  npy::Array array;
};

/// Returns a mask [Sq, Sk] that drops a third of the pairs, chosen at random.
DenseMask RandomMask(const Problem& problem, ElementType type) {
  const int64_t sq = problem.lengths.sq[0], sk = problem.lengths.sk[0];
  std::mt19937_64 random(11);
  DenseMask mask;
  for (int64_t n = 0; n < sq * sk; ++n) mask.pairs.values.push_back(random() % 3 == 0 ? 1 : 0);
  const auto batch = static_cast<size_t>(problem.batch());
  mask.pairs.offset.assign(batch, 0);
  mask.pairs.head.assign(batch, 0);
  mask.pairs.row.assign(batch, sk);
  mask.array = ArrayOf(type, {sq, sk}, mask.pairs.values);
  return mask;
}

TEST(CliMask, CausalIsBottomRight) {
  ForwardCall call("BNSD", Sized({9}, {20}));
  call.problem.mask = {.mode = 3};
  call.flags += " --causal";
  EXPECT_TRUE(call.Matches());
}

TEST(CliMask, SparseModesApplyTheirRuleWithoutAMask) {
  struct Case {
    std::string flags;
    reference::MaskRule rule;
  };
  const std::vector<Case> cases = {
      {"0", {.mode = 1}},
      {"2", {.mode = 2}},
      {"3", {.mode = 3}},
      {"4 --pre-tokens 6 --next-tokens 2", {.mode = 4, .pre = 6, .next = 2}},
      {"4 --pre-tokens 9 --next-tokens -3", {.mode = 4, .pre = 9, .next = -3}},
      {"4", {.mode = 4, .pre = kLarge, .next = kLarge}},
      {"5 --prefix 12,20", {.mode = 5, .prefix = {12, 20}}},
      {"6 --prefix 11,14", {.mode = 6, .prefix = {11, 14}}},
  };
  for (const Case& c : cases) {
    ForwardCall call("BNSD", Sized({9, 9}, {20, 20}));
    call.problem.mask = c.rule;
    call.flags += " --sparse-mode " + c.flags;
    EXPECT_TRUE(call.Matches()) << "--sparse-mode " << c.flags;
  }
}

TEST(CliMask, PackedSparseModesApplyTheirRule) {
  ForwardCall mode7("TND", Sized({4, 5, 0}, {9, 12, 3}));
  mode7.problem.mask = {.mode = 7, .pre = 12, .next = -2};
  mode7.flags += " --sparse-mode 7 --pre-tokens 12 --next-tokens -2";
  EXPECT_TRUE(mode7.Matches());
  ForwardCall mode8("TND", Sized({4, 5}, {9, 12}));
  mode8.problem.mask = {.mode = 8, .pre = 9, .next = 1};
  mode8.flags += " --sparse-mode 8 --pre-tokens 9 --next-tokens 1";
  EXPECT_TRUE(mode8.Matches());
}

TEST(CliMask, CompressedMasksStandForTheirRule) {
  struct Case {
    std::string flags;
    int64_t rows;
    reference::MaskRule rule;
  };
  const std::vector<Case> cases = {
      {"2", 2048, {.mode = 2}},
      {"3", 2048, {.mode = 3}},
      {"4 --pre-tokens 6 --next-tokens 2", 2048, {.mode = 4, .pre = 6, .next = 2}},
      {"6 --prefix 12", 3072, {.mode = 6, .prefix = {12}}},
  };
  for (const Case& c : cases) {
    ForwardCall call("BNSD", Sized({9}, {20}));
    call.problem.mask = c.rule;
    call.AddFile("--atten-mask", CompressedMask(c.rows));
    call.flags += " --sparse-mode " + c.flags;
    EXPECT_TRUE(call.Matches()) << "--sparse-mode " << c.flags;
  }
}

TEST(CliMask, OtherCompressedMasksAreRefusedWithTheFirstWrongElement) {
  ForwardCall call("BNSD", Sized({9}, {20}));
  npy::Array mask = CompressedMask(2048);
  mask.as<uint8_t>()[5 * 2048 + 7] = 0;
  call.AddFile("--atten-mask", mask);
  call.flags += " --sparse-mode 3";
  const CliResult result = call.Run();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(result.HasOneLineOfError());
  EXPECT_THAT(result.err, HasSubstr("--atten-mask"));
  EXPECT_THAT(result.err, HasSubstr("[5][7]"));
}

TEST(CliMask, FullMaskBesideACompressedModeIsRefused) {
  ForwardCall call("BNSD", Sized({9}, {20}));
  call.AddFile("--atten-mask", RandomMask(call.problem, ElementType::kU8).array);
  call.flags += " --sparse-mode 2";
  const CliResult result = call.Run();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--atten-mask"));
}

TEST(CliMask, DenseMasksOfModes0And1) {
  for (const char* mode : {"", " --sparse-mode 0", " --sparse-mode 1"}) {
    ForwardCall call("BNSD", Sized({9, 9}, {20, 20}));
    DenseMask mask = RandomMask(call.problem, ElementType::kBool);
    call.problem.dense_mask = mask.pairs;
    call.AddFile("--atten-mask", mask.array);
    call.flags += mode;
    EXPECT_TRUE(call.Matches()) << mode;
  }
}

TEST(CliMask, DenseMaskOfMode0WithABandIsTopLeft) {
  ForwardCall call("BNSD", Sized({9}, {20}));
  DenseMask mask = RandomMask(call.problem, ElementType::kU8);
  call.problem.dense_mask = mask.pairs;
  call.problem.mask = {.mode = 0, .band = true, .pre = 3, .next = 5};
  call.AddFile("--atten-mask", mask.array);
  call.flags += " --pre-tokens 3 --next-tokens 5";
  EXPECT_TRUE(call.Matches());
}

TEST(CliMask, DenseMaskBesidePrefixAndCausal) {
  ForwardCall prefix("BNSD", Sized({9}, {20}));
  DenseMask mask = RandomMask(prefix.problem, ElementType::kU8);
  mask.array = ArrayOf(ElementType::kU8, {1, 1, 9, 20}, mask.pairs.values);
  prefix.problem.dense_mask = mask.pairs;
  prefix.problem.mask = {.mode = 5, .prefix = {13}};
  prefix.AddFile("--atten-mask", mask.array);
  prefix.flags += " --sparse-mode 5 --prefix 13";
  EXPECT_TRUE(prefix.Matches());

  ForwardCall causal("BNSD", Sized({9}, {20}));
  causal.problem.dense_mask = mask.pairs;
  causal.problem.mask = {.mode = 3};
  causal.AddFile("--atten-mask", mask.array);
  causal.flags += " --causal";
  EXPECT_TRUE(causal.Matches());
}

/// Adds a block mask [B, N, row blocks, key blocks] to a call and to the reference of the call. Each block has 4 rows
/// and `block_keys` keys.
void AddBlocks(ForwardCall& call, int64_t block_keys = 8) {
  Problem& problem = call.problem;
  int64_t rows = 0, keys = 0;
  for (const int64_t sq : problem.lengths.sq) rows = std::max(rows, (sq + 3) / 4);
  for (const int64_t sk : problem.lengths.sk) keys = std::max(keys, (sk + block_keys - 1) / block_keys);
  std::vector<uint8_t> keep;
  for (int64_t i = 0; i < problem.batch() * problem.heads * rows * keys; ++i) keep.push_back(i % 3 == 1 ? 0 : 1);
  for (int64_t b = 0; b < problem.batch(); ++b) {
    const auto at = static_cast<size_t>(b);
    const int64_t sq = problem.lengths.sq[at], sk = problem.lengths.sk[at];
    problem.dense_mask.offset.push_back(std::ssize(problem.dense_mask.values));
    problem.dense_mask.head.push_back(sq * sk);
    problem.dense_mask.row.push_back(sk);
    for (int64_t x = 0; x < problem.heads * sq * sk; ++x) {
      const int64_t n = x / (sq * sk), i = x / sk % sq, j = x % sk;
      const int64_t block = ((b * problem.heads + n) * rows + i / 4) * keys + j / block_keys;
      problem.dense_mask.values.push_back(1 - keep[static_cast<size_t>(block)]);
    }
  }
  call.AddFile("--block-mask", ArrayOf(ElementType::kBool, {problem.batch(), problem.heads, rows, keys}, keep));
  call.flags += " --block-shape 4," + std::to_string(block_keys);
}

TEST(CliMask, BlocksOfRowsAndKeys) {
  for (const int64_t block_keys : {7, 9, 20}) {
    ForwardCall call("BNSD", Sized({9}, {20}));
    AddBlocks(call, block_keys);
    EXPECT_TRUE(call.Matches()) << block_keys;
  }
  for (const char* layout : {"BNSD", "BSH", "TND"}) {
    ForwardCall call(layout, Sized({9, 9}, {20, 20}));
    AddBlocks(call);
    EXPECT_TRUE(call.Matches()) << layout;
  }
  ForwardCall causal("BNSD", Sized({9}, {20}));
  AddBlocks(causal);
  causal.problem.mask = {.mode = 3};
  causal.flags += " --causal";
  EXPECT_TRUE(causal.Matches());
  ForwardCall packed("TND", Sized({9, 0, 14}, {20, 3, 7}));
  AddBlocks(packed);
  EXPECT_TRUE(packed.Matches());
  BackwardCall backward("BSND", Sized({9, 9}, {20, 20}));
  AddBlocks(backward.forward);
  EXPECT_TRUE(backward.Matches());
}

TEST(CliMask, WrongBlocksAreRefused) {
  const npy::Array blocks(ElementType::kU8, {3, 3}), dense(ElementType::kU8, {9, 20});
  const std::vector<std::pair<std::string, std::string>> cases = {
      {" --block-shape 4,10", "--block-mask: shape[1]=3, want 2 (--key)"},
      {" --block-shape 5,8", "--block-mask: shape[0]=3, want 2 (--query)"},
      {"", "--block-mask: shape[0]=3, want 1 (--query)"},
      {" --block-shape 4", "--block-shape: 4, want X,Y"},
      {" --block-shape 0,8", "--block-shape: 0, want >= 1"},
  };
  for (const auto& [flags, text] : cases) {
    ForwardCall call("BNSD", Sized({9}, {20}));
    call.AddFile("--block-mask", blocks);
    call.flags += flags;
    const CliResult result = call.Run();
    EXPECT_EQ(result.exit_code, 2) << flags << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
  }
  ForwardCall both("BNSD", Sized({9}, {20}));
  both.AddFile("--block-mask", blocks);
  both.AddFile("--atten-mask", dense);
  both.flags += " --block-shape 4,8";
  EXPECT_THAT(both.Run().err, HasSubstr("--block-mask: given together with --atten-mask"));
  ForwardCall none("BNSD", Sized({9}, {20}));
  none.flags += " --block-shape 4,8";
  EXPECT_THAT(none.Run().err, HasSubstr("--block-shape: needs --block-mask"));
}

}  // namespace
}  // namespace fa::test
