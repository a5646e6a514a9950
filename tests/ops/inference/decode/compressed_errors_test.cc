// Errors of decode attention with compressed keys and values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "ops/inference/decode/decode_case.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

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
    {"OffsetOfValuesOfAnotherShape", "v_offset.shape=[1,1,1,1], want [2,2,70,1] (v_scale)",
     [](auto* a) {
       a->v_offset.shape = {1, 1, 1, 1};
       a->v_offset.stride = {};
     }},
    {"CombinedOffsetWithoutAScale", "antiquant_scale: missing (k.dtype is f8e4m3)",
     [](auto* a) {
       a->antiquant_offset = {a->k_scale.data, DType::kF32, {2}, {}};
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
  const DecodeProblem problem(
      MakeCompressedCase(DType::kF8E4M3, Quantization::kPerTokenAndHead, 2, {70, 30}, DType::kBF16));
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

std::string ErrorOf(const DecodeProblem& problem, const std::function<void(DecodeAttentionArgs*)>& change) {
  DecodeAttentionArgs args = problem.args();
  change(&args);
  return std::string(DecodeAttention(args, problem.options()).message());
}

TEST(CompressedDecodeErrors, ScalesOfPages) {
  DecodeCase c = MakeCompressedCase(DType::kF8E4M3, Quantization::kPerToken, 2, {70}, DType::kBF16);
  c.keys = KeyForm::kPages;
  const DecodeProblem problem(c);
  EXPECT_EQ(ErrorOf(problem, [](auto*) {}), "");
  EXPECT_THAT(ErrorOf(problem, [](auto* a) { a->k_scale.shape[0] = 7; }),
              HasSubstr("k_scale.shape[0]=7, want 1 or 8 (pages)"));
  EXPECT_THAT(ErrorOf(problem, [](auto* a) { a->v_scale.shape[2] = 17; }),
              HasSubstr("v_scale.shape[2]=17, want 1 or 16 (page size)"));
}

TEST(CompressedDecodeErrors, MoreThan1024Columns) {
  DecodeCase c = MakeCompressedCase(DType::kI8, Quantization::kPerTensor, 1, {3}, DType::kF32);
  c.dense.dv = 1025;
  EXPECT_THAT(ErrorOf(DecodeProblem(c), [](auto*) {}), HasSubstr("v.shape[3]=1025, want a head size of 1..1024"));
}

TEST(CompressedDecodeErrors, ScalesOfDenseKeys) {
  const DecodeProblem problem(MakeDecodeCase(2, 2, 1, {9}));
  const float one = 1;
  EXPECT_THAT(ErrorOf(problem,
                      [&](auto* a) {
                        a->k_scale = {&one, DType::kF32, {1, 1, 1, 1}, {}};
                      }),
              HasSubstr("k_scale: given, want none (k.dtype is f32)"));
}

// One element of i4x8 holds eight columns. If the head size were no multiple of 8, two heads would share an element.
TEST(CompressedDecodeErrors, HeadsThatInt4DoesNotFill) {
  DecodeCase c = MakeCompressedCase(DType::kI4x8, Quantization::kPerTensor, 2, {70}, DType::kF32);
  const char* want = " columns per head, want a multiple of 8 (k.dtype is i4x8)";
  for (const int64_t size : {63, 60}) {
    EXPECT_THAT(ErrorOf(DecodeProblem(c), [=](auto* a) { a->q.shape[3] = size; }),
                HasSubstr("k has " + std::to_string(size) + want));
  }
  c.dense.layout = Layout::kBSH;
  const DecodeProblem fused(c);
  EXPECT_EQ(ErrorOf(fused, [](auto*) {}), "");
  TensorView k = fused.args().k[0], v = fused.args().v[0];
  const auto with = [&](int64_t q_columns, int64_t k_elements, int64_t v_elements) {
    return ErrorOf(fused, [&](DecodeAttentionArgs* a) {
      a->q.shape[2] = q_columns;
      k.shape[2] = k_elements;
      v.shape[2] = v_elements;
      a->k = {&k, 1};
      a->v = {&v, 1};
    });
  };
  EXPECT_THAT(with(4 * 12, 3, 16), HasSubstr(std::string("k has 12") + want));
  EXPECT_THAT(with(4 * 64, 17, 16), HasSubstr("k.shape[2]=17, want a multiple of 8 (a head of 64 columns, 8 per"));
  EXPECT_THAT(with(4 * 64, 16, 3), HasSubstr("v.shape[2]=3, want a multiple of 2 (heads of k)"));

  c.dense.layout = Layout::kBNSD;
  c.keys = KeyForm::kPages;
  const DecodeProblem paged(c);
  v = paged.args().v[0];
  v.shape[2] = 3;  // a head then has 12 columns
  EXPECT_THAT(ErrorOf(paged,
                      [&](auto* a) {
                        a->v = {&v, 1};
                      }),
              HasSubstr("v.shape[2]=3, want a multiple of 2 (heads of k)"));
}

}  // namespace
}  // namespace fa::test
