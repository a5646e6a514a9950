#include "reference/prompt.h"

#include <algorithm>
#include <cmath>

#include "reference/scores.h"

namespace reference {
namespace {

double Saturate(double x) { return std::clamp(std::nearbyint(x), -128.0, 127.0); }

/// Returns the relative error of an exponential in f32. The polynomial is off by at most 4e-6. The rounding of the
/// score adds some units in the last place of `distance` and of `magnitude`.
double ExpError(double distance, double magnitude) { return 4e-6 + 0x1p-22 * (distance + magnitude); }

}  // namespace

double Quantize(double x, double scale, double offset) { return Saturate(x * scale + offset); }

PromptResult PromptInt8(const Problem& problem, const ProductScales& scales) {
  Problem p = problem;
  p.scale = problem.scale * scales.deq1;
  PromptResult result;
  const auto size = static_cast<size_t>(p.RowsBefore(p.lengths.sq, p.batch()) * p.heads * p.dv);
  result.out.assign(size, 0);
  result.slack.assign(size, 0);
  std::vector<Score<double>> scores;
  for (int64_t b = 0; b < p.batch(); ++b) {
    for (int64_t n = 0; n < p.heads; ++n) {
      for (int64_t i = 0; i < p.lengths.sq[b]; ++i) {
        ScoresOfRow<double>(p, b, n, i, &scores);
        if (scores.empty()) continue;
        double max = scores[0].value, sum = 0, worst = 0;
        for (const auto& score : scores) max = std::max(max, score.value);
        for (const auto& score : scores) sum += std::exp(score.value - max);
        double* out = &result.out[static_cast<size_t>(p.QueryRow(b, n, i, p.dv))];
        double* slack = &result.slack[static_cast<size_t>(p.QueryRow(b, n, i, p.dv))];
        for (const auto& score : scores) {
          const double scaled = std::exp(score.value - max) * scales.quant1;
          const double error = ExpError(max - score.value, p.pse_type == PseType::kNone ? 0 : score.magnitude);
          const double p8 = Saturate(scaled);
          const bool tie = Saturate(scaled * (1 + error)) != p8 || Saturate(scaled * (1 - error)) != p8;
          worst = std::max(worst, error);
          const double* v = &p.v[static_cast<size_t>(p.KeyRow(b, n / (p.heads / p.heads_kv), score.key, p.dv))];
          for (int64_t c = 0; c < p.dv; ++c) {
            out[c] += p8 * v[c] * scales.deq2 / sum;
            if (tie) slack[c] += std::fabs(v[c] * scales.deq2 / sum);
          }
        }
        for (int64_t c = 0; c < p.dv; ++c) slack[c] += std::fabs(out[c]) * (worst + 0x1p-20);
      }
    }
  }
  return result;
}

}  // namespace reference
