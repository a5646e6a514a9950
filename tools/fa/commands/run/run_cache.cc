// fa run merge-lse, scatter, gather: reads the inputs from files and writes the outputs to files.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "commands.h"
#include "commands/progress.h"
#include "commands/run/loaded_tensors.h"
#include "fa/cache_rows.h"
#include "fa/merge_by_lse.h"
#include "files/output_files.h"
#include "files/tensors.h"
#include "flags/cache_form.h"
#include "flags/context_flags.h"
#include "flags/failure.h"
#include "flags/flag_values.h"

namespace fa::tool {
namespace {

struct MergeLseFlags {
  std::vector<std::string> lse, local_out;
  std::string dtype, out, lse_out;
  ContextFlags context;
};

struct ScatterFlags {
  std::string form, dtype;
  std::string key, value, slot_mapping, source_rows, key_cache, value_cache, key_cache_out, value_cache_out;
  std::string key_scale, value_scale, key_scale_cache, value_scale_cache, key_scale_cache_out, value_scale_cache_out;
  ContextFlags context;
};

struct GatherFlags {
  std::string form, dtype;
  std::string key_cache, value_cache, block_table, seq_lens, seq_offset, key, value;
  bool cumulative = false;
  std::optional<int64_t> rows;
  ContextFlags context;
};

std::vector<int64_t> ShapeOf(const TensorView& view) { return {view.shape.begin(), view.shape.end()}; }

void RunMergeLse(const MergeLseFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  LoadedTensors files(flags.dtype);
  const std::vector<TensorView> lse = files.LoadAll("--lse", flags.lse);
  const std::vector<TensorView> local_out = files.LoadAll("--local-out", flags.local_out);
  OutputFiles outputs;
  const size_t out_file = outputs.Add("--out", flags.out);
  Tensor out = NewTensor(local_out[0].dtype, ShapeOf(local_out[0]));
  MergeByLseArgs args{.lse = lse, .local_out = local_out, .out = out.MutableView(), .lse_out = {}};
  Tensor lse_out;
  if (!flags.lse_out.empty()) {
    lse_out = NewTensor(DType::kF32, ShapeOf(lse[0]));
    args.lse_out = lse_out.MutableView();
    outputs.Set(outputs.Add("--lse-out", flags.lse_out), lse_out.array);
  }
  {
    const Progress progress("fa run merge-lse");
    ThrowUnlessOk(MergeByLse(args, {}, context.get()));
  }
  outputs.Set(out_file, out.array);
  outputs.Commit();
}

void RunScatter(const ScatterFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  if (flags.value.empty() != flags.value_cache.empty() || flags.value.empty() != flags.value_cache_out.empty()) {
    throw UsageError("--value, --value-cache and --value-cache-out: want all or none");
  }
  if (flags.key_scale_cache.empty() != flags.key_scale_cache_out.empty() ||
      flags.value_scale_cache.empty() != flags.value_scale_cache_out.empty()) {
    throw UsageError("--key-scale-cache and --value-scale-cache: want each with its --...-out");
  }
  LoadedTensors files(flags.dtype);
  ScatterRowsArgs args;
  args.key = files.Load("--key", flags.key);
  args.value = files.Load("--value", flags.value);
  args.slot_mapping = files.Load("--slot-mapping", flags.slot_mapping);
  args.source_rows = files.Load("--source-rows", flags.source_rows);
  OutputFiles outputs;
  const auto cache = [&](const char* flag, const std::string& path, const char* out_flag, const std::string& out) {
    if (path.empty()) return MutableTensorView();
    files.Load(flag, path);
    outputs.Set(outputs.Add(out_flag, out), files.last().array);
    return files.last().MutableView();
  };
  args.key_cache = cache("--key-cache", flags.key_cache, "--key-cache-out", flags.key_cache_out);
  args.value_cache = cache("--value-cache", flags.value_cache, "--value-cache-out", flags.value_cache_out);
  args.key_scale = files.Load("--key-scale", flags.key_scale);
  args.value_scale = files.Load("--value-scale", flags.value_scale);
  args.key_scale_cache =
      cache("--key-scale-cache", flags.key_scale_cache, "--key-scale-cache-out", flags.key_scale_cache_out);
  args.value_scale_cache =
      cache("--value-scale-cache", flags.value_scale_cache, "--value-scale-cache-out", flags.value_scale_cache_out);
  {
    const Progress progress("fa run scatter");
    ThrowUnlessOk(ScatterRows(args, {.form = ParseCacheForm(flags.form)}, context.get()));
  }
  outputs.Commit();
}

/// Returns the number of rows of all sequences together. The library checks the lengths later.
int64_t RowsOf(const Tensor& lengths, bool cumulative) {
  const auto wide = lengths.dtype == DType::kI64 ? lengths.array.as<int64_t>() : std::span<const int64_t>();
  const auto narrow = lengths.dtype == DType::kI32 ? lengths.array.as<int32_t>() : std::span<const int32_t>();
  std::vector<int64_t> values(wide.begin(), wide.end());
  values.insert(values.end(), narrow.begin(), narrow.end());
  int64_t rows = 0;
  for (const int64_t value : values) {
    if (__builtin_add_overflow(cumulative ? 0 : rows, std::max<int64_t>(value, 0), &rows)) return 0;
  }
  return rows;
}

/// Returns the shape that rows of this cache have. If the cache does not have the form, the library refuses the cache.
std::vector<int64_t> RowsShape(const TensorView& cache, int64_t rows, CacheForm form) {
  const Dims& shape = cache.shape;
  if (shape.rank() == 5) return {rows, shape[1], shape[2] * shape[4]};
  if (shape.rank() != 4) return {rows, 1, 1};
  if (form == CacheForm::kNZ) return {rows, shape[1] * shape[3]};
  return {rows, shape[form == CacheForm::kBnBsND ? 2 : 1], shape[3]};
}

void RunGather(const GatherFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  if (flags.rows && *flags.rows < 0) throw UsageError(fmt::format("--rows: {}, want at least 0", *flags.rows));
  LoadedTensors files(flags.dtype);
  const GatherRowsOptions options{.form = ParseCacheForm(flags.form), .cumulative = flags.cumulative};
  GatherRowsArgs args;
  args.key_cache = files.Load("--key-cache", flags.key_cache);
  args.value_cache = files.Load("--value-cache", flags.value_cache);
  args.block_table = files.Load("--block-table", flags.block_table);
  args.seq_offset = files.Load("--seq-offset", flags.seq_offset);
  args.seq_lens = files.Load("--seq-lens", flags.seq_lens);
  const int64_t rows = flags.rows ? *flags.rows : RowsOf(files.last(), flags.cumulative);
  OutputFiles outputs;
  const auto output = [&](const char* flag, const std::string& path, const TensorView& cache, Tensor& tensor) {
    const size_t file = outputs.Add(flag, path);
    tensor = NewTensor(cache.dtype, RowsShape(cache, rows, options.form));
    std::memset(tensor.array.bytes(), 0, tensor.array.size_bytes());
    outputs.Set(file, tensor.array);
    return tensor.MutableView();
  };
  Tensor key, value;
  args.key = output("--key", flags.key, args.key_cache, key);
  args.value = output("--value", flags.value, args.value_cache, value);
  {
    const Progress progress("fa run gather");
    ThrowUnlessOk(GatherRows(args, options, context.get()));
  }
  outputs.Commit();
}

void AddForm(CLI::App& command, std::string& form) {
  command.add_option("--form", form, "Form of the caches; default: BnBsND")->type_name("BnBsND|BnNBsD|NZ");
}

}  // namespace

void AddRunMergeLse(CLI::App& run) {
  const auto flags = std::make_shared<MergeLseFlags>();
  FileFlags add(run, "merge-lse", "Merge any number of partial results by their lse");
  add.List("--lse", flags->lse, "Files of float32 [M], one per part; infinite: the part has no keys for the row");
  add.List("--local-out", flags->local_out, "Files of [M,D], one per part");
  add.Needed("--out", flags->out, "Merged output");
  add.Optional("--lse-out", flags->lse_out, "Merged lse, -inf for a row without keys");
  add.End(flags->dtype, flags->context).callback([flags] { RunMergeLse(*flags); });
}

void AddRunScatter(CLI::App& run) {
  const auto flags = std::make_shared<ScatterFlags>();
  FileFlags add(run, "scatter", "Write rows of keys and values into paged caches");
  AddForm(add.command(), flags->form);
  add.Needed("--key", flags->key, "Rows [T,N,D] of any type");
  add.Optional("--value", flags->value, "Rows [T,N,Dv]");
  add.Needed("--slot-mapping", flags->slot_mapping, "int32 or int64 [T]: page * page size + row; negative: skipped");
  add.Optional("--source-rows", flags->source_rows, "int32 or int64 [T]: the row for each place; default: 0,1,2...");
  add.Needed("--key-cache", flags->key_cache, "Cache in --form");
  add.Optional("--value-cache", flags->value_cache, "Cache in --form");
  add.Needed("--key-cache-out", flags->key_cache_out, "The cache with the new rows");
  add.Optional("--value-cache-out", flags->value_cache_out, "The cache with the new rows");
  add.Optional("--key-scale", flags->key_scale, "float32 [1] or [N]: the scale of a cache of int8");
  add.Optional("--value-scale", flags->value_scale, "float32 [1] or [N]: the scale of a cache of int8");
  add.Optional("--key-scale-cache", flags->key_scale_cache,
               "float32 [pages,N,page size,1]: scales of a cache of int8, which the call computes");
  add.Optional("--value-scale-cache", flags->value_scale_cache,
               "float32 [pages,N,page size,1]: scales of a cache of int8, which the call computes");
  add.Optional("--key-scale-cache-out", flags->key_scale_cache_out, "The scales with those of the new rows");
  add.Optional("--value-scale-cache-out", flags->value_scale_cache_out, "The scales with those of the new rows");
  add.End(flags->dtype, flags->context).callback([flags] { RunScatter(*flags); });
}

void AddRunGather(CLI::App& run) {
  const auto flags = std::make_shared<GatherFlags>();
  FileFlags add(run, "gather", "Read the rows of sequences out of paged caches");
  AddForm(add.command(), flags->form);
  add.Needed("--key-cache", flags->key_cache, "Cache in --form");
  add.Needed("--value-cache", flags->value_cache, "Cache in --form");
  add.Needed("--block-table", flags->block_table, "int32 or int64 [B,n]: the pages of each sequence");
  add.Needed("--seq-lens", flags->seq_lens, "int32 or int64 [B]: rows of each sequence; --cumulative [B+1], from 0 on");
  add.Optional("--seq-offset", flags->seq_offset, "int32 or int64 [B]: rows to leave out in front");
  add.command().add_flag("--cumulative", flags->cumulative, "--seq-lens has prefix sums");
  add.command()
      .add_option("--rows", flags->rows, "Rows of the outputs; default: those of all sequences")
      ->type_name("T");
  add.Needed("--key", flags->key, "Rows [T,N,D]; NZ caches of 4 dimensions: [T,N*D]");
  add.Needed("--value", flags->value, "Rows, likewise");
  add.End(flags->dtype, flags->context).callback([flags] { RunGather(*flags); });
}

}  // namespace fa::tool
