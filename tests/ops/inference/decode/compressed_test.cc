// Tests decode attention with compressed keys and values: formats, scales, codes, bits and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fa/view.h"
#include "ops/inference/decode/compressed_number.h"
#include "ops/inference/decode/decode_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

constexpr DType kQueryTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr KeyForm kKeyForms[] = {KeyForm::kOneTensor, KeyForm::kList, KeyForm::kPages, KeyForm::kPagesOfHeads};

void ExpectReference(const DecodeCase& c) { EXPECT_TRUE(RunsLikeTheReference(c)); }

constexpr DType kFormats[] = {DType::kI8, DType::kF8E4M3, DType::kF8E5M2, DType::kI4x8};
constexpr Quantization kKinds[] = {
    Quantization::kPerTensor, Quantization::kPerChannel,      Quantization::kPerToken,        Quantization::kPerHead,
    Quantization::kPerGroup,  Quantization::kPerTokenAndHead, Quantization::kPerTokenAndGroup};

// Tests few rows, for which there are kernels that read compressed rows in place, and many rows.
TEST(CompressedDecode, CompressedKeysOfEveryFormatAndScale) {
  int n = 0;
  for (const DType format : kFormats) {
    for (const Quantization kind : kKinds) {
      for (const KeyForm form : kKeyForms) {
        for (const DType dtype : kQueryTypes) {
          DecodeCase c = MakeDecodeCase(std::array{1, 2, 4, 8}[n % 4] * 2, 2, 1, {40 + n % 33, 0, 600}, dtype);
          c.keys = form;
          c.page_rows = std::array{16, 7, 128, 33}[n / 4 % 4];
          c.dense.d = std::array{64, 128, 32, 96, 256}[n % 5];
          c.dense.dv = std::array{64, 128, 32}[n % 3];
          c.format = format;
          c.quantization = kind;
          c.combined = false;
          c.antiquant_offset = n % 2 == 0;
          c.antiquant_dtype = kQueryTypes[n / 2 % 3];
          c.dense.seed = n++;
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
        DecodeCase c = MakeDecodeCase(8, 2, sq, {530, 41}, kQueryTypes[n % 3]);
        c.keys = kKeyForms[n % 4];
        c.dense.d = c.dense.dv = std::array{128, 24, 72}[n / 3 % 3];
        c.dense.mask = {.mode = 3};
        c.dense.softcap = n % 5 == 0 ? 4 : 0;
        c.dense.sink = n % 4 == 0;
        c.format = format;
        c.quantization = kind;
        c.combined = false;
        c.antiquant_offset = n % 2 == 0;
        c.dense.seed = n++;
        ExpectReference(c);
      }
    }
  }
}

DecodeCase Compressed(DType format, Quantization kind, int64_t group, std::vector<int64_t> sk, DType dtype) {
  DecodeCase c = MakeDecodeCase(2 * group, 2, 1, std::move(sk), dtype);
  c.dense.d = c.dense.dv = 64;
  c.format = format;
  c.quantization = kind;
  c.combined = false;
  return c;
}

// Tests scales that are 0, negative or subnormal.
TEST(CompressedDecode, ScalesOfEverySize) {
  for (const DType format : kFormats) {
    for (const Quantization kind : kKinds) {
      for (const double factor : {0.0, -1.0, 0x1p-122}) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          DecodeCase c = Compressed(format, kind, 4, {70}, dtype);
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
        const DecodeProblem problem(Compressed(format, Quantization::kPerTokenAndHead, 4, {70}, DType::kBF16));
        DecodeAttentionArgs args = problem.args();
        const TensorView& view = of_values ? args.v_scale : args.k_scale;
        static_cast<float*>(const_cast<void*>(view.data))[33 * view.stride[2]] = scale;  // key 33 of the first head
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

// Each code is the only key of one sequence, and one column of that key's value. The scale is a power of 2, so every
// number is exact.
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
            if (!std::isfinite(score)) continue;
            for (int64_t n = 0; n < group; ++n) {
              ASSERT_NEAR(lse[b * group + n], score, 0x1p-22 * std::fabs(score)) << Name(format) << " code " << b;
              for (int64_t c = 0; c < kDv; ++c) {
                const double number = CompressedNumber(format, static_cast<uint8_t>(c)) * scale;
                const int64_t at = (b * group + n) * kDv + c;
                const double got = dtype == DType::kF32
                                       ? out[at]
                                       : reference::Decode16(reference::Format::kBF16,
                                                             reinterpret_cast<const uint16_t*>(out.data())[at]);
                if (std::isnan(number)) {
                  ASSERT_TRUE(std::isnan(got)) << Name(format) << " code " << c;
                } else {
                  // With bf16, the exponent in a kernel of pairs has the rounding error of the score. Rounding P to
                  // bf16 removes it.
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
        DecodeCase c = Compressed(format, kind, 4, {41, 1100}, dtype);
        const ForwardOutputs want = OutputsOf(c, ContextOf(Isa::kPortable, 1));
        EXPECT_TRUE(SameBits(OutputsOf(c, ContextOf(Isa::kPortable, 3)), want)) << c;
        for (const Isa isa : IsaLevels()) {
          const ForwardOutputs of_level = OutputsOf(c, ContextOf(isa, 1));
          for (const KeyForm form : kKeyForms) {
            DecodeCase other = c;
            other.keys = form;
            other.page_rows = form == KeyForm::kPages ? 7 : 128;
            EXPECT_TRUE(SameBits(OutputsOf(other, ContextOf(isa, 2)), of_level)) << other << IsaName(isa);
          }
        }
      }
    }
  }
}

struct ScaleMistake {
  const char* name;
  const char* message;
  std::function<void(DecodeAttentionArgs*)> make;
};

const ScaleMistake kScaleMistakes[] = {
    {"NoScaleOfKeys", "k_scale: missing (k.dtype is f8e4m3)", [](auto* a) { a->k_scale.data = nullptr; }},
    {"NoScaleOfValues", "v_scale: missing (k.dtype is f8e4m3)", [](auto* a) { a->v_scale.data = nullptr; }},
    {"ScaleOfAnotherType", "k_scale.dtype=i8, want f32, f16 or bf16", [](auto* a) { a->k_scale.dtype = DType::kI8; }},
    {"ScaleOfAnotherRank", "k_scale.shape=[2], want [B|1, Nkv|1, S|1, groups|1]",
     [](auto* a) {
       a->k_scale.shape = {2};
       a->k_scale.stride = {};
     }},
    {"ScaleOfAnotherBatch", "v_scale.shape[0]=5, want 1 or 2 (batch)", [](auto* a) { a->v_scale.shape[0] = 5; }},
    {"ScaleOfOtherHeads", "k_scale.shape[1]=3, want 1 or 2 (heads of keys)", [](auto* a) { a->k_scale.shape[1] = 3; }},
    {"ScaleOfTooFewKeys", "k_scale.shape[2]=69, want 1 or 70 (longest keys)",
     [](auto* a) { a->k_scale.shape[2] = 69; }},
    {"ScaleOfNoGroups", "k_scale.shape[3]=7, want a divisor of 64", [](auto* a) { a->k_scale.shape[3] = 7; }},
    {"OffsetOfAnotherShape", "k_offset.shape=[1,1,1,1], want [2,2,70,1] (k_scale)",
     [](auto* a) {
       a->k_offset.shape = {1, 1, 1, 1};
       a->k_offset.stride = {};
     }},
    {"BothKindsOfScales", "k_scale: given, want none (antiquant_scale is given)",
     [](auto* a) {
       a->antiquant_scale = {a->k_scale.data, DType::kF32, {2}, {}};
     }},
    {"QueryOfInt8", "k.dtype=f8e4m3, want i8 (q.dtype)",
     [](auto* a) {
       a->q.dtype = DType::kI8;
       a->out.dtype = DType::kF16;
     }},
    {"OutOfACompressedType", "out.dtype=f8e4m3", [](auto* a) { a->out.dtype = DType::kF8E4M3; }},
    {"QueryOfACompressedType", "q.dtype=i4x8, want f32, f16, bf16 or i8", [](auto* a) { a->q.dtype = DType::kI4x8; }},
};

class RefusedCompressedDecode : public ::testing::TestWithParam<ScaleMistake> {};

TEST_P(RefusedCompressedDecode, NamesTheArgumentAndWritesNothing) {
  const DecodeProblem problem(Compressed(DType::kF8E4M3, Quantization::kPerTokenAndHead, 2, {70, 30}, DType::kBF16));
  DecodeAttentionArgs args = problem.args();
  GetParam().make(&args);
  const ForwardOutputs untouched = problem.Outputs();
  const Status status = DecodeAttention(args, problem.options());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
  EXPECT_TRUE(SameBits(problem.Outputs(), untouched));
}

INSTANTIATE_TEST_SUITE_P(All, RefusedCompressedDecode, ::testing::ValuesIn(kScaleMistakes),
                         [](const auto& info) { return info.param.name; });

TEST(CompressedDecodeErrors, HeadsThatInt4DoesNotFill) {
  const DecodeProblem problem(Compressed(DType::kI4x8, Quantization::kPerTensor, 2, {70}, DType::kF32));
  DecodeAttentionArgs args = problem.args();
  args.q.shape[3] = 63;
  EXPECT_THAT(std::string(DecodeAttention(args, problem.options()).message()), HasSubstr("k.shape[3]=8, want 7"));
  args.q.shape[3] = 60;
  TensorView k = args.k[0];
  k.shape[3] = 7;
  args.k = {&k, 1};
  EXPECT_THAT(std::string(DecodeAttention(args, problem.options()).message()),
              HasSubstr("q.shape[3]=60, want a multiple of 8 (k.dtype is i4x8)"));
}

}  // namespace
}  // namespace fa::test
