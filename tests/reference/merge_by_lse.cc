#include "reference/merge_by_lse.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace reference {

LsePart MergeByLse(const std::vector<LsePart>& parts) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  LsePart merged{std::vector<double>(parts.front().out.size(), 0.0), kNone};
  double max = kNone, sum = 0;
  for (const LsePart& part : parts) {
    if (std::isnan(part.lse)) return {std::vector<double>(merged.out.size(), part.lse), part.lse};
    if (!std::isinf(part.lse)) max = std::max(max, part.lse);
  }
  for (const LsePart& part : parts) {
    if (std::isinf(part.lse)) continue;
    const double weight = std::exp(part.lse - max);
    sum += weight;
    for (size_t d = 0; d < merged.out.size(); ++d) merged.out[d] += weight * part.out[d];
  }
  if (sum == 0) return merged;
  for (double& out : merged.out) out /= sum;
  merged.lse = max + std::log(sum);
  return merged;
}

}  // namespace reference
