// fa plan merge-lse, indexer-loss-value, scatter, gather: prints the tasks of a plan, without running it.

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "commands/plan/plan_json.h"
#include "fa/cache_rows.h"
#include "fa/indexer_kl_loss.h"
#include "fa/merge_by_lse.h"
#include "files/tensors.h"
#include "flags/cache_form.h"
#include "flags/context_flags.h"
#include "flags/failure.h"
#include "flags/flag_values.h"

namespace fa::tool {
namespace {

struct CachePlanFlags {
  std::string shape, dtype = "bf16", form;
  PlanContextFlags context;
  bool json = false;
};

/// Returns the sizes in --shape, of which there must be `count`. Throws UsageError.
std::vector<int64_t> SizesOf(const CachePlanFlags& flags, const char* want, size_t count) {
  const std::vector<int64_t> shape = ParseIntegers("--shape", flags.shape);
  if (shape.size() != count) throw UsageError(fmt::format("--shape: {} sizes, want {}", shape.size(), want));
  if (!npy::BytesOf(shape, npy::ElementType::kF32)) {
    throw UsageError(fmt::format("--shape: {}, want sizes of at least 0 and tensors below 2^63 bytes", flags.shape));
  }
  return shape;
}

char placeholder;

MutableTensorView Shaped(DType dtype, const Dims& shape) { return {&placeholder, dtype, shape, {}}; }

template <typename Args>
void Print(const Result<PlanFor<Args>>& plan, const CachePlanFlags& flags) {
  ThrowUnlessOkFromShape(plan.status());
  PrintPlan(*plan, flags.json);
}

constexpr const char* kMergeSizes = "PARTS,M,D";

void PlanMerge(const CachePlanFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const std::vector<int64_t> shape = SizesOf(flags, kMergeSizes, 3);
  constexpr int64_t kMostParts = 4096;  // with more, the lists of tensors would take too much memory
  if (shape[0] < 1 || shape[0] > kMostParts) {
    throw UsageError(fmt::format("--shape: PARTS={}, want 1 to {}", shape[0], kMostParts));
  }
  const Dims rows = {shape[1], shape[2]};
  const DType dtype = ParseFloatType(flags.dtype);
  const std::vector<TensorView> lse(static_cast<size_t>(shape[0]), Shaped(DType::kF32, {shape[1]}));
  const std::vector<TensorView> local_out(static_cast<size_t>(shape[0]), Shaped(dtype, rows));
  Print(
      PlanMergeByLse(
          {.lse = lse, .local_out = local_out, .out = Shaped(dtype, rows), .lse_out = Shaped(DType::kF32, {shape[1]})},
          {}, context.get()),
      flags);
}

constexpr const char* kLossSizes = "ROWS,K";

void PlanLossValue(const CachePlanFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const std::vector<int64_t> shape = SizesOf(flags, kLossSizes, 2);
  const MutableTensorView rows = Shaped(ParseFloatType(flags.dtype), {shape[0], shape[1]});
  Print(PlanIndexerKLLoss({.target = rows, .probabilities = rows, .loss = Shaped(DType::kF32, {1})}, {}, context.get()),
        flags);
}

constexpr const char* kRowSizes = "T,N,D,PAGES,ROWS";

/// Returns views of the rows and of the cache that --shape describes.
std::pair<MutableTensorView, MutableTensorView> RowsAndCache(const CachePlanFlags& flags, CacheForm form) {
  const std::vector<int64_t> shape = SizesOf(flags, kRowSizes, 5);
  const int64_t heads = shape[1], size = shape[2], pages = shape[3], page_rows = shape[4];
  const DType dtype = ParseFloatType(flags.dtype);
  const MutableTensorView rows = Shaped(dtype, {shape[0], heads, size});
  if (form == CacheForm::kBnBsND) return {rows, Shaped(dtype, {pages, page_rows, heads, size})};
  if (form == CacheForm::kBnNBsD) return {rows, Shaped(dtype, {pages, heads, page_rows, size})};
  const int64_t chunk = 32 / static_cast<int64_t>(SizeOf(dtype));  // the NZ form stores D in chunks of 32 bytes
  return {rows, Shaped(dtype, {pages, heads, size / chunk, page_rows, chunk})};
}

void PlanScatterOf(const CachePlanFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const CacheForm form = ParseCacheForm(flags.form);
  const auto [rows, cache] = RowsAndCache(flags, form);
  ScatterRowsArgs args;
  args.key = args.value = rows;
  args.slot_mapping = Shaped(DType::kI32, {rows.shape[0]});
  args.key_cache = args.value_cache = cache;
  Print(PlanScatterRows(args, {.form = form}, context.get()), flags);
}

void PlanGatherOf(const CachePlanFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const CacheForm form = ParseCacheForm(flags.form);
  const auto [rows, cache] = RowsAndCache(flags, form);
  GatherRowsArgs args;
  args.key = args.value = rows;
  args.key_cache = args.value_cache = cache;
  args.block_table = Shaped(DType::kI32, {1, cache.shape[0]});
  args.seq_lens = Shaped(DType::kI32, {1});
  Print(PlanGatherRows(args, {.form = form}, context.get()), flags);
}

void AddCommand(CLI::App& plan, const char* name, const char* text, const char* sizes, const char* shape, bool form,
                void (*run)(const CachePlanFlags& flags)) {
  CLI::App* command = plan.add_subcommand(name, text);
  const auto flags = std::make_shared<CachePlanFlags>();
  flags->shape = shape;
  command->add_option("--shape", flags->shape, fmt::format("{}, default {}", sizes, shape))->type_name(sizes);
  command->add_option("--dtype", flags->dtype, "Default: bf16")->type_name("f32|f16|bf16");
  if (form) command->add_option("--form", flags->form, "Default: BnBsND")->type_name("BnBsND|BnNBsD|NZ");
  AddContextFlags(*command, flags->context);
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, run] { run(*flags); });
}

}  // namespace

void AddPlanMergeLse(CLI::App& plan) {
  AddCommand(plan, "merge-lse", "Plan of a merge of partial results by their lse", kMergeSizes, "4,8192,128", false,
             PlanMerge);
}

void AddPlanIndexerLossValue(CLI::App& plan) {
  AddCommand(plan, "indexer-loss-value", "Plan of the value of the KL loss of two distributions", kLossSizes,
             "4096,2048", false, PlanLossValue);
}

void AddPlanScatter(CLI::App& plan) {
  AddCommand(plan, "scatter", "Plan of writing rows into paged caches", kRowSizes, "8192,8,128,1024,128", true,
             PlanScatterOf);
}

void AddPlanGather(CLI::App& plan) {
  AddCommand(plan, "gather", "Plan of reading rows out of paged caches", kRowSizes, "8192,8,128,1024,128", true,
             PlanGatherOf);
}

}  // namespace fa::tool
