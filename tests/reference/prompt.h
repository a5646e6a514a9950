#ifndef FA_TESTS_REFERENCE_PROMPT_H_
#define FA_TESTS_REFERENCE_PROMPT_H_

#include <cstdint>
#include <vector>

#include "reference/attention.h"

namespace reference {

struct ProductScales {
  double deq1 = 1, quant1 = 1, deq2 = 1;
};

struct PromptResult {
  std::vector<double> out;  ///< the output in the order of ForwardResult::out, before it is rounded
  // How far a result may be from `out` if its exponentials and sums are in f32.
  std::vector<double> slack;
};

/// Computes attention of int8 values in double: S = QK deq1 scale + pse, P = exp(S - the row's maximum), P8 =
/// saturate(rint(P quant1)) with ties to even, and out = sum(P8 V) deq2 / sum(P). A row without keys is 0.
///
/// The slack adds up two errors. In f32, P is off by a few parts in a million. If P quant1 is near a half, it may then
/// round to the other integer, which changes the output by |V| deq2 / sum(P). sum(P), by which the output is divided,
/// is also off by a few parts in a million.
[[nodiscard]] PromptResult PromptInt8(const Problem& problem, const ProductScales& scales);

/// Returns saturate(rint(x * scale + offset)); ties go to the even integer.
[[nodiscard]] double Quantize(double x, double scale, double offset);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_PROMPT_H_
