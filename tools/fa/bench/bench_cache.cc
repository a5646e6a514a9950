// fa bench scatter, gather: times how rows go into a paged cache and come out of it, next to memcpy of as many bytes.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench_report.h"
#include "commands.h"
#include "commands/progress.h"
#include "fa/cache_rows.h"
#include "flags/cache_form.h"
#include "flags/failure.h"
#include "flags/flag_values.h"
#include "peak/bracketed_rounds.h"
#include "peak/copy_bandwidth.h"

namespace fa::tool {
namespace {

struct CacheBenchFlags {
  int64_t rows = 65536, heads = 8, head_size = 128, block_size = 128;
  std::string dtype = "bf16", form, order = "random";
  MeasureFlags measure;
};

/// Rows of keys and values, a cache of pages for them, and the place of each row.
class CacheRows {
 public:
  explicit CacheRows(const CacheBenchFlags& flags)
      : dtype(ParseFloatType(flags.dtype)), form(ParseCacheForm(flags.form)) {
    for (const auto& [flag, size] : {std::pair{"--rows", flags.rows},
                                     {"--heads", flags.heads},
                                     {"--head-size", flags.head_size},
                                     {"--block-size", flags.block_size}}) {
      if (size < 1 || size > (int64_t{1} << 31)) throw UsageError(fmt::format("{}: {}, want 1..2^31", flag, size));
    }
    if (form == CacheForm::kNZ) throw UsageError("--form: NZ, want BnBsND or BnNBsD");
    if (flags.order != "random" && flags.order != "ascending") {
      throw UsageError(fmt::format("--order: '{}', want random or ascending", flags.order));
    }
    rows = flags.rows;
    row_bytes = static_cast<size_t>(flags.heads * flags.head_size) * SizeOf(dtype);
    const int64_t pages = (rows + flags.block_size - 1) / flags.block_size;
    const bool heads_first = form == CacheForm::kBnNBsD;
    row_shape = {rows, flags.heads, flags.head_size};
    cache_shape = heads_first ? Dims{pages, flags.heads, flags.block_size, flags.head_size}
                              : Dims{pages, flags.block_size, flags.heads, flags.head_size};
    for (auto* memory : {&keys, &values}) memory->resize(static_cast<size_t>(rows) * row_bytes);
    for (auto* memory : {&key_cache, &value_cache}) {
      memory->resize(static_cast<size_t>(pages * flags.block_size) * row_bytes);
    }
    slots.resize(static_cast<size_t>(rows));
    std::iota(slots.begin(), slots.end(), int64_t{0});
    table.resize(static_cast<size_t>(pages));
    std::iota(table.begin(), table.end(), int32_t{0});
    if (flags.order == "random") {
      // The generator and the shuffle are written out, because std::shuffle gives another order with another library.
      uint64_t state = 1;
      const auto shuffle = [&state](auto& numbers) {
        for (size_t i = numbers.size(); i > 1; --i) {
          state = state * 6364136223846793005u + 1442695040888963407u;
          std::swap(numbers[i - 1], numbers[(state >> 33) % i]);
        }
      };
      shuffle(slots);
      shuffle(table);
    }
  }

  /// Gives each byte a value that depends on its place.
  static void Fill(std::vector<std::byte>& memory, size_t seed) {
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>((i * 2654435761u + seed) >> 7);
  }
  [[nodiscard]] double bytes() const { return 2 * static_cast<double>(keys.size()); }
  [[nodiscard]] TensorView Rows(std::vector<std::byte>& memory) const { return {memory.data(), dtype, row_shape, {}}; }
  [[nodiscard]] TensorView Cache(std::vector<std::byte>& memory) const {
    return {memory.data(), dtype, cache_shape, {}};
  }
  /// Checks that row `row` lies at place `slot` of the cache, head by head.
  void CheckRow(const std::vector<std::byte>& memory, const std::vector<std::byte>& cache, int64_t row,
                int64_t slot) const {
    const bool heads_first = form == CacheForm::kBnNBsD;
    const int64_t heads = row_shape[1], page_rows = cache_shape[heads_first ? 2 : 1];
    const size_t head_bytes = row_bytes / static_cast<size_t>(heads);
    for (int64_t n = 0; n < heads; ++n) {
      const int64_t at = heads_first ? (slot / page_rows * heads + n) * page_rows + slot % page_rows : slot * heads + n;
      if (std::memcmp(&memory[static_cast<size_t>(row * heads + n) * head_bytes],
                      &cache[static_cast<size_t>(at) * head_bytes], head_bytes) != 0) {
        throw Failure(fmt::format("wrong result, not timed: row {}, head {}", row, n));
      }
    }
  }

  DType dtype;
  CacheForm form;
  int64_t rows = 0;
  size_t row_bytes = 0;
  Dims row_shape, cache_shape;
  std::vector<std::byte> keys, values, key_cache, value_cache;
  std::vector<int64_t> slots;
  std::vector<int32_t> table;
};

struct CacheBench {
  const char* op;
  const std::function<void()>& call;
  bool to_cache;
};

void MeasureRows(const CacheBenchFlags& flags, const Context& context, CacheRows& cache, const CacheBench& bench) {
  auto progress = std::make_unique<Progress>(fmt::format("fa bench {}: ", bench.op));
  auto& keys = bench.to_cache ? cache.keys : cache.key_cache;
  auto& values = bench.to_cache ? cache.values : cache.value_cache;
  auto& key_copy = bench.to_cache ? cache.key_cache : cache.keys;
  auto& value_copy = bench.to_cache ? cache.value_cache : cache.values;
  const size_t bytes = cache.keys.size();
  bench::CopyRate copy(context.threads(),
                       {{{keys.data(), bytes}, key_copy.data()}, {{values.data(), bytes}, value_copy.data()}});
  constexpr double kAgreement = 0.1;  // rates of memory differ more than rates of arithmetic
  const bench::BracketedTiming timing = bench::TimeInRounds(
      {.seconds = flags.measure.seconds,
       .call = bench.call,
       .references = {{.per_call = cache.bytes(),
                       .rate = [&copy](double seconds) { return copy.Measure(seconds); },
                       .agreement = kAgreement}},
       .progress = [&](int percent) { progress->Update(fmt::format("fa bench {}: {} %", bench.op, percent)); }});
  progress.reset();
  const auto or_null = [](const auto& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  const std::string doubt = timing.Doubt();
  const nlohmann::ordered_json json = {
      {"op", bench.op},
      {"rows", cache.rows},
      {"row_bytes", cache.row_bytes},
      {"dtype", Name(cache.dtype)},
      {"form", Name(cache.form)},
      {"order", flags.order},
      {"block_size", flags.block_size},
      {"threads", context.threads()},
      {"seconds", {{"best", timing.best}, {"median", timing.median}, {"busy", or_null(timing.busy)}}},
      {"rows_per_second", 2 * static_cast<double>(cache.rows) / timing.best},
      {"bytes_per_second", cache.bytes() / timing.best},
      {"copy_bytes_per_second", timing.compared[0].rate},
      {"copy_fraction", or_null(timing.compared[0].fraction)},
      {"rounds", {{"all", timing.rounds}, {"quiet", timing.quiet}}},
      {"foreign_cpus", or_null(timing.foreign_cpus)},
      {"doubt", doubt.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(doubt)}};
  if (flags.measure.json) {
    fmt::print("{}\n", json.dump(2));
    return;
  }
  fmt::print("{}, {} {} {} rows of {} bytes of keys and of values, pages of {} rows ({}), {} threads\n", bench.op,
             cache.rows, flags.order, Name(cache.dtype), cache.row_bytes, flags.block_size, Name(cache.form),
             context.threads());
  fmt::print("seconds  {:.6g} best, {:.6g} median; {} of {} rounds quiet\n", timing.best, timing.median, timing.quiet,
             timing.rounds);
  const auto& fraction = timing.compared[0].fraction;
  fmt::print("rate     {:.4g} rows/s, {:.2f} GB/s, {} the {:.2f} of memcpy around the same round\n",
             2 * static_cast<double>(cache.rows) / timing.best, cache.bytes() / timing.best * 1e-9,
             fraction ? fmt::format("{:.1f} % of", 100 * *fraction) : "not compared with",
             timing.compared[0].rate * 1e-9);
  if (!doubt.empty()) fmt::print("doubtful {}\n", doubt);
}

void BenchScatter(const CacheBenchFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.measure.context);
  CacheRows cache(flags);
  CacheRows::Fill(cache.keys, 1);
  CacheRows::Fill(cache.values, 2);
  ScatterRowsArgs args;
  args.key = cache.Rows(cache.keys);
  args.value = cache.Rows(cache.values);
  args.slot_mapping = {cache.slots.data(), DType::kI64, {cache.rows}, {}};
  args.key_cache = {cache.key_cache.data(), cache.dtype, cache.cache_shape, {}};
  args.value_cache = {cache.value_cache.data(), cache.dtype, cache.cache_shape, {}};
  auto plan = PlanScatterRows(args, {.form = cache.form}, context.get());
  ThrowUnlessOk(plan.status());
  Workspace workspace;
  const std::function<void()> call = [&] { ThrowUnlessOk(plan->Run(args, workspace)); };
  call();
  for (int64_t t = 0; t < cache.rows; ++t) {
    cache.CheckRow(cache.keys, cache.key_cache, t, cache.slots[static_cast<size_t>(t)]);
    cache.CheckRow(cache.values, cache.value_cache, t, cache.slots[static_cast<size_t>(t)]);
  }
  MeasureRows(flags, *context, cache, {"scatter", call, /*to_cache=*/true});
}

void BenchGather(const CacheBenchFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.measure.context);
  CacheRows cache(flags);
  CacheRows::Fill(cache.key_cache, 1);
  CacheRows::Fill(cache.value_cache, 2);
  const int64_t lengths[] = {cache.rows};
  GatherRowsArgs args;
  args.key_cache = cache.Cache(cache.key_cache);
  args.value_cache = cache.Cache(cache.value_cache);
  args.block_table = {cache.table.data(), DType::kI32, {1, std::ssize(cache.table)}, {}};
  args.seq_lens = {lengths, DType::kI64, {1}, {}};
  args.key = {cache.keys.data(), cache.dtype, cache.row_shape, {}};
  args.value = {cache.values.data(), cache.dtype, cache.row_shape, {}};
  auto plan = PlanGatherRows(args, {.form = cache.form}, context.get());
  ThrowUnlessOk(plan.status());
  Workspace workspace;
  const std::function<void()> call = [&] { ThrowUnlessOk(plan->Run(args, workspace)); };
  call();
  for (int64_t t = 0; t < cache.rows; ++t) {
    const int64_t page = cache.table[static_cast<size_t>(t / flags.block_size)];
    const int64_t slot = page * flags.block_size + t % flags.block_size;
    cache.CheckRow(cache.keys, cache.key_cache, t, slot);
    cache.CheckRow(cache.values, cache.value_cache, t, slot);
  }
  MeasureRows(flags, *context, cache, {"gather", call, /*to_cache=*/false});
}

void AddCacheBench(CLI::App& bench, const char* name, const char* text, void (*run)(const CacheBenchFlags&)) {
  CLI::App* command = bench.add_subcommand(name, text);
  const auto flags = std::make_shared<CacheBenchFlags>();
  const auto number = [&](const char* flag, int64_t& value, const std::string& what) {
    command->add_option(flag, value, fmt::format("{}; default: {}", what, value))->type_name("N");
  };
  number("--rows", flags->rows, "Rows of keys, and of values");
  number("--heads", flags->heads, "Heads of a row");
  number("--head-size", flags->head_size, "Columns of a head");
  number("--block-size", flags->block_size, "Rows of a page");
  command->add_option("--dtype", flags->dtype, "Default: bf16")->type_name("f32|f16|bf16");
  command->add_option("--form", flags->form, "Default: BnBsND")->type_name("BnBsND|BnNBsD");
  command->add_option("--order", flags->order, "Order of places or of pages; default: random")
      ->type_name("random|ascending");
  AddMeasureFlags(*command, flags->measure);
  command->callback([flags, run] { run(*flags); });
}

}  // namespace

void AddBenchScatter(CLI::App& bench) {
  AddCacheBench(bench, "scatter", "Time rows that go into a paged cache, next to memcpy", BenchScatter);
}

void AddBenchGather(CLI::App& bench) {
  AddCacheBench(bench, "gather", "Time rows that come out of a paged cache, next to memcpy", BenchGather);
}

}  // namespace fa::tool
