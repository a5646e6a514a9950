// Times every kernel set of the registry, on every level that this CPU has, in cache: the products and passes of one
// key block, in GFLOP/s and as a fraction of the level's multiply-add peak measured in the same run. Kernels of few
// rows are bound by what they read, so they also give bytes per second.
//
//   build/release/benchmarks/kernels_benchmark --benchmark_filter=product

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/kernels/int8/int8_kernel_types.h"
#include "core/kernels/kernel_types.h"
#include "core/machine/cpu.h"
#include "peak/fma_peak.h"

namespace fa::core::kernels {
namespace {

constexpr int64_t kKeys = 256;
constexpr int64_t kHeadSizes[] = {64, 128, 256};
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

/// The type of the products' operands: f32, or bf16 pairs.
double Peak(const StripKernels& kernels) {
  static std::map<std::pair<Isa, Operands>, double> peaks;
  const auto [it, fresh] = peaks.try_emplace({kernels.isa, kernels.operands}, 0.0);
  const bool pairs = kernels.operands == Operands::kBF16Pairs;
  if (fresh) {
    it->second =
        pairs ? bench::MeasurePeakGflops(1, kernels.isa, DType::kBF16) : bench::MeasureFmaPeakGflops(1, kernels.isa);
  }
  return it->second;
}

/// Rows of K or V of a type. They are zeros, which take as long as any finite number; no arithmetic on them is unusual.
struct Rows {
  Rows(DType dtype, int64_t rows, int64_t columns)
      : memory(static_cast<size_t>(rows * columns) * SizeOf(dtype) / sizeof(float)),
        block{memory.data(), dtype, columns} {
    const auto* at = reinterpret_cast<const std::byte*>(memory.data());
    const int64_t row_bytes = columns * static_cast<int64_t>(SizeOf(dtype));
    for (int64_t row = 0; row < rows; ++row) addresses.push_back(at + row * row_bytes);
  }
  [[nodiscard]] RowBlock InPlace() const { return {.dtype = block.dtype, .rows = addresses.data()}; }

  std::vector<float> memory;
  std::vector<const void*> addresses;
  RowBlock block;
};

/// Operands of one strip against one key block. Values are zero where they stand for pairs, else small and positive, so
/// that no arithmetic is unusual.
struct Block {
  Block(const StripKernels& kernels, DType dtype, int64_t d)
      : rows(dtype, kKeys, d),
        panel(static_cast<size_t>(d * kernels.width), kernels.operands == Operands::kF32 ? 0.01f : 0.0f),
        tile(static_cast<size_t>(kKeys * kernels.width), panel[0]),
        gradient(tile),
        lane(static_cast<size_t>(kernels.width), 1.0f),
        sums(lane),
        alpha(lane) {}
  Rows rows;
  std::vector<float> panel, tile, gradient, lane, sums, alpha;
};

/// CPU time does not count the time of other programs.
template <typename Call>
double SecondsOfACall(benchmark::State& state, const Call& call) {
  const std::clock_t begin = std::clock();
  for (auto _ : state) {
    call();
    benchmark::ClobberMemory();
  }
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / static_cast<double>(state.iterations());
}

void ReportProduct(benchmark::State& state, double seconds, const StripKernels& kernels, double flops, double bytes) {
  state.counters["GFLOP/s"] = flops / seconds * 1e-9;
  state.counters["of_peak"] = flops / seconds * 1e-9 / Peak(kernels);
  state.counters["GB/s"] = bytes / seconds * 1e-9;
}

void ReportElements(benchmark::State& state, double seconds, int64_t elements) {
  state.counters["Gelem/s"] = static_cast<double>(elements) / seconds * 1e-9;
}

double BytesOf(const RowBlock& rows, int64_t d) { return static_cast<double>(kKeys * d) * SizeOf(rows.dtype); }

void Scores(benchmark::State& state, const KernelTable&, const StripKernels& kernels, DType dtype, int64_t d) {
  Block block(kernels, dtype, d);
  const RowBlock k = kernels.in_place ? block.rows.InPlace() : block.rows.block;
  const double seconds = SecondsOfACall(
      state, [&] { kernels.scores(k, kKeys, block.panel.data(), d, false, block.tile.data(), block.lane.data()); });
  ReportProduct(state, seconds, kernels, 2.0 * static_cast<double>(kKeys * d * kernels.rows),
                BytesOf(block.rows.block, d));
}

void Product(benchmark::State& state, const KernelTable& table, const StripKernels& kernels, DType dtype, int64_t d) {
  Block block(kernels, dtype, d);
  block.rows.block.paired = kernels.operands == Operands::kBF16Pairs;
  block.rows.block.group = table.rows->pair_group;
  const RowBlock v = kernels.in_place ? block.rows.InPlace() : block.rows.block;
  const double seconds = SecondsOfACall(
      state, [&] { kernels.product(v, kKeys, block.tile.data(), d, block.alpha.data(), block.panel.data()); });
  ReportProduct(state, seconds, kernels, 2.0 * static_cast<double>(kKeys * d * kernels.rows),
                BytesOf(block.rows.block, d));
}

/// kCount products of one call: one, or two that add to the same sums.
template <int kCount>
void Outer(benchmark::State& state, const KernelTable& table, const StripKernels& kernels, DType, int64_t d) {
  Block block(kernels, DType::kF32, d);
  const RowKernels& rows = *table.rows;
  std::vector<float> panel(static_cast<size_t>(kernels.width * rows.panel_columns(d)), block.tile[0]);
  const OuterArgs args{.a = block.tile.data(),
                       .strip_stride = kKeys * kernels.OuterWidth(),
                       .width = kernels.width,
                       .rows = kernels.width,
                       .b = panel.data(),
                       .b_rows = kernels.width,
                       .keys = kKeys,
                       .columns = d,
                       .c = block.rows.memory.data(),
                       .c_stride = d,
                       .accumulate = true};
  const std::vector<float> panel_of_then(panel);
  OuterArgs then = args;
  then.a = block.gradient.data();
  then.b = panel_of_then.data();
  const double seconds = SecondsOfACall(state, [&] { kCount == 1 ? rows.outer(args) : rows.outer_both(args, then); });
  ReportProduct(state, seconds, kernels, 2.0 * kCount * static_cast<double>(kKeys * d * kernels.width),
                BytesOf(block.rows.block, d));
}

void Softmax(benchmark::State& state, const StripKernels& kernels) {
  Block block(kernels, DType::kF32, 1);
  // The pass's output is its next input: 2^(s - 1) stays between 1/2 and 1.
  const double seconds = SecondsOfACall(state, [&] {
    kernels.softmax(block.tile.data(), kKeys, 1.0f, block.lane.data(), block.alpha.data(), block.sums.data(),
                    block.panel.data());
  });
  ReportElements(state, seconds, kKeys * kernels.width);
}

/// int8 products are compared with int8 dot products where the level has them.
double Int8Peak(Isa isa) {
  static std::map<Isa, double> peaks;
  const auto [it, fresh] = peaks.try_emplace(isa, 0.0);
  if (fresh) it->second = bench::MeasurePeakGflops(1, isa, DType::kI8);
  return it->second;
}

void ReportInt8(benchmark::State& state, double seconds, const Int8Kernels& kernels, int64_t d) {
  const double rate = 2.0 * static_cast<double>(kKeys * d * kernels.width) / seconds * 1e-9;
  state.counters["GOP/s"] = rate;
  state.counters["of_peak"] = rate / Int8Peak(kernels.isa);
}

void Int8Scores(benchmark::State& state, const Int8Table& table, const Int8Kernels& kernels, int64_t d) {
  const int64_t words = table.Words(d);
  const std::vector<uint32_t> k(static_cast<size_t>(kKeys * words)), panel(static_cast<size_t>(words * kernels.width));
  const std::vector<int32_t> start(static_cast<size_t>(kKeys));
  std::vector<float> s(static_cast<size_t>(kKeys * kernels.width)), max(static_cast<size_t>(kernels.width));
  const double seconds = SecondsOfACall(
      state, [&] { kernels.scores(k.data(), start.data(), kKeys, words, panel.data(), s.data(), max.data()); });
  ReportInt8(state, seconds, kernels, d);
}

void Int8Product(benchmark::State& state, const Int8Table& table, const Int8Kernels& kernels, int64_t d) {
  const int64_t stride = kKeys / table.group * table.columns;
  const std::vector<uint32_t> v(static_cast<size_t>(table.PanelBlocks(d) * stride));
  const std::vector<uint32_t> p(static_cast<size_t>(kKeys / table.group * kernels.width));
  std::vector<int32_t> o(static_cast<size_t>(d * kernels.width));
  const double seconds =
      SecondsOfACall(state, [&] { kernels.product(v.data(), stride, kKeys, p.data(), d, o.data()); });
  ReportInt8(state, seconds, kernels, d);
}

void Int8Softmax(benchmark::State& state, const Int8Kernels& kernels) {
  const std::vector<float> scores(static_cast<size_t>(kKeys * kernels.width), -1);
  std::vector<float> s(scores), lane(static_cast<size_t>(kernels.width)), sum(lane);
  // The pass leaves words where the scores were; read as floats they would be subnormal.
  const double seconds = SecondsOfACall(state, [&] {
    std::copy(scores.begin(), scores.end(), s.begin());
    kernels.softmax(s.data(), kKeys, 1.0f, 127, 127, lane.data(), sum.data());
  });
  ReportElements(state, seconds, kKeys * kernels.width);
}

void BackwardSoftmax(benchmark::State& state, const StripKernels& kernels) {
  Block block(kernels, DType::kF32, 1);
  const double seconds = SecondsOfACall(state, [&] {
    kernels.backward_softmax(block.tile.data(), block.gradient.data(), kKeys, 1.0f, block.lane.data(),
                             block.alpha.data());
  });
  ReportElements(state, seconds, kKeys * kernels.width);
}

void MaskInterval(benchmark::State& state, const StripKernels& kernels) {
  Block block(kernels, DType::kF32, 1);
  std::vector<int32_t> begin(static_cast<size_t>(kernels.width)), end(begin);
  for (size_t lane = 0; lane < end.size(); ++lane) end[lane] = static_cast<int32_t>(kKeys / 2 + lane);
  const double seconds = SecondsOfACall(
      state, [&] { kernels.mask_interval(block.tile.data(), kKeys, begin.data(), end.data(), kMaskedScore); });
  ReportElements(state, seconds, kKeys * kernels.width);
}

void Widen(benchmark::State& state, const KernelTable& table, DType dtype, int64_t d) {
  Rows rows(dtype, kKeys, d);
  std::vector<float> wide(static_cast<size_t>(kKeys * d));
  const double seconds = SecondsOfACall(state, [&] { table.rows->widen(rows.block, kKeys, d, wide.data(), d); });
  ReportElements(state, seconds, kKeys * d);
}

void Narrow(benchmark::State& state, const KernelTable& table, DType dtype, int64_t d) {
  Rows rows(dtype, kKeys, d);
  const std::vector<float> wide(static_cast<size_t>(kKeys * d), 0.01f);
  const double seconds = SecondsOfACall(state, [&] {
    table.rows->narrow(wide.data(), d, kKeys, d, 1.0f, {rows.memory.data(), dtype, d});
  });
  ReportElements(state, seconds, kKeys * d);
}

void PackRows(benchmark::State& state, const KernelTable& table, DType dtype, int64_t d) {
  Rows rows(dtype, kKeys, d);
  std::vector<float> panel(static_cast<size_t>(kKeys * table.rows->panel_columns(d)));
  const double seconds = SecondsOfACall(state, [&] { table.rows->pack_rows(rows.block, kKeys, d, panel.data()); });
  ReportElements(state, seconds, kKeys * d);
}

void PairRows(benchmark::State& state, const KernelTable& table) {
  constexpr int64_t kColumns = 128;
  Rows rows(DType::kBF16, kKeys, kColumns);
  std::vector<float> pairs(static_cast<size_t>(kKeys / 2 * kColumns));
  const double seconds =
      SecondsOfACall(state, [&] { table.rows->pair_rows(rows.block, kKeys, kColumns, pairs.data(), kColumns); });
  ReportElements(state, seconds, kKeys * kColumns);
}

void Exp2(benchmark::State& state, const KernelTable& table) {
  const std::vector<float> x(2048, -1.5f);
  std::vector<float> y(x.size());
  const double seconds =
      SecondsOfACall(state, [&] { table.rows->exp2(x.data(), static_cast<int64_t>(x.size()), y.data()); });
  ReportElements(state, seconds, static_cast<int64_t>(x.size()));
}

template <typename Run>
void Register(const std::string& name, const Run& run) {
  benchmark::RegisterBenchmark(name.c_str(), [run](benchmark::State& state) { run(state); });
}

std::string CaseName(const char* kernel, const std::string& set, DType dtype, int64_t d) {
  return std::string("BM_") + kernel + "/" + set + "/" + Name(dtype) + "/d" + std::to_string(d);
}

/// One line of kernels.inc. A kernel of few rows shares every pass with the strip that it is built on; a strip with its
/// state by rows shares all passes but the product, and the scores if it reads keys in place.
void RegisterLine(const KernelTable& table, const StripKernels& kernels) {
  using Run = void (*)(benchmark::State&, const KernelTable&, const StripKernels&, DType, int64_t);
  std::vector<std::pair<const char*, Run>> products = {{"product", Product}};
  const bool pairs = kernels.operands == Operands::kBF16Pairs;
  if (!kernels.state_by_row || kernels.in_place) products.emplace_back("scores", Scores);
  if (!kernels.any_dtype && !kernels.state_by_row) {
    products.emplace_back("outer", Outer<1>);
    if (table.rows->outer_both != nullptr) products.emplace_back("outer_both", Outer<2>);
  }
  for (const auto& [name, run] : products) {
    for (const DType dtype : kDTypes) {
      if (!kernels.any_dtype && dtype != (pairs ? DType::kBF16 : DType::kF32)) continue;
      for (const int64_t d : kHeadSizes) {
        Register(
            CaseName(name, kernels.name, dtype, d),
            [run = run, &table, &kernels, dtype, d](benchmark::State& state) { run(state, table, kernels, dtype, d); });
      }
    }
  }
  if (kernels.any_dtype || kernels.state_by_row) return;
  const std::string set = kernels.name;
  Register("BM_softmax/" + set, [&kernels](benchmark::State& state) { Softmax(state, kernels); });
  Register("BM_backward_softmax/" + set, [&kernels](benchmark::State& state) { BackwardSoftmax(state, kernels); });
  Register("BM_mask_interval/" + set, [&kernels](benchmark::State& state) { MaskInterval(state, kernels); });
}

/// One line of int8_kernels.inc.
void RegisterInt8Line(const Int8Table& table, const Int8Kernels& kernels) {
  for (const int64_t d : kHeadSizes) {
    Register(CaseName("scores", kernels.name, DType::kI8, d),
             [&table, &kernels, d](benchmark::State& state) { Int8Scores(state, table, kernels, d); });
    Register(CaseName("product", kernels.name, DType::kI8, d),
             [&table, &kernels, d](benchmark::State& state) { Int8Product(state, table, kernels, d); });
  }
  Register(std::string("BM_softmax/") + kernels.name,
           [&kernels](benchmark::State& state) { Int8Softmax(state, kernels); });
}

void RegisterRowKernels(const KernelTable& table) {
  using Run = void (*)(benchmark::State&, const KernelTable&, DType, int64_t);
  const std::pair<const char*, Run> runs[] = {{"widen", Widen}, {"narrow", Narrow}, {"pack_rows", PackRows}};
  for (const auto& [name, run] : runs) {
    for (const DType dtype : kDTypes) {
      Register(CaseName(name, Name(table.isa), dtype, 128),
               [run = run, &table, dtype](benchmark::State& state) { run(state, table, dtype, 128); });
    }
  }
  Register(std::string("BM_exp2/") + Name(table.isa), [&table](benchmark::State& state) { Exp2(state, table); });
}

void RegisterAll() {
  const StripKernels* last = nullptr;
  for (const Isa isa : AllIsas()) {
    const KernelTable& table = Kernels(isa);
    // A level may have the strips of the one below.
    if (!Includes(DetectIsa(), isa) || isa == Isa::kAmxEmulated || table.strips == last) continue;
    last = table.strips;
    for (int s = 0; s < table.strip_count; ++s) RegisterLine(table, table.strips[s]);
    for (int s = 0; table.row_state != nullptr && s < table.strip_count; ++s) RegisterLine(table, table.row_state[s]);
    for (int s = 0; s < table.few_count; ++s) RegisterLine(table, table.few[s]);
    RegisterRowKernels(table);
  }
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa) || isa == Isa::kAmxEmulated) continue;
    const Int8Table& table = Int8KernelsFor(isa);
    if (table.isa != isa) continue;  // these belong to the level below
    for (int s = 0; s < table.strip_count; ++s) RegisterInt8Line(table, table.strips[s]);
  }
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa) || isa == Isa::kAmxEmulated) continue;
    const KernelTable& pairs = Kernels(isa, DType::kBF16);
    if (!pairs.pairs() || pairs.isa != isa) continue;
    for (int s = 0; s < pairs.strip_count; ++s) RegisterLine(pairs, pairs.strips[s]);
    for (int s = 0; pairs.row_state != nullptr && s < pairs.strip_count; ++s) RegisterLine(pairs, pairs.row_state[s]);
    if (pairs.heads_in_place != nullptr) RegisterLine(pairs, *pairs.heads_in_place);
    Register(std::string("BM_pair_rows/") + Name(pairs.isa),
             [&pairs](benchmark::State& state) { PairRows(state, pairs); });
  }
}

}  // namespace
}  // namespace fa::core::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  fa::core::kernels::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
