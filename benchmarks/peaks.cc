// Measures the highest rates of this machine: multiply-adds and dot products in registers, reads from memory,
// exponentials of numbers in L1. Other benchmarks report fractions of these rates.
//
//   build/release/benchmarks/peaks_benchmark

#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/kernels/kernel_types.h"
#include "core/machine/cpu.h"
#include "peak/peak_rate.h"
#include "peak/read_bandwidth.h"
#include "peak/team.h"

namespace fa::bench {
namespace {

/// Measures the rate at which each thread computes 2^x of the same 2048 numbers.
double MeasureExp2(int threads, Isa isa, double seconds) {
  constexpr int64_t kNumbers = 2048, kRepeats = 1000;
  const auto exp2 = core::kernels::Kernels(isa).rows->exp2;
  struct Numbers {
    std::vector<float> x = std::vector<float>(kNumbers, -1.5f), y = x;
  };
  std::vector<Numbers> of_thread(static_cast<size_t>(threads));
  const double shortest = Team(threads).ShortestRound(seconds, [&](int thread) {
    Numbers& numbers = of_thread[static_cast<size_t>(thread)];
    for (int64_t i = 0; i < kRepeats; ++i) exp2(numbers.x.data(), kNumbers, numbers.y.data());
  });
  return static_cast<double>(kNumbers * kRepeats) * threads / shortest * 1e-9;
}

/// Registers one benchmark. `measure(threads)` runs its own rounds and returns the best rate. Google Benchmark repeats
/// `measure` and reports the rate.
void Register(const std::string& name, const char* unit, const std::function<double(int)>& measure) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  for (int threads = 1; threads <= cores; threads = threads < cores ? std::min(2 * threads, cores) : cores + 1) {
    benchmark::RegisterBenchmark((name + "/threads:" + std::to_string(threads)).c_str(),
                                 [=](benchmark::State& state) {
                                   double best = 0;
                                   for (auto _ : state) best = std::max(best, measure(threads));
                                   state.counters[unit] = best;
                                 })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

void RegisterAll() {
  constexpr double kSeconds = 0.2;
  const Isa highest = DetectIsa();
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kNeon}) {
    if (!Includes(highest, isa)) continue;
    Register(std::string("BM_fma_f32/") + Name(isa), "GFLOP/s",
             [isa](int threads) { return PeakRate(threads, isa, DType::kF32).Gflops(kSeconds); });
    Register(std::string("BM_exp2/") + Name(isa), "Gelem/s",
             [isa](int threads) { return MeasureExp2(threads, isa, kSeconds); });
  }
  if (Includes(highest, Isa::kAvx512Vnni) || Includes(highest, Isa::kNeonDotprod)) {
    Register(std::string("BM_dot_int8/") + Name(highest), "GOP/s",
             [highest](int threads) { return PeakRate(threads, highest, DType::kI8).Gflops(kSeconds); });
  }
  if (Includes(highest, Isa::kAvx512Bf16) || Includes(highest, Isa::kNeonBf16)) {
    Register(std::string("BM_dot_bf16/") + Name(highest), "GFLOP/s",
             [highest](int threads) { return PeakRate(threads, highest, DType::kBF16).Gflops(kSeconds); });
  }
  Register("BM_read_memory", "GB/s", [](int threads) { return MeasureReadBandwidth(threads); });
}

}  // namespace
}  // namespace fa::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  fa::bench::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
