#ifndef FA_BENCHMARKS_KERNELS_TIMING_H_
#define FA_BENCHMARKS_KERNELS_TIMING_H_

#include <benchmark/benchmark.h>

#include <functional>
#include <string>

#include "fa/context.h"
#include "fa/tensor.h"
#include "peak/bracketed_rounds.h"

namespace fa::core::kernels {

/// Adds a benchmark with this name. An exception that `run` throws becomes the benchmark's error.
void Register(const std::string& name, std::function<void(benchmark::State&)> run);

/// Returns the name of a benchmark, for example "BM_scores/f32_8x32_avx512/f32/d128".
[[nodiscard]] std::string CaseName(const char* kernel, const std::string& set, DType dtype, int64_t d);

/// Calls a kernel. It may be called any number of times on the same operands.
using Call = std::function<void()>;

/// Times a kernel that computes a matrix product. Before and after each round of calls, measures the level's arithmetic
/// unit for the operands' type. Reports the kernel's rate as a fraction of the unit's rate.
/// @param unit   "GFLOP/s", or for integers "GOP/s"
/// @param flops  the operations of one call
/// @return seconds of the best call
double TimeProduct(benchmark::State& state, Isa isa, DType operands, const char* unit, double flops, const Call& call);
/// Times a pass over `elements` elements.
void TimePass(benchmark::State& state, int64_t elements, const Call& call);

}  // namespace fa::core::kernels

#endif  // FA_BENCHMARKS_KERNELS_TIMING_H_
