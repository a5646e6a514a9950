// Every strip kernel set of the registry, on every level this CPU has: the products and the softmax of one key block,
// in GFLOP/s and as a fraction of the level's multiply-add peak measured in the same run.
//
//   build/release/benchmarks/kernels_benchmark --benchmark_filter=product

#include <benchmark/benchmark.h>

#include <map>
#include <string>
#include <vector>

#include "core/cpu.h"
#include "core/kernels/kernel_types.h"
#include "peak/fma_peak.h"

namespace fa::core::kernels {
namespace {

constexpr int64_t kKeys = 256;

double Peak(Isa isa) {
  static std::map<Isa, double> peaks;
  const auto [it, fresh] = peaks.try_emplace(isa, 0.0);
  if (fresh) it->second = bench::MeasureFmaPeakGflops(1, isa);
  return it->second;
}

/// Operands of one strip against one key block. Values are small and positive, so that no arithmetic is unusual.
struct Block {
  Block(const StripKernels& kernels, int64_t d)
      : rows(static_cast<size_t>(kKeys * d), 0.01f),
        panel(static_cast<size_t>(d * kernels.width), 0.01f),
        tile(static_cast<size_t>(kKeys * kernels.width), 0.01f),
        gradient(tile),
        lane(static_cast<size_t>(kernels.width), 1.0f),
        sums(lane),
        alpha(lane) {}
  std::vector<float> rows, panel, tile, gradient, lane, sums, alpha;
};

void Report(benchmark::State& state, Isa isa, double flops) {
  const double rate = flops * static_cast<double>(state.iterations()) / 1e9;
  state.counters["GFLOP/s"] = benchmark::Counter(rate, benchmark::Counter::kIsRate);
  state.counters["of_peak"] = benchmark::Counter(rate / Peak(isa), benchmark::Counter::kIsRate);
}

void Scores(benchmark::State& state, const StripKernels& kernels, int64_t d) {
  Block block(kernels, d);
  for (auto _ : state) {
    kernels.scores({block.rows.data(), DType::kF32, d}, kKeys, block.panel.data(), d, false, block.tile.data(),
                   block.lane.data());
    benchmark::ClobberMemory();
  }
  Report(state, kernels.isa, 2.0 * static_cast<double>(kKeys * d * kernels.width));
}

void Product(benchmark::State& state, const StripKernels& kernels, int64_t d) {
  Block block(kernels, d);
  for (auto _ : state) {
    kernels.product({block.rows.data(), DType::kF32, d}, kKeys, block.tile.data(), d, block.alpha.data(),
                    block.panel.data());
    benchmark::ClobberMemory();
  }
  Report(state, kernels.isa, 2.0 * static_cast<double>(kKeys * d * kernels.width));
}

void Softmax(benchmark::State& state, const StripKernels& kernels, int64_t /*d*/) {
  Block block(kernels, 1);
  const std::vector<float> scores = block.tile;
  for (auto _ : state) {
    block.tile = scores;
    kernels.softmax(block.tile.data(), kKeys, 1.0f, block.lane.data(), block.alpha.data(), block.sums.data(),
                    block.panel.data());
    benchmark::ClobberMemory();
  }
  state.counters["scores/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * kKeys * kernels.width), benchmark::Counter::kIsRate);
}

void Outer(benchmark::State& state, const StripKernels& kernels, int64_t d) {
  Block block(kernels, d);
  const RowKernels& rows = *Kernels(kernels.isa).rows;
  std::vector<float> panel(static_cast<size_t>(kernels.width * rows.panel_columns(d)), 0.01f);
  const OuterArgs args{.a = block.tile.data(),
                       .strip_stride = kKeys * kernels.width,
                       .width = kernels.width,
                       .rows = kernels.width,
                       .b = panel.data(),
                       .b_rows = kernels.width,
                       .keys = kKeys,
                       .columns = d,
                       .c = block.rows.data(),
                       .c_stride = d,
                       .accumulate = true};
  for (auto _ : state) {
    rows.outer(args);
    benchmark::ClobberMemory();
  }
  Report(state, kernels.isa, 2.0 * static_cast<double>(kKeys * d * kernels.width));
}

void RegisterLine(const StripKernels& kernels) {
  using Run = void (*)(benchmark::State&, const StripKernels&, int64_t);
  const std::pair<const char*, Run> runs[] = {
      {"scores", Scores}, {"product", Product}, {"outer", Outer}, {"softmax", Softmax}};
  for (const auto& [name, run] : runs) {
    for (const int64_t d : {64, 128, 256}) {
      if (run == Softmax && d != 64) continue;
      const std::string text = std::string("BM_") + name + "/" + kernels.name + "/d" + std::to_string(d);
      benchmark::RegisterBenchmark(text.c_str(),
                                   [run = run, &kernels, d](benchmark::State& state) { run(state, kernels, d); });
    }
  }
}

void RegisterAll() {
  const KernelTable* last = nullptr;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAvx512Bf16}) {
    const KernelTable& table = Kernels(isa);
    if (isa > DetectIsa() || &table == last) continue;
    last = &table;
    for (int s = 0; s < table.strip_count; ++s) RegisterLine(table.strips[s]);
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
