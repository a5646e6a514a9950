// Fused inference has the bits of the operators whose calls it serves, also with compressed keys and int8 tensors.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "fa/half.h"
#include "ops/inference/decode/int8_decode.h"
#include "ops/inference/decode/random_decode_case.h"
#include "ops/inference/infer/infer_case.h"
#include "support/cases/random_values.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

InferAttentionArgs ArgsOf(const DecodeAttentionArgs& decode) {
  InferAttentionArgs args;
  static_cast<DecodeAttentionArgs&>(args) = decode;
  return args;
}

/// Returns the options of fused inference that mean the same as a decode's options, or nothing if there are none.
/// @param dense  whether the call has a dense mask, which then is no triangle
std::optional<InferAttentionOptions> OptionsOf(const DecodeAttentionOptions& decode, const reference::MaskRule& mask,
                                               bool dense) {
  if (decode.layout == Layout::kSBH || decode.softcap != 0 || mask.mode > 4) return std::nullopt;
  if (dense ? mask.mode > 1 : mask.band) return std::nullopt;  // mode 0 has a band only with a dense mask
  InferAttentionOptions options{.layout = decode.layout, .heads = decode.heads, .scale = decode.scale};
  options.sparse_mode = mask.mode == 1 ? 0 : mask.mode;
  options.antiquant = decode.antiquant;
  const bool band = mask.mode == 4 || (mask.mode == 0 && mask.band);
  options.pre = band ? mask.pre : Mask::kUnlimited;
  options.next = band ? mask.next : Mask::kUnlimited;
  return options;
}

class InferMutual : public ::testing::TestWithParam<Isa> {};

TEST_P(InferMutual, HasTheBitsOfADecode) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    DecodeCase c = RandomDecodeCase(seed);
    c.dense.sink_form = reference::SinkForm::kPerHead;  // fused inference has no other sinks
    const DecodeProblem problem(c);
    const InferAttentionArgs args = ArgsOf(problem.args());
    auto options = OptionsOf(problem.options(), c.dense.mask, args.dense_mask.data != nullptr);
    // In mode 2, fused inference lets a single row keep every key, and decode does not. If page_rows equals heads_kv,
    // the shape of the pages does not tell the two orders of dimensions apart.
    const bool differs = (c.dense.mask.mode == 2 && !c.dense.packed()) || c.page_rows == c.dense.heads_kv;
    if (!options || differs) continue;
    options->heads_kv = c.dense.heads_kv;
    if (!args.block_table.shape.empty()) options->block_size = c.page_rows;
    const ForwardOutputs want = OutputsOf(problem, ContextOf(GetParam()));
    problem.TakeSnapshot().Forget();
    const Status status = InferAttention(args, *options, ContextOf(GetParam()));
    ASSERT_TRUE(status.ok()) << status.message() << "\n" << c;
    EXPECT_TRUE(SameBits(problem.Outputs(), want)) << c;
    ++compared;
  }
  EXPECT_GT(compared, 50);
}

TEST_P(InferMutual, HasTheIntegersOfAnInt8Prompt) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const PromptCase c = RandomInt8DecodeCase(seed);
    const Int8DecodeProblem problem(c);
    const auto options = OptionsOf(problem.options(), c.mask, problem.args().dense_mask.data != nullptr);
    if (!options || (c.mask.mode == 2 && c.sq == 1)) continue;
    const Status status = InferAttention(ArgsOf(problem.args()), *options, ContextOf(GetParam()));
    ASSERT_TRUE(status.ok()) << status.message() << "\n" << c;
    EXPECT_TRUE(MatchesExpected(problem.prompt(), problem.prompt().MakeExpected())) << c;
  }
}

// With the stride 0 all pieces of a row are the same piece.
TEST_P(InferMutual, PiecesOfNzPagesMayBeBroadcast) {
  constexpr int64_t kPages = 5, kRows = 4, kPieces = 4, kD = 64, kSq = 2;
  std::vector<uint16_t> pieces(kPages * kRows * 16), whole;
  for (size_t i = 0; i < pieces.size(); ++i) {
    pieces[i] = Bf16FromF32(static_cast<float>(RandomNormal(1, Tag::kK, {static_cast<int64_t>(i)})));
  }
  for (int64_t at = 0; at < std::ssize(pieces); at += kRows * 16) {
    for (int64_t piece = 0; piece < kPieces; ++piece) {
      whole.insert(whole.end(), pieces.begin() + at, pieces.begin() + at + kRows * 16);
    }
  }
  std::vector<uint16_t> q(kSq * kD), out[2] = {q, q};
  for (size_t i = 0; i < q.size(); ++i) {
    q[i] = Bf16FromF32(static_cast<float>(RandomNormal(1, Tag::kQ, {static_cast<int64_t>(i)})));
  }
  const int32_t table[] = {3, 1, 4, 0};
  const int64_t lengths[] = {14};
  const TensorView keys[] = {{whole.data(), DType::kBF16, {kPages, 1, kPieces, kRows, 16}, {}},
                             {pieces.data(), DType::kBF16, {kPages, 1, kPieces, kRows, 16}, {kRows * 16, 0, 0, 16, 1}}};
  for (const int form : {0, 1}) {
    InferAttentionArgs args;
    args.q = {q.data(), DType::kBF16, {1, 1, kSq, kD}, {}};
    args.k = args.v = {&keys[form], 1};
    args.block_table = {table, DType::kI32, {1, 4}, {}};
    args.lengths_kv = lengths;
    args.out = {out[form].data(), DType::kBF16, {1, 1, kSq, kD}, {}};
    const Status status = InferAttention(args, {}, ContextOf(GetParam()));
    ASSERT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(out[0], out[1]);
  EXPECT_NE(out[0], q);
}

// int8 keys in NZ pages have pieces of 32 columns.
TEST_P(InferMutual, CompressedKeysInNzPagesHaveTheBitsOfOtherPages) {
  constexpr int64_t kPages = 9, kHeadsKv = 2, kRows = 16, kD = 64, kGroup = 4, kPieces = kD / 32;
  std::vector<int8_t> heads(kPages * kHeadsKv * kRows * kD), nz(heads.size());
  for (size_t i = 0; i < heads.size(); ++i) {
    heads[i] = static_cast<int8_t>(RandomBits(1, Tag::kK, {static_cast<int64_t>(i)}) % 256);
    const auto at = static_cast<int64_t>(i), x = at % kD, row = at / kD % kRows, head = at / (kD * kRows);
    nz[static_cast<size_t>(((head * kPieces + x / 32) * kRows + row) * 32 + x % 32)] = heads[i];
  }
  const int32_t table[] = {3, 1, 4, 0, 5, 8, 2, 6};
  const int64_t lengths[] = {120};
  for (const int64_t sq : {1, 2, 40}) {
    std::vector<uint16_t> q(static_cast<size_t>(kHeadsKv * kGroup * sq * kD)), out[2] = {q, q};
    for (size_t i = 0; i < q.size(); ++i) {
      q[i] = Bf16FromF32(static_cast<float>(RandomNormal(1, Tag::kQ, {static_cast<int64_t>(i)})));
    }
    std::vector<float> scale(kHeadsKv * kD);
    for (size_t i = 0; i < scale.size(); ++i) scale[i] = 0.01F + 0.001F * static_cast<float>(i % 7);
    const TensorView keys[] = {{heads.data(), DType::kI8, {kPages, kHeadsKv, kRows, kD}, {}},
                               {nz.data(), DType::kI8, {kPages, kHeadsKv, kPieces, kRows, 32}, {}}};
    for (const int form : {0, 1}) {
      InferAttentionArgs args;
      args.q = {q.data(), DType::kBF16, {1, kHeadsKv * kGroup, sq, kD}, {}};
      args.k = args.v = {&keys[form], 1};
      args.k_scale = args.v_scale = {scale.data(), DType::kF32, {1, kHeadsKv, 1, kD}, {}};
      args.block_table = {table, DType::kI32, {1, 8}, {}};
      args.lengths_kv = lengths;
      args.out = {out[form].data(), DType::kBF16, {1, kHeadsKv * kGroup, sq, kD}, {}};
      const Status status = InferAttention(args, {.sparse_mode = 3}, ContextOf(GetParam()));
      ASSERT_TRUE(status.ok()) << status.message();
    }
    EXPECT_EQ(out[0], out[1]) << sq;
    EXPECT_NE(out[0], q) << sq;
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, InferMutual, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& info) { return IsaName(info.param); });

TEST(Infer, EmptyTensorsAreServed) {
  float q[4 * 32] = {}, out[4 * 32], lse[4];
  const TensorView no_keys{nullptr, DType::kF32, {1, 2, 0, 32}, {}};
  InferAttentionArgs args;
  args.q = {q, DType::kF32, {1, 4, 1, 32}, {}};
  args.k = args.v = {&no_keys, 1};
  args.out = {out, DType::kF32, {1, 4, 1, 32}, {}};
  args.lse = {lse, DType::kF32, {1, 4, 1, 1}, {}};
  const float infinity = std::numeric_limits<float>::infinity();
  const Status status = InferAttention(args, {.lse_without_keys = infinity});
  ASSERT_TRUE(status.ok()) << status.message();
  for (const float value : out) EXPECT_EQ(value, 0);
  for (const float value : lse) EXPECT_EQ(value, infinity);
  // A call without queries.
  const TensorView keys{q, DType::kF32, {1, 2, 2, 32}, {}};
  args.q.shape = args.out.shape = {1, 4, 0, 32};
  args.lse.shape = {1, 4, 0, 1};
  args.k = args.v = {&keys, 1};
  EXPECT_TRUE(InferAttention(args, {}).ok());
  // A call without packed rows.
  const TensorView packed{q, DType::kF32, {4, 2, 16}, {}};
  const int64_t none[] = {0, 0}, sums[] = {1, 4};
  InferAttentionArgs of_packed;
  of_packed.q = {q, DType::kF32, {0, 4, 16}, {}};
  of_packed.k = of_packed.v = {&packed, 1};
  of_packed.cu_q = none;
  of_packed.cu_kv = sums;
  of_packed.out = {out, DType::kF32, {0, 4, 16}, {}};
  EXPECT_TRUE(InferAttention(of_packed, {.layout = Layout::kTND}).ok());
}

}  // namespace
}  // namespace fa::test
