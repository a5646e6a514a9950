#ifndef FA_OPS_VERBOSE_H_
#define FA_OPS_VERBOSE_H_

#include "fa/plan.h"
#include "fa/status.h"

namespace fa::ops {

/// Returns whether the environment variable FA_VERBOSE was 1 when the first plan of the process ran.
[[nodiscard]] bool Verbose() noexcept;
/// Replaces, for tests, the value that the environment gave.
void SetVerbose(bool verbose) noexcept;

/// Writes one line on stderr about a run that took this time:
///     fa: forward, f32: 1 sequences, ..., dv 64; causal; avx512; f32_8x48_avx512; 2 threads; 0.412 ms
/// The line has operator, types, sizes, mask, level of the context, kernels and threads. The line ends with the time,
/// or with the reason why the run failed.
void Report(const Plan::Impl& plan, const Status& status, double milliseconds) noexcept;

}  // namespace fa::ops

#endif  // FA_OPS_VERBOSE_H_
