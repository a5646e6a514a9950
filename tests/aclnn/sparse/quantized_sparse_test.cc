// Tests aclnnKvQuantSparseFlashAttention, aclnnQuantLightningIndexer and the second versions of the indexers. They give
// the bits of the C++ functions, and an error code for each refused call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "aclnn/calls/run_phases.h"
#include "aclnn/calls/sparse_face.h"
#include "aclnnop/aclnn_kv_quant_sparse_flash_attention.h"
#include "aclnnop/aclnn_lightning_indexer_v2.h"
#include "aclnnop/aclnn_quant_lightning_indexer.h"
#include "aclnnop/aclnn_quant_lightning_indexer_v2.h"
#include "ops/indexer/indexer_case.h"
#include "ops/sparse/sparse_case.h"
#include "support/each_case.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

/// The parameters of aclnnKvQuantSparseFlashAttentionV2, and whether the first version is called.
struct KvQuant {
  const aclTensor *query = nullptr, *key = nullptr, *value = nullptr, *indices = nullptr, *key_scale = nullptr,
                  *value_scale = nullptr, *table = nullptr, *q_lengths = nullptr, *kv_lengths = nullptr,
                  *sinks = nullptr, *out = nullptr;
  double scale = 1;
  int64_t key_mode = 2, value_mode = 2, block_size = 1, sparse_mode = 3, attention_mode = 2, repo_mode = 1;
  int64_t tile = 16, rope = 8;
  std::string layout = "BSND", layout_kv = "BSND";
  bool first_version = false;

  aclnnStatus Plan(uint64_t* size, aclOpExecutor** executor) const {
    char *q = const_cast<char*>(layout.c_str()), *kv = const_cast<char*>(layout_kv.c_str());
    if (first_version) {
      return aclnnKvQuantSparseFlashAttentionGetWorkspaceSize(
          query, key, value, indices, key_scale, value_scale, table, q_lengths, kv_lengths, scale, key_mode, value_mode,
          block_size, q, kv, sparse_mode, 1, 2, attention_mode, repo_mode, tile, rope, out, size, executor);
    }
    return aclnnKvQuantSparseFlashAttentionV2GetWorkspaceSize(
        query, key, value, indices, key_scale, value_scale, table, q_lengths, kv_lengths, sinks, scale, key_mode,
        value_mode, block_size, q, kv, sparse_mode, 1, 2, attention_mode, repo_mode, tile, rope, out, size, executor);
  }
  [[nodiscard]] aclError Run() const {
    return RunPhases([&](auto* size, auto** executor) { return Plan(size, executor); },
                     first_version ? aclnnKvQuantSparseFlashAttention : aclnnKvQuantSparseFlashAttentionV2);
  }
};

KvQuant ParametersOf(const SparseCall& call, Handles& handles) {
  const SparseAttentionArgs args = call.args();
  const SparseAttentionOptions options = call.options();
  KvQuant p;
  p.query = handles.Tensor(args.q);
  p.key = handles.Tensor(args.k);
  p.value = handles.Tensor(args.v.data != nullptr ? args.v : args.k);
  p.indices = handles.Tensor(args.sparse_indices);
  p.table = handles.Tensor(args.block_table);
  p.q_lengths = LengthTensor(args.lengths_q, ACL_INT32, handles);
  p.kv_lengths = LengthTensor(args.lengths_kv, ACL_INT64, handles);
  p.sinks = handles.Tensor(args.sink);
  p.out = handles.Tensor(args.out);
  p.scale = static_cast<double>(static_cast<float>(1 / std::sqrt(static_cast<double>(call.sparse_case().d))));
  p.block_size = options.block_size;
  p.sparse_mode = static_cast<int64_t>(options.mask);
  p.tile = options.row_format.tile;
  p.rope = options.row_format.rope;
  p.layout = p.layout_kv = Name(options.layout);
  if (args.block_table.data != nullptr) p.layout_kv = "PA_BSND";
  p.first_version = args.sink.data == nullptr;
  return p;
}

SparseCase UsualRows() {
  SparseCase c{.heads = 3, .d = 48, .dv = 40, .merged = true, .rows = DType::kI8, .rope_columns = 8};
  c.tokens = UsualTokens(DType::kBF16);
  c.statistics = c.head_mean = false;
  return c;
}

TEST(AclnnKvQuantSparse, EveryCaseGivesTheBitsOfCpp) {
  const auto check = [&](DType dtype, DType rows, Layout layout, int64_t page_rows, bool merged) {
    SparseCase c = UsualRows();
    c.tokens.dtype = dtype;
    c.tokens.layout = layout;
    c.tokens.page_rows = page_rows;
    c.tokens.block_size = merged ? 1 : 4;
    c.rows = rows;
    c.merged = merged;
    c.sink = merged == (page_rows > 0);
    const SparseCall cpp(c), face(c);
    ASSERT_TRUE(cpp.Run(nullptr).ok()) << c;
    Handles handles;
    ASSERT_EQ(ParametersOf(face, handles).Run(), ACL_SUCCESS) << aclGetRecentErrMsg() << "\n " << c;
    EXPECT_TRUE(SameBits(face.Outputs(), cpp.Outputs())) << c;
  };
  ForEachCase(check, Axis{"dtype", kTokenDTypes}, Axis{"rows", {DType::kI8, DType::kF8E4M3}},
              Axis{"layout", {Layout::kBSND, Layout::kTND}}, Axis{"page_rows", {0, 16}}, Axis{"merged", {true, false}});
}

template <typename Parameters>
struct Mistake {
  const char* name;
  aclnnStatus code;
  const char* message;
  std::function<void(Parameters*, Handles*)> make;
};

void* Anything() {
  static double memory[4096];
  return memory;
}

const Mistake<KvQuant> kRowMistakes[] = {
    {"NoKey", ACLNN_ERR_PARAM_NULLPTR, "key: null", [](auto* p, auto*) { p->key = nullptr; }},
    {"NoValue", ACLNN_ERR_PARAM_NULLPTR, "value: null", [](auto* p, auto*) { p->value = nullptr; }},
    {"NoOut", ACLNN_ERR_PARAM_NULLPTR, "out: null", [](auto* p, auto*) { p->out = nullptr; }},
    {"KeyMode", ACLNN_ERR_PARAM_INVALID, "keyQuantMode=1, want 2", [](auto* p, auto*) { p->key_mode = 1; }},
    {"ValueMode", ACLNN_ERR_PARAM_INVALID, "valueQuantMode=0, want 2", [](auto* p, auto*) { p->value_mode = 0; }},
    {"AttentionMode", ACLNN_ERR_PARAM_INVALID, "attentionMode=0, want 2",
     [](auto* p, auto*) { p->attention_mode = 0; }},
    {"RepoMode", ACLNN_ERR_PARAM_INVALID, "quantScaleRepoMode=0, want 1", [](auto* p, auto*) { p->repo_mode = 0; }},
    {"KeyScale", ACLNN_ERR_PARAM_INVALID, "keyDequantScale: given, want null",
     [](auto* p, Handles* h) { p->key_scale = h->Tensor(Anything(), ACL_FLOAT, {1}); }},
    {"ValueScale", ACLNN_ERR_PARAM_INVALID, "valueDequantScale: given, want null",
     [](auto* p, Handles* h) { p->value_scale = h->Tensor(Anything(), ACL_FLOAT, {1}); }},
    {"TooMuchRope", ACLNN_ERR_PARAM_INVALID, "ropeHeadDim=48, want 0..47 (query.shape[3])",
     [](auto* p, auto*) { p->rope = 48; }},
    {"NoTile", ACLNN_ERR_PARAM_INVALID, "tileSize=0, want at least 1", [](auto* p, auto*) { p->tile = 0; }},
    {"OtherTile", ACLNN_ERR_PARAM_INVALID, "key.shape[3]=68, want 76 (bytes per row)",
     [](auto* p, auto*) { p->tile = 8; }},
    {"PlainKeys", ACLNN_ERR_PARAM_INVALID, "key.dtype=bf16, want i8 or f8e4m3 (keyQuantMode)",
     [](auto* p, Handles* h) {
       p->key = p->value = h->Tensor(Anything(), ACL_BF16, {2, 40, 1, 48});
     }},
    {"OutOfTheRope", ACLNN_ERR_PARAM_INVALID, "out.shape[3]=41, want 1..40 (ropeHeadDim)",
     [](auto* p, Handles* h) {
       p->out = h->Tensor(Anything(), ACL_BF16, {2, 7, 3, 41});
     }},
    {"Layouts", ACLNN_ERR_PARAM_INVALID, "layoutKv=\"TND\", want \"BSND\" (layoutQuery) or \"PA_BSND\"",
     [](auto* p, auto*) { p->layout_kv = "TND"; }},
    {"NoTable", ACLNN_ERR_PARAM_INVALID, "blockTable: missing", [](auto* p, auto*) { p->layout_kv = "PA_BSND"; }},
    {"QueryOfNoDimensions", ACLNN_ERR_PARAM_INVALID, "query.shape=[], want 4 dimensions",
     [](auto* p, Handles* h) { p->query = h->Tensor(Anything(), ACL_BF16, {}); }},
    {"QueryWithoutColumns", ACLNN_ERR_PARAM_INVALID, "query.shape[3]=0, want",
     [](auto* p, Handles* h) {
       p->query = h->Tensor(Anything(), ACL_BF16, {2, 7, 3, 0});
     }},
    {"HiFloat8", ACLNN_ERR_PARAM_INVALID, "key: aclDataType 34 (HIFLOAT8) is not supported",
     [](auto* p, Handles* h) {
       p->key = p->value = h->Tensor(Anything(), ACL_HIFLOAT8, {2, 40, 1, 68});
     }},
};

struct Indexer;
Indexer ParametersOf(const IndexerCall& call, Handles& handles);

template <typename Parameters, typename Call, size_t kCount>
void ExpectRefusals(const Mistake<Parameters> (&mistakes)[kCount], const Call& call) {
  for (const Mistake<Parameters>& mistake : mistakes) {
    Handles handles;
    Parameters p = ParametersOf(call, handles);
    mistake.make(&p, &handles);
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    EXPECT_EQ(p.Plan(&size, &executor), mistake.code) << mistake.name;
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(mistake.message)) << mistake.name;
    EXPECT_EQ(executor, nullptr) << mistake.name;
  }
}

TEST(AclnnKvQuantSparse, MistakesAreNamedInTheFirstPhase) { ExpectRefusals(kRowMistakes, SparseCall(UsualRows())); }

/// The parameters of the quantised indexers and of aclnnLightningIndexerV2.
struct Indexer {
  enum class Version : uint8_t { kQuant, kSecond, kQuantSecond } version = Version::kQuant;
  const aclTensor *q = nullptr, *k = nullptr, *w = nullptr, *q_scale = nullptr, *k_scale = nullptr, *cu_q = nullptr,
                  *cu_k = nullptr, *used_q = nullptr, *used_k = nullptr, *residual = nullptr, *table = nullptr,
                  *offset = nullptr, *metadata = nullptr, *indices = nullptr, *values = nullptr;
  int64_t topk = 0, q_mode = 0, k_mode = 0, quant_mode = 2, max_q = -1, mask_mode = 3, ratio = 1, return_value = 1;
  std::string layout = "BSND", layout_k = "BSND";

  aclnnStatus Plan(uint64_t* size, aclOpExecutor** executor) const {
    char *layout_q = const_cast<char*>(layout.c_str()), *of_k = const_cast<char*>(layout_k.c_str());
    switch (version) {
      case Version::kQuant:
        return aclnnQuantLightningIndexerGetWorkspaceSize(q, k, w, q_scale, k_scale, used_q, used_k, table, q_mode,
                                                          k_mode, layout_q, of_k, topk, mask_mode, 1, 2, indices, size,
                                                          executor);
      case Version::kSecond:
        return aclnnLightningIndexerV2GetWorkspaceSize(q, k, w, cu_q, cu_k, used_q, used_k, residual, table, offset,
                                                       metadata, topk, max_q, layout_q, of_k, mask_mode, ratio,
                                                       return_value, indices, values, size, executor);
      case Version::kQuantSecond:
        return aclnnQuantLightningIndexerV2GetWorkspaceSize(
            q, k, w, q_scale, k_scale, cu_q, cu_k, used_q, used_k, residual, table, offset, metadata, topk, quant_mode,
            max_q, layout_q, of_k, mask_mode, ratio, return_value, indices, values, size, executor);
    }
    return ACLNN_ERR_INNER;
  }
  [[nodiscard]] aclError Run() const {
    return RunPhases([&](auto* size, auto** executor) { return Plan(size, executor); },
                     version == Version::kQuant    ? aclnnQuantLightningIndexer
                     : version == Version::kSecond ? aclnnLightningIndexerV2
                                                   : aclnnQuantLightningIndexerV2);
  }
};

/// Returns prefix sums with a leading 0.
aclTensor* SumsTensor(std::span<const int64_t> sums, Handles& handles) {
  std::vector<int64_t> with_zero = {0};
  with_zero.insert(with_zero.end(), sums.begin(), sums.end());
  return LengthTensor(with_zero, ACL_INT32, handles);
}

Indexer ParametersOf(const IndexerCall& call, Handles& handles) {
  const LightningIndexerArgs args = call.args();
  const IndexerCase& c = call.indexer_case();
  const bool paged = args.block_table.data != nullptr, first = c.codes && !c.wants_values;
  Indexer p;
  p.version = first ? Indexer::Version::kQuant : c.codes ? Indexer::Version::kQuantSecond : Indexer::Version::kSecond;
  p.q = handles.Tensor(args.q);
  p.k = handles.Tensor(args.k);
  p.w = handles.Tensor(args.weights);
  p.q_scale = handles.Tensor(args.q_scale);
  p.k_scale = handles.Tensor(args.k_scale);
  if (c.tokens.packed() && !first) {
    p.cu_q = SumsTensor(args.lengths_q, handles);
    if (paged) {
      p.used_k = LengthTensor(args.lengths_kv, ACL_INT32, handles);
    } else {
      p.cu_k = SumsTensor(args.lengths_kv, handles);
    }
  } else {
    p.used_q = LengthTensor(args.lengths_q, ACL_INT32, handles);
    p.used_k = LengthTensor(args.lengths_kv, ACL_INT32, handles);
  }
  p.residual = LengthTensor(args.residual_kv, ACL_INT32, handles);
  p.table = handles.Tensor(args.block_table);
  p.offset = handles.Tensor(args.index_offset);
  p.metadata = handles.Tensor(handles.Memory(4096), ACL_INT32, {1024});
  p.indices = handles.Tensor(args.sparse_indices);
  p.values = handles.Tensor(args.sparse_values);
  p.topk = c.tokens.slots;
  p.quant_mode = c.codes == DType::kI8 ? 2 : 1;
  p.mask_mode = c.tokens.causal ? 3 : 0;
  p.ratio = c.ratio;
  p.layout = p.layout_k = Name(c.tokens.layout);
  if (paged) p.layout_k = first ? "PA_BSND" : "PA_BBND";
  return p;
}

IndexerCase UsualIndexer(std::optional<DType> codes) {
  IndexerCase c{.tokens = UsualTokens(DType::kF16), .f32_values = true, .codes = codes, .scale_dtype = DType::kF16};
  return c;
}

void ExpectBitsOfCpp(const IndexerCase& c) {
  const IndexerCall cpp(c), face(c);
  ASSERT_TRUE(cpp.Run(nullptr).ok()) << c;
  Handles handles;
  ASSERT_EQ(ParametersOf(face, handles).Run(), ACL_SUCCESS) << aclGetRecentErrMsg() << "\n " << c;
  EXPECT_TRUE(SameBits(face.Outputs(), cpp.Outputs())) << c;
}

TEST(AclnnQuantLightningIndexer, EveryCaseGivesTheBitsOfCpp) {
  const auto check = [&](DType codes, DType scales, Layout layout, int64_t page_rows) {
    IndexerCase c = UsualIndexer(codes);
    c.wants_values = false;
    c.scale_dtype = scales;
    c.flat_scales = layout == Layout::kTND;
    c.tokens.layout = layout;
    c.tokens.page_rows = page_rows;
    ExpectBitsOfCpp(c);
  };
  ForEachCase(check, Axis{"codes", {DType::kI8, DType::kF8E4M3}}, Axis{"scales", {DType::kF16, DType::kF32}},
              Axis{"layout", {Layout::kBSND, Layout::kTND}}, Axis{"page_rows", {0, 16}});
}

TEST(AclnnLightningIndexerV2, EveryCaseGivesTheBitsOfCpp) {
  const auto check = [&](std::optional<DType> codes, Layout layout, int64_t page_rows, int64_t ratio, bool causal) {
    IndexerCase c = UsualIndexer(codes);
    c.tokens.layout = layout;
    c.tokens.page_rows = page_rows;
    c.tokens.causal = causal;
    c.ratio = ratio;
    if (ratio > 1) c.residual = {ratio - 1, 0};
    c.offsets = ratio > 1;
    ExpectBitsOfCpp(c);
  };
  const std::optional<DType> codes[] = {std::nullopt, DType::kI8, DType::kF8E4M3};
  for (const auto& type : codes) {
    for (const int64_t ratio : {1, 4}) {
      for (const bool causal : {false, true}) {
        for (const int64_t page_rows : {0, 16}) {
          check(type, Layout::kBSND, page_rows, ratio, causal);
          check(type, Layout::kTND, page_rows, ratio, causal);
        }
      }
    }
  }
}

/// Runs the operator with `run(parameters, handles)` on packed sequences. `used_q` of their queries are in use, and 25
/// and 21 of their keys. Expects the bits of C++.
template <typename Run>
void ExpectBitsOfUsedRows(const std::vector<int64_t>& used_q, Run run) {
  IndexerCase c = UsualIndexer(DType::kI8);
  c.tokens.layout = Layout::kTND;
  const IndexerCall cpp(c), face(c);
  const std::vector<int64_t> used_k = {25, 21};
  LightningIndexerArgs args = cpp.args();
  args.used_q = used_q;
  args.used_kv = used_k;
  ASSERT_TRUE(LightningIndexer(args, cpp.options()).ok());
  Handles handles;
  Indexer p = ParametersOf(face, handles);
  p.used_k = LengthTensor(used_k, ACL_INT64, handles);
  ASSERT_EQ(run(p, handles), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_TRUE(SameBits(face.Outputs(), cpp.Outputs()));
}

TEST(AclnnLightningIndexerV2, UsedRowsOfPackedSequences) {
  const std::vector<int64_t> used_q = {4, 3};
  ExpectBitsOfUsedRows(used_q, [&](Indexer& p, Handles& handles) {
    p.used_q = LengthTensor(used_q, ACL_INT32, handles);
    return p.Run();
  });
}

TEST(AclnnLightningIndexerV2, NumbersInputsAsItsSignature) {
  const std::vector<int64_t> used_q = {2, 1}, planned = {4, 3};
  ExpectBitsOfUsedRows(used_q, [&](Indexer& p, Handles& handles) {
    p.used_q = LengthTensor(planned, ACL_INT64, handles);
    const auto plan = [&](uint64_t* size, aclOpExecutor** executor) {
      const aclnnStatus status = p.Plan(size, executor);
      // Number 7 comes after q, k, w, qDescale, kDescale, cuSeqlensQ and cuSeqlensK.
      const auto set = [&] {
        return aclSetInputTensorAddr(*executor, 7, nullptr, const_cast<int64_t*>(used_q.data()));
      };
      return status == ACLNN_SUCCESS ? set() : status;
    };
    return RunPhases(plan, aclnnQuantLightningIndexerV2);
  });
}

const Mistake<Indexer> kQuantMistakes[] = {
    {"NoScale", ACLNN_ERR_PARAM_NULLPTR, "queryDequantScale: null", [](auto* p, auto*) { p->q_scale = nullptr; }},
    {"NoKeyScale", ACLNN_ERR_PARAM_NULLPTR, "keyDequantScale: null", [](auto* p, auto*) { p->k_scale = nullptr; }},
    {"NoIndices", ACLNN_ERR_PARAM_NULLPTR, "out: null", [](auto* p, auto*) { p->indices = nullptr; }},
    {"QueryMode", ACLNN_ERR_PARAM_INVALID, "queryQuantMode=1, want 0", [](auto* p, auto*) { p->q_mode = 1; }},
    {"KeyMode", ACLNN_ERR_PARAM_INVALID, "keyQuantMode=2, want 0", [](auto* p, auto*) { p->k_mode = 2; }},
    {"AnotherCount", ACLNN_ERR_PARAM_INVALID, "sparseCount=8, want 9 (out.shape[3])",
     [](auto* p, auto*) { p->topk = 8; }},
    {"UnknownMode", ACLNN_ERR_PARAM_INVALID, "sparseMode=4, want 0 or 3", [](auto* p, auto*) { p->mask_mode = 4; }},
    {"ScalesOfOtherHeads", ACLNN_ERR_PARAM_INVALID, "queryDequantScale.shape[2]=3, want 4",
     [](auto* p, Handles* h) {
       p->q_scale = h->Tensor(Anything(), ACL_FLOAT, {2, 7, 3});
     }},
    {"ScalesOfOtherKeys", ACLNN_ERR_PARAM_INVALID, "keyDequantScale.shape[1]=39, want 40 (key.shape[1])",
     [](auto* p, Handles* h) {
       p->k_scale = h->Tensor(Anything(), ACL_FLOAT, {2, 39});
     }},
    {"ScalesInFourDimensions", ACLNN_ERR_PARAM_INVALID, "keyDequantScale.shape=[3,16,1,1], want 3 dimensions (pages)",
     [](auto* p, Handles* h) {
       p->k = h->Tensor(Anything(), ACL_INT8, {3, 16, 1, 16});
       p->k_scale = h->Tensor(Anything(), ACL_FLOAT, {3, 16, 1, 1});
       p->table = h->Tensor(Anything(), ACL_INT32, {2, 3});
       p->layout_k = "PA_BSND";
     }},
    {"FloatsWithScales", ACLNN_ERR_PARAM_INVALID, "query.dtype=f16, want i8 or f8e4m3 (queryDequantScale)",
     [](auto* p, Handles* h) {
       p->q = h->Tensor(Anything(), ACL_FLOAT16, {2, 7, 4, 16});
     }},
};

TEST(AclnnQuantLightningIndexer, MistakesAreNamedInTheFirstPhase) {
  IndexerCase c = UsualIndexer(DType::kI8);
  c.wants_values = false;
  ExpectRefusals(kQuantMistakes, IndexerCall(c));
}

const Mistake<Indexer> kSecondMistakes[] = {
    {"NoWeights", ACLNN_ERR_PARAM_NULLPTR, "w: null", [](auto* p, auto*) { p->w = nullptr; }},
    {"NoValues", ACLNN_ERR_PARAM_NULLPTR, "sparseValues: null", [](auto* p, auto*) { p->values = nullptr; }},
    {"NoScale", ACLNN_ERR_PARAM_NULLPTR, "kDescale: null", [](auto* p, auto*) { p->k_scale = nullptr; }},
    {"ReturnValue", ACLNN_ERR_PARAM_INVALID, "returnValue=2, want 0 or 1", [](auto* p, auto*) { p->return_value = 2; }},
    {"Count", ACLNN_ERR_PARAM_INVALID, "topk=8, want 9 (sparseIndices.shape[3])", [](auto* p, auto*) { p->topk = 8; }},
    {"MaskMode", ACLNN_ERR_PARAM_INVALID, "maskMode=4, want 0 or 3", [](auto* p, auto*) { p->mask_mode = 4; }},
    {"Ratio", ACLNN_ERR_PARAM_INVALID, "cmpRatio=0, want 1..1048576", [](auto* p, auto*) { p->ratio = 0; }},
    {"MaxSeqlen", ACLNN_ERR_PARAM_INVALID, "maxSeqlenQ=-2, want at least -1", [](auto* p, auto*) { p->max_q = -2; }},
    {"Layouts", ACLNN_ERR_PARAM_INVALID, "layoutK=\"PA_BSND\", want \"BSND\" (layoutQ) or \"PA_BBND\"",
     [](auto* p, auto*) { p->layout_k = "PA_BSND"; }},
    {"SumsOfPadded", ACLNN_ERR_PARAM_INVALID, "cuSeqlensQ: given, want null (layoutQ is BSND)",
     [](auto* p, auto*) { p->cu_q = p->used_q; }},
    {"SumsOfPaddedKeys", ACLNN_ERR_PARAM_INVALID, "cuSeqlensK: given, want null (layoutK is not TND)",
     [](auto* p, auto*) { p->cu_k = p->used_q; }},
    {"NoSums", ACLNN_ERR_PARAM_INVALID, "cuSeqlensQ: missing", [](auto* p, auto*) { p->layout = p->layout_k = "TND"; }},
    {"NoTable", ACLNN_ERR_PARAM_INVALID, "blockTable: missing", [](auto* p, auto*) { p->layout_k = "PA_BBND"; }},
    {"QuantModeOfE4M3", ACLNN_ERR_PARAM_INVALID, "quantMode=1, want q of type f8e4m3",
     [](auto* p, auto*) { p->quant_mode = 1; }},
    {"MxFp8", ACLNN_ERR_PARAM_INVALID, "quantMode=3 (MX-quantised e4m3) is not served",
     [](auto* p, auto*) { p->quant_mode = 3; }},
    {"HiFloat8", ACLNN_ERR_PARAM_INVALID, "quantMode=4 (HiFloat8) is not served",
     [](auto* p, auto*) { p->quant_mode = 4; }},
    {"MxFp4", ACLNN_ERR_PARAM_INVALID, "quantMode=5 (MX-quantised FP4) is not served",
     [](auto* p, auto*) { p->quant_mode = 5; }},
    {"QuantMode", ACLNN_ERR_PARAM_INVALID, "quantMode=0, want 1 (e4m3) or 2 (int8)",
     [](auto* p, auto*) { p->quant_mode = 0; }},
    {"OffsetOfOtherRows", ACLNN_ERR_PARAM_INVALID, "outputIdxOffset.shape[1]=6, want 7 (q.shape[1])",
     [](auto* p, Handles* h) {
       p->offset = h->Tensor(Anything(), ACL_INT32, {2, 6, 1});
     }},
    {"LengthsOfAnotherType", ACLNN_ERR_PARAM_INVALID, "sequsedK.dtype=f32, want i32 or i64",
     [](auto* p, Handles* h) { p->used_k = h->Tensor(Anything(), ACL_FLOAT, {2}); }},
    {"ResidualsOfOtherSequences", ACLNN_ERR_PARAM_INVALID, "cmpResidualK has 3 entries, want 2 (batch)",
     [](auto* p, Handles* h) { p->residual = h->Tensor(Anything(), ACL_INT32, {3}); }},
    {"ResidualOfAnotherType", ACLNN_ERR_PARAM_INVALID, "cmpResidualK.dtype=f32, want i32 or i64",
     [](auto* p, Handles* h) { p->residual = h->Tensor(Anything(), ACL_FLOAT, {2}); }},
};

TEST(AclnnQuantLightningIndexerV2, MistakesAreNamedInTheFirstPhase) {
  ExpectRefusals(kSecondMistakes, IndexerCall(UsualIndexer(DType::kI8)));
}

// The first phase knows how many entries each tensor has, so it finds wrong numbers of entries.
const Mistake<Indexer> kPackedMistakes[] = {
    {"UsedOfOtherSequences", ACLNN_ERR_PARAM_INVALID, "sequsedQ has 3 entries, want 2 (batch)",
     [](auto* p, Handles* h) { p->used_q = h->Tensor(Anything(), ACL_INT32, {3}); }},
    {"SumsOfOtherSequences", ACLNN_ERR_PARAM_INVALID, "cuSeqlensK has 4 entries, want 3 (cuSeqlensQ)",
     [](auto* p, Handles* h) { p->cu_k = h->Tensor(Anything(), ACL_INT32, {4}); }},
    {"OnlyTheZero", ACLNN_ERR_PARAM_INVALID, "cuSeqlensQ has 1 entry, want [B+1] for 10 rows",
     [](auto* p, Handles* h) { p->cu_q = h->Tensor(Anything(), ACL_INT32, {1}); }},
};

TEST(AclnnLightningIndexerV2, MistakesOfPackedSequencesAreNamedInTheFirstPhase) {
  IndexerCase c = UsualIndexer(std::nullopt);
  c.tokens.layout = Layout::kTND;
  ExpectRefusals(kPackedMistakes, IndexerCall(c));
}

struct BadContents {
  const char* message;
  std::function<void(Indexer*, Handles*)> make;
  Layout layout = Layout::kTND;
};

const BadContents kBadContents[] = {
    {"cuSeqlensQ[0]=1, want 0",
     [](auto* p, Handles* h) {
       p->cu_q = LengthTensor(std::vector<int64_t>{1, 7, 10}, ACL_INT32, *h);
     }},
    {"cuSeqlensQ[2]=50, want <= 10 (q.shape[0])",
     [](auto* p, Handles* h) {
       p->cu_q = LengthTensor(std::vector<int64_t>{0, 2, 50}, ACL_INT32, *h);
     }},
    {"cuSeqlensK[2]=39, want >= 40 (cuSeqlensK[1])",
     [](auto* p, Handles* h) {
       p->cu_k = LengthTensor(std::vector<int64_t>{0, 40, 39}, ACL_INT32, *h);
     }},
    {"sequsedQ[0]=8, want 0..7 (cuSeqlensQ)",
     [](auto* p, Handles* h) {
       p->used_q = LengthTensor(std::vector<int64_t>{8, 1}, ACL_INT32, *h);
     }},
    {"cmpResidualK[1]=1, want 0..0 (cmpRatio - 1)",
     [](auto* p, Handles* h) {
       p->residual = LengthTensor(std::vector<int64_t>{0, 1}, ACL_INT32, *h);
     }},
    {"sequsedK[0]=41, want 0..40 (k.shape[1])",
     [](auto* p, Handles* h) {
       p->used_k = LengthTensor(std::vector<int64_t>{41, 21}, ACL_INT32, *h);
     },
     Layout::kBSND},
    {"outputIdxOffset[1]=-3, want 0..2147483627",
     [](auto* p, Handles* h) {
       p->offset = LengthTensor(std::vector<int64_t>{0, -3}, ACL_INT32, *h);
     }},
};

TEST(AclnnLightningIndexerV2, BadContentsAreFoundOnTheStream) {
  for (const BadContents& bad : kBadContents) {
    IndexerCase c = UsualIndexer(std::nullopt);
    c.tokens.layout = bad.layout;
    const IndexerCall call(c);
    Handles handles;
    Indexer p = ParametersOf(call, handles);
    bad.make(&p, &handles);
    const Snapshot before = call.TakeSnapshot(/*outputs_may_change=*/false);
    EXPECT_EQ(p.Run(), ACLNN_ERR_PARAM_INVALID) << bad.message;
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(bad.message));
    EXPECT_EQ(before.FirstChange(), -1) << "nothing was written";
  }
}

}  // namespace
}  // namespace fa::test
