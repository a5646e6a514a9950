// fa bench scatter, gather: times the copying of rows into or out of a paged cache. The report compares the call with
// memcpy of the same memory: of the whole tensors, and row by row to the same places. A call can beat both, because it
// may write rows past the CPU's caches.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
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
#include "peak/team.h"

namespace fa::tool {
namespace {

struct CacheBenchFlags {
  int64_t rows = 65536, heads = 8, head_size = 128, block_size = 128;
  std::string dtype = "bf16", form, order = "random";
  MeasureFlags measure;
};

/// Memory for tensors begins with a cache line, as PyTorch's does.
template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kLine)); }
  void deallocate(T* memory, size_t /*count*/) { ::operator delete(memory, kLine); }
  friend bool operator==(LineAllocator, LineAllocator) { return true; }
};
using CacheMemory = std::vector<std::byte, LineAllocator<std::byte>>;

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
  static void Fill(CacheMemory& memory, size_t seed) {
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>((i * 2654435761u + seed) >> 7);
  }
  [[nodiscard]] double bytes() const { return 2 * static_cast<double>(keys.size()); }
  [[nodiscard]] TensorView Rows(CacheMemory& memory) const { return {memory.data(), dtype, row_shape, {}}; }
  [[nodiscard]] TensorView Cache(CacheMemory& memory) const { return {memory.data(), dtype, cache_shape, {}}; }
  [[nodiscard]] size_t HeadBytes() const { return row_bytes / static_cast<size_t>(row_shape[1]); }
  /// Returns where a head of a row begins in memory.
  [[nodiscard]] size_t RowAt(int64_t row, int64_t head) const {
    return static_cast<size_t>(row * row_shape[1] + head) * HeadBytes();
  }
  /// Returns where a head of a place begins in a cache.
  [[nodiscard]] size_t PlaceAt(int64_t slot, int64_t head) const {
    const bool heads_first = form == CacheForm::kBnNBsD;
    const int64_t heads = row_shape[1], page_rows = cache_shape[heads_first ? 2 : 1];
    const int64_t at =
        heads_first ? (slot / page_rows * heads + head) * page_rows + slot % page_rows : slot * heads + head;
    return static_cast<size_t>(at) * HeadBytes();
  }
  /// Calls visit(row byte, cache byte, bytes) for each piece of a row that is contiguous in both.
  template <typename Visit>
  void ForEachPiece(int64_t row, int64_t slot, const Visit& visit) const {
    const int64_t pieces = form == CacheForm::kBnNBsD ? row_shape[1] : 1;
    const size_t bytes = row_bytes / static_cast<size_t>(pieces);
    for (int64_t n = 0; n < pieces; ++n) visit(RowAt(row, n), PlaceAt(slot, n), bytes);
  }
  /// Returns the place from which a gather by the table reads each row.
  [[nodiscard]] std::vector<int64_t> SlotsOfTable() const {
    const int64_t page_rows = cache_shape[form == CacheForm::kBnNBsD ? 2 : 1];
    std::vector<int64_t> places(static_cast<size_t>(rows));
    for (int64_t t = 0; t < rows; ++t) {
      places[static_cast<size_t>(t)] = table[static_cast<size_t>(t / page_rows)] * page_rows + t % page_rows;
    }
    return places;
  }
  /// Checks that row `row` lies at place `slot` of the cache, head by head.
  void CheckRow(const CacheMemory& memory, const CacheMemory& cache, int64_t row, int64_t slot) const {
    for (int64_t n = 0; n < row_shape[1]; ++n) {
      if (std::memcmp(&memory[RowAt(row, n)], &cache[PlaceAt(slot, n)], HeadBytes()) != 0) {
        throw Failure(fmt::format("wrong result, not timed: row {}, head {}", row, n));
      }
    }
  }

  DType dtype;
  CacheForm form;
  int64_t rows = 0;
  size_t row_bytes = 0;
  Dims row_shape, cache_shape;
  CacheMemory keys, values, key_cache, value_cache;
  std::vector<int64_t> slots;
  std::vector<int32_t> table;
};

struct CacheBench {
  const char* op;
  const std::function<void()>& call;
  bool to_cache;
};

/// Threads that copy the same memory as a call, by memcpy.
class CopyTeam {
 public:
  /// `cache` must outlive the object.
  CopyTeam(int threads, CacheRows& cache, bool to_cache)
      : team_(threads),
        cache_(cache),
        to_cache_(to_cache),
        slots_(to_cache ? cache.slots : cache.SlotsOfTable()),
        blocks_{{{&cache.keys, &cache.key_cache}, {&cache.values, &cache.value_cache}}} {}

  /// Returns the bytes per second of the best of the copies that run within `seconds`, at least one. A byte that is
  /// read and written counts once.
  [[nodiscard]] double Rate(double seconds, void (CopyTeam::*copy)(int thread) const) const {
    return cache_.bytes() / team_.ShortestRound(seconds, [&](int thread) { (this->*copy)(thread); });
  }
  /// Copies a thread's part of the tensors.
  void CopyWhole(int thread) const {
    const auto [begin, end] = PartOf(thread);
    const size_t first = static_cast<size_t>(begin) * cache_.row_bytes;
    for (const auto& [rows, pages] : blocks_) {
      Copy(rows->data() + first, pages->data() + first, static_cast<size_t>(end - begin) * cache_.row_bytes);
    }
  }
  /// Copies a thread's rows, piece by piece.
  void CopyRows(int thread) const {
    const auto [begin, end] = PartOf(thread);
    for (int64_t row = begin; row < end; ++row) {
      for (const auto& [rows, pages] : blocks_) {
        cache_.ForEachPiece(row, slots_[static_cast<size_t>(row)], [&](size_t from, size_t to, size_t bytes) {
          Copy(rows->data() + from, pages->data() + to, bytes);
        });
      }
    }
  }

 private:
  [[nodiscard]] std::pair<int64_t, int64_t> PartOf(int thread) const {
    const int64_t threads = team_.threads();
    return {cache_.rows * thread / threads, cache_.rows * (thread + 1) / threads};
  }
  void Copy(std::byte* row, std::byte* place, size_t bytes) const {
    std::memcpy(to_cache_ ? place : row, to_cache_ ? row : place, bytes);
  }

  mutable bench::Team team_;
  const CacheRows& cache_;
  bool to_cache_;
  std::vector<int64_t> slots_;
  std::array<std::pair<CacheMemory*, CacheMemory*>, 2> blocks_;
};

void MeasureRows(const CacheBenchFlags& flags, const Context& context, CacheRows& cache, const CacheBench& bench) {
  auto progress = std::make_unique<Progress>(fmt::format("fa bench {}: ", bench.op));
  const CopyTeam copies(context.threads(), cache, bench.to_cache);
  constexpr double kAgreement = 0.1;  // rates of memory differ more than rates of arithmetic
  const auto reference = [&](void (CopyTeam::*copy)(int thread) const) {
    return bench::Reference{.per_call = cache.bytes(),
                            .rate = [&copies, copy](double seconds) { return copies.Rate(seconds, copy); },
                            .agreement = kAgreement,
                            .is_limit = false};
  };
  const bench::BracketedTiming timing = bench::TimeInRounds(
      {.seconds = flags.measure.seconds,
       .call = bench.call,
       .references = {reference(&CopyTeam::CopyWhole), reference(&CopyTeam::CopyRows)},
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
      {"copy_ratio", or_null(timing.compared[0].fraction)},
      {"row_copy_bytes_per_second", timing.compared[1].rate},
      {"row_copy_ratio", or_null(timing.compared[1].fraction)},
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
  fmt::print("rate     {:.4g} rows/s, {:.2f} GB/s\n", 2 * static_cast<double>(cache.rows) / timing.best,
             cache.bytes() / timing.best * 1e-9);
  const auto print_copy = [&](const bench::Compared& copy, const char* what) {
    fmt::print("memcpy   {:.2f} GB/s {}; the call is {}\n", copy.rate * 1e-9, what,
               copy.fraction ? fmt::format("{:.2f} times as fast", *copy.fraction) : "not compared with it");
  };
  print_copy(timing.compared[0], "of the tensors as a whole");
  print_copy(timing.compared[1], "of row after row to the same places");
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
  const std::vector<int64_t> slots = cache.SlotsOfTable();
  for (int64_t t = 0; t < cache.rows; ++t) {
    cache.CheckRow(cache.keys, cache.key_cache, t, slots[static_cast<size_t>(t)]);
    cache.CheckRow(cache.values, cache.value_cache, t, slots[static_cast<size_t>(t)]);
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
