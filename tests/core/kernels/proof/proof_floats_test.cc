// The proof sees every kind of wrong float kernel and names it.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/integer.h"
#include "core/kernels/proof/proof.h"
#include "core/kernels/proof/spoiled.h"
#include "fa/context.h"

namespace fa::core {
namespace {

using kernels::RowKernels;
using kernels::StripKernels;

const StripKernels& RightStrip() { return kernels::Kernels(Isa::kPortable).strips[0]; }
const RowKernels& RightRows() { return *kernels::Kernels(Isa::kPortable).rows; }
const StripKernels& RightFew(int i) { return kernels::Kernels(Isa::kPortable).few[i]; }

const Mistake kMistakes[] = {
    {"scores of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].scores = [](auto k, auto keys, auto panel, auto d, auto accumulate, auto s, auto row_max) {
         RightStrip().scores(k, keys, panel, d - 1, accumulate, s, row_max);  // forgets the tail of the depth
       };
     }},
    {"scores of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].scores = [](auto k, auto keys, auto panel, auto d, auto accumulate, auto s, auto row_max) {
         RightStrip().scores(k, keys, panel, d, accumulate, s, row_max);
         if (keys == 9) s[8 * 8] = 0;  // wrong for one tail only
       };
     }},
    {"scores of f32_6x8_portable, in two parts of the depth",
     [](Spoiled& c) {
       c.strips[0].scores = [](auto k, auto keys, auto panel, auto d, auto /*accumulate*/, auto s, auto row_max) {
         RightStrip().scores(k, keys, panel, d, false, s, row_max);
       };
     }},
    {"scores of f32_6x8_portable, fetching ahead",
     [](Spoiled& c) {
       c.strips[0].scores = [](auto k, auto keys, auto panel, auto d, auto accumulate, auto s, auto row_max) {
         RightStrip().scores(k, keys, panel, k.fetch_ahead != 0 ? d / 8 * 8 : d, accumulate, s, row_max);
       };
     }},
    {"product of f32_6x8_portable, fetching from a list",
     [](Spoiled& c) {
       c.strips[0].product = [](auto v, auto keys, auto p, auto dv, auto alpha, auto o) {
         RightStrip().product(v, v.fetch != nullptr ? keys / 8 * 8 : keys, p, dv, alpha, o);
       };
     }},
    {"scores of f32_6x8_portable, of fewer queries",
     [](Spoiled& c) {
       c.strips[0].pack_queries = [](auto rows, auto d, auto multiplier, auto panel) {
         RightStrip().pack_queries(rows, d, multiplier, panel);
         for (int64_t lane = rows.count; lane < 8; ++lane) panel[lane] = 1;
       };
     }},
    {"scores of f32_6x8_portable, with a scale of 0",
     [](Spoiled& c) {
       c.strips[0].pack_queries = [](auto rows, auto d, auto multiplier, auto panel) {
         RightStrip().pack_queries(rows, d, multiplier == 0 ? 1 : multiplier, panel);
       };
     }},
    {"scores of few_2_portable",
     [](Spoiled& c) {
       c.few[1].scores = [](auto k, auto keys, auto panel, auto d, auto accumulate, auto s, auto row_max) {
         RightFew(1).scores(k, keys, panel, d, accumulate, s, row_max);
         s[0] = -s[0];
       };
     }},
    {"scores of few_1_portable, of bf16",
     [](Spoiled& c) {
       c.few[0].scores = [](auto k, auto keys, auto panel, auto d, auto accumulate, auto s, auto row_max) {
         RightFew(0).scores(k, keys, panel, k.dtype == DType::kBF16 ? d - 1 : d, accumulate, s, row_max);
       };
     }},
    {"scores of few_2_portable, of bf16 queries and f32",
     [](Spoiled& c) {
       c.few[1].pack_queries = [](auto rows, auto d, auto multiplier, auto panel) {
         RightFew(1).pack_queries(rows, d, multiplier, panel);
         if (rows.dtype == DType::kBF16) std::swap(panel[0], panel[1]);  // packs f32 rows in the order of bf16 rows
       };
       // Scores of bf16 rows stay right.
       c.few[1].scores = [](auto k, auto keys, auto panel, auto d, auto accumulate, auto s, auto row_max) {
         kernels::RowBlock rows = k;
         std::vector<float> swapped(panel, panel + d * 4);
         if (rows.dtype == DType::kBF16) std::swap(swapped[0], swapped[1]);
         RightFew(1).scores(rows, keys, swapped.data(), d, accumulate, s, row_max);
       };
     }},
    {"product of few_4_portable, of f16",
     [](Spoiled& c) {
       c.few[2].product = [](auto v, auto keys, auto p, auto dv, auto alpha, auto o) {
         RightFew(2).product(v, v.dtype == DType::kF16 ? keys - 1 : keys, p, dv, alpha, o);
       };
     }},
    {"product of few_4_portable, of bf16 by address",
     [](Spoiled& c) {
       c.few[2].product = [](auto v, auto keys, auto p, auto dv, auto alpha, auto o) {
         RightFew(2).product(v, keys, p, dv, alpha, o);
         if (v.dtype == DType::kBF16 && v.rows != nullptr) o[dv] = 0;
       };
     }},
    {"product of f32_6x8_row_state_portable",
     [](Spoiled& c) {
       c.row_state[0].product = [](auto v, auto keys, auto p, auto dv, auto alpha, auto o) {
         kernels::Kernels(Isa::kPortable).row_state[0].product(v, keys, p, dv, alpha, o);
         o[dv - 1] = __builtin_nanf("");
       };
     }},
    {"product of masked pairs of f32_6x8_portable",
     [](Spoiled& c) { c.strips[0].product_exact = RightStrip().product; }},
    {"product of masked pairs of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].product_exact = [](auto v, auto keys, auto p, auto dv, auto /*alpha*/, auto o) {
         RightStrip().product_exact(v, keys, p, dv, nullptr, o);
       };
     }},
    {"sum of states of few_1_portable",
     [](Spoiled& c) {
       c.few[0].add_state = [](auto from, auto from_weight, auto /*own_weight*/, auto dv, auto o) {
         RightFew(0).add_state(from, from_weight, from_weight, dv, o);
       };
     }},
    {"output of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].write_output = [](auto o, auto dv, auto multiplier, auto /*zero*/, auto rows, auto dtype,
                                     auto count) {
         constexpr int32_t kNone[8] = {};
         RightStrip().write_output(o, dv, multiplier, kNone, rows, dtype, count);
       };
     }},
    {"output in bf16 of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].write_output = [](auto o, auto dv, auto multiplier, auto zero, auto rows, auto dtype, auto count) {
         RightStrip().write_output(o, dv, multiplier, zero, rows, dtype, count);
         if (dtype == DType::kBF16 && dv % 4 != 0) static_cast<uint16_t*>(rows[0])[dv] = 0;  // past the row's end
       };
     }},
    {"softmax of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].softmax = [](auto s, auto keys, auto factor, auto block_max, auto row_max, auto row_sum,
                                auto alpha) {
         RightStrip().softmax(s, keys, factor, block_max, row_max, row_sum, alpha);
         row_sum[7] *= 1.0001f;
       };
     }},
    {"softmax of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].softmax = [](auto s, auto keys, auto factor, auto block_max, auto row_max, auto row_sum,
                                auto alpha) {
         const bool none = row_max[4] == kernels::kMaskedScore && block_max[4] == kernels::kMaskedScore;
         RightStrip().softmax(s, keys, factor, block_max, row_max, row_sum, alpha);
         if (none) row_sum[4] = __builtin_nanf("");  // -inf minus -inf
       };
     }},
    {"product with dropout of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].softmax_dropout = [](auto x, auto /*keep*/) {
         RightStrip().softmax(x.s, x.keys, x.factor, x.block_max, x.row_max, x.row_sum, x.alpha);
       };
     }},
    {"product with dropout of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].softmax_dropout = [](auto x, auto keep) {
         std::vector<uint32_t> words(keep.words, keep.words + CeilDiv(x.keys, kernels::kKeepBits) * 8);
         if (x.keys > 64) words[16] = ~words[16];  // wrong from key 64 on
         RightStrip().softmax_dropout(x, {words.data(), keep.multiplier});
       };
     }},
    {"softmax with dropout of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].softmax_dropout = [](auto x, auto keep) {
         RightStrip().softmax_dropout(x, keep);
         x.row_sum[0] *= keep.multiplier;  // the sum must not have the factor of dropout
       };
     }},
    {"softcap of f32_12x4_portable",
     [](Spoiled& c) {
       c.strips[1].scale_scores = [](auto s, auto keys, auto scale, auto /*softcap*/, auto row_max) {
         kernels::Kernels(Isa::kPortable).strips[1].scale_scores(s, keys, scale, 0, row_max);
       };
     }},
    {"softcap of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].scale_scores = [](auto s, auto keys, auto scale, auto softcap, auto row_max) {
         RightStrip().scale_scores(s, keys, scale, softcap, row_max);
         if (scale == 10) s[9] *= 1.0001f;  // wrong where only large scores take the exponential
       };
     }},
    {"bias of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].add_bias = [](auto s, auto keys, auto pre, auto post, auto bias, auto row_max) {
         RightStrip().add_bias(s, keys, pre, post, bias, row_max);
         const auto* rows = reinterpret_cast<const char* const*>(bias.rows);
         if (rows[1] - rows[0] == 2048 && keys >= 64) s[63 * 8] += 1;
       };
     }},
    {"bias of bf16 of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].add_bias = [](auto s, auto keys, auto pre, auto post, auto bias, auto row_max) {
         RightStrip().add_bias(s, keys, pre, post, bias, row_max);
         if (bias.dtype == DType::kBF16) std::swap(s[0], s[8]);  // swaps the halves of a word
       };
     }},
    {"mask of bytes of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].mask_bytes = [](auto s, auto keys, auto drop, auto fill, auto row_max) {
         const float kept = s[42 * 8 + 3];
         const bool any = RightStrip().mask_bytes(s, keys, drop, fill, row_max);
         s[42 * 8 + 3] = kept;
         return any;
       };
     }},
    {"mask of bytes of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].mask_bytes = [](auto s, auto keys, auto drop, auto fill, auto row_max) {
         RightStrip().mask_bytes(s, keys, drop, fill, row_max);
         return true;
       };
     }},
    {"softmax with dropout of the backward of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].backward_softmax_dropout = [](auto s, auto dp, auto keys, auto factor, auto shift, auto delta,
                                                 auto keep) {
         std::vector<uint32_t> words(keep.words, keep.words + CeilDiv(keys, kernels::kKeepBits) * 8);
         words[8] = words[0];  // wrong word for the keys from 32 on
         RightStrip().backward_softmax_dropout(s, dp, keys, factor, shift, delta, {words.data(), keep.multiplier});
       };
     }},
    {"softmax of the backward of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].backward_softmax = [](auto s, auto dp, auto keys, auto factor, auto shift, auto delta) {
         for (int64_t i = 0; i < keys * 8; ++i) s[i] = s[i] == kernels::kMaskedScore ? 0 : s[i];
         RightStrip().backward_softmax(s, dp, keys, factor, shift, delta);
       };
     }},
    {"gradient of the bias of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].bias_gradient = [](auto ds, auto keys, auto multiplier, auto /*accumulate*/, auto rows, auto dtype,
                                      auto count) {
         RightStrip().bias_gradient(ds, keys, multiplier, false, rows, dtype, count);
       };
     }},
    {"gradient of a bias in bf16 of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].bias_gradient = [](auto ds, auto keys, auto multiplier, auto accumulate, auto rows, auto dtype,
                                      auto count) {
         RightStrip().bias_gradient(ds, keys, multiplier, accumulate, rows, dtype, count);
         if (dtype == DType::kBF16) ++static_cast<uint16_t*>(rows[0])[keys - 1];
       };
     }},
    {"gradient of slopes of f32_6x8_portable",
     [](Spoiled& c) {
       c.strips[0].slope_gradient = [](auto ds, auto keys, auto distance, auto /*square_root*/, auto sum) {
         RightStrip().slope_gradient(ds, keys, distance, true, sum);
       };
     }},
    {"exponentials of portable",
     [](Spoiled& c) {
       c.rows.exp2 = [](auto x, auto n, auto y) {
         RightRows().exp2(x, n, y);
         for (int64_t i = 0; i < n; ++i) y[i] *= 1 + 1e-5f;
       };
     }},
    {"conversions of portable",
     [](Spoiled& c) {
       c.rows.narrow = [](auto src, auto stride, auto rows, auto columns, auto multiplier, auto dst) {
         RightRows().narrow(src, stride, rows, columns, multiplier * (1 + 0x1p-7f), dst);
       };
     }},
    {"conversions of portable",
     [](Spoiled& c) {
       c.rows.widen = [](auto src, auto rows, auto columns, auto dst, auto dst_stride) {
         RightRows().widen(src, rows, columns, dst, dst_stride);
         if (rows > 1 && src.dtype == DType::kF16) dst[dst_stride] = 0;
       };
     }},
    {"numbers of int8 of portable",
     [](Spoiled& c) {
       c.rows.dequantize = [](auto src, auto rows, auto columns, auto by, auto dst, auto dst_stride) {
         RightRows().dequantize(src, rows, columns, {by.scale, by.offset, 1}, dst, dst_stride);  // never per column
       };
     }},
    {"row kernels of portable", [](Spoiled& c) { c.rows.all_finite = [](auto, auto, auto) { return true; }; }},
    {"row kernels of portable",
     [](Spoiled& c) {
       c.rows.dot = [](auto a, auto a_type, auto b, auto b_type, auto n) {
         return RightRows().dot(a, a_type, b, b_type, a_type == DType::kF16 && n == 3 ? 2 : n);
       };
     }},
    {"outer products of portable",
     [](Spoiled& c) {
       c.rows.outer = [](auto args) {
         kernels::OuterArgs fewer = args;
         --fewer.rows;
         RightRows().outer(fewer);
       };
     }},
    {"outer products of portable",
     [](Spoiled& c) {
       c.rows.outer = [](auto args) {
         kernels::OuterArgs from_zero = args;
         from_zero.accumulate = true;
         RightRows().outer(from_zero);
       };
     }},
    {"outer products of portable",
     [](Spoiled& c) {
       c.rows.outer = [](auto args) {
         RightRows().outer(args);
         if (args.c_rows != nullptr) std::swap(args.c_rows[0][0], args.c_rows[1][0]);
       };
     }},
    {"outer products of portable",
     [](Spoiled& c) {
       c.rows.outer = [](auto args) {
         kernels::OuterArgs first = args;
         first.b_first = 0;
         RightRows().outer(first);
       };
     }},
    {"outer products of portable",
     [](Spoiled& c) {
       c.rows.pack_rows = [](auto src, auto rows, auto columns, auto panel) {
         RightRows().pack_rows(src, src.dtype == DType::kBF16 ? rows - 1 : rows, columns, panel);
       };
     }},
    {"outer products of masked pairs of portable", [](Spoiled& c) { c.rows.outer_exact = RightRows().outer; }},
    {"two outer products at once of portable",
     [](Spoiled& c) {
       c.rows.outer_both = [](auto args, auto /*then*/) {
         RightRows().outer(args);
         RightRows().outer(args);
       };
     }},
};

TEST(Proof, EveryMistakeOfFloatsIsSeenAndNamed) {
  EXPECT_EQ(Spoiled().Disproof(), "");
  for (const Mistake& mistake : kMistakes) {
    Spoiled copy;
    mistake.make(copy);
    EXPECT_EQ(copy.Disproof(), mistake.seen_as);
  }
}

// Only some levels have kernels of few rows in one loop, and their portable proof does not cover them.
TEST(Proof, MistakesOfFewRowsInOneLoopAreSeen) {
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa)) continue;
    static const StripKernels* right = nullptr;
    Spoiled copy(kernels::Kernels(isa));
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
      static int64_t wrong_d = 0;
      for (const int64_t d : {64, 96, 128, 256}) {
        wrong_d = d;
        copy.few[0].attend = [](auto args) {
          right->attend(args);
          if (args.d == wrong_d && args.dv >= args.d) args.o[args.dv - 1] = 1;
        };
        EXPECT_EQ(copy.Disproof(), "product of attending " + std::string(right->name)) << d;
      }
    }
  }
}

}  // namespace
}  // namespace fa::core
