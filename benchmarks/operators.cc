// Times the operators through the public API, on the shapes of common models. Every type, mask and layout is timed, on
// one thread and on all. Before the timing, results are compared with a computation in double. The peak is measured
// right before and after each call (peak/bracketed_rounds.h).
//
//   build/release/benchmarks/operators_benchmark --benchmark_filter='BM_Forward/f32/B_.*/causal/BNSD'

#include <benchmark/benchmark.h>

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cases/backward_data.h"
#include "cases/forward_case.h"
#include "cases/forward_data.h"
#include "fa/fa.h"
#include "flags/failure.h"
#include "peak/bracketed_rounds.h"
#include "peak/peak_rate.h"
#include "report_timing.h"

namespace fa::tool {
namespace {

struct OperatorCase {
  const char* operation;
  const char* shape_name;
  ForwardCaseFlags flags;
  std::string mask_name;
  int threads;
};

std::unique_ptr<Context> ContextOf(int threads) {
  Result<std::unique_ptr<Context>> context = Context::Create({.threads = threads});
  ThrowUnlessOkFromShape(context.status());
  return std::move(*context);
}

/// Times `call` in rounds of one call. The caller has already run and checked it.
void Time(benchmark::State& state, const Context& context, DType dtype, double flops, double bytes,
          const std::function<void()>& call) {
  bench::PeakRate peak(context.threads(), context.isa(), dtype);
  bench::BracketedRounds rounds({bench::GigaflopsOf(peak, flops)});
  for (auto _ : state) state.SetIterationTime(rounds.Time(1, call));
  const bench::BracketedTiming timing = rounds.Timing();
  bench::Report(state, timing, flops * 1e-9, "GFLOP/s");
  state.counters["GB/s"] = bytes / timing.best * 1e-9;
}

void RunForward(benchmark::State& state, const OperatorCase& bench) {
  const std::unique_ptr<Context> context = ContextOf(bench.threads);
  const ForwardCase forward(bench.flags);
  ForwardData data(forward);
  const AttentionArgs args = data.Args();
  const auto call = [&] { ThrowUnlessOkFromShape(FlashAttention(args, forward.options, context.get())); };
  call();
  data.CheckRows();
  auto plan = PlanFlashAttention(args, forward.options, context.get());
  ThrowUnlessOkFromShape(plan.status());
  Time(state, *context, forward.dtype, plan->info().flops, data.bytes(), call);
}

void RunBackward(benchmark::State& state, const OperatorCase& bench) {
  const std::unique_ptr<Context> context = ContextOf(bench.threads);
  const ForwardCase forward(bench.flags);
  BackwardData data(forward, *context);
  const AttentionGradArgs args = data.Args();
  const auto call = [&] { ThrowUnlessOkFromShape(FlashAttentionGrad(args, forward.options, context.get())); };
  call();
  data.CheckRows();
  auto plan = PlanFlashAttentionGrad(args, forward.options, context.get());
  ThrowUnlessOkFromShape(plan.status());
  Time(state, *context, forward.dtype, plan->info().flops, data.bytes(), call);
}

void Register(const OperatorCase& bench, void (*run)(benchmark::State&, const OperatorCase&)) {
  const std::string name = std::string(bench.operation) + "/" + bench.flags.dtype + "/" + bench.shape_name + "/" +
                           bench.mask_name + "/" + bench.flags.layout + "/threads:" + std::to_string(bench.threads);
  benchmark::RegisterBenchmark(name.c_str(),
                               [bench, run](benchmark::State& state) {
                                 try {
                                   run(state, bench);
                                 } catch (const std::exception& error) {
                                   state.SkipWithError(error.what());
                                 }
                               })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

/// The sizes B,N,Nkv,Sq,Sk,D of a shape in benchmarks/cases.py.
struct Shape {
  const char* name;
  const char* sizes;
  bool decode = false;  ///< whether it has one query row: such shapes have no mask and no backward
};
constexpr Shape kShapes[] = {
    {"A_b1n16s1024d64", "1,16,16,1024,1024,64"},    {"B_b1n16s2048d128", "1,16,16,2048,2048,128"},
    {"C_b1n8s4096d128", "1,8,8,4096,4096,128"},     {"D_b1n8s8192d64", "1,8,8,8192,8192,64"},
    {"E_b1n32k8s2048d128", "1,32,8,2048,2048,128"}, {"F_b8n32k8q1s4096d128", "8,32,8,1,4096,128", true},
    {"G_b8n12s128d64", "8,12,12,128,128,64"},       {"H_b1n8s2048d256", "1,8,8,2048,2048,256"},
};

void RegisterShape(const Shape& shape, const char* dtype, const char* layout, int threads) {
  std::map<std::string, MaskFlags> masks;
  masks["full"] = {};
  if (!shape.decode) {
    masks["causal"].causal = true;
    masks["window512"].sparse_mode = 4;
    masks["window512"].pre_tokens = 512;
    masks["window512"].next_tokens = 0;
  }
  for (const auto& [mask_name, mask] : masks) {
    OperatorCase bench = {.operation = "BM_Forward",
                          .shape_name = shape.name,
                          .flags = {.shape = shape.sizes, .dtype = dtype, .layout = layout, .mask = mask},
                          .mask_name = mask_name,
                          .threads = threads};
    Register(bench, RunForward);
    bench.operation = "BM_Backward";
    if (!shape.decode) Register(bench, RunBackward);
  }
}

void RegisterAll() {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    for (const Shape& shape : kShapes) {
      for (const char* layout : {"BNSD", "BSND", "BSH", "SBH", "TND"}) {
        RegisterShape(shape, dtype, layout, 1);
        if (cores > 1) RegisterShape(shape, dtype, layout, cores);
      }
    }
  }
}

}  // namespace
}  // namespace fa::tool

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  fa::tool::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
