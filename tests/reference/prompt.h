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
  std::vector<double> out;  ///< like out of Forward, before any rounding
  // How far a result may be from `out` if its exponentials and sums are in f32.
  std::vector<double> slack;
};

/// Computes attention of int8 values in double. The steps are S = QK deq1 scale + pse; P = exp(S - max of the row); P8
/// = saturate(rint(P quant1)), ties to even; out = sum(P8 V) deq2 / sum(P). A row without keys is 0.
///
/// The slack has these parts. f32 moves P by a few parts in a million. So a product P quant1 near a half may round to
/// the other integer, which moves the output by |V| deq2 / sum(P). The sum of P scales the output by the same few
/// parts.
[[nodiscard]] PromptResult PromptInt8(const Problem& problem, const ProductScales& scales);

/// Returns saturate(rint(x * scale + offset)), ties to even.
[[nodiscard]] double Quantize(double x, double scale, double offset);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_PROMPT_H_
