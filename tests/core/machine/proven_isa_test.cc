// Levels tried against the ones below: right kernels pass, each kind of wrong one is seen, and what falls back says so.

#include "core/machine/proven_isa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/context_impl.h"
#include "core/kernels/proof/proof.h"
#include "fa/fa.h"
#include "support/fp_control.h"

namespace fa::core {
namespace {

using kernels::IndexerKernels;
using kernels::Int8Kernels;
using kernels::Int8Table;
using kernels::KernelTable;
using kernels::RowKernels;
using kernels::StripKernels;
using testing::HasSubstr;

bool Every(Isa /*isa*/) { return true; }

TEST(ProvenIsa, EveryLevelOfThisCpuIsRight) {
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa)) continue;
    const ProvenIsa proven = Prove(isa, {.unproven = Every});
    EXPECT_EQ(proven.isa, isa);
    EXPECT_EQ(proven.note, "");
  }
}

/// A level's table of floats whose parts may be made wrong, and the level below it: portable both, unless said
/// otherwise.
struct Copy {
  explicit Copy(const KernelTable& of = kernels::Kernels(Isa::kPortable)) : right(of) {
    strips.assign(right.strips, right.strips + right.strip_count);
    if (right.row_state != nullptr) row_state.assign(right.row_state, right.row_state + right.strip_count);
    few.assign(right.few, right.few + right.few_count);
    rows = *right.rows;
  }
  [[nodiscard]] std::string Disproof() const {
    KernelTable copy = right;
    copy.strips = strips.data();
    copy.few = few.data();
    copy.rows = &rows;
    if (right.row_state != nullptr) copy.row_state = row_state.data();
    return kernels::Disproof(copy, kernels::Kernels(Isa::kPortable));
  }
  const KernelTable& right;
  std::vector<StripKernels> strips, row_state, few;
  RowKernels rows;
};

const StripKernels& RightStrip() { return kernels::Kernels(Isa::kPortable).strips[0]; }
const RowKernels& RightRows() { return *kernels::Kernels(Isa::kPortable).rows; }
const StripKernels& RightFew(int i) { return kernels::Kernels(Isa::kPortable).few[i]; }
const StripKernels& RightTiles() { return kernels::Kernels(Isa::kAmxEmulated, DType::kBF16).strips[0]; }

/// One way to be wrong, the kind that an instruction of the wrong lane, tail or rounding would be, or a branch that
/// only some arguments take.
struct Mistake {
  const char* seen_as;
  std::function<void(Copy&)> make;
};

const Mistake kMistakes[] = {
    {"scores of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].scores = [](auto k, auto keys, auto panel, auto d, auto accumulate, auto s, auto row_max) {
         RightStrip().scores(k, keys, panel, d - 1, accumulate, s, row_max);  // forgets the tail of the depth
       };
     }},
    {"scores of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].scores = [](auto k, auto keys, auto panel, auto d, auto accumulate, auto s, auto row_max) {
         RightStrip().scores(k, keys, panel, d, accumulate, s, row_max);
         if (keys == 9) s[8 * 8] = 0;  // one size of tail
       };
     }},
    {"scores of f32_6x8_portable, in two parts of the depth",
     [](Copy& c) {
       c.strips[0].scores = [](auto k, auto keys, auto panel, auto d, auto /*accumulate*/, auto s, auto row_max) {
         RightStrip().scores(k, keys, panel, d, false, s, row_max);
       };
     }},
    {"scores of f32_6x8_portable, fetching ahead",
     [](Copy& c) {
       c.strips[0].scores = [](auto k, auto keys, auto panel, auto d, auto accumulate, auto s, auto row_max) {
         RightStrip().scores(k, keys, panel, k.fetch_ahead != 0 ? d / 8 * 8 : d, accumulate, s, row_max);
       };
     }},
    {"product of f32_6x8_portable, fetching from a list",
     [](Copy& c) {
       c.strips[0].product = [](auto v, auto keys, auto p, auto dv, auto alpha, auto o) {
         RightStrip().product(v, v.fetch != nullptr ? keys / 8 * 8 : keys, p, dv, alpha, o);
       };
     }},
    {"scores of f32_6x8_portable, of fewer queries",
     [](Copy& c) {
       c.strips[0].pack_queries = [](auto rows, auto d, auto multiplier, auto panel) {
         RightStrip().pack_queries(rows, d, multiplier, panel);
         for (int64_t lane = rows.count; lane < 8; ++lane) panel[lane] = 1;
       };
     }},
    {"scores of f32_6x8_portable, with a scale of 0",
     [](Copy& c) {
       c.strips[0].pack_queries = [](auto rows, auto d, auto multiplier, auto panel) {
         RightStrip().pack_queries(rows, d, multiplier == 0 ? 1 : multiplier, panel);
       };
     }},
    {"scores of few_2_portable",
     [](Copy& c) {
       c.few[1].scores = [](auto k, auto keys, auto panel, auto d, auto accumulate, auto s, auto row_max) {
         RightFew(1).scores(k, keys, panel, d, accumulate, s, row_max);
         s[0] = -s[0];
       };
     }},
    {"scores of few_1_portable, of bf16",
     [](Copy& c) {
       c.few[0].scores = [](auto k, auto keys, auto panel, auto d, auto accumulate, auto s, auto row_max) {
         RightFew(0).scores(k, keys, panel, k.dtype == DType::kBF16 ? d - 1 : d, accumulate, s, row_max);
       };
     }},
    {"scores of few_2_portable, of bf16 queries and f32",
     [](Copy& c) {
       c.few[1].pack_queries = [](auto rows, auto d, auto multiplier, auto panel) {
         RightFew(1).pack_queries(rows, d, multiplier, panel);
         if (rows.dtype == DType::kBF16) std::swap(panel[0], panel[1]);  // the order of keys of bf16, for all
       };
       // Those of bf16 are as they were.
       c.few[1].scores = [](auto k, auto keys, auto panel, auto d, auto accumulate, auto s, auto row_max) {
         kernels::RowBlock rows = k;
         std::vector<float> swapped(panel, panel + d * 4);
         if (rows.dtype == DType::kBF16) std::swap(swapped[0], swapped[1]);
         RightFew(1).scores(rows, keys, swapped.data(), d, accumulate, s, row_max);
       };
     }},
    {"product of few_4_portable, of f16",
     [](Copy& c) {
       c.few[2].product = [](auto v, auto keys, auto p, auto dv, auto alpha, auto o) {
         RightFew(2).product(v, v.dtype == DType::kF16 ? keys - 1 : keys, p, dv, alpha, o);
       };
     }},
    {"product of few_4_portable, of bf16 by address",
     [](Copy& c) {
       c.few[2].product = [](auto v, auto keys, auto p, auto dv, auto alpha, auto o) {
         RightFew(2).product(v, keys, p, dv, alpha, o);
         if (v.dtype == DType::kBF16 && v.rows != nullptr) o[dv] = 0;
       };
     }},
    {"product of f32_6x8_row_state_portable",
     [](Copy& c) {
       c.row_state[0].product = [](auto v, auto keys, auto p, auto dv, auto alpha, auto o) {
         kernels::Kernels(Isa::kPortable).row_state[0].product(v, keys, p, dv, alpha, o);
         o[dv - 1] = __builtin_nanf("");
       };
     }},
    {"product of masked pairs of f32_6x8_portable", [](Copy& c) { c.strips[0].product_exact = RightStrip().product; }},
    {"product of masked pairs of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].product_exact = [](auto v, auto keys, auto p, auto dv, auto /*alpha*/, auto o) {
         RightStrip().product_exact(v, keys, p, dv, nullptr, o);
       };
     }},
    {"sum of states of few_1_portable",
     [](Copy& c) {
       c.few[0].add_state = [](auto from, auto from_weight, auto /*own_weight*/, auto dv, auto o) {
         RightFew(0).add_state(from, from_weight, from_weight, dv, o);
       };
     }},
    {"output of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].write_output = [](auto o, auto dv, auto multiplier, auto /*zero*/, auto rows, auto dtype,
                                     auto count) {
         constexpr int32_t kNone[8] = {};
         RightStrip().write_output(o, dv, multiplier, kNone, rows, dtype, count);
       };
     }},
    {"output in bf16 of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].write_output = [](auto o, auto dv, auto multiplier, auto zero, auto rows, auto dtype, auto count) {
         RightStrip().write_output(o, dv, multiplier, zero, rows, dtype, count);
         if (dtype == DType::kBF16 && dv % 4 != 0) static_cast<uint16_t*>(rows[0])[dv] = 0;  // past the row's end
       };
     }},
    {"softmax of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].softmax = [](auto s, auto keys, auto factor, auto block_max, auto row_max, auto row_sum,
                                auto alpha) {
         RightStrip().softmax(s, keys, factor, block_max, row_max, row_sum, alpha);
         row_sum[7] *= 1.0001f;
       };
     }},
    {"softmax of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].softmax = [](auto s, auto keys, auto factor, auto block_max, auto row_max, auto row_sum,
                                auto alpha) {
         const bool none = row_max[4] == kernels::kMaskedScore && block_max[4] == kernels::kMaskedScore;
         RightStrip().softmax(s, keys, factor, block_max, row_max, row_sum, alpha);
         if (none) row_sum[4] = __builtin_nanf("");  // -inf - -inf
       };
     }},
    {"product with dropout of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].softmax_dropout = [](auto x, auto /*keep*/) {
         RightStrip().softmax(x.s, x.keys, x.factor, x.block_max, x.row_max, x.row_sum, x.alpha);
       };
     }},
    {"product with dropout of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].softmax_dropout = [](auto x, auto keep) {
         std::vector<uint32_t> words(keep.words, keep.words + CeilDiv(x.keys, kernels::kKeepBits) * 8);
         if (x.keys > 64) words[16] = ~words[16];  // key 64
         RightStrip().softmax_dropout(x, {words.data(), keep.multiplier});
       };
     }},
    {"softmax with dropout of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].softmax_dropout = [](auto x, auto keep) {
         RightStrip().softmax_dropout(x, keep);
         x.row_sum[0] *= keep.multiplier;  // which does not see the dropout
       };
     }},
    {"softcap of f32_12x4_portable",
     [](Copy& c) {
       c.strips[1].scale_scores = [](auto s, auto keys, auto scale, auto /*softcap*/, auto row_max) {
         kernels::Kernels(Isa::kPortable).strips[1].scale_scores(s, keys, scale, 0, row_max);
       };
     }},
    {"softcap of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].scale_scores = [](auto s, auto keys, auto scale, auto softcap, auto row_max) {
         RightStrip().scale_scores(s, keys, scale, softcap, row_max);
         if (scale == 10) s[9] *= 1.0001f;  // an exponential that no small score takes
       };
     }},
    {"bias of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].add_bias = [](auto s, auto keys, auto pre, auto post, auto bias, auto row_max) {
         RightStrip().add_bias(s, keys, pre, post, bias, row_max);
         const auto* rows = reinterpret_cast<const char* const*>(bias.rows);
         if (rows[1] - rows[0] == 2048 && keys >= 64) s[63 * 8] += 1;
       };
     }},
    {"bias of bf16 of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].add_bias = [](auto s, auto keys, auto pre, auto post, auto bias, auto row_max) {
         RightStrip().add_bias(s, keys, pre, post, bias, row_max);
         if (bias.dtype == DType::kBF16) std::swap(s[0], s[8]);  // halves of a word
       };
     }},
    {"mask of bytes of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].mask_bytes = [](auto s, auto keys, auto drop, auto fill, auto row_max) {
         const float kept = s[42 * 8 + 3];
         const bool any = RightStrip().mask_bytes(s, keys, drop, fill, row_max);
         s[42 * 8 + 3] = kept;
         return any;
       };
     }},
    {"mask of bytes of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].mask_bytes = [](auto s, auto keys, auto drop, auto fill, auto row_max) {
         RightStrip().mask_bytes(s, keys, drop, fill, row_max);
         return true;
       };
     }},
    {"softmax with dropout of the backward of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].backward_softmax_dropout = [](auto s, auto dp, auto keys, auto factor, auto shift, auto delta,
                                                 auto keep) {
         std::vector<uint32_t> words(keep.words, keep.words + CeilDiv(keys, kernels::kKeepBits) * 8);
         words[8] = words[0];  // the word of the keys from 32 on
         RightStrip().backward_softmax_dropout(s, dp, keys, factor, shift, delta, {words.data(), keep.multiplier});
       };
     }},
    {"softmax of the backward of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].backward_softmax = [](auto s, auto dp, auto keys, auto factor, auto shift, auto delta) {
         for (int64_t i = 0; i < keys * 8; ++i) s[i] = s[i] == kernels::kMaskedScore ? 0 : s[i];
         RightStrip().backward_softmax(s, dp, keys, factor, shift, delta);
       };
     }},
    {"gradient of the bias of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].bias_gradient = [](auto ds, auto keys, auto multiplier, auto /*accumulate*/, auto rows, auto dtype,
                                      auto count) {
         RightStrip().bias_gradient(ds, keys, multiplier, false, rows, dtype, count);
       };
     }},
    {"gradient of a bias in bf16 of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].bias_gradient = [](auto ds, auto keys, auto multiplier, auto accumulate, auto rows, auto dtype,
                                      auto count) {
         RightStrip().bias_gradient(ds, keys, multiplier, accumulate, rows, dtype, count);
         if (dtype == DType::kBF16) ++static_cast<uint16_t*>(rows[0])[keys - 1];
       };
     }},
    {"gradient of slopes of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].slope_gradient = [](auto ds, auto keys, auto distance, auto /*square_root*/, auto sum) {
         RightStrip().slope_gradient(ds, keys, distance, true, sum);
       };
     }},
    {"exponentials of portable",
     [](Copy& c) {
       c.rows.exp2 = [](auto x, auto n, auto y) {
         RightRows().exp2(x, n, y);
         for (int64_t i = 0; i < n; ++i) y[i] *= 1 + 1e-5f;
       };
     }},
    {"conversions of portable",
     [](Copy& c) {
       c.rows.narrow = [](auto src, auto stride, auto rows, auto columns, auto multiplier, auto dst) {
         RightRows().narrow(src, stride, rows, columns, multiplier * (1 + 0x1p-7f), dst);
       };
     }},
    {"conversions of portable",
     [](Copy& c) {
       c.rows.widen = [](auto src, auto rows, auto columns, auto dst, auto dst_stride) {
         RightRows().widen(src, rows, columns, dst, dst_stride);
         if (rows > 1 && src.dtype == DType::kF16) dst[dst_stride] = 0;
       };
     }},
    {"numbers of int8 of portable",
     [](Copy& c) {
       c.rows.dequantize = [](auto src, auto rows, auto columns, auto by, auto dst, auto dst_stride) {
         RightRows().dequantize(src, rows, columns, {by.scale, by.offset, 1}, dst, dst_stride);  // never per column
       };
     }},
    {"row kernels of portable", [](Copy& c) { c.rows.all_finite = [](auto, auto, auto) { return true; }; }},
    {"row kernels of portable",
     [](Copy& c) {
       c.rows.dot = [](auto a, auto a_type, auto b, auto b_type, auto n) {
         return RightRows().dot(a, a_type, b, b_type, a_type == DType::kF16 && n == 3 ? 2 : n);
       };
     }},
    {"outer products of portable",
     [](Copy& c) {
       c.rows.outer = [](auto args) {
         kernels::OuterArgs fewer = args;
         --fewer.rows;
         RightRows().outer(fewer);
       };
     }},
    {"outer products of portable",
     [](Copy& c) {
       c.rows.outer = [](auto args) {
         kernels::OuterArgs from_zero = args;
         from_zero.accumulate = true;
         RightRows().outer(from_zero);
       };
     }},
    {"outer products of portable",
     [](Copy& c) {
       c.rows.outer = [](auto args) {
         RightRows().outer(args);
         if (args.c_rows != nullptr) std::swap(args.c_rows[0][0], args.c_rows[1][0]);
       };
     }},
    {"outer products of portable",
     [](Copy& c) {
       c.rows.outer = [](auto args) {
         kernels::OuterArgs first = args;
         first.b_first = 0;
         RightRows().outer(first);
       };
     }},
    {"outer products of portable",
     [](Copy& c) {
       c.rows.pack_rows = [](auto src, auto rows, auto columns, auto panel) {
         RightRows().pack_rows(src, src.dtype == DType::kBF16 ? rows - 1 : rows, columns, panel);
       };
     }},
    {"outer products of masked pairs of portable", [](Copy& c) { c.rows.outer_exact = RightRows().outer; }},
    {"two outer products at once of portable",
     [](Copy& c) {
       c.rows.outer_both = [](auto args, auto /*then*/) {
         RightRows().outer(args);
         RightRows().outer(args);
       };
     }},
};

TEST(ProvenIsa, EveryMistakeOfFloatsIsSeenAndNamed) {
  EXPECT_EQ(Copy().Disproof(), "");
  for (const Mistake& mistake : kMistakes) {
    Copy copy;
    mistake.make(copy);
    EXPECT_EQ(copy.Disproof(), mistake.seen_as);
  }
}

const Mistake kMistakesOfTiles[] = {
    {"product in one loop of bf16_32x32_amx_emulated",
     [](Copy& c) {
       c.strips[0].overlapped = [](auto product, auto softmax, auto scores) {
         RightTiles().overlapped(product, softmax, scores);
         if (softmax == nullptr) return;
         for (int lane = 16; lane < 32; ++lane) softmax->s[lane] = 1.0f;  // a second tile of lanes not there yet
       };
     }},
    {"scores in one loop of bf16_32x32_amx_emulated",
     [](Copy& c) {
       c.strips[0].overlapped = [](auto product, auto softmax, auto scores) {
         RightTiles().overlapped(product, softmax, scores);
         if (product != nullptr && softmax != nullptr && scores != nullptr) scores->s[0] += 1;  // all three at once
       };
     }},
    {"product of bf16_32x32_amx_emulated",
     [](Copy& c) {
       c.strips[0].product = [](auto v, auto keys, auto p, auto dv, auto alpha, auto o) {
         RightTiles().product(v, keys < 32 ? keys : 32, p, dv, alpha, o);  // forgets the keys after the first group
       };
     }},
    {"product of bf16_32x32_amx_emulated, from inside a group",
     [](Copy& c) {
       c.strips[0].product = [](auto v, auto keys, auto p, auto dv, auto alpha, auto o) {
         kernels::RowBlock rows = v;
         rows.skip = v.skip == 0 ? 0 : v.skip - 2;
         RightTiles().product(rows, keys, p, dv, alpha, o);
       };
     }},
    {"product of masked pairs of bf16_32x32_amx_emulated, from inside a group",
     [](Copy& c) {
       c.strips[0].product_exact = [](auto v, auto keys, auto p, auto dv, auto alpha, auto o) {
         RightTiles().product_exact(v, v.skip == 0 ? keys : keys - 1, p, dv, alpha, o);
       };
     }},
    {"product of bf16_32x32_amx_emulated",
     [](Copy& c) {
       c.strips[0].pair_keys = [](auto s, auto keys, auto pairs) {
         RightTiles().pair_keys(s, keys, pairs);
         if (keys % 2 != 0) pairs[keys / 2 * 32] = 0;  // forgets an odd last key
       };
     }},
    {"words of bf16_32x32_amx_emulated",
     [](Copy& c) {
       c.strips[0].unpair_keys = [](auto s, auto keys) {
         RightTiles().unpair_keys(s, keys);
         if (keys > 2) std::swap(s[0], s[32]);
       };
     }},
    {"words of bf16_32x16_amx_emulated",
     [](Copy& c) {
       c.strips[1].pair_keys = [](auto s, auto keys, auto pairs) {
         std::vector<float> cut(s, s + keys * 16);  // towards zero
         for (float& x : cut) x = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u);
         kernels::Kernels(Isa::kAmxEmulated, DType::kBF16).strips[1].pair_keys(cut.data(), keys, pairs);
       };
     }},
    {"outer products of amx_emulated",
     [](Copy& c) {
       c.rows.outer = [](auto args) {
         kernels::OuterArgs fewer = args;
         if (args.keys > 256) --fewer.keys;
         kernels::Kernels(Isa::kAmxEmulated, DType::kBF16).rows->outer(fewer);
       };
     }},
};

TEST(ProvenIsa, MistakesOfTilesAreSeen) {
  const KernelTable& tiles = kernels::Kernels(Isa::kAmxEmulated, DType::kBF16);
  EXPECT_EQ(Copy(tiles).Disproof(), "");
  for (const Mistake& mistake : kMistakesOfTiles) {
    Copy copy(tiles);
    mistake.make(copy);
    EXPECT_EQ(copy.Disproof(), mistake.seen_as);
  }
}

// Only some levels have these, none of them unproven.
TEST(ProvenIsa, MistakesOfFewRowsInOneLoopAreSeen) {
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa)) continue;
    static const StripKernels* right = nullptr;
    Copy copy(kernels::Kernels(isa));
    right = &copy.right.few[0];
    if (right->scores_beside != nullptr) {
      copy.few[0].scores_beside = [](auto k, auto keys, auto panel, auto d, auto s, auto row_max, auto product) {
        right->scores_beside(k, keys, panel, d, s, row_max, product);
        if (k.dtype == DType::kF16) product.o[0] += 1;
      };
      EXPECT_EQ(copy.Disproof(), "product of " + std::string(right->name) + ", of f16 in one loop");
    }
    if (right->attend != nullptr) {
      copy.few[0] = *right;
      copy.few[0].attend = [](auto args) {
        right->attend(args);
        if (args.k.rows != nullptr) args.o[args.dv - 1] = 1;
      };
      EXPECT_EQ(copy.Disproof(), "product by address of attending " + std::string(right->name));
    }
  }
}

TEST(ProvenIsa, MistakesOfIntegersAreSeen) {
  const Int8Table& right = kernels::Int8KernelsFor(Isa::kPortable);
  std::vector<Int8Kernels> strips(right.strips, right.strips + right.strip_count);
  Int8Table table = right;
  table.strips = strips.data();
  EXPECT_EQ(kernels::Disproof(table, right), "");
  strips[1].product = [](const uint32_t* v, int64_t v_stride, int64_t keys, const uint32_t* p, int64_t dv, int32_t* o) {
    const Int8Table& own = kernels::Int8KernelsFor(Isa::kPortable);
    own.strips[1].product(v, v_stride, keys, p, dv, o);
    ++o[dv];
  };
  EXPECT_EQ(kernels::Disproof(table, right), "integers of i8_4x4_portable");
  strips.assign(right.strips, right.strips + right.strip_count);
  table.pack_keys = [](auto rows, auto count, auto d, auto sign, auto k, auto start) {
    kernels::Int8KernelsFor(Isa::kPortable).pack_keys(rows, count, d, sign, k, start);
    if (sign > 0) ++start[count - 1];
  };
  EXPECT_EQ(kernels::Disproof(table, right), "integers of i8_4x8_portable");
  table.pack_keys = right.pack_keys;
  table.quantize = [](auto x, auto n, auto quantization, auto y) {
    kernels::Quantization one = quantization;
    one.per_column = false;
    kernels::Int8KernelsFor(Isa::kPortable).quantize(x, n, one, y);
  };
  EXPECT_EQ(kernels::Disproof(table, right), "quantized outputs of portable");
}

/// The same of the indexer.
struct IndexerMistake {
  const char* seen_as;
  void (*make)(IndexerKernels& kernels);
};
const IndexerKernels& RightIndexer() { return kernels::IndexerKernelsFor(Isa::kPortable); }

const IndexerMistake kMistakesOfTheIndexer[] = {
    {"selections of indexer_portable",
     [](IndexerKernels& k) { k.keys_up_to = [](auto /*keys*/, auto n, auto /*last*/) { return n; }; }},
    {"selections of indexer_portable",
     [](IndexerKernels& k) {
       k.order_scores = [](auto scores, auto n, auto keys) {
         RightIndexer().order_scores(scores, n, keys);
         for (int64_t i = 0; i < n; ++i) keys[i] = scores[i] == 0 && std::signbit(scores[i]) ? keys[i] + 1 : keys[i];
       };
     }},
    {"selections of indexer_portable",
     [](IndexerKernels& k) {
       k.bucket_keys = [](auto keys, auto n, auto buckets, auto bucket) {
         kernels::KeyBuckets more = buckets;
         ++more.last;
         RightIndexer().bucket_keys(keys, n, more, bucket);
       };
     }},
    {"sums of indexer_portable",
     [](IndexerKernels& k) {
       k.add_heads = [](auto s, auto heads, auto width, auto weight, auto /*accumulate*/, auto sum) {
         RightIndexer().add_heads(s, heads, width, weight, false, sum);
       };
     }},
    {"sums of indexer_portable",
     [](IndexerKernels& k) {
       k.sum_lanes = [](auto s, auto keys, auto width, auto heads, auto weight, auto relu, auto /*accumulate*/,
                        auto sum) { RightIndexer().sum_lanes(s, keys, width, heads, weight, relu, false, sum); };
     }},
    {"sums of indexer_portable",
     [](IndexerKernels& k) {
       k.sum_lanes = [](auto s, auto keys, auto width, auto heads, auto weight, auto /*relu*/, auto accumulate,
                        auto sum) { RightIndexer().sum_lanes(s, keys, width, heads, weight, true, accumulate, sum); };
     }},
    {"exponentials of indexer_portable",
     [](IndexerKernels& k) {
       k.probabilities = [](auto s, auto keys, auto width, auto factor, auto shift) {
         RightIndexer().probabilities(s, keys - 1, width, factor, shift);
       };
     }},
};

TEST(ProvenIsa, MistakesOfTheIndexerAreSeen) {
  EXPECT_EQ(kernels::Disproof(IndexerKernels(RightIndexer()), RightIndexer()), "");
  for (const IndexerMistake& mistake : kMistakesOfTheIndexer) {
    IndexerKernels table = RightIndexer();
    mistake.make(table);
    EXPECT_EQ(kernels::Disproof(table, RightIndexer()), mistake.seen_as);
  }
}

// A processor family of two levels above portable, of which the second multiplies wrongly.
constexpr Isa kLower = Isa::kNeon, kUpper = Isa::kNeonDotprod;

const Int8Table& WrongAbove(Isa isa) {
  static const std::vector<Int8Table> tables = [] {
    static std::vector<Int8Kernels> wrong;
    const Int8Table& right = kernels::Int8KernelsFor(Isa::kPortable);
    wrong.assign(right.strips, right.strips + right.strip_count);
    for (Int8Kernels& strip : wrong) {
      strip.scores = [](const uint32_t* /*k*/, const int32_t* /*start*/, int64_t keys, int64_t /*words*/,
                        const uint32_t* /*panel*/, float* s, float* /*row_max*/) { s[keys] = 1; };
    }
    std::vector<Int8Table> made(3, right);
    made[1].isa = kLower;
    made[2].isa = kUpper;
    made[2].strips = wrong.data();
    return made;
  }();
  return tables[Includes(isa, kUpper) ? 2 : Includes(isa, kLower) ? 1 : 0];
}
const KernelTable& Portable(Isa /*isa*/, DType /*dtype*/) { return kernels::Kernels(Isa::kPortable); }
const IndexerKernels& PortableIndexer(Isa /*isa*/) { return kernels::IndexerKernelsFor(Isa::kPortable); }

ProvenIsa ProveWrong(Isa wanted, bool (*unproven)(Isa)) {
  return Prove(wanted, {.floats = Portable, .int8 = WrongAbove, .indexer = PortableIndexer, .unproven = unproven});
}

TEST(ProvenIsa, AWrongLevelFallsBackToTheOneBelowIt) {
  const ProvenIsa proven = ProveWrong(Isa::kNeonBf16, Every);
  EXPECT_EQ(proven.isa, kLower);
  EXPECT_EQ(proven.note, "neon_dotprod, for its integers of i8_4x8_portable are wrong on this CPU; neon is used");
  EXPECT_EQ(ProveWrong(kLower, Every).note, "");
}

TEST(ProvenIsa, AWrongTileUnitFallsBackToTheLevelBelow) {
  const auto floats = [](Isa isa, DType dtype) -> const KernelTable& {
    static std::vector<StripKernels> strips;
    static const KernelTable wrong = [] {
      KernelTable table = kernels::Kernels(Isa::kAmxEmulated, DType::kBF16);
      strips.assign(table.strips, table.strips + table.strip_count);
      strips[1].pair_lanes = [](const float* /*s*/, int64_t /*keys*/, float* /*rounded*/) {};
      table.isa = Isa::kAvx512Amx;
      table.strips = strips.data();
      return table;
    }();
    return isa == Isa::kAvx512Amx && dtype == DType::kBF16 ? wrong : kernels::Kernels(Isa::kPortable);
  };
  const ProvenIsa proven =
      Prove(Isa::kAvx512Amx, {.floats = floats,
                              .int8 = [](Isa) -> const Int8Table& { return kernels::Int8KernelsFor(Isa::kPortable); },
                              .indexer = PortableIndexer,
                              .unproven = IsUnproven});
  EXPECT_EQ(proven.isa, Isa::kAvx512Bf16);
  EXPECT_EQ(proven.note, "avx512_amx, for its outer products of avx512_amx are wrong on this CPU; avx512_bf16 is used");
}

TEST(ProvenIsa, ALevelThatIsProvenIsNotTried) {
  EXPECT_EQ(ProveWrong(Isa::kNeonBf16, [](Isa) { return false; }).isa, Isa::kNeonBf16);
}

TEST(ProvenIsa, OnlyLevelsThatNeverRanAreUnproven) {
  for (const Isa isa : AllIsas()) {
    const bool tiles = isa == Isa::kAvx512Amx || isa == Isa::kAmxEmulated;
    EXPECT_EQ(IsUnproven(isa), tiles || Includes(isa, Isa::kNeon)) << Name(isa);
  }
}

TEST(ProvenIsa, ContextAndPlanSayWhatFellBack) {
  const ProvenIsa proven = ProveWrong(kUpper, Every);
  const auto context = Context::Impl::ToContext(std::make_unique<Context::Impl>(
      ContextSettings{.workers = 1, .isa = Isa::kPortable, .isa_note = proven.note}, Topology::Detect()));
  EXPECT_EQ(context->isa_note(), proven.note);
  EXPECT_THAT(context->Describe(), HasSubstr("\nisa not used: neon_dotprod, for its integers of "));
  float nothing = 0;
  AttentionArgs args;
  args.q = args.k = args.v = args.out = MutableTensorView{&nothing, DType::kF32, {1, 1, 1, 1}, {}};
  const auto plan = PlanFlashAttention(args, {}, context.get());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_THAT(plan->Describe(), HasSubstr("\nisa not used: neon_dotprod, for its integers of "));
}

TEST(ProvenIsa, ThisProcessHasNothingToSayOfItsLevels) {
  testing::internal::CaptureStderr();
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa)) continue;
    EXPECT_EQ(ProvenLevel(isa).isa, isa);
    EXPECT_EQ(&ProvenLevel(isa), &ProvenLevel(isa));  // tried once
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(ProvenIsa, TheCallersRoundingIsNoProofOfAnything) {
  for (const test::FpControl& control : test::kFpControls) {
    ProvenIsa proven;
    {
      const test::CallersFpControl callers(control);
      proven = Prove(DetectIsa(), {.unproven = Every});
    }
    EXPECT_EQ(proven.note, "") << control.name;
  }
}

}  // namespace
}  // namespace fa::core
