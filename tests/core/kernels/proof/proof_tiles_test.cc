// The proof sees every kind of wrong kernel over bf16 tiles and names it.

#include <gtest/gtest.h>

#include <bit>
#include <utility>
#include <vector>

#include "core/kernels/proof/proof.h"
#include "core/kernels/proof/spoiled.h"

namespace fa::core {
namespace {

using kernels::KernelTable;
using kernels::StripKernels;

const StripKernels& RightTiles() { return kernels::Kernels(Isa::kAmxEmulated, DType::kBF16).strips[0]; }

const Mistake kMistakesOfTiles[] = {
    {"product in one loop of bf16_32x32_amx_emulated",
     [](Spoiled& c) {
       c.strips[0].overlapped = [](auto product, auto softmax, auto scores) {
         RightTiles().overlapped(product, softmax, scores);
         if (softmax == nullptr) return;
         // writes into a second tile of lanes, as if it were full
         for (int lane = 16; lane < 32; ++lane) softmax->s[lane] = 1.0f;
       };
     }},
    {"scores in one loop of bf16_32x32_amx_emulated",
     [](Spoiled& c) {
       c.strips[0].overlapped = [](auto product, auto softmax, auto scores) {
         RightTiles().overlapped(product, softmax, scores);
         if (product != nullptr && softmax != nullptr && scores != nullptr) scores->s[0] += 1;  // all three at once
       };
     }},
    {"product of bf16_32x32_amx_emulated",
     [](Spoiled& c) {
       c.strips[0].product = [](auto v, auto keys, auto p, auto dv, auto alpha, auto o) {
         RightTiles().product(v, keys < 32 ? keys : 32, p, dv, alpha, o);  // forgets the keys after the first group
       };
     }},
    {"product of bf16_32x32_amx_emulated, from inside a group",
     [](Spoiled& c) {
       c.strips[0].product = [](auto v, auto keys, auto p, auto dv, auto alpha, auto o) {
         kernels::RowBlock rows = v;
         rows.skip = v.skip == 0 ? 0 : v.skip - 2;
         RightTiles().product(rows, keys, p, dv, alpha, o);
       };
     }},
    {"product of masked pairs of bf16_32x32_amx_emulated, from inside a group",
     [](Spoiled& c) {
       c.strips[0].product_exact = [](auto v, auto keys, auto p, auto dv, auto alpha, auto o) {
         RightTiles().product_exact(v, v.skip == 0 ? keys : keys - 1, p, dv, alpha, o);
       };
     }},
    {"product of bf16_32x32_amx_emulated",
     [](Spoiled& c) {
       c.strips[0].pair_keys = [](auto s, auto keys, auto pairs) {
         RightTiles().pair_keys(s, keys, pairs);
         if (keys % 2 != 0) pairs[keys / 2 * 32] = 0;  // forgets an odd last key
       };
     }},
    {"words of bf16_32x32_amx_emulated",
     [](Spoiled& c) {
       c.strips[0].unpair_keys = [](auto s, auto keys) {
         RightTiles().unpair_keys(s, keys);
         if (keys > 2) std::swap(s[0], s[32]);
       };
     }},
    {"words of bf16_32x16_amx_emulated",
     [](Spoiled& c) {
       c.strips[1].pair_keys = [](auto s, auto keys, auto pairs) {
         std::vector<float> cut(s, s + keys * 16);  // rounds towards zero
         for (float& x : cut) x = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u);
         kernels::Kernels(Isa::kAmxEmulated, DType::kBF16).strips[1].pair_keys(cut.data(), keys, pairs);
       };
     }},
    {"pairs of the backward of bf16_32x32_amx_emulated",
     [](Spoiled& c) {
       c.strips[0].backward_pairs = [](const auto& x) {
         RightTiles().backward_pairs(x);
         if (x.keys > 2 && x.ds_multiplier == 1 && x.keep.words == nullptr) x.ds_lanes[15] = x.ds_lanes[16];
       };
     }},
    {"pairs of the backward of bf16_32x16_amx_emulated",
     [](Spoiled& c) {
       c.strips[1].backward_pairs = [](const auto& x) {
         auto args = x;
         args.keep.words = nullptr;  // forgets dropout
         kernels::Kernels(Isa::kAmxEmulated, DType::kBF16).strips[1].backward_pairs(args);
       };
     }},
    {"outer products of amx_emulated",
     [](Spoiled& c) {
       c.rows.outer = [](auto args) {
         kernels::OuterArgs fewer = args;
         if (args.keys > 256) --fewer.keys;
         kernels::Kernels(Isa::kAmxEmulated, DType::kBF16).rows->outer(fewer);
       };
     }},
};

TEST(Proof, MistakesOfTilesAreSeen) {
  const KernelTable& tiles = kernels::Kernels(Isa::kAmxEmulated, DType::kBF16);
  EXPECT_EQ(Spoiled(tiles).Disproof(), "");
  for (const Mistake& mistake : kMistakesOfTiles) {
    Spoiled copy(tiles);
    mistake.make(copy);
    EXPECT_EQ(copy.Disproof(), mistake.seen_as);
  }
}

}  // namespace
}  // namespace fa::core
