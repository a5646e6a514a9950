#include "reference/merge.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace reference {
namespace {

constexpr double kLargest = static_cast<double>(FLT_MAX);

}  // namespace

bool PartialRow::absent() const { return sum == 0 || (max == -kLargest && sum == kLargest); }

PartialRow Merge(const PartialRow& prev, const PartialRow& cur) {
  if (prev.absent() && cur.absent()) return {std::vector<double>(prev.out.size(), 0.0), -kLargest, kLargest};
  if (prev.absent()) return cur;
  if (cur.absent()) return prev;
  PartialRow row;
  row.max = std::max(prev.max, cur.max);
  const double a = prev.sum * std::exp(prev.max - row.max);
  const double b = cur.sum * std::exp(cur.max - row.max);
  row.sum = a + b;
  for (size_t d = 0; d < prev.out.size(); ++d) row.out.push_back((prev.out[d] * a + cur.out[d] * b) / row.sum);
  return row;
}

}  // namespace reference
