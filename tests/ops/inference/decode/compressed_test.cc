// Tests decode attention with compressed keys and values: formats, scales, codes and bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "fa/view.h"
#include "ops/inference/decode/decode_case.h"
#include "support/cases/random_token_case.h"
#include "support/compressed_number.h"
#include "support/execution/contexts.h"
#include "support/guarded_buffer.h"

namespace fa::test {
namespace {

constexpr DType kQueryTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr KeyForm kKeyForms[] = {KeyForm::kOneTensor, KeyForm::kList, KeyForm::kPages, KeyForm::kPagesOfHeads};

void ExpectReference(const DecodeCase& c) { EXPECT_TRUE(RunsLikeTheReference(c)); }

constexpr DType kFormats[] = {DType::kI8, DType::kF8E4M3, DType::kF8E5M2, DType::kI4x8};
constexpr Quantization kKinds[] = {Quantization::kPerTensor,       Quantization::kPerChannel,
                                   Quantization::kPerToken,        Quantization::kPerHead,
                                   Quantization::kPerPage,         Quantization::kPerGroup,
                                   Quantization::kPerTokenAndHead, Quantization::kPerTokenAndGroup};

// Tests few rows, for which there are kernels that read compressed rows in place, and many rows.
TEST(CompressedDecode, CompressedKeysOfEveryFormatAndScale) {
  int n = 0;
  for (const DType format : kFormats) {
    for (const Quantization kind : kKinds) {
      for (const KeyForm form : kKeyForms) {
        for (const DType dtype : kQueryTypes) {
          RandomChoices random(++n);
          DecodeCase c =
              MakeDecodeCase(random.OneOf<int64_t>({1, 2, 4, 8}) * 2, 2, 1, {random.Pick(40, 72), 0, 600}, dtype);
          c.keys = form;
          c.page_rows = random.OneOf<int64_t>({1, 16, 7, 128, 33});
          c.dense.d = random.OneOf<int64_t>({64, 128, 32, 96, 256});
          c.dense.dv = random.OneOf<int64_t>({64, 128, 32});
          c.format = format;
          c.quantization = kind;
          c.combined = false;
          c.antiquant_offset = random.OneOf({false, true});
          c.antiquant_dtype = random.OneOf({DType::kF32, DType::kF16, DType::kBF16});
          c.group_columns = random.OneOf<int64_t>({16, 32, 64});
          c.dense.seed = n;
          ExpectReference(c);
        }
      }
    }
  }
}

// Here scales are indexed by the key's place in its sequence, not by page and row. The results must have the bits of
// the same keys without pages.
TEST(CompressedDecode, ScalesOfKeysThatLieInPages) {
  int n = 0;
  for (const DType format : kFormats) {
    for (const Quantization kind : kKinds) {
      if (kind == Quantization::kPerPage) continue;  // these scales belong to pages
      RandomChoices random(++n);
      DecodeCase c = MakeDecodeCase(4, 2, n % 2 == 0 ? 1 : 20, {random.Pick(40, 72), 0, 300},
                                    random.OneOf({DType::kF32, DType::kF16, DType::kBF16}));
      c.keys = random.OneOf({KeyForm::kPages, KeyForm::kPagesOfHeads});
      c.page_rows = random.OneOf<int64_t>({1, 16, 7, 128});
      c.dense.d = random.OneOf<int64_t>({64, 128, 32});
      c.dense.dv = random.OneOf<int64_t>({64, 128, 32});
      c.format = format;
      c.quantization = kind;
      c.combined = false;
      c.scales_of_keys = true;
      c.antiquant_offset = random.OneOf({false, true});
      c.group_columns = random.OneOf<int64_t>({16, 32});
      c.dense.seed = n;
      ExpectReference(c);
      DecodeCase whole = c;
      whole.keys = KeyForm::kOneTensor;
      whole.scales_of_keys = false;
      const DecodeProblem in_pages(c), in_one(whole);
      for (const Isa isa : IsaLevels()) {
        EXPECT_TRUE(SameBits(OutputsOf(in_pages, ContextOf(isa, 2)), OutputsOf(in_one, ContextOf(isa, 3)))) << c;
      }
    }
  }
}

// Levels with bf16 products have kernels of their own for three to eight rows of bf16.
TEST(CompressedDecode, FewRowsOfBf16) {
  int n = 0;
  for (const DType format : kFormats) {
    for (const int64_t group : {3, 4, 5, 8}) {
      for (const int64_t dv : {32, 64, 96, 128, 256}) {
        for (const KeyForm form : kKeyForms) {
          for (const bool offset : {false, true}) {
            RandomChoices random(++n);
            DecodeCase c = MakeDecodeCase(group, 1, 1, {random.Pick(1, 130), 0, random.Pick(1, 40)}, DType::kBF16);
            c.keys = form;
            c.page_rows = random.OneOf<int64_t>({1, 16, 7, 128, 33});
            c.dense.dv = dv;
            c.dense.d = random.OneOf<int64_t>({64, dv, 128, 32, 96, 256});
            c.format = format;
            c.quantization = kKinds[random.Pick(0, std::size(kKinds) - 1)];
            c.combined = false;
            c.antiquant_offset = offset;
            c.antiquant_dtype = random.OneOf({DType::kF32, DType::kBF16});
            c.group_columns = random.OneOf<int64_t>({16, 32, 64});
            c.dense.seed = n;
            ExpectReference(c);
          }
        }
      }
    }
  }
}

TEST(CompressedDecode, FewRowsOfBf16BehindAMask) {
  int n = 0;
  for (const DType format : kFormats) {
    for (const Quantization kind : kKinds) {
      for (const int64_t sq : {1, 2}) {
        for (const int64_t group : {3, 4}) {
          RandomChoices random(++n);
          DecodeCase c = MakeDecodeCase(2 * group, 2, sq, {random.Pick(2, 600), 33}, DType::kBF16);
          c.keys = random.OneOf({KeyForm::kOneTensor, KeyForm::kList, KeyForm::kPages, KeyForm::kPagesOfHeads});
          c.dense.d = random.OneOf<int64_t>({64, 128, 32});
          c.dense.dv = random.OneOf<int64_t>({64, 128, 32});
          c.dense.mask = {.mode = 3};
          c.format = format;
          c.quantization = kind;
          c.combined = false;
          c.antiquant_offset = random.OneOf({false, true});
          c.group_columns = random.OneOf<int64_t>({16, 32, 64});
          c.dense.seed = n;
          ExpectReference(c);
        }
      }
    }
  }
}

TEST(CompressedDecode, CompressedKeysWithMasksAndManyRows) {
  int n = 0;
  for (const DType format : kFormats) {
    for (const Quantization kind : kKinds) {
      for (const int64_t sq : {1, 2, 40}) {
        RandomChoices random(++n);
        DecodeCase c = MakeDecodeCase(8, 2, sq, {530, 41}, random.OneOf({DType::kF32, DType::kF16, DType::kBF16}));
        c.keys = random.OneOf({KeyForm::kOneTensor, KeyForm::kList, KeyForm::kPages, KeyForm::kPagesOfHeads});
        c.dense.d = c.dense.dv = random.OneOf<int64_t>({128, 24, 72});
        c.dense.mask = {.mode = 3};
        c.dense.softcap = random.OneOf({0, 0, 0, 4});
        c.dense.sink = random.OneOf({false, false, true});
        c.format = format;
        c.quantization = kind;
        c.combined = false;
        c.antiquant_offset = random.OneOf({false, true});
        c.group_columns = random.OneOf<int64_t>({16, 32, 64});
        c.dense.seed = n;
        ExpectReference(c);
      }
    }
  }
}

// Tests scales that are 0, negative or subnormal.
TEST(CompressedDecode, ScalesOfEverySize) {
  for (const DType format : kFormats) {
    for (const Quantization kind : kKinds) {
      for (const double factor : {0.0, -1.0, 0x1p-122}) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          DecodeCase c = MakeCompressedCase(format, kind, 4, {70}, dtype);
          c.scale_factor = factor;
          c.antiquant_offset = factor != 0;
          ExpectReference(c);
        }
      }
    }
  }
}

TEST(CompressedDecode, AScaleThatIsNotFiniteGivesNoFiniteResult) {
  for (const DType format : kFormats) {
    for (const float scale : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      for (const bool of_values : {false, true}) {
        const DecodeProblem problem(MakeCompressedCase(format, Quantization::kPerTokenAndHead, 4, {70}, DType::kBF16));
        DecodeAttentionArgs args = problem.args();
        const TensorView& view = of_values ? args.v_scale : args.k_scale;
        // The scale of key 33 of the first head.
        static_cast<float*>(const_cast<void*>(view.data))[33 * view.stride[2]] = scale;
        for (const Isa isa : IsaLevels()) {
          ASSERT_TRUE(DecodeAttention(args, problem.options(), ContextOf(isa)).ok());
          const ForwardOutputs outputs = problem.Outputs();
          for (size_t x = 0; x < 4 * 64; ++x) ASSERT_FALSE(std::isfinite(outputs.out[x])) << x << IsaName(isa);
          for (size_t x = 4 * 64; x < 8 * 64; ++x) ASSERT_TRUE(std::isfinite(outputs.out[x])) << x << IsaName(isa);
        }
      }
    }
  }
}

// The first row of a batch element does not see the last key, whose codes are not numbers. With eight rows per group,
// kernels read the other keys in place. With sixteen rows they do not.
TEST(CompressedDecode, CodesBehindAMaskThatAreNotNumbers) {
  for (const DType format : {DType::kF8E4M3, DType::kF8E5M2}) {
    for (const bool of_values : {false, true}) {
      for (const int64_t heads : {4, 8}) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          DecodeCase c = MakeCompressedCase(format, Quantization::kPerHead, 4, {70}, dtype);
          c.dense.heads = heads;
          c.dense.heads_kv = 1;
          c.dense.lengths.sq = {2};
          c.dense.mask = {.mode = 3};
          const DecodeProblem problem(c), poisoned(c);
          const TensorView& view = of_values ? poisoned.args().v[0] : poisoned.args().k[0];
          auto* last = static_cast<std::byte*>(const_cast<void*>(view.data)) + 69 * c.dense.d;
          for (int64_t x = 0; x < c.dense.d; ++x) StoreCode(format, last, x, 0x7f);
          for (const Isa isa : IsaLevels()) {
            const ForwardOutputs want = OutputsOf(problem, ContextOf(isa)), got = OutputsOf(poisoned, ContextOf(isa));
            for (size_t x = 0; x < got.out.size(); ++x) {
              const bool sees = x / 64 % 2 != 0;
              ASSERT_EQ(std::isnan(got.out[x]), sees) << x << IsaName(isa) << c;
              if (sees) continue;
              ASSERT_EQ(got.out[x], want.out[x]) << x << IsaName(isa) << c;
            }
          }
        }
      }
    }
  }
}

// Sequence b has one key. Column 3 of the key is code b, and column c of its value is code c. The scale is a power of
// 2, so every number is exact.
TEST(CompressedDecode, EveryCodeIsItsNumber) {
  constexpr int64_t kBatch = 256, kD = 32, kDv = 256, kMost = 8;
  const float scale = 0.5f, q_scale = 1.0f;
  for (const DType format : kFormats) {
    const int64_t per_element = format == DType::kI4x8 ? 8 : 1;
    std::vector<std::byte> k(kBatch * kD), v(kBatch * kDv);
    for (int64_t b = 0; b < kBatch; ++b) {
      const int64_t k_bytes = format == DType::kI4x8 ? kD / 2 : kD, v_bytes = format == DType::kI4x8 ? kDv / 2 : kDv;
      StoreCode(format, k.data() + b * k_bytes, 3, static_cast<uint8_t>(b));
      for (int64_t c = 0; c < kDv; ++c) StoreCode(format, v.data() + b * v_bytes, c, static_cast<uint8_t>(c));
    }
    const TensorView keys = {k.data(), format, {kBatch, 1, 1, kD / per_element}, {}};
    const TensorView values = {v.data(), format, {kBatch, 1, 1, kDv / per_element}, {}};
    for (const int64_t group : {1, 2, 4, 8}) {
      std::vector<float> lse(kBatch * kMost);
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        std::vector<float> q(kBatch * kMost * kD), out(kBatch * kMost * kDv);
        const auto put = [&](int64_t at) {
          if (dtype == DType::kF32) {
            q[at] = q_scale;
          } else {
            reinterpret_cast<uint16_t*>(q.data())[at] = 0x3f80;
          }
        };
        for (int64_t row = 0; row < kBatch * group; ++row) put(row * kD + 3);
        DecodeAttentionArgs args;
        args.q = {q.data(), dtype, {kBatch, group, 1, kD}, {}};
        args.k = {&keys, 1};
        args.v = {&values, 1};
        args.k_scale = args.v_scale = {&scale, DType::kF32, {1, 1, 1, 1}, {}};
        args.out = {out.data(), dtype, {kBatch, group, 1, kDv}, {}};
        args.lse = {lse.data(), DType::kF32, {kBatch, group, 1}, {}};
        for (const Isa isa : IsaLevels()) {
          ASSERT_TRUE(DecodeAttention(args, {.scale = 1.0f}, ContextOf(isa)).ok());
          for (int64_t b = 0; b < kBatch; ++b) {
            const double score = CompressedNumber(format, static_cast<uint8_t>(b)) * scale;
            for (int64_t n = 0; n < group; ++n) {
              const double got_lse = lse[b * group + n];
              if (score == -std::numeric_limits<double>::infinity()) {
                ASSERT_EQ(got_lse, score) << Name(format) << " code " << b << " " << IsaName(isa);
              } else if (!std::isfinite(score)) {
                ASSERT_TRUE(std::isnan(got_lse)) << Name(format) << " code " << b << " " << IsaName(isa);
              } else {
                ASSERT_NEAR(got_lse, score, 0x1p-22 * std::fabs(score)) << Name(format) << " code " << b;
              }
              for (int64_t c = 0; c < kDv; ++c) {
                const double number = CompressedNumber(format, static_cast<uint8_t>(c)) * scale;
                const int64_t at = (b * group + n) * kDv + c;
                const double got = dtype == DType::kF32
                                       ? out[at]
                                       : reference::Decode16(reference::Format::kBF16,
                                                             reinterpret_cast<const uint16_t*>(out.data())[at]);
                if (score == -std::numeric_limits<double>::infinity()) {
                  // The key's weight is 0. A number that is not finite, multiplied by 0, may make the sum NaN.
                  ASSERT_TRUE(got == 0 || (std::isnan(got) && !std::isfinite(number))) << " code " << c << ": " << got;
                } else if (std::isnan(number) || !std::isfinite(score)) {
                  ASSERT_TRUE(std::isnan(got)) << Name(format) << " code " << c << " of code " << b;
                } else {
                  // Kernels that multiply pairs of bf16 may compute an exponential that is slightly off 1, because the
                  // score was rounded. Rounding P to bf16 removes this error.
                  ASSERT_TRUE(got == number)
                      << Name(format) << " code " << c << ": " << got << ", want " << number << " " << IsaName(isa);
                }
              }
            }
          }
        }
      }
    }
  }
}

// No bit depends on the threads, on where keys lie, or on the other sequences.
TEST(CompressedDecode, BitsFollowFromTheSequenceAlone) {
  for (const DType format : kFormats) {
    for (const Quantization kind : kKinds) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const DecodeCase c = MakeCompressedCase(format, kind, 4, {41, 1100}, dtype);
        const DecodeProblem problem(c);
        std::vector<ForwardOutputs> of_level;
        for (const Isa isa : IsaLevels()) of_level.push_back(OutputsOf(problem, ContextOf(isa, 1)));
        for (const KeyForm form : kKeyForms) {
          DecodeCase other = c;
          other.keys = form;
          if (kind != Quantization::kPerPage) other.page_rows = form == KeyForm::kPages ? 7 : 128;
          const DecodeProblem in_form(other);
          auto want = of_level.begin();
          for (const Isa isa : IsaLevels()) {
            EXPECT_TRUE(SameBits(OutputsOf(in_form, ContextOf(isa, 3)), *want++)) << other << IsaName(isa);
          }
        }
        DecodeCase second = c;
        second.dense.lengths = {{1}, {c.dense.lengths.sk[1]}};
        second.dense.first_sequence = 1;
        const DecodeProblem alone(second);
        auto want = of_level.begin();
        for (const Isa isa : IsaLevels()) {
          ForwardOutputs of_second = *want++;
          of_second.out.erase(of_second.out.begin(), of_second.out.begin() + std::ssize(of_second.out) / 2);
          of_second.lse.erase(of_second.lse.begin(), of_second.lse.begin() + std::ssize(of_second.lse) / 2);
          EXPECT_TRUE(SameBits(OutputsOf(alone, ContextOf(isa, 2)), of_second)) << second << IsaName(isa);
        }
      }
    }
  }
}

/// Scales or offsets of keys and groups, [B, N, S, groups], copied to a layout of their own.
struct LaidNumbers {
  /// @param gap  the number of floats between two keys; without a value, the keys of a group lie next to each other
  LaidNumbers(const TensorView& from, std::optional<int64_t> gap)
      : view{nullptr, DType::kF32, from.shape, StrideOf(from.shape, gap)}, floats(Bytes(view), Place::kAtEnd) {
    for (int64_t x = 0; x < from.shape[0] * from.shape[1] * from.shape[2] * from.shape[3]; ++x) {
      int64_t rest = x, at = 0, to = 0;
      for (int dim = 3; dim >= 0; rest /= from.shape[dim--]) {
        at += rest % from.shape[dim] * from.stride[dim];
        to += rest % from.shape[dim] * view.stride[dim];
      }
      std::memcpy(floats.data() + to * sizeof(float), static_cast<const float*>(from.data) + at, sizeof(float));
    }
    view.data = floats.data();
  }

  TensorView view;
  GuardedBuffer floats;

 private:
  static Dims StrideOf(const Dims& shape, std::optional<int64_t> gap) {
    const int64_t key = gap ? shape[3] + *gap : 1, group = gap ? 1 : shape[2], head = shape[2] * shape[3];
    const int64_t apart = gap ? shape[2] * key : head;
    return {shape[1] * apart, apart, key, group};
  }
  static size_t Bytes(const TensorView& of) {
    int64_t last = 0;
    for (int dim = 0; dim < 4; ++dim) last += (of.shape[dim] - 1) * of.stride[dim];
    return static_cast<size_t>(last + 1) * sizeof(float);
  }
};

/// Compares scales of keys and groups in several layouts, with keys in one tensor and in pages.
void ExpectTheBitsOfEveryStride(DecodeCase c) {
  const DecodeProblem problem(c);
  c.keys = KeyForm::kPages;
  c.scales_of_keys = true;
  const DecodeProblem in_pages(c);
  const DecodeAttentionArgs own = problem.args();
  for (const Isa isa : IsaLevels()) {
    const ForwardOutputs want = OutputsOf(problem, ContextOf(isa, 1));
    for (const std::optional<int64_t> gap : {std::optional<int64_t>(0), std::optional<int64_t>(3), {}}) {
      const LaidNumbers k_scale(own.k_scale, gap), v_scale(own.v_scale, gap);
      const LaidNumbers k_offset(c.antiquant_offset ? own.k_offset : own.k_scale, gap);
      const LaidNumbers v_offset(c.antiquant_offset ? own.v_offset : own.v_scale, gap);
      for (const DecodeProblem* of : {&problem, &in_pages}) {
        DecodeAttentionArgs args = of->args();
        args.k_scale = k_scale.view;
        args.v_scale = v_scale.view;
        if (c.antiquant_offset) args.k_offset = k_offset.view;
        if (c.antiquant_offset) args.v_offset = v_offset.view;
        ASSERT_TRUE(DecodeAttention(args, of->options(), ContextOf(isa, 3)).ok());
        EXPECT_TRUE(SameBits(of->Outputs(), want)) << c << IsaName(isa) << " gap " << gap.value_or(-1);
      }
    }
  }
}

// Kernels read scales of groups where they lie if the groups of a key lie next to each other. The bits are the same as
// with other strides, on any number of threads and in pages.
TEST(CompressedDecode, TheBitsDependOnNoStrideOfTheScalesOfGroups) {
  int n = 0;
  for (const auto& [d, dv] : std::vector<std::pair<int64_t, int64_t>>{{128, 128}, {256, 128}, {128, 64}, {64, 256}}) {
    for (const int64_t group : {32, 64, 128}) {
      for (const DType dtype : kQueryTypes) {
        const int64_t heads = int64_t{1} << (++n % 4);
        DecodeCase c = MakeCompressedCase(DType::kI4x8, Quantization::kPerTokenAndGroup, heads, {41, 1, 1100}, dtype);
        c.dense.d = d;
        c.dense.dv = dv;
        c.group_columns = group;
        c.antiquant_offset = n / 4 % 2 == 0;
        c.dense.seed = n;
        ExpectTheBitsOfEveryStride(c);
      }
    }
  }
}

}  // namespace
}  // namespace fa::test
