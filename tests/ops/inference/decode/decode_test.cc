// Compares decode attention with the reference in double: forms of keys, pages, lengths, int8, masks and biases.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "ops/inference/decode/decode_case.h"
#include "ops/inference/strided_scales.h"
#include "support/execution/contexts.h"
#include "support/flipping_words.h"

namespace fa::test {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr KeyForm kForms[] = {KeyForm::kOneTensor, KeyForm::kList, KeyForm::kPages, KeyForm::kPagesOfHeads};
constexpr Layout kLayouts[] = {Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kBNSD_BSND};

bool HeadsInOneDimension(Layout layout) { return layout == Layout::kBSH || layout == Layout::kSBH; }

void Check(const DecodeCase& c) { EXPECT_TRUE(RunsLikeTheReference(c)); }

TEST(Decode, EveryFormOfKeysInEveryLayoutAndType) {
  for (const KeyForm form : kForms) {
    for (const Layout layout : kLayouts) {
      if (form == KeyForm::kPagesOfHeads && HeadsInOneDimension(layout)) continue;
      for (const DType dtype : kDTypes) {
        DecodeCase c = MakeDecodeCase(6, 2, 1, {600, 0, 37, 1}, dtype);
        c.dense.layout = layout;
        c.dense.dv = 40;
        c.keys = form;
        c.spare_k = 9;
        Check(c);
      }
    }
  }
}

// Tests groups of 1 to 24 query rows. Few rows and many rows have different kernels. In the largest groups a head has
// several tiles, which share its packed keys.
TEST(Decode, EveryNumberOfRowsOfAGroup) {
  int n = 0;
  for (const int64_t group : {1, 2, 5, 8, 24}) {
    for (const int64_t sq : {1, 3, 16, 17}) {
      DecodeCase c = MakeDecodeCase(group, 1, sq, {530 + n, 40}, kDTypes[n % 3]);
      c.keys = kForms[n % 4];
      c.page_rows = 1 + n % 20;
      ++n;
      Check(c);
    }
  }
}

TEST(Decode, PagesOfEverySize) {
  for (const int64_t page_rows : {1, 2, 3, 7, 8, 16, 31, 32, 33, 100, 128, 2000}) {
    for (const int64_t sk : {page_rows, page_rows + 1, int64_t{1030}}) {
      DecodeCase c = MakeDecodeCase(4, 2, 1, {sk, 1}, kDTypes[sk % 3]);
      c.keys = sk % 2 == 0 ? KeyForm::kPages : KeyForm::kPagesOfHeads;
      c.page_rows = page_rows;
      Check(c);
    }
  }
}

// Some kernel tables have a function `attend`, which processes ranges of keys that all rows see. Other kernels process
// the remaining keys. Some counts of keys are not a multiple of the step of `attend`, others not a multiple of the
// plan's block of keys.
TEST(Decode, KeysOfEveryCountInRowsOfEveryType) {
  for (const DType dtype : kDTypes) {
    for (const int64_t d : {32, 64, 128, 256}) {
      for (const int64_t group : {1, 2, 3, 4, 8}) {
        for (const int64_t sk : {1, 7, 31, 33, 160, 203, 512, 513, 1100}) {
          for (const int64_t sq : {1, 2}) {
            DecodeCase c = MakeDecodeCase(group, 1, sq, {sk}, dtype);
            c.dense.d = c.dense.dv = d;
            if (sq > 1) c.dense.mask = {.mode = 3};
            c.keys = kForms[(sk + group) % 4];
            c.page_rows = 50;
            Check(c);
          }
        }
      }
    }
  }
}

TEST(Decode, EveryHeadSize) {
  for (const int64_t d : {1, 5, 16, 31, 64, 72, 128, 576}) {
    for (const Quantization quantization : {Quantization::kNone, Quantization::kPerChannel}) {
      DecodeCase c = MakeDecodeCase(4, 2, 1, {90}, kDTypes[d % 3]);
      c.dense.d = c.dense.dv = d;
      c.keys = KeyForm::kPages;
      c.quantization = quantization;
      Check(c);
    }
  }
}

TEST(Decode, SplitHeadsInEveryFormOfKeys) {
  int n = 0;
  for (const KeyForm form : kForms) {
    for (const Layout layout : kLayouts) {
      if (form == KeyForm::kPagesOfHeads && HeadsInOneDimension(layout)) continue;
      for (const int64_t sq : {1, 5, 17}) {
        DecodeCase c = MakeDecodeCase(8, 2, sq, {600, 0, 37, 1}, kDTypes[n % 3]);
        c.dense.layout = layout;
        c.dense.d_rope = std::array{8, 1, 20}[n % 3];
        c.dense.dv = 40;
        c.keys = form;
        c.page_rows = std::array{16, 7, 128, 33}[n++ % 4];
        c.spare_k = 9;
        Check(c);
      }
    }
  }
}

// All query heads share one KV head, as in models with latent attention. A page has 512 + 64 columns.
TEST(Decode, SplitHeadsOfLatentAttention) {
  for (const DType dtype : kDTypes) {
    DecodeCase c = MakeDecodeCase(32, 1, 1, {700, 129}, dtype);
    c.dense.d = c.dense.dv = 512;
    c.dense.d_rope = 64;
    c.keys = KeyForm::kPages;
    c.page_rows = 128;
    Check(c);
  }
}

// Returns packed sequences of few and of many rows, also without rows and without keys.
DecodeCase Packed(DType dtype, int64_t n) {
  DecodeCase c = MakeDecodeCase(4, 2, 1, {600, 70, 200, 0, 37, 333}, dtype);
  c.dense.layout = Layout::kTND;
  c.dense.lengths.sq = {1, 70, 0, 3, 37, 20};
  c.keys = n % 2 == 0 ? KeyForm::kPages : KeyForm::kPagesOfHeads;
  c.page_rows = std::array{16, 7, 128, 33}[n % 4];
  c.spare_q = n % 3;
  return c;
}

TEST(Decode, PackedQueriesOverPages) {
  int n = 0;
  for (const DType dtype : kDTypes) {
    for (const int mode : {1, 2, 3, 4}) {
      DecodeCase c = Packed(dtype, n++);
      c.dense.mask = {.mode = mode, .pre = 50, .next = mode == 4 ? -3 : 0};
      c.dense.sink = n % 2 == 0;
      Check(c);
      c.dense.softcap = 2;
      c.dense.d_rope = n % 2 == 0 ? 8 : 0;
      Check(c);
    }
  }
}

TEST(Decode, PackedQueriesWithMasksAndBiases) {
  for (const DType dtype : kDTypes) {
    for (const MaskForm form : {MaskForm::kPlane, MaskForm::kNone}) {
      DecodeCase c = Packed(dtype, 0);
      c.spare_k = 3;
      c.dense.dense_mask = form;
      Check(c);
      c.dense.mask = {.mode = 3};
      Check(c);
    }
  }
}

TEST(Decode, PackedQueriesWithCompressedKeysAndOutputs) {
  int n = 0;
  for (const Quantization quantization : {Quantization::kPerChannel, Quantization::kPerToken, Quantization::kPerHead}) {
    DecodeCase c = Packed(kDTypes[n % 3], n);
    ++n;
    c.quantization = quantization;
    c.combined = quantization != Quantization::kPerHead;
    Check(c);
    c.quantization = Quantization::kNone;
    c.int8_out =
        OutputScaleForm{.scale = 20, .offset = 0, .per_column = true, .heads_by_columns = false, .with_offset = false};
    Check(c);
  }
}

TEST(Decode, Int8KeysOfEveryFormAndQuantization) {
  for (const Quantization quantization :
       {Quantization::kPerTensor, Quantization::kPerChannel, Quantization::kPerToken, Quantization::kPerTokenAndHead}) {
    int n = 0;
    for (const KeyForm form : kForms) {
      for (const DType dtype : kDTypes) {
        DecodeCase c = MakeDecodeCase(4, 2, 1, {700, 3, 0, 65}, dtype);
        c.keys = form;
        c.quantization = quantization;
        c.antiquant_offset = n % 2 == 0;
        c.antiquant_dtype = kDTypes[n % 3];
        c.spare_k = n % 4;
        ++n;
        Check(c);
        c.dense.lengths.sq.assign(4, 7);  // enough rows for the kernels for many rows
        c.dense.heads = 6;
        Check(c);
      }
    }
  }
}

TEST(Decode, LengthsOfQueriesLeaveTheOtherRowsZero) {
  for (const KeyForm form : kForms) {
    DecodeCase c = MakeDecodeCase(4, 2, 5, {70, 20, 600, 0});
    c.dense.lengths.sq = {5, 0, 2, 1};
    c.spare_q = 2;
    c.keys = form;
    Check(c);
  }
}

TEST(Decode, MasksCountFromTheLengthsInUse) {
  for (const KeyForm form : kForms) {
    for (const int64_t sq : {1, 4, 20}) {
      for (const int mode : {1, 2, 3, 4}) {
        DecodeCase c = MakeDecodeCase(4, 2, sq, {900, 13, 120});
        c.keys = form;
        c.spare_k = 11;
        c.dense.mask.mode = mode;
        c.dense.mask.pre = 100;
        c.dense.mask.next = mode == 4 ? -3 : 0;
        Check(c);
      }
    }
  }
}

TEST(Decode, DenseMasksOfEveryShape) {
  for (const KeyForm form : {KeyForm::kOneTensor, KeyForm::kPages}) {
    for (const int64_t sq : {1, 3}) {
      for (const int rank : {2, 3, 4}) {
        if (rank == 2 && sq != 1) continue;
        DecodeCase c = MakeDecodeCase(4, 2, sq, {300, 40});
        c.keys = form;
        c.spare_k = 5;
        c.mask_rank = rank;
        c.dense.dense_mask = MaskForm::kPerBatch;
        Check(c);
        c.dense.dense_mask = MaskForm::kPerHead;
        c.mask_rank = 4;
        Check(c);
      }
    }
  }
}

TEST(Decode, BiasesAreAddedAfterTheScale) {
  for (const PseForm form : {PseForm::kFull, PseForm::kRow}) {
    for (const DType dtype : kDTypes) {
      for (const bool f32 : {false, true}) {
        DecodeCase c = MakeDecodeCase(4, 2, 2, {300, 300}, dtype);
        c.keys = f32 ? KeyForm::kPages : KeyForm::kList;
        c.dense.pse = form;
        c.dense.pse_f32 = f32;
        c.dense.pse_type = reference::PseType::kScaleThenAdd;
        c.dense.scale = 0.7f;
        c.spare_k = 4;
        Check(c);
        c.dense.pse_broadcast_batch = true;
        Check(c);
      }
    }
  }
}

TEST(Decode, SoftcapAndScale) {
  DecodeCase c = MakeDecodeCase(4, 2, 1, {300, 20});
  c.keys = KeyForm::kPages;
  c.dense.softcap = 3;
  Check(c);
  c.dense.scale = -0.4f;
  Check(c);
}

// The results for parts of the keys are merged before the sink is added, so that it counts once. A sequence without
// keys has only its sink.
TEST(Decode, SinksAreCountedOnce) {
  for (const KeyForm form : kForms) {
    for (const int64_t sq : {1, 20}) {
      DecodeCase c = MakeDecodeCase(6, 2, sq, {2000, 37, 0});
      c.keys = form;
      c.dense.sink = true;
      c.dense.mask = {.mode = 4, .pre = 30, .next = -3};
      Check(c);
    }
  }
}

TEST(Decode, InfiniteSinksTakeEverythingOrNothing) {
  for (const KeyForm form : kForms) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const int64_t sq : {1, 5, 20}) {
        DecodeCase c = MakeDecodeCase(4, 2, sq, {2000, 37, 0}, dtype);
        c.keys = form;
        c.dense.sink = true;
        reference::Problem values = MakeReferenceProblem(c.dense);
        values.sink[1] = INFINITY;
        values.sink[2] = -INFINITY;
        EXPECT_TRUE(RunsLikeTheReference(DecodeProblem(c, values))) << c;
      }
    }
  }
}

TEST(Decode, OneKeyOfAllHasItsValue) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t sq : {1, 2, 8, 20}) {
      for (const KeyForm form : kForms) {
        DecodeCase c = MakeDecodeCase(4, 2, sq, {1, 1500}, dtype);
        c.keys = form;
        c.dense.mask = {.mode = 4, .pre = 0, .next = 0};  // only the last row of the first sequence has a key
        const DecodeProblem problem(c);
        const reference::Problem& p = problem.values();
        for (const Isa isa : IsaLevels()) {
          const ForwardOutputs got = OutputsOf(problem, ContextOf(isa));
          for (int64_t n = 0; n < 4; ++n) {
            for (int64_t row = 0; row < sq; ++row) {
              const double* v = &p.v[p.KeyRow(1, n / 2, 1500 - sq + row, p.dv)];
              for (int64_t x = 0; x < p.dv; ++x) {
                ASSERT_EQ(got.out[p.QueryRow(1, n, row, p.dv) + x], v[x]) << Name(isa) << " " << c;
              }
            }
            const double* v = &p.v[p.KeyRow(0, n / 2, 0, p.dv)];
            for (int64_t x = 0; x < p.dv; ++x) {
              ASSERT_EQ(got.out[p.QueryRow(0, n, sq - 1, p.dv) + x], v[x]) << Name(isa) << " " << c;
            }
          }
        }
      }
    }
  }
}

TEST(DecodeLengths, OneEntryStandsForAllAndNoneForWholeTensors) {
  DecodeCase c = MakeDecodeCase(2, 1, 1, {33, 33, 33});
  const ForwardOutputs want = OutputsOf(c, nullptr);
  const DecodeProblem problem(c);
  DecodeAttentionArgs args = problem.args();
  args.lengths_kv = args.lengths_q = {};
  ASSERT_TRUE(DecodeAttention(args, problem.options()).ok());
  EXPECT_TRUE(SameBits(problem.Outputs(), want));
  c.spare_k = 8;
  const DecodeProblem longer(c);
  args = longer.args();
  const int64_t length = 33;
  args.lengths_kv = {&length, 1};
  ASSERT_TRUE(DecodeAttention(args, longer.options()).ok());
  EXPECT_TRUE(SameBits(longer.Outputs(), want));
}

TEST(DecodeInt8Output, IsTheFloatOutputRounded) {
  for (const KeyForm form : {KeyForm::kList, KeyForm::kPages}) {
    for (const bool per_column : {false, true}) {
      for (const bool with_offset : {false, true}) {
        DecodeCase c = MakeDecodeCase(4, 2, 1, {600, 70});
        c.keys = form;
        const DecodeProblem problem(c);
        const std::vector<double> want = OutputsOf(c, nullptr).out;
        std::vector<float> scale, offset;
        for (int i = 0; i < (per_column ? 4 * 24 : 1); ++i) {
          scale.push_back(100.0F + static_cast<float>(7 * i % 90));
          offset.push_back(static_cast<float>(i % 31) - 11.5F);
        }
        const Dims shape{static_cast<int64_t>(scale.size())};
        std::vector<int8_t> out(want.size());
        DecodeAttentionArgs args = problem.args();
        args.quant_scale2 = {scale.data(), DType::kF32, shape, {}};
        if (with_offset) args.quant_offset2 = {offset.data(), DType::kF32, shape, {}};
        args.out = {out.data(), DType::kI8, {2, 4, 1, 24}, {}};
        const Status status = DecodeAttention(args, problem.options());
        ASSERT_TRUE(status.ok()) << status.message();
        for (size_t i = 0; i < out.size(); ++i) {
          const size_t at = per_column ? i % (4 * 24) : 0;
          const double exact =
              want[i] * static_cast<double>(scale[at]) + (with_offset ? static_cast<double>(offset[at]) : 0.0);
          // The bound is half an int8 step plus two roundings in f32.
          const double half = 0.5 + 2 * std::fabs(exact) * 0x1p-23;
          ASSERT_LE(std::fabs(out[i] - std::clamp(exact, -128.0, 127.0)), half) << i << c;
        }
      }
    }
  }
}

// Scales and offsets are read in the order of their shape, whatever their strides are.
TEST(DecodeInt8Output, ScalesMayHaveAnyStrides) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const DecodeCase c = MakeDecodeCase(4, 2, 1, {600, 70}, dtype);
    const DecodeProblem problem(c);
    const auto scales = MakeStridedScales(dtype, 4, 24, 60, 200), offsets = MakeStridedScales(dtype, 4, 24, -40, 40);
    std::vector<int8_t> out(size_t{2} * 4 * 24);
    const auto run = [&](const TensorView& scale, const TensorView& offset) {
      DecodeAttentionArgs args = problem.args();
      args.quant_scale2 = scale;
      args.quant_offset2 = offset;
      args.out = {out.data(), DType::kI8, {2, 4, 1, 24}, {}};
      const Status status = DecodeAttention(args, problem.options());
      EXPECT_TRUE(status.ok()) << status.message();
      return out;
    };
    for (size_t i = 0; i < scales.size(); ++i) {
      const StridedScales &scale = scales[i], &offset = offsets[(i + 3) % offsets.size()];
      EXPECT_EQ(run(scale.tensor.view(), {}), run(scale.packed.view(), {})) << scale.name;
      EXPECT_EQ(run(scale.packed.view(), offset.tensor.view()), run(scale.packed.view(), offset.packed.view()))
          << offset.name;
      EXPECT_EQ(run(scale.tensor.view(), offset.tensor.view()), run(scale.packed.view(), offset.packed.view()))
          << scale.name << ", " << offset.name;
    }
  }
}

TEST(DecodePages, EntriesBeforeAWindowAreNotLookedAt) {
  DecodeCase c = MakeDecodeCase(2, 1, 1, {200});
  c.keys = KeyForm::kPages;
  c.dense.mask = {.mode = 4, .pre = 30, .next = 0};
  const ForwardOutputs want = OutputsOf(c, nullptr);
  const DecodeProblem problem(c);
  for (int64_t page = 0; page < (200 - 31) / 16; ++page) problem.SetTableEntry(0, page, -1);
  ASSERT_TRUE(DecodeAttention(problem.args(), problem.options()).ok());
  EXPECT_TRUE(SameBits(problem.Outputs(), want));
}

// Results may be anything, but every address must lie inside the pages, which lie between unreadable memory.
TEST(DecodePages, ATableThatChangesDuringACallLeadsNowhere) {
  for (const int64_t sq : {1, 20}) {  // 1 row runs the kernels for few rows, and 20 rows run those for many
    DecodeCase c = MakeDecodeCase(4, 2, sq, {600, 70});
    c.keys = KeyForm::kPages;
    const DecodeProblem problem(c);
    const DecodeAttentionArgs args = problem.args();
    // The call only reads through this pointer; a thread of this test writes.
    auto* entry = static_cast<int32_t*>(const_cast<void*>(args.block_table.data)) + 7;
    int through = 0;
    const FlippingWords flipping({entry}, std::numeric_limits<int32_t>::max());
    // If the other thread rests while the entry is wrong, every call is refused. So more calls follow.
    for (int call = 0; call < 300 || (through == 0 && call < 1'000'000); ++call) {
      if (through == 0) std::this_thread::yield();
      const Status status = DecodeAttention(args, problem.options());
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument) << status.message();
      through += status.ok() ? 1 : 0;
    }
    EXPECT_GT(through, 0);
  }
}

}  // namespace
}  // namespace fa::test
