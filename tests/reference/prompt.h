#ifndef FA_TESTS_REFERENCE_PROMPT_H_
#define FA_TESTS_REFERENCE_PROMPT_H_

#include <cstdint>
#include <vector>

#include "reference/attention.h"

namespace reference {

/// Scales of int8 attention.
struct ProductScales {
  double deq1 = 1, quant1 = 1, deq2 = 1;
};

struct PromptResult {
  std::vector<double> out;  ///< as Forward's, before any rounding
  // How far a result whose exponentials and sums are in f32 may be from `out`.
  std::vector<double> slack;
};

/// Attention of int8 values, in double and step by step: S = QK deq1 scale + pse; P = exp(S - max of the row); P8 =
/// saturate(rint(P quant1)), ties to even; out = sum(P8 V) deq2 / sum(P). A row without keys is 0.
///
/// f32 moves P by a few parts in a million, which makes the slack. A product P quant1 near a half may round to the
/// other integer, which moves the output by |V| deq2 / sum(P). The sum of P scales the output by the same few parts.
[[nodiscard]] PromptResult PromptInt8(const Problem& problem, const ProductScales& scales);

/// saturate(rint(x * scale + offset)), ties to even.
[[nodiscard]] double Quantize(double x, double scale, double offset);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_PROMPT_H_
