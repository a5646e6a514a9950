#include "kernels/timing.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include "core/kernels/tile_use.h"
#include "peak/peak_rate.h"
#include "report_timing.h"

namespace fa::core::kernels {
namespace {

/// Returns the object that measures the peak of one thread's arithmetic unit for a type. There is one object per level
/// and type.
bench::PeakRate& PeakOf(Isa isa, DType dtype) {
  static std::map<std::pair<Isa, DType>, bench::PeakRate> peaks;
  return peaks.try_emplace({isa, dtype}, 1, isa, dtype).first->second;
}

/// Google Benchmark chooses the number of calls. They run in rounds of 0.2 ms.
bench::BracketedTiming Time(benchmark::State& state, const std::vector<bench::Reference>& references,
                            const Call& call) {
  using Clock = std::chrono::steady_clock;
  constexpr double kRoundSeconds = 0.2e-3;
  const auto once = [&] {
    call();
    benchmark::ClobberMemory();
  };
  const Clock::time_point begin = Clock::now();
  once();
  const double first = std::chrono::duration<double>(Clock::now() - begin).count();
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(kRoundSeconds / std::max(first, 1e-9)));
  bench::BracketedRounds rounds(references);
  while (state.KeepRunningBatch(calls)) state.SetIterationTime(static_cast<double>(calls) * rounds.Time(calls, once));
  return rounds.Timing();
}

}  // namespace

void Register(const std::string& name, std::function<void(benchmark::State&)> run) {
  const auto run_or_fail = [run = std::move(run)](benchmark::State& state) {
    const TileScope tiles;  // kernels may use tiles only while such an object exists
    try {
      run(state);
    } catch (const std::exception& error) {
      state.SkipWithError(error.what());
    }
  };
  benchmark::RegisterBenchmark(name.c_str(), run_or_fail)->UseManualTime();
}

std::string CaseName(const char* kernel, const std::string& set, DType dtype, int64_t d) {
  return std::string("BM_") + kernel + "/" + set + "/" + Name(dtype) + "/d" + std::to_string(d);
}

double TimeProduct(benchmark::State& state, Isa isa, DType operands, const char* unit, double flops, const Call& call) {
  const bench::BracketedTiming timing = Time(state, {bench::GigaflopsOf(PeakOf(isa, operands), flops)}, call);
  bench::Report(state, timing, flops * 1e-9, unit);
  return timing.best;
}

void TimePass(benchmark::State& state, int64_t elements, const Call& call) {
  state.counters["Gelem/s"] = static_cast<double>(elements) / Time(state, {}, call).best * 1e-9;
}

}  // namespace fa::core::kernels
