// Queries, keys and values of 8 bits through aclnnFusedInferAttentionScore, with the bits of fa::InferAttention: every
// granularity of scales, and the calls of models that have them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "aclnn/calls/infer_problem.h"
#include "support/each_case.h"

namespace fa::test {
namespace {

using namespace infer;
using ::testing::HasSubstr;

/// One granularity of scales: the library's shape and the device's.
struct Granularity {
  Dims own, device;
};

/// Returns the granularity of a mode. In modes 1 and 3, the scales are for two tokens more than a sequence has keys.
Granularity GranularityOf(int64_t mode, bool columns) {
  const int64_t tokens = kKeys + 2;
  switch (mode) {
    case 1: return {{kBatch, 1, tokens, 1}, {kBatch, tokens}};
    case 2: return {{1, kHeadsKv, 1, 1}, {kHeadsKv}};
    case 3: return {{kBatch, kHeadsKv, tokens, 1}, {kBatch, kHeadsKv, tokens}};
    case 4: return {{kPages, 1, kPage, 1}, {kPages, kPage}};
    case 5: return {{kPages, kHeadsKv, kPage, 1}, {kPages, kHeadsKv, kPage}};
    default: break;
  }
  return columns ? Granularity{{1, kHeadsKv, 1, kSize}, {kHeadsKv, 1, kSize}} : Granularity{{1, 1, 1, 1}, {1}};
}

struct ModeRow {
  const char* modes;  ///< pairs of a mode of keys and a mode of values
  bool paged;
};
// All pairs of modes that calls may have, also those that the device lacks. Keys and values choose their modes
// independently, but a mode per token of sequences is never paired with one per row of pages.
constexpr ModeRow kModeRows[] = {
    {"00 01 02 03 10 11 12 13 20 21 22 23 30 31 32 33", false},
    {"00 01 02 03 10 11 12 13 20 21 22 23 30 31 32 33 04 05 24 25 40 42 44 45 50 52 54 55", true},
};

/// Runs a call with the scales of these modes.
void ExpectBitsOfModes(DType dtype, bool paged, int64_t key_mode, int64_t value_mode, bool columns, bool offsets) {
  SCOPED_TRACE(std::string(Name(dtype)) + " modes " + std::to_string(key_mode) + "," + std::to_string(value_mode));
  Problem problem(Layout::kBSND);
  const int64_t batch = paged ? kPages : kBatch, rows = paged ? kPage : kKeys;
  if (paged) problem.UsePages({1});
  const int64_t size = dtype == DType::kI4x8 ? kSize / 8 : kSize;
  const auto keys = [&] {
    TensorView codes = problem.Codes({batch, rows, kHeadsKv, dtype == DType::kI4x8 ? 4 * size : size}, dtype);
    codes.shape = {batch, rows, kHeadsKv, size};
    return codes;
  };
  problem.keys = {keys()};
  problem.values = {keys()};
  const Granularity k = GranularityOf(key_mode, columns), v = GranularityOf(value_mode, columns);
  const auto per_token = [](int64_t mode) { return mode == 1 || mode == 3; };
  if (per_token(key_mode) || per_token(value_mode)) problem.options.antiquant = Antiquant::kPerToken;
  problem.args.k_scale = problem.Floats(k.own);
  problem.args.v_scale = problem.Floats(v.own);
  if (offsets) {
    problem.args.k_offset = problem.Floats(k.own);
    problem.args.v_offset = problem.Floats(v.own);
  }
  ExpectBitsOfCpp(problem, InferVersion::kV4, [&](InferFace* face) {
    const auto as = [&](TensorView view, const Dims& shape) {
      if (view.data != nullptr) view.shape = shape;
      return face->handles().Tensor(view);
    };
    face->p.antiquant_mode = 0;
    face->p.key_scale = as(problem.args.k_scale, k.device);
    face->p.value_scale = as(problem.args.v_scale, v.device);
    face->p.key_offset = as(problem.args.k_offset, k.device);
    face->p.value_offset = as(problem.args.v_offset, v.device);
    face->p.key_mode = key_mode;
    face->p.value_mode = value_mode;
  });
}

TEST(FusedInferScales, EveryPairOfModes) {
  for (const DType dtype : {DType::kI8, DType::kF8E4M3, DType::kI4x8}) {
    for (const ModeRow& row : kModeRows) {
      for (const char* mode = row.modes; *mode != 0; mode += mode[2] == 0 ? 2 : 3) {
        for (const bool offsets : {false, true}) {
          ExpectBitsOfModes(dtype, row.paged, mode[0] - '0', mode[1] - '0', /*columns=*/offsets, offsets);
        }
      }
    }
  }
}

/// Expects `message` for a call whose keys have separate scales of these modes and shapes.
void ExpectRefusal(const char* message, Problem& problem, int64_t key_mode, int64_t value_mode, const Dims& key_shape,
                   const Dims& value_shape) {
  problem.Forget();
  InferFace face(problem.Args(), problem.options);
  face.p.key_scale = face.handles().Tensor(problem.Floats(key_shape));
  face.p.value_scale = face.handles().Tensor(problem.Floats(value_shape));
  face.p.key_mode = key_mode;
  face.p.value_mode = value_mode;
  EXPECT_EQ(RunFace(InferVersion::kV4, face.p), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(message));
  for (const float value : problem.out) EXPECT_TRUE(std::isnan(value)) << "nothing was written";
}

TEST(FusedInferScales, RefusedPairsAreNamed) {
  Problem padded(Layout::kBSND), packed(Layout::kTND), paged(Layout::kBSND);
  padded.keys = padded.values = {padded.Codes({kBatch, kKeys, kHeadsKv, kSize}, DType::kI8)};
  packed.keys = packed.values = {packed.Codes({kBatch * kKeys, kHeadsKv, kSize}, DType::kI8)};
  paged.UsePages({1});
  paged.keys = paged.values = {paged.Codes({kPages, kPage, kHeadsKv, kSize}, DType::kI8)};
  const Dims tokens = {kBatch, kKeys}, rows = {kPages, kPage};
  ExpectRefusal("keyAntiquantMode=4, want 0 to 3", padded, 4, 4, rows, rows);
  ExpectRefusal("keyAntiquantMode=6 is not served (scales of type E8M0)", padded, 6, 6, {1}, {1});
  ExpectRefusal("valueAntiquantMode=8 is not served (scales of type E8M0)", padded, 0, 8, {1}, {1});
  ExpectRefusal("keyAntiquantMode=1, want 0 or 2 (packed keys)", packed, 1, 1, tokens, tokens);
  ExpectRefusal("valueAntiquantMode=4, want scales of tokens for both", paged, 1, 4, tokens, rows);
  ExpectRefusal("keyAntiquantMode=8 is not served (scales of type E8M0)", paged, 8, 1, rows, tokens);
  ExpectRefusal("valueAntiquantMode=8 is not served (scales of type E8M0)", paged, 1, 8, tokens, rows);
  ExpectRefusal("keyAntiquantScale.shape=[3,9], want [2,>=9] (keyAntiquantMode 1)", paged, 1, 1, {3, kKeys}, tokens);
  ExpectRefusal("keyAntiquantScale.shape=[2,8], want [2,>=9] (keyAntiquantMode 1)", paged, 1, 1, {kBatch, kKeys - 1},
                tokens);
}

/// A call whose queries, keys and values have 8 bits.
Problem Quantized(Layout layout, DType dtype, int64_t rows, int64_t columns) {
  Problem problem(layout, rows, columns);
  problem.args.q = problem.Codes(problem.args.q.shape, dtype);
  problem.args.quant_scale1 = {};
  return problem;
}

struct QueryShape {
  Layout layout;
  Dims device;  ///< the shape of dequantScaleQuery
};

// Decodes latent attention in int8 and e4m3, with the shapes that programs use. The keys in NZ pages are the values
// too. Ropes have 16 bits, and each row and head has a scale.
TEST(FusedInferCallers, QuantizedDecodeOfLatentAttention) {
  const QueryShape shapes[] = {{Layout::kBNSD_NBSD, {kBatch, kHeads, 1}}, {Layout::kBSND_NBSD, {kBatch, 1, kHeads}},
                               {Layout::kTND_NTD, {kBatch, kHeads}},      {Layout::kTND_NTD, {kBatch, 1, kHeads}},
                               {Layout::kTND_NTD, {kBatch, kHeads, 1}},   {Layout::kTND_NTD, {kBatch * kHeads}},
                               {Layout::kBSH, {kBatch, 1, kHeads}}};
  const auto check = [&](const QueryShape& shape, DType dtype, InferVersion version) {
    Problem problem = Quantized(shape.layout, dtype, 1, 64);
    const auto nz = [&](int64_t columns, int64_t piece) {
      return problem.Codes({kPages, 1, columns / piece, kPage, piece}, dtype);
    };
    problem.UsePages({1});
    problem.options.heads_kv = 1;
    problem.keys = problem.values = {nz(64, 32)};
    problem.key_rope = problem.Halves({kPages, 1, 1, kPage, 16});
    Dims rope = problem.args.q.shape;
    rope[rope.rank() - 1] = shape.layout == Layout::kBSH ? 16 * kHeads : 16;
    problem.args.q_rope = problem.Halves(rope);
    Dims own = problem.args.q.shape, all;
    if (shape.layout == Layout::kBSH) own = {kBatch, 1, kHeads, 64};
    for (int dim = 0; dim + 1 < own.rank(); ++dim) all.push_back(own[dim]);
    problem.args.q_scale = problem.Floats(all);
    problem.args.k_scale = problem.args.v_scale = problem.Floats({1, 1, 1, 1});
    problem.lengths_q = Packed(shape.layout) ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{};
    ExpectBitsOfCpp(problem, version, [&](InferFace* face) {
      TensorView scale = problem.args.q_scale;
      scale.shape = shape.device;
      face->p.query_scale = face->handles().Tensor(scale);
      scale = problem.args.k_scale;
      scale.shape = {1};
      face->p.key_scale = face->p.value_scale = face->handles().Tensor(scale);
      face->p.query_mode = 3;
    });
  };
  for (const QueryShape& shape : shapes) {
    for (const DType dtype : {DType::kI8, DType::kF8E4M3}) {
      for (const InferVersion version : {InferVersion::kV4, InferVersion::kV5, InferVersion::kV4Max}) {
        check(shape, dtype, version);
      }
    }
  }
}

/// The call of the model hy3: e4m3 in NTD_TND over pages [blocks, Nkv, bs, D], with scales (N, T), (blocks, Nkv, bs)
/// and (Nkv).
Problem GroupedE4M3() {
  Problem problem = Quantized(Layout::kNTD_TND, DType::kF8E4M3, kRows, kSize);
  problem.UsePages({1});
  problem.keys = {problem.Codes({kPages, kHeadsKv, kPage, kSize}, DType::kF8E4M3)};
  problem.values = {problem.Codes({kPages, kHeadsKv, kPage, kSize}, DType::kF8E4M3)};
  problem.args.q_scale = problem.Floats({kHeads, kBatch * kRows});
  problem.args.k_scale = problem.Floats({kPages, kHeadsKv, kPage, 1});
  problem.args.v_scale = problem.Floats({1, kHeadsKv, 1, 1});
  return problem;
}

void SetGrouped(const Problem& problem, InferFace* face) {
  TensorView scale = problem.args.k_scale;
  scale.shape = {kPages, kHeadsKv, kPage};
  face->p.query_scale = face->handles().Tensor(problem.args.q_scale);
  face->p.key_scale = face->handles().Tensor(scale);
  scale = problem.args.v_scale;
  scale.shape = {kHeadsKv};
  face->p.value_scale = face->handles().Tensor(scale);
  face->p.query_mode = face->p.key_mode = 3;
  face->p.value_mode = 2;
}

TEST(FusedInferCallers, GroupedQueriesOfE4M3) {
  for (const float factor : {0.0F, 1.0F, 448.0F}) {
    Problem problem = GroupedE4M3();
    if (factor != 0) problem.args.quant_scale1 = {&factor, DType::kF32, {1}, {}};
    for (const InferVersion version : {InferVersion::kV4, InferVersion::kV5, InferVersion::kV5Max}) {
      ExpectBitsOfCpp(problem, version, [&](InferFace* face) { SetGrouped(problem, face); });
    }
  }
}

struct GroupedMistake {
  const char* message;
  std::function<void(InferFace*)> make;
};

TEST(FusedInferErrors, GroupedQueriesOfE4M3) {
  static const float kNumber[64] = {};
  const auto give = [](InferFace* face, const Dims& shape) {
    return face->handles().Tensor(TensorView{kNumber, DType::kF32, shape, {}});
  };
  const GroupedMistake mistakes[] = {
      {"keyAntiquantMode=1, want 0 or 3 (queryQuantMode 3)", [](InferFace* f) { f->p.key_mode = 1; }},
      {"valueAntiquantMode=0, want 2 (queryQuantMode 3, keyAntiquantMode 3)",
       [](InferFace* f) { f->p.value_mode = 0; }},
      {"quantScale1: given, want none (queryQuantMode 3, keyAntiquantMode 0)",
       [&](InferFace* f) {
         f->p.key_mode = f->p.value_mode = 0;
         f->p.quant1 = give(f, {1});
       }},
      {"quantScale1=0, want a number above 0, at most 448", [&](InferFace* f) { f->p.quant1 = give(f, {1}); }},
      {"dequantScaleQuery.shape=[4,5], want [4,6]",
       [&](InferFace* f) {
         f->p.query_scale = give(f, {4, 5});
       }},
      {"keyAntiquantScale: missing", [](InferFace* f) { f->p.key_scale = f->p.value_scale = nullptr; }},
      {"learnableSink: given, want none (dequantScaleQuery: given)", [&](InferFace* f) { f->p.sink = give(f, {4}); }},
      {"deqScale1: given, want none (dequantScaleQuery: given)", [&](InferFace* f) { f->p.deq1 = give(f, {1}); }},
  };
  for (const GroupedMistake& mistake : mistakes) {
    Problem problem = GroupedE4M3();
    problem.Forget();
    InferFace face(problem.Args(), problem.options);
    SetGrouped(problem, &face);
    mistake.make(&face);
    EXPECT_EQ(RunFace(InferVersion::kV5, face.p), ACLNN_ERR_PARAM_INVALID) << mistake.message;
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(mistake.message));
    for (const float value : problem.out) EXPECT_TRUE(std::isnan(value)) << "nothing was written";
  }
}

// A cache with room for one token has a scale per token and head, as longer caches have.
TEST(FusedInferCallers, GroupedQueriesOverOneKey) {
  const float factor = 17.5F;
  Problem problem = Quantized(Layout::kBNSD, DType::kF8E4M3, kRows, kSize);
  problem.keys = problem.values = {problem.Codes({kBatch, kHeadsKv, 1, kSize}, DType::kF8E4M3)};
  problem.lengths_kv = {1, 1};
  problem.args.q_scale = problem.Floats({kBatch, kHeads, kRows});
  problem.args.k_scale = problem.Floats({kBatch, kHeadsKv, 1, 1});
  problem.args.v_scale = problem.Floats({1, kHeadsKv, 1, 1});
  problem.args.quant_scale1 = {&factor, DType::kF32, {1}, {}};
  problem.options.antiquant = Antiquant::kPerToken;
  for (const InferVersion version : {InferVersion::kV4, InferVersion::kV5, InferVersion::kV5Max}) {
    ExpectBitsOfCpp(problem, version, [&](InferFace* face) {
      SetGrouped(problem, face);
      TensorView scale = problem.args.k_scale;
      scale.shape = {kBatch, kHeadsKv, 1};
      face->p.key_scale = face->handles().Tensor(scale);
    });
  }
}

// A decode over int8 caches of vllm-ascend (C8): NZ pages of 32 columns and one scale per column.
TEST(FusedInferCallers, DecodeOverInt8Caches) {
  Problem problem(Layout::kBNSD, 1, 64);
  problem.UsePages({1});
  const Dims pages = {kPages, kHeadsKv, 64 / 32, kPage, 32};
  problem.keys = {problem.Codes(pages, DType::kI8)};
  problem.values = {problem.Codes(pages, DType::kI8)};
  problem.args.k_scale = problem.Floats({1, kHeadsKv, 1, 64});
  problem.args.v_scale = problem.Floats({1, kHeadsKv, 1, 64});
  problem.lengths_q = {};
  for (const InferVersion version : {InferVersion::kV3, InferVersion::kV4}) {
    ExpectBitsOfCpp(problem, version, [&](InferFace* face) {
      const auto as = [&](TensorView view) {
        view.shape = {kHeadsKv, 1, 64};
        return face->handles().Tensor(view);
      };
      face->p.key = face->List(problem.keys, ACL_FORMAT_FRACTAL_NZ);
      face->p.value = face->List(problem.values, ACL_FORMAT_FRACTAL_NZ);
      face->p.key_scale = as(problem.args.k_scale);
      face->p.value_scale = as(problem.args.v_scale);
      face->p.inner_precise = 1;
    });
  }
}

// A step of qwen3_moe: packed queries over a cache of e4m3, [blocks, blockSize, Nkv * D], with a scale per row.
TEST(FusedInferCallers, ChunksOverACacheOfE4M3) {
  Problem problem(Layout::kTND);
  problem.UsePages({1});
  problem.keys = {problem.Codes({kPages, kPage, kHeadsKv * kSize}, DType::kF8E4M3)};
  problem.values = {problem.Codes({kPages, kPage, kHeadsKv * kSize}, DType::kF8E4M3)};
  problem.options.sparse_mode = 3;
  problem.args.dense_mask = Problem::Triangle();
  ExpectBitsWithScales(problem, problem.Floats({kPages, 1, kPage, 1}), {kPages, kPage}, 4);
}

// The image encoder of vllm-ascend: packed sequences without a mask.
TEST(FusedInferCallers, Encoders) {
  Problem problem(Layout::kTND);
  problem.lengths_kv = problem.lengths_q;
  problem.keys = {problem.Floats({kBatch * kRows, kHeadsKv, kSize})};
  problem.values = {problem.Floats({kBatch * kRows, kHeadsKv, kSize})};
  for (const InferVersion version : kInferVersions) {
    ExpectBitsOfCpp(problem, version, [](InferFace* face) {
      face->p.pre = face->p.next = 2147483647;
      face->p.lse_flag = false;
    });
  }
}

}  // namespace
}  // namespace fa::test
