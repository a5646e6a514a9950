// Every version of aclnnFusedInferAttentionScore gives the bits of fa::InferAttention. Errors name the wrong parameter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "aclnn/calls/infer_problem.h"
#include "support/each_case.h"

namespace fa::test {
namespace {

using namespace infer;
using ::testing::HasSubstr;

constexpr Layout kLayouts[] = {Layout::kBSH,      Layout::kBSND,      Layout::kBNSD,      Layout::kTND,
                               Layout::kNTD,      Layout::kBNSD_BSND, Layout::kBSH_BNSD,  Layout::kBSND_BNSD,
                               Layout::kBSH_NBSD, Layout::kBSND_NBSD, Layout::kBNSD_NBSD, Layout::kTND_NTD,
                               Layout::kNTD_TND};

TEST(FusedInfer, EveryVersionAndLayout) {
  const auto check = [](InferVersion version, Layout layout) {
    Problem problem(layout);
    ExpectBitsOfCpp(problem, version);
  };
  ForEachCase(check, Axis{"version", kInferVersions}, Axis{"layout", kLayouts});
}

TEST(FusedInfer, WithoutTheLseItsTensorMayBeNullAndIsNotWritten) {
  Problem problem(Layout::kBNSD);
  ExpectBitsOfCpp(problem, InferVersion::kV3, [&](InferFace* face) {
    face->p.lse_flag = false;
    face->p.lse = nullptr;
  });
  ExpectBitsOfCpp(problem, InferVersion::kV3, [&](InferFace* face) { face->p.lse_flag = false; });
  for (const float value : problem.lse) EXPECT_TRUE(std::isnan(value));
}

TEST(FusedInfer, EveryFormOfPages) {
  const Dims forms[] = {
      {kPages, kPage, kHeadsKv * kSize}, {kPages, kHeadsKv, kPage, kSize}, {kPages, kHeadsKv, kSize / 8, kPage, 8}};
  for (const Layout layout : kLayouts) {
    for (const Dims& form : forms) {
      Problem problem(layout);
      problem.UsePages(form);
      ExpectBitsOfCpp(problem, InferVersion::kV1);
      if (form.rank() != 5) continue;
      ExpectBitsOfCpp(problem, InferVersion::kV4, [&](InferFace* face) {
        face->p.key = face->List(problem.keys, ACL_FORMAT_FRACTAL_NZ);
        face->p.value = face->List(problem.values, ACL_FORMAT_FRACTAL_NZ);
      });
    }
  }
}

TEST(FusedInfer, AListOfOneTensorPerBatchElement) {
  Problem problem(Layout::kBNSD);
  problem.keys = {problem.Floats({1, kHeadsKv, 5, kSize}), problem.Floats({1, kHeadsKv, 12, kSize})};
  problem.values = {problem.Floats({1, kHeadsKv, 5, kSize}), problem.Floats({1, kHeadsKv, 12, kSize})};
  problem.lengths_kv = {};
  for (const InferVersion version : kInferVersions) ExpectBitsOfCpp(problem, version);
}

// Scales per token fit the longest tensor of a list. There may be more scales than tokens.
TEST(FusedInfer, ScalesPerTokenOfAList) {
  for (const int64_t first : {1, 5}) {
    for (const int64_t scales : {12, 14}) {
      Problem problem(Layout::kBNSD);
      problem.keys = problem.values = {problem.Codes({1, kHeadsKv, first, kSize}, DType::kI8),
                                       problem.Codes({1, kHeadsKv, 12, kSize}, DType::kI8)};
      problem.lengths_kv = {};
      ExpectBitsWithScales(problem, problem.Floats({kBatch, 1, scales, 1}), {kBatch, scales}, 1);
      ExpectBitsWithScales(problem, problem.Floats({kBatch, kHeadsKv, scales, 1}), {kBatch, kHeadsKv, scales}, 3);
    }
  }
}

TEST(FusedInfer, ScalesOfPackedKeys) {
  for (const DType dtype : {DType::kI8, DType::kF8E4M3}) {
    Problem problem(Layout::kTND);
    problem.keys = problem.values = {problem.Codes({kBatch * kKeys, kHeadsKv, kSize}, dtype)};
    ExpectBitsWithScales(problem, problem.Floats({1, kHeadsKv, 1, kSize}), {kHeadsKv, kSize}, 0);
    ExpectBitsWithScales(problem, problem.Floats({1, kHeadsKv, 1, 1}), {kHeadsKv}, 2);
  }
}

// With a block table, a tensor of three dimensions has pages [pages, page size, Nkv * D]. It is not read as keys [Nkv,
// S, D].
TEST(FusedInfer, ScalesOfPagesInNsd) {
  Problem problem(Layout::kBNSD);
  problem.options.layout = Layout::kNSD;
  problem.UsePages({1});
  problem.args.q.shape = problem.args.out.shape = {kHeads, kRows, kSize};
  problem.args.lse.shape = {1, kHeads, kRows, 1};
  problem.out.resize(kHeads * kRows * kSize);
  problem.lse.resize(kHeads * kRows);
  problem.args.block_table.shape = {1, 3};
  problem.lengths_q = {};
  problem.lengths_kv = {7};
  problem.keys = problem.values = {problem.Codes({kPages, kPage, kHeadsKv * kSize}, DType::kI8)};
  ExpectBitsWithScales(problem, problem.Floats({1, kHeadsKv, 1, kSize}), {kHeadsKv, 1, kSize}, 0);
  ExpectBitsWithScales(problem, problem.Floats({kPages, 1, kPage, 1}), {kPages, kPage}, 4);
}

TEST(FusedInfer, CompressedPrefixes) {
  for (const DType dtype : {DType::kI8, DType::kF8E4M3}) {
    Problem problem(Layout::kBSND);
    problem.keys = problem.values = {problem.Codes({kBatch, kKeys, kHeadsKv, kSize}, dtype)};
    problem.args.k_prefix = problem.Codes({1, 5, kHeadsKv, kSize}, dtype);
    problem.args.v_prefix = problem.Codes({1, 5, kHeadsKv, kSize}, dtype);
    ExpectBitsWithScales(problem, problem.Floats({1, 1, 1, 1}), {1}, 0);
  }
}

TEST(FusedInfer, CombinedScalesOfInt8) {
  for (const Antiquant mode : {Antiquant::kPerTensorOrChannel, Antiquant::kPerToken}) {
    Problem problem(Layout::kBNSD);
    problem.keys = problem.values = {problem.Codes({kBatch, kHeadsKv, kKeys, kSize}, DType::kI8)};
    problem.options.antiquant = mode;
    problem.args.antiquant_scale = problem.Floats(mode == Antiquant::kPerToken ? Dims{2, kBatch, kKeys} : Dims{2});
    ExpectBitsOfCpp(problem, InferVersion::kV1);
  }
}

TEST(FusedInfer, PaddingOnTheLeft) {
  for (const InferVersion version : kInferVersions) {
    Problem problem(Layout::kBSND);
    problem.args.q_padding = problem.Integer(1);
    problem.args.kv_padding = problem.Integer(3);
    problem.lengths_q = {2, 1};
    problem.lengths_kv = {6, 4};
    ExpectBitsOfCpp(problem, version);
  }
}

TEST(FusedInfer, PrefixRopeSinkAndBias) {
  Problem prefix(Layout::kBSND_NBSD);
  prefix.args.k_prefix = prefix.Floats({1, 5, kHeadsKv, kSize});
  prefix.args.v_prefix = prefix.Floats({1, 5, kHeadsKv, kSize});
  prefix.length_prefix = {3};
  for (const InferVersion version : {InferVersion::kV2, InferVersion::kV5}) ExpectBitsOfCpp(prefix, version);
  Problem more(Layout::kBNSD);
  more.args.pse = more.Floats({1, kHeads, kRows, kKeys});
  ExpectBitsOfCpp(more, InferVersion::kV1);
  more.args.q_rope = more.Floats({kBatch, kHeads, kRows, 8});
  more.key_rope = more.Floats({kBatch, kHeadsKv, kKeys, 8});
  ExpectBitsOfCpp(more, InferVersion::kV3);
  more.args.sink = more.Floats({kHeads});
  ExpectBitsOfCpp(more, InferVersion::kV4);
  ExpectBitsOfCpp(more, InferVersion::kV5, [](InferFace* face) {
    face->p.q_start = face->handles().Array({3});
    face->p.kv_start = face->handles().Array({1});
  });
}

TEST(FusedInfer, Masks) {
  for (const int64_t mode : {2, 3, 4}) {
    Problem problem(Layout::kTND);
    problem.options.sparse_mode = mode;
    problem.options.pre = 4;
    problem.options.next = 0;
    problem.args.dense_mask = Problem::Triangle();
    ExpectBitsOfCpp(problem, InferVersion::kV1);
  }
  const std::vector<uint8_t> drop = {0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0};
  Problem tree(Layout::kBNSD);
  tree.options.sparse_mode = 9;
  tree.args.dense_mask = {drop.data(), DType::kU8, {kBatch, kRows, kRows}, {}};
  ExpectBitsOfCpp(tree, InferVersion::kV4);
}

// A single row per batch element needs no mask in modes 2, 3 and 4, unless it is packed or has a rope.
TEST(FusedInfer, MasksOfSingleRows) {
  const auto check = [](Layout layout, int64_t mode, bool rope) {
    Problem problem(layout, 1);
    problem.options.sparse_mode = mode;
    if (rope) {
      const bool rows_third = layout == Layout::kBNSD;
      problem.args.q_rope = problem.Floats(rows_third ? Dims{kBatch, kHeads, 1, 8} : Dims{kBatch, 1, kHeads, 8});
      problem.key_rope =
          problem.Floats(rows_third ? Dims{kBatch, kHeadsKv, kKeys, 8} : Dims{kBatch, kKeys, kHeadsKv, 8});
      const InferFace face(problem.Args(), problem.options);
      EXPECT_EQ(RunFace(InferVersion::kV3, face.p), ACLNN_ERR_PARAM_INVALID);
      EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("attenMask: missing, want [2048,2048]"));
      return;
    }
    problem.lengths_q = {1, 1};
    ExpectBitsOfCpp(problem, InferVersion::kV1);
  };
  ForEachCase(check, Axis{"layout", {Layout::kBNSD, Layout::kBSND}}, Axis{"mode", {2, 3, 4}},
              Axis{"rope", {false, true}});
}

TEST(FusedInfer, Int8Results) {
  Problem problem(Layout::kBNSD_BSND);
  std::vector<int8_t> want(problem.out.size()), got(problem.out.size());
  float scale = 90, offset = -3;
  problem.args.quant_scale2 = {&scale, DType::kF32, {1}, {}};
  problem.args.quant_offset2 = {&offset, DType::kF32, {1}, {}};
  problem.args.out = {want.data(), DType::kI8, problem.args.out.shape, {}};
  const Status status = InferAttention(problem.Args(), problem.options);
  ASSERT_TRUE(status.ok()) << status.message();
  InferFace face(problem.Args(), problem.options);
  face.p.out = face.handles().Tensor({got.data(), DType::kI8, problem.args.out.shape, {}});
  ASSERT_EQ(RunFace(InferVersion::kV1, face.p), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(got, want);
}

// A prefill with int8 queries, keys and values: the int8 products are scaled, and the output has 16 bits.
TEST(FusedInfer, Int8Queries) {
  Problem problem(Layout::kBSND);
  std::vector<uint16_t> want(problem.out.size()), got(problem.out.size());
  problem.args.q = problem.Codes({kBatch, kRows, kHeads, kSize}, DType::kI8);
  problem.keys = {problem.Codes({kBatch, kKeys, kHeadsKv, kSize}, DType::kI8)};
  problem.values = {problem.Codes({kBatch, kKeys, kHeadsKv, kSize}, DType::kI8)};
  const float deq1 = 0.001F, quant1 = 100, deq2 = 0.01F;
  problem.args.deq_scale1 = {&deq1, DType::kF32, {1}, {}};
  problem.args.quant_scale1 = {&quant1, DType::kF32, {1}, {}};
  problem.args.deq_scale2 = {&deq2, DType::kF32, {1}, {}};
  problem.args.out = {want.data(), DType::kF16, problem.args.out.shape, {}};
  problem.args.lse = {};
  const Status status = InferAttention(problem.Args(), problem.options);
  ASSERT_TRUE(status.ok()) << status.message();
  InferFace face(problem.Args(), problem.options);
  face.p.out = face.handles().Tensor({got.data(), DType::kF16, problem.args.out.shape, {}});
  ASSERT_EQ(RunFace(InferVersion::kV1, face.p), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(got, want);
}

// The prefill of latent attention: every tensor is a view with transposed dimensions.
TEST(FusedInferCallers, PrefillOnTransposedViews) {
  Problem problem(Layout::kNTD_TND);
  const auto turned = [&](int64_t tokens, int64_t heads, int64_t columns) {
    TensorView view = problem.Floats({tokens, heads, columns});
    view.shape = {heads, tokens, columns};
    view.stride = {columns, heads * columns, 1};
    return view;
  };
  problem.args.q = turned(kBatch * kRows, kHeads, kSize);
  problem.args.q_rope = turned(kBatch * kRows, kHeads, 8);
  problem.keys = {turned(kBatch * kKeys, kHeadsKv, kSize)};
  problem.values = {turned(kBatch * kKeys, kHeadsKv, kSize)};
  problem.key_rope = turned(kBatch * kKeys, kHeadsKv, 8);
  problem.options.sparse_mode = 3;
  problem.options.next = 0;
  problem.args.dense_mask = Problem::Triangle();
  ExpectBitsOfCpp(problem, InferVersion::kV3);
}

// A step of serving: packed chunks over a cache [blocks, blockSize, Nkv * D], with and without sinks.
TEST(FusedInferCallers, ChunksOverACache) {
  Problem problem(Layout::kTND);
  problem.UsePages({kPages, kPage, kHeadsKv * kSize});
  problem.options.sparse_mode = 3;
  problem.args.dense_mask = Problem::Triangle();
  ExpectBitsOfCpp(problem, InferVersion::kV3, [](InferFace* face) { face->p.lse_flag = false; });
  problem.args.sink = problem.Floats({kHeads});
  ExpectBitsOfCpp(problem, InferVersion::kV4);
  problem.options.sparse_mode = 4;
  problem.options.pre = 3;
  problem.options.next = 0;
  ExpectBitsOfCpp(problem, InferVersion::kV4);
}

// The decode of latent attention: one KV head, whose keys are also its values, and ropes in pages.
TEST(FusedInferCallers, DecodeOfLatentAttention) {
  const auto check = [](Layout layout, bool fractal) {
    Problem problem(layout, 1, 32);
    const auto pages = [&](int64_t columns) {
      return problem.Floats(fractal ? Dims{kPages, 1, columns / 8, kPage, 8} : Dims{kPages, 1, kPage, columns});
    };
    problem.UsePages({1});
    problem.options.heads_kv = 1;
    problem.keys = {pages(32)};
    problem.values = problem.keys;
    problem.key_rope = pages(16);
    problem.args.q_rope = problem.Floats(layout == Layout::kBNSD_NBSD ? Dims{kBatch, kHeads, 1, 16}
                                         : layout == Layout::kTND_NTD ? Dims{kBatch, kHeads, 16}
                                                                      : Dims{kBatch, 1, kHeads, 16});
    if (layout == Layout::kTND_NTD) problem.lengths_q = {1, 2};
    if (layout != Layout::kTND_NTD) problem.lengths_q = {};
    ExpectBitsOfCpp(problem, InferVersion::kV4);
  };
  ForEachCase(check, Axis{"layout", {Layout::kBNSD_NBSD, Layout::kBSND_NBSD, Layout::kTND_NTD}},
              Axis{"fractal", {false, true}});
}

TEST(FusedInferCallers, ModelsOfImages) {
  for (const Layout layout : {Layout::kBNSD, Layout::kBSH, Layout::kBSND}) {
    Problem problem(layout);
    problem.lengths_q = problem.lengths_kv = {};
    problem.options.pre = problem.options.next = 65535;
    ExpectBitsOfCpp(problem, InferVersion::kV1);
    problem.options.sparse_mode = 2;
    problem.args.dense_mask = Problem::Triangle();
    ExpectBitsOfCpp(problem, InferVersion::kV3);
  }
}

// The size from ...GetMaxWorkspaceSize suffices for all contents of the length arrays, and the executor can run.
TEST(FusedInferWorkspace, OfAnyLengths) {
  for (const InferVersion version :
       {InferVersion::kV2Max, InferVersion::kV3Max, InferVersion::kV4Max, InferVersion::kV5Max}) {
    Problem problem(Layout::kTND, 40);
    problem.UsePages({kPages, kPage, kHeadsKv * kSize});
    ExpectBitsOfCpp(problem, version);
    uint64_t most = 0;
    aclOpExecutor* executor = nullptr;
    const std::vector<int64_t> lengths_q = problem.lengths_q, lengths_kv = problem.lengths_kv;
    problem.lengths_q = {-3, -9};
    problem.lengths_kv = {-1, 99};
    {
      const InferFace face(problem.Args(), problem.options);
      ASSERT_EQ(GetWorkspaceSize(version, face.p, &most, &executor), ACL_SUCCESS) << aclGetRecentErrMsg();
      aclDestroyAclOpExecutor(executor);
      EXPECT_EQ(RunFace(version, face.p), ACLNN_ERR_PARAM_INVALID);
      EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("actualSeqLengths"));
    }
    for (const std::vector<int64_t>& rows : {lengths_q, {80, 80}, {0, 1}, {40, 80}}) {
      for (const std::vector<int64_t>& keys : {lengths_kv, {8, 12}, {0, 0}, {1, 12}}) {
        problem.lengths_q = rows;
        problem.lengths_kv = keys;
        const InferFace face(problem.Args(), problem.options);
        uint64_t size = 0;
        ASSERT_EQ(GetWorkspaceSize(InferVersion::kV4, face.p, &size, &executor), ACL_SUCCESS) << aclGetRecentErrMsg();
        EXPECT_LE(size, most);
        std::vector<unsigned char> workspace(most);
        ASSERT_EQ(Execute(InferVersion::kV4, workspace.data(), most, executor, nullptr), ACL_SUCCESS);
        EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
      }
    }
  }
}

struct Mistake {
  const char* name;
  aclnnStatus code;
  const char* message;
  Change make;
};

void* Anything() {
  static float memory[4096];
  return memory;
}

const Mistake kMistakes[] = {
    {"NoQuery", ACLNN_ERR_PARAM_NULLPTR, "query", [](InferFace* f) { f->p.query = nullptr; }},
    {"NoKey", ACLNN_ERR_PARAM_NULLPTR, "key", [](InferFace* f) { f->p.key = nullptr; }},
    {"NoValue", ACLNN_ERR_PARAM_NULLPTR, "value", [](InferFace* f) { f->p.value = nullptr; }},
    {"NoOut", ACLNN_ERR_PARAM_NULLPTR, "attentionOut", [](InferFace* f) { f->p.out = nullptr; }},
    {"NoLse", ACLNN_ERR_PARAM_NULLPTR, "softmaxLse", [](InferFace* f) { f->p.lse = nullptr; }},
    {"NullAmongTheKeys", ACLNN_ERR_INNER_NULLPTR, "key[0]: null",
     [](InferFace* f) {
       f->p.key = f->List({});
       const aclTensor* null = nullptr;
       f->p.key = aclCreateTensorList(&null, 1);
     }},
    {"UnknownLayout", ACLNN_ERR_PARAM_INVALID, "inputLayout=\"SBH\", want one of BSH, BSND",
     [](InferFace* f) { f->p.layout = "SBH"; }},
    {"NoHeads", ACLNN_ERR_PARAM_INVALID, "numHeads=0, want >= 1", [](InferFace* f) { f->p.heads = 0; }},
    {"HeadsDisagree", ACLNN_ERR_PARAM_INVALID, "numHeads=6", [](InferFace* f) { f->p.heads = 6; }},
    {"KeyHeadsDisagree", ACLNN_ERR_PARAM_INVALID, "numKeyValueHeads=1", [](InferFace* f) { f->p.heads_kv = 1; }},
    {"KeyHeadsThatDoNotDivide", ACLNN_ERR_PARAM_INVALID, "numKeyValueHeads=3, want 0 or a divisor of 4",
     [](InferFace* f) { f->p.heads_kv = 3; }},
    {"ScaleNotFinite", ACLNN_ERR_PARAM_INVALID,
     "scaleValue=", [](InferFace* f) { f->p.scale = std::numeric_limits<double>::infinity(); }},
    {"UnknownMode", ACLNN_ERR_PARAM_INVALID, "sparseMode=5", [](InferFace* f) { f->p.sparse_mode = 5; }},
    {"NoTriangle", ACLNN_ERR_PARAM_INVALID, "attenMask: missing, want [2048,2048] (sparseMode 3)",
     [](InferFace* f) { f->p.sparse_mode = 3; }},
    {"NoTree", ACLNN_ERR_PARAM_INVALID, "attenMask: missing", [](InferFace* f) { f->p.sparse_mode = 9; }},
    {"MaskOfFloats", ACLNN_ERR_PARAM_INVALID, "attenMask.dtype=f32",
     [](InferFace* f) {
       f->p.mask = f->handles().Tensor(Anything(), ACL_FLOAT, {kRows, kKeys});
     }},
    {"LengthBeyondTheKeys", ACLNN_ERR_PARAM_INVALID, "actualSeqLengthsKv[0]=10",
     [](InferFace* f) {
       f->p.lengths_kv = f->handles().Array({10, 1});
     }},
    {"LengthBeyondTheQueries", ACLNN_ERR_PARAM_INVALID, "actualSeqLengths[1]=4",
     [](InferFace* f) {
       f->p.lengths = f->handles().Array({1, 4});
     }},
    {"RopeScale", ACLNN_ERR_PARAM_INVALID, "keyRopeAntiquantScale is not served",
     [](InferFace* f) { f->p.rope_scale = f->handles().Tensor(Anything(), ACL_FLOAT, {1}); }},
    {"QueryScale", ACLNN_ERR_PARAM_INVALID, "dequantScaleQuery: given, want none (queryQuantMode 0)",
     [](InferFace* f) { f->p.query_scale = f->handles().Tensor(Anything(), ACL_FLOAT, {1}); }},
    {"QueryMode", ACLNN_ERR_PARAM_INVALID, "dequantScaleQuery: missing, want it with queryQuantMode 3",
     [](InferFace* f) { f->p.query_mode = 3; }},
    {"QueryModeMx", ACLNN_ERR_PARAM_INVALID, "queryQuantMode=6 is not served",
     [](InferFace* f) { f->p.query_mode = 6; }},
    {"QueryModeOther", ACLNN_ERR_PARAM_INVALID, "queryQuantMode=2, want 0 or 3",
     [](InferFace* f) { f->p.query_mode = 2; }},
    {"PseType", ACLNN_ERR_PARAM_INVALID, "pseType=2, want 0", [](InferFace* f) { f->p.pse_type = 2; }},
    {"AntiquantMode", ACLNN_ERR_PARAM_INVALID, "antiquantMode=2, want 0 or 1",
     [](InferFace* f) { f->p.antiquant_mode = 2; }},
    {"HiFloat8", ACLNN_ERR_PARAM_INVALID, "query: aclDataType 34 (HIFLOAT8) is not supported",
     [](InferFace* f) {
       f->p.query = f->handles().Tensor(Anything(), ACL_HIFLOAT8, {kBatch, kHeads, kRows, kSize});
     }},
    {"ProductScale", ACLNN_ERR_PARAM_INVALID, "deqScale1: given, want none",
     [](InferFace* f) { f->p.deq1 = f->handles().Tensor(Anything(), ACL_FLOAT, {1}); }},
    {"OneRope", ACLNN_ERR_PARAM_INVALID, "keyRope",
     [](InferFace* f) {
       f->p.query_rope = f->handles().Tensor(Anything(), ACL_FLOAT, {kBatch, kHeads, kRows, 8});
     }},
    {"OnePrefix", ACLNN_ERR_PARAM_INVALID, "valueSharedPrefix",
     [](InferFace* f) {
       f->p.key_prefix = f->handles().Tensor(Anything(), ACL_FLOAT, {1, kHeadsKv, 5, kSize});
     }},
    {"PaddingOfInt32", ACLNN_ERR_PARAM_INVALID, "kvPaddingSize.dtype=i32, want i64",
     [](InferFace* f) { f->p.kv_padding = f->handles().Tensor(Anything(), ACL_INT32, {1}); }},
    {"ResultOfAnotherShape", ACLNN_ERR_PARAM_INVALID, "attentionOut.shape",
     [](InferFace* f) {
       f->p.out = f->handles().Tensor(Anything(), ACL_FLOAT, {kBatch, kHeads, kRows, 5});
     }},
    {"LseOfAnotherType", ACLNN_ERR_PARAM_INVALID, "softmaxLse.dtype",
     [](InferFace* f) {
       f->p.lse = f->handles().Tensor(Anything(), ACL_FLOAT16, {kBatch, kHeads, kRows, 1});
     }},
};

class FusedInferErrors : public ::testing::TestWithParam<Mistake> {};

TEST_P(FusedInferErrors, NameTheParameter) {
  Problem problem(Layout::kBNSD);
  problem.Forget();
  InferFace face(problem.Args(), problem.options);
  GetParam().make(&face);
  EXPECT_EQ(RunFace(InferVersion::kV5, face.p), GetParam().code);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(GetParam().message));
  for (const float value : problem.out) EXPECT_TRUE(std::isnan(value)) << "nothing was written";
}

INSTANTIATE_TEST_SUITE_P(All, FusedInferErrors, ::testing::ValuesIn(kMistakes),
                         [](const auto& info) { return info.param.name; });

// Mistakes in the contents of tensors are found when the stream reaches the operator.
TEST(FusedInferErrors, ContentsAreCheckedBeforeAnythingIsWritten) {
  Problem problem(Layout::kBNSD);
  problem.UsePages({kPages, kHeadsKv, kPage, kSize});
  problem.Forget();
  InferFace face(problem.Args(), problem.options);
  std::vector<int32_t> table = {5, 0, -1, 2, 7, 1};
  face.p.block_table = face.handles().Tensor(table.data(), ACL_INT32, {kBatch, 3});
  EXPECT_EQ(RunFace(InferVersion::kV1, face.p), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("blockTable[1][1]=7, want 0..6"));
  for (const float value : problem.out) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace fa::test
