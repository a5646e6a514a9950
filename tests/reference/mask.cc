#include "reference/mask.h"

#include <algorithm>
#include <numeric>

namespace reference {
namespace {

// pre and next may be any 64-bit integers, so their sums need 128 bits.
__extension__ using Wide = __int128;

bool IsFirstWithQueries(const Lengths& lengths, int64_t b) {
  for (int64_t other = 0; other < b; ++other) {
    if (lengths.sq[other] > 0) return false;
  }
  return lengths.sq[b] > 0;
}

bool IsLastWithQueries(const Lengths& lengths, int64_t b) {
  for (int64_t other = b + 1; other < static_cast<int64_t>(lengths.sq.size()); ++other) {
    if (lengths.sq[other] > 0) return false;
  }
  return lengths.sq[b] > 0;
}

bool RowKeeps(const MaskRule& rule, const Lengths& lengths, int64_t b, int64_t i, int64_t j) {
  const int64_t before = std::accumulate(lengths.sq.begin(), lengths.sq.begin() + b, int64_t{0});
  const auto entries = static_cast<int64_t>(rule.row_begin.size());
  const int64_t row = entries == lengths.sq[b] ? i : before + i;
  return rule.row_begin[row] <= j && j < rule.row_end[row];
}

}  // namespace

bool RuleKeeps(const MaskRule& rule, const Lengths& lengths, int64_t b, int64_t row, int64_t key) {
  const Wide i = row;
  const Wide j = key;
  const Wide sq = lengths.sq[b];
  const Wide sk = lengths.sk[b];
  const Wide delta = sk - sq;
  const Wide pre = rule.pre;
  const Wide next = rule.next;
  switch (rule.mode) {
    case 0: return !rule.band || (i - pre <= j && j <= i + next);
    case 1: return true;
    case 2: return j <= i;
    case 3: return j <= i + delta;
    case 4: return i + delta - pre <= j && j <= i + delta + next;
    case 5:
    case 6: return j < rule.prefix[b] || j <= i + delta;
    case 7: return IsLastWithQueries(lengths, b) ? j <= i + delta + next : j <= i + delta;
    case 8: return IsFirstWithQueries(lengths, b) ? j <= i + sk - std::max<Wide>(sq - next, 0) : j <= i;
    case MaskRule::kRows: return RowKeeps(rule, lengths, b, row, key);
    default: return false;
  }
}

}  // namespace reference
