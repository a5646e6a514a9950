// Tests which kernels other machines would run. CPU feature words stand for a machine, and shapes and types stand for a
// call.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "core/amx_emulated.h"
#include "core/machine/cpu.h"
#include "fa/fa.h"

namespace fa {
namespace {

using testing::HasSubstr;
using Names = std::vector<std::string>;

struct CpuOf {
  const char* name;
  core::CpuFeatureWords words;
  bool intel = false;
  int cores = 64;
};

// hwcap bit 1 is ASIMD and bit 20 dot products; hwcap2 bit 13 is int8 matrices and bit 14 bf16.
const CpuOf kKunpeng920{"Kunpeng 920", {.hwcap = 1u << 1 | 1u << 20}};
const CpuOf kGraviton3{"Graviton 3", {.hwcap = 1u << 1 | 1u << 20, .hwcap2 = 1u << 13 | 1u << 14}};
// These words have all features of AVX-512 that Sapphire Rapids and Zen 5 have. Leaf 7's edx is 0, so the CPU has no
// tile unit.
constexpr core::CpuFeatureWords kAllOfAvx512{
    .leaf1_ecx = ~0u, .leaf7_ebx = ~0u, .leaf7_ecx = ~0u, .leaf7_1_eax = ~0u, .xcr0 = ~uint64_t{0}};
constexpr core::CpuFeatureWords kWithTiles = [] {
  core::CpuFeatureWords words = kAllOfAvx512;
  words.leaf7_edx = 1u << 22 | 1u << 24 | 1u << 25;
  words.tiles_permitted = true;
  return words;
}();
const CpuOf kSapphireRapids{"Sapphire Rapids", kWithTiles, /*intel=*/true};
const CpuOf kZen5{"Zen 5", kAllOfAvx512};

std::unique_ptr<Context> ContextOf(const CpuOf& cpu) {
  auto context =
      Context::ForPlanning({.isa = core::PreferredIsa(core::HighestIsa(cpu.words), cpu.intel), .cores = cpu.cores});
  return std::move(*context);
}

/// Returns a tensor that counts as given but has no memory for its size. Plans only look at shapes and types.
MutableTensorView Tensor(const Dims& shape, DType dtype) {
  static std::array<std::byte, 64> nowhere;
  return {nowhere.data(), dtype, shape, {}};
}

struct Dense {
  int64_t batch = 1, heads = 8, heads_kv = 8, sq = 4096, sk = 4096, d = 128;
};

template <typename Args>
Args DenseArgs(const Dense& of, DType dtype) {
  Args args;
  args.q = Tensor({of.batch, of.heads, of.sq, of.d}, dtype);
  args.k = args.v = Tensor({of.batch, of.heads_kv, of.sk, of.d}, dtype);
  args.out = Tensor({of.batch, of.heads, of.sq, of.d}, dtype);
  return args;
}

Result<Plan> Forward(const Dense& of, DType dtype, Context* context) {
  return AnyPlan(PlanFlashAttention(DenseArgs<AttentionArgs>(of, dtype), {}, context));
}

Result<Plan> Backward(const Dense& of, DType dtype, Context* context) {
  auto args = DenseArgs<AttentionGradArgs>(of, dtype);
  args.d_out = Tensor(args.out.shape, dtype);
  args.softmax_max = args.softmax_sum = Tensor({of.batch, of.heads, of.sq}, DType::kF32);
  args.dq = Tensor(args.q.shape, dtype);
  args.dk = args.dv = Tensor(args.k.shape, dtype);
  return AnyPlan(PlanFlashAttentionGrad(args, {}, context));
}

Result<Plan> Prompt(const Dense& of, DType dtype, Context* context) {
  auto args = DenseArgs<PromptAttentionArgs>(of, dtype);
  if (dtype == DType::kI8) {
    args.deq_scale1 = args.quant_scale1 = args.deq_scale2 = args.quant_scale2 = Tensor({1}, DType::kF32);
  }
  return AnyPlan(PlanPromptFlashAttention(args, {}, context));
}

Result<Plan> Decode(const Dense& of, DType dtype, DType kv_dtype, Context* context) {
  const TensorView keys = Tensor({of.batch, of.heads_kv, of.sk, of.d}, kv_dtype);
  DecodeAttentionArgs args;
  args.q = args.out = Tensor({of.batch, of.heads, of.sq, of.d}, dtype);
  args.k = args.v = std::span<const TensorView>(&keys, 1);
  if (kv_dtype == DType::kI8) args.antiquant_scale = Tensor({2}, dtype);
  return AnyPlan(PlanDecodeAttention(args, {}, context));
}

/// The sizes of a sparse call: tokens of one sequence with 8192 keys, of which each token selects 2048.
constexpr int64_t kPlannedTokens = 256, kPlannedKeys = 8192, kSelected = 2048, kSize = 512, kRope = 64,
                  kIndexSize = 128;

template <typename Args>
Args SparseArgs(int64_t heads, DType dtype) {
  Args args;
  args.q = Tensor({1, kPlannedTokens, heads, kSize}, dtype);
  args.k = Tensor({1, kPlannedKeys, 1, kSize}, dtype);
  args.q_rope = Tensor({1, kPlannedTokens, heads, kRope}, dtype);
  args.k_rope = Tensor({1, kPlannedKeys, 1, kRope}, dtype);
  args.sparse_indices = Tensor({1, kPlannedTokens, 1, kSelected}, DType::kI32);
  args.softmax_max = args.softmax_sum = Tensor({1, 1, kPlannedTokens, heads}, DType::kF32);
  return args;
}

Result<Plan> SparseForward(int64_t heads, DType dtype, Context* context) {
  auto args = SparseArgs<SparseAttentionArgs>(heads, dtype);
  args.out = Tensor({1, kPlannedTokens, heads, kSize}, dtype);
  return AnyPlan(PlanSparseFlashAttention(args, {}, context));
}

Result<Plan> SparseBackward(int64_t heads, DType dtype, Context* context) {
  auto args = SparseArgs<SparseAttentionGradArgs>(heads, dtype);
  args.out = args.d_out = args.dq = Tensor({1, kPlannedTokens, heads, kSize}, dtype);
  args.dk = Tensor({1, kPlannedKeys, 1, kSize}, dtype);
  args.dq_rope = Tensor({1, kPlannedTokens, heads, kRope}, dtype);
  args.dk_rope = Tensor({1, kPlannedKeys, 1, kRope}, dtype);
  return AnyPlan(PlanSparseFlashAttentionGrad(args, {}, context));
}

Result<Plan> Indexer(int64_t tokens, DType dtype, Context* context) {
  LightningIndexerArgs args;
  args.q = Tensor({1, tokens, 64, kIndexSize}, dtype);
  args.k = Tensor({1, kPlannedKeys, 1, kIndexSize}, dtype);
  args.weights = Tensor({1, tokens, 64}, dtype);
  args.sparse_indices = Tensor({1, tokens, 1, kSelected}, DType::kI32);
  return AnyPlan(PlanLightningIndexer(args, {}, context));
}

Result<Plan> IndexerBackward(DType dtype, Context* context) {
  LightningIndexerGradArgs args;
  args.q = args.dq = Tensor({1, kPlannedTokens, 64, kIndexSize}, dtype);
  args.k = args.dk = Tensor({1, kPlannedKeys, 1, kIndexSize}, dtype);
  args.weights = args.dweights = Tensor({1, kPlannedTokens, 64}, dtype);
  args.sparse_indices = Tensor({1, kPlannedTokens, 1, kSelected}, DType::kI32);
  args.d_values = Tensor({1, kPlannedTokens, 1, kSelected}, dtype);
  return AnyPlan(PlanLightningIndexerGrad(args, {}, context));
}

template <typename Args>
void SetIndexer(DType dtype, Args& args) {
  args.q_index = args.dq_index = Tensor({1, kPlannedTokens, 64, kIndexSize}, dtype);
  args.k_index = args.dk_index = Tensor({1, kPlannedKeys, 1, kIndexSize}, dtype);
  args.weights = args.dweights = Tensor({1, kPlannedTokens, 64}, dtype);
  args.loss = Tensor({1}, DType::kF32);
}

Result<Plan> SparseLoss(DType dtype, Context* context) {
  auto args = SparseArgs<SparseIndexerLossArgs>(128, dtype);
  SetIndexer(dtype, args);
  return AnyPlan(PlanSparseLightningIndexerGradKLLoss(args, {}, context));
}

Result<Plan> DenseLoss(DType dtype, Context* context) {
  DenseIndexerLossArgs args;
  args.q = Tensor({1, kPlannedTokens, 16, kIndexSize}, dtype);
  args.k = Tensor({1, kPlannedKeys, 1, kIndexSize}, dtype);
  args.softmax_max = args.softmax_sum = Tensor({1, 1, kPlannedTokens, 16}, DType::kF32);
  args.softmax_max_index = args.softmax_sum_index = Tensor({1, 1, kPlannedTokens}, DType::kF32);
  SetIndexer(dtype, args);
  return AnyPlan(PlanDenseLightningIndexerGradKLLoss(args, {}, context));
}

/// A call, and the kernels that each machine would run for it.
struct PlannedCall {
  const char* name;
  std::function<Result<Plan>(Context*)> plan;
  Names kunpeng_920, graviton_3, sapphire_rapids, zen_5;
};

std::vector<PlannedCall> Calls() {
  constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kF16 = DType::kF16, kI8 = DType::kI8;
  const Dense prompt, head{.heads = 1, .heads_kv = 1, .sq = 64, .sk = 64}, decode{.heads = 32, .sq = 1},
      own_keys{.batch = 8, .sq = 1};
  return {
      {"forward f32",
       [=](Context* c) { return Forward(prompt, kF32, c); },
       {"f32_6x12_neon", "f32_8x8_neon"},
       {"f32_6x12_neon", "f32_8x8_neon"},
       {"f32_8x48_avx512", "f32_16x16_avx512"},
       {"f32_8x48_avx512", "f32_16x16_avx512"}},
      {"forward bf16",
       [=](Context* c) { return Forward(prompt, kBF16, c); },
       {"f32_6x12_neon", "f32_8x8_neon"},
       {"bf16_8x12_neon_bf16", "bf16_8x8_neon_bf16"},
       {"bf16_32x32_avx512_amx_attend_tiles"},
       {"bf16_8x48_avx512_bf16", "bf16_16x16_avx512_bf16"}},
      {"forward f16",
       [=](Context* c) { return Forward(prompt, kF16, c); },
       {"f32_6x12_neon", "f32_8x8_neon"},
       {"f32_6x12_neon", "f32_8x8_neon"},
       {"f32_8x48_avx512", "f32_16x16_avx512"},
       {"f32_8x48_avx512", "f32_16x16_avx512"}},
      {"forward f32, 64 rows and keys",
       [=](Context* c) { return Forward(head, kF32, c); },
       {"f32_6x12_row_state_neon", "f32_8x8_row_state_neon"},
       {"f32_6x12_row_state_neon", "f32_8x8_row_state_neon"},
       {"f32_8x48_row_state_avx512", "f32_16x16_row_state_avx512"},
       {"f32_8x48_row_state_avx512", "f32_16x16_row_state_avx512"}},
      {"forward bf16, 64 rows and keys",
       [=](Context* c) { return Forward(head, kBF16, c); },
       {"f32_6x12_row_state_neon", "f32_8x8_row_state_neon"},
       {"bf16_8x12_neon_bf16", "bf16_8x8_neon_bf16"},
       {"bf16_32x32_avx512_amx"},
       {"bf16_8x48_row_state_avx512_bf16", "bf16_16x16_row_state_avx512_bf16"}},
      {"backward f32",
       [=](Context* c) { return Backward(prompt, kF32, c); },
       {"f32_6x12_neon"},
       {"f32_6x12_neon"},
       {"f32_8x48_avx512"},
       {"f32_8x48_avx512"}},
      {"backward bf16",
       [=](Context* c) { return Backward(prompt, kBF16, c); },
       {"f32_6x12_neon"},
       {"bf16_8x12_neon_bf16"},
       {"bf16_32x32_avx512_amx_gradient_tiles"},
       {"bf16_8x48_avx512_bf16"}},
      {"prompt f32",
       [=](Context* c) { return Prompt(prompt, kF32, c); },
       {"f32_6x12_neon", "f32_8x8_neon"},
       {"f32_6x12_neon", "f32_8x8_neon"},
       {"f32_8x48_avx512", "f32_16x16_avx512"},
       {"f32_8x48_avx512", "f32_16x16_avx512"}},
      {"prompt int8",
       [=](Context* c) { return Prompt(prompt, kI8, c); },
       {"i8_6x12_neon_dotprod", "i8_6x4_neon_dotprod"},
       {"i8_8x12_neon_bf16", "i8_8x4_neon_bf16"},
       {"i8_32x32_avx512_amx"},
       {"i8_8x32_avx512_vnni"}},
      {"decode f32, 4 heads per head of keys",
       [=](Context* c) { return Decode(decode, kF32, kF32, c); },
       {"few_4_neon"},
       {"few_4_neon"},
       {"few_4_avx512"},
       {"few_4_floats_avx512_bf16"}},
      {"decode bf16, one head per head of keys",
       [=](Context* c) { return Decode(own_keys, kBF16, kBF16, c); },
       {"few_1_neon"},
       {"few_1_neon"},
       {"few_1_avx512"},
       {"few_1_floats_avx512_bf16"}},
      {"decode bf16 of int8 keys",
       [=](Context* c) { return Decode(decode, kBF16, kI8, c); },
       {"few_4_neon"},
       {"few_4_neon"},
       {"few_4_avx512"},
       {"few_4_avx512_bf16"}},
      {"sparse forward bf16, 128 heads",
       [=](Context* c) { return SparseForward(128, kBF16, c); },
       {"f32_6x12_neon", "f32_8x8_neon"},
       {"bf16_8x12_neon_bf16", "bf16_8x8_neon_bf16"},
       {"bf16_32x32_avx512_amx"},
       {"bf16_8x48_avx512_bf16", "bf16_8x32_avx512_bf16"}},
      {"sparse forward bf16, 16 heads",
       [=](Context* c) { return SparseForward(16, kBF16, c); },
       {"f32_8x8_neon"},
       {"bf16_8x8_neon_bf16"},
       {"bf16_32x16_avx512_amx"},
       {"bf16_16x16_in_place_avx512_bf16"}},
      {"sparse forward f32, one head",
       [=](Context* c) { return SparseForward(1, kF32, c); },
       {"few_1_neon"},
       {"few_1_neon"},
       {"few_1_avx512"},
       {"few_1_floats_avx512_bf16"}},
      {"sparse backward bf16",
       [=](Context* c) { return SparseBackward(128, kBF16, c); },
       {"f32_6x12_neon", "f32_8x8_neon"},
       {"bf16_8x12_neon_bf16", "bf16_8x8_neon_bf16"},
       {"bf16_32x32_avx512_amx"},
       {"bf16_8x48_avx512_bf16", "bf16_8x32_avx512_bf16"}},
      {"sparse backward bf16, 16 heads",
       [=](Context* c) { return SparseBackward(16, kBF16, c); },
       {"f32_8x8_neon"},
       {"bf16_8x8_neon_bf16"},
       {"bf16_32x16_avx512_amx"},
       {"bf16_16x16_in_place_avx512_bf16"}},
      {"indexer bf16",
       [=](Context* c) { return Indexer(kPlannedTokens, kBF16, c); },
       {"f32_6x12_neon", "f32_8x8_neon", "indexer_neon"},
       {"bf16_8x12_neon_bf16", "bf16_8x8_neon_bf16", "indexer_neon"},
       {"bf16_32x32_avx512_amx_head_tiles", "bf16_32x32_avx512_amx", "indexer_avx512"},
       {"bf16_8x48_avx512_bf16", "bf16_8x32_avx512_bf16", "indexer_avx512"}},
      {"indexer bf16, two tokens",
       [=](Context* c) { return Indexer(2, kBF16, c); },
       {"f32_6x12_neon", "f32_8x8_neon", "indexer_neon"},
       {"bf16_8x12_neon_bf16", "bf16_8x8_neon_bf16", "indexer_neon"},
       {"bf16_32x32_avx512_amx", "bf16_32x32_avx512_amx", "indexer_avx512"},
       {"bf16_8x48_avx512_bf16", "bf16_8x32_avx512_bf16", "indexer_avx512"}},
      {"indexer f32, one token",
       [=](Context* c) { return Indexer(1, kF32, c); },
       {"f32_6x12_neon", "f32_8x8_neon", "indexer_neon"},
       {"f32_6x12_neon", "f32_8x8_neon", "indexer_neon"},
       {"f32_8x48_avx512", "f32_8x32_avx512", "indexer_avx512"},
       {"f32_8x48_avx512", "f32_8x32_avx512", "indexer_avx512"}},
      {"indexer backward bf16",
       [=](Context* c) { return IndexerBackward(kBF16, c); },
       {"f32_8x8_neon", "indexer_neon"},
       {"bf16_8x8_neon_bf16", "indexer_neon"},
       {"bf16_32x32_avx512_amx", "indexer_avx512"},
       {"bf16_8x32_avx512_bf16", "indexer_avx512"}},
      {"sparse loss bf16",
       [=](Context* c) { return SparseLoss(kBF16, c); },
       {"f32_8x8_neon", "indexer_neon", "f32_8x8_neon"},
       {"bf16_8x8_neon_bf16", "indexer_neon", "bf16_8x8_neon_bf16"},
       {"bf16_32x32_avx512_amx", "indexer_avx512", "bf16_32x32_avx512_amx"},
       {"bf16_8x32_avx512_bf16", "indexer_avx512", "bf16_8x32_avx512_bf16"}},
      {"dense loss f32",
       [=](Context* c) { return DenseLoss(kF32, c); },
       {"f32_8x8_neon", "f32_8x8_neon", "indexer_neon"},
       {"f32_8x8_neon", "f32_8x8_neon", "indexer_neon"},
       {"f32_16x16_avx512", "f32_8x32_avx512", "indexer_avx512"},
       {"f32_16x16_avx512", "f32_8x32_avx512", "indexer_avx512"}},
  };
}

struct Expectation {
  const CpuOf& cpu;
  const Names PlannedCall::*kernels;
};
const Expectation kMachines[] = {{kKunpeng920, &PlannedCall::kunpeng_920},
                                 {kGraviton3, &PlannedCall::graviton_3},
                                 {kSapphireRapids, &PlannedCall::sapphire_rapids},
                                 {kZen5, &PlannedCall::zen_5}};

TEST(OtherMachines, RunKernelsOfTheirOwnInTwentyCalls) {
  const std::vector<PlannedCall> calls = Calls();
  ASSERT_GE(calls.size(), 20U);
  for (const Expectation& machine : kMachines) {
    const std::unique_ptr<Context> context = ContextOf(machine.cpu);
    for (const PlannedCall& call : calls) {
      const Result<Plan> plan = call.plan(context.get());
      ASSERT_TRUE(plan.ok()) << machine.cpu.name << ", " << call.name << ": " << plan.status().message();
      EXPECT_EQ(plan->info().kernels, call.*machine.kernels) << machine.cpu.name << ", " << call.name;
      EXPECT_EQ(plan->info().workers, 64) << machine.cpu.name << ", " << call.name;
    }
  }
}

TEST(OtherMachines, NoCallOfALevelWithKernelsFallsBackToPortable) {
  for (const Isa isa : AllIsas()) {
    if (isa == core::kAmxEmulated) continue;  // this level has kernels only for pairs of bf16
    const auto context = Context::ForPlanning({.isa = isa, .cores = 2});
    ASSERT_TRUE(context.ok());
    for (const PlannedCall& call : Calls()) {
      const Result<Plan> plan = call.plan(context->get());
      ASSERT_TRUE(plan.ok()) << Name(isa) << ", " << call.name << ": " << plan.status().message();
      for (const std::string& kernel : plan->info().kernels) {
        EXPECT_EQ(kernel.ends_with("portable"), isa == Isa::kPortable) << Name(isa) << ", " << call.name << kernel;
      }
    }
  }
}

TEST(OtherMachines, MergesSayThatTheirRowsArePortable) {
  MergeArgs args;
  args.prev_out = args.cur_out = args.out = Tensor({1, 8, 4096, 128}, DType::kBF16);
  args.prev_max = args.cur_max = args.prev_sum = args.cur_sum = Tensor({1, 8, 4096}, DType::kF32);
  args.softmax_max = args.softmax_sum = Tensor({1, 8, 4096}, DType::kF32);
  for (const Expectation& machine : kMachines) {
    const std::unique_ptr<Context> context = ContextOf(machine.cpu);
    const auto plan = PlanMergePartials(args, {.layout = Layout::kBNSD}, context.get());
    ASSERT_TRUE(plan.ok()) << machine.cpu.name << ": " << plan.status().message();
    EXPECT_EQ(plan->info().kernels, Names{"merge_portable"}) << machine.cpu.name;
  }
}

TEST(OtherMachines, PlansDoNotRun) {
  const auto context = Context::ForPlanning({.isa = Isa::kPortable, .cores = 2});
  ASSERT_TRUE(context.ok());
  const auto args = DenseArgs<AttentionArgs>({.heads = 1, .heads_kv = 1, .sq = 4, .sk = 4, .d = 4}, DType::kF32);
  const Status status = FlashAttention(args, {}, context->get());
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("another machine (portable, 2 cores)"));
  std::array<uint8_t, 8> mask{};
  EXPECT_EQ(GenerateDropoutMask({}, 0.5f, 64, mask, context->get()).code(), StatusCode::kUnsupported);
  EXPECT_EQ(mask, (std::array<uint8_t, 8>{}));
}

TEST(OtherMachines, AreRefusedWithNumbersOutOfRange) {
  const auto message = [](const MachineOptions& machine) {
    const auto context = Context::ForPlanning(machine);
    return context.ok() ? std::string() : context.status().message();
  };
  EXPECT_THAT(message({.cores = 0}), HasSubstr("cores=0, want 1..65536"));
  EXPECT_THAT(message({.cores = 4, .numa_nodes = 5}), HasSubstr("numa_nodes=5, want 1..4"));
  EXPECT_THAT(message({.l1_bytes = -1}), HasSubstr("l1_bytes=-1, want 0.."));
  EXPECT_THAT(message({.l2_bytes = -1}), HasSubstr("l2_bytes=-1, want 0.."));
}

}  // namespace
}  // namespace fa
