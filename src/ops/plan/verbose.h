#ifndef FA_OPS_VERBOSE_H_
#define FA_OPS_VERBOSE_H_

#include "fa/plan.h"
#include "fa/status.h"

namespace fa::ops {

/// Whether environment FA_VERBOSE was 1 when the first plan of the process ran.
[[nodiscard]] bool Verbose() noexcept;
/// In place of the environment's, for tests.
void SetVerbose(bool verbose) noexcept;

/// One line on stderr about a run that took so long:
///     fa: forward, f32: 1 sequences, ..., dv 64; causal; avx512; f32_8x48_avx512; 2 threads; 0.412 ms
/// That is operator, types and sizes; mask; level of the context; kernels; threads; time, or why the run failed.
void Report(const Plan::Impl& plan, const Status& status, double milliseconds) noexcept;

}  // namespace fa::ops

#endif  // FA_OPS_VERBOSE_H_
