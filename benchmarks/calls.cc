// Times what a call costs besides its kernels, on one thread. For one head of 1 to 64 rows, this program times a call
// that includes planning, and the run of an existing plan. For up to 2^20 packed sequences of four rows, it times
// planning and running separately.
//
//   build/release/benchmarks/calls_benchmark

#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fa/fa.h"

namespace {

constexpr int64_t kHeadSize = 64;

/// f32 tensors of one head in BNSD, or of packed sequences of equal length in TND.
struct Call {
  Call(int64_t sequences, int64_t rows)
      : tensor(static_cast<size_t>(sequences * rows * kHeadSize), 0.5f), out(tensor.size()), lengths(sequences) {
    const bool packed = sequences > 1;
    const fa::Dims shape = packed ? fa::Dims{sequences * rows, 1, kHeadSize} : fa::Dims{1, 1, rows, kHeadSize};
    args.q = args.k = args.v = fa::View(tensor.data(), shape);
    args.out = fa::View(out.data(), shape);
    if (!packed) return;
    for (int64_t i = 0; i < sequences; ++i) lengths[static_cast<size_t>(i)] = (i + 1) * rows;
    args.cu_q = args.cu_kv = lengths;
    options.layout = fa::Layout::kTND;
  }

  std::vector<float> tensor, out;
  std::vector<int64_t> lengths;
  fa::AttentionArgs args;
  fa::AttentionOptions options;
  std::unique_ptr<fa::Context> context = std::move(*fa::Context::Create({.threads = 1}));
};

/// Ends the benchmark with the status' message unless it is ok.
bool Ok(benchmark::State& state, const fa::Status& status) {
  if (!status.ok()) state.SkipWithError(status.message().c_str());
  return status.ok();
}

void ReportPerSequence(benchmark::State& state, int64_t sequences) {
  using benchmark::Counter;
  state.counters["per_sequence"] =
      Counter(static_cast<double>(sequences), Counter::kIsIterationInvariantRate | Counter::kInvert);
}

void CallOnce(benchmark::State& state, int64_t rows) {
  Call call(1, rows);
  for (auto _ : state) {
    if (!Ok(state, fa::FlashAttention(call.args, call.options, call.context.get()))) return;
  }
}

void RunPlan(benchmark::State& state, int64_t sequences, int64_t rows) {
  Call call(sequences, rows);
  auto plan = fa::PlanFlashAttention(call.args, call.options, call.context.get());
  if (!Ok(state, plan.status())) return;
  for (auto _ : state) {
    if (!Ok(state, plan->Run(call.args))) return;
  }
  ReportPerSequence(state, sequences);
}

void MakePlan(benchmark::State& state, int64_t sequences, int64_t rows) {
  Call call(sequences, rows);
  for (auto _ : state) {
    if (!Ok(state, fa::PlanFlashAttention(call.args, call.options, call.context.get()).status())) return;
  }
  ReportPerSequence(state, sequences);
}

}  // namespace

int main(int argc, char** argv) {
  for (int64_t rows = 1; rows <= 64; rows *= 2) {
    const std::string of = "/rows:" + std::to_string(rows);
    benchmark::RegisterBenchmark(("BM_Call" + of).c_str(), [=](benchmark::State& state) { CallOnce(state, rows); });
    benchmark::RegisterBenchmark(("BM_Run" + of).c_str(), [=](benchmark::State& state) { RunPlan(state, 1, rows); });
  }
  for (const int bits : {10, 14, 17, 20}) {
    const int64_t sequences = int64_t{1} << bits;
    const std::string of = "/sequences:2^" + std::to_string(bits);
    benchmark::RegisterBenchmark(("BM_Plan" + of).c_str(),
                                 [=](benchmark::State& state) { MakePlan(state, sequences, 4); });
    benchmark::RegisterBenchmark(("BM_Run" + of).c_str(),
                                 [=](benchmark::State& state) { RunPlan(state, sequences, 4); });
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
