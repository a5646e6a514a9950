// Times the kernels of every line of the registry, on every level that this CPU has. A kernel computes one key block,
// which lies in cache, and its result is checked first. The report has the GFLOP/s of matrix products, and their
// fraction of the rate of the level's arithmetic unit. The unit's rate is measured right before and after every round
// of calls. Reading memory limits kernels of few rows, so the report also has the bytes per second that kernels read.
//
//   build/release/benchmarks/kernels_benchmark --benchmark_filter=product

#include <benchmark/benchmark.h>

#include "core/amx_emulated.h"
#include "core/machine/cpu.h"
#include "kernels/benchmarks.h"

namespace fa::core::kernels {
namespace {

void RegisterAll() {
  const StripKernels* last = nullptr;
  for (const Isa isa : AllIsas()) {
    const KernelTable& table = Kernels(isa);
    // A level may have the same strips as the level below.
    if (!CanRun(isa) || isa == kAmxEmulated || table.strips == last) continue;
    last = table.strips;
    for (int s = 0; s < table.strip_count; ++s) RegisterLine(table, table.strips[s]);
    for (int s = 0; table.row_state != nullptr && s < table.strip_count; ++s) RegisterLine(table, table.row_state[s]);
    for (int s = 0; s < table.few_count; ++s) RegisterLine(table, table.few[s]);
    RegisterRowKernels(table);
  }
  for (const Isa isa : AllIsas()) {
    if (!CanRun(isa) || isa == kAmxEmulated) continue;
    const Int8Table& table = Int8KernelsFor(isa);
    if (table.isa != isa) continue;  // the level below registers these kernels
    for (int s = 0; s < table.strip_count; ++s) RegisterInt8Line(table, table.strips[s]);
  }
  for (const Isa isa : AllIsas()) {
    if (!CanRun(isa) || isa == kAmxEmulated) continue;
    const KernelTable& pairs = Kernels(isa, DType::kBF16);
    if (!pairs.pairs() || pairs.isa != isa) continue;
    for (int s = 0; s < pairs.strip_count; ++s) RegisterLine(pairs, pairs.strips[s]);
    for (int s = 0; pairs.row_state != nullptr && s < pairs.strip_count; ++s) RegisterLine(pairs, pairs.row_state[s]);
    if (pairs.heads_in_place != nullptr) RegisterLine(pairs, *pairs.heads_in_place);
    RegisterPairRows(pairs);
    if (pairs.rows->attends_tiles) RegisterTileLoops(pairs);
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
