// This file counts the tiles of a (sequence, kv head) pair in closed form. So a plan that is too large is refused
// before a single tile is made.
//
// The columns that some row visits are one interval. The rows of column c end at min(sq, its last key + 1 - lo) and
// begin at max(0, its first key - hi). Here lo and hi are the members of RowRule. Each end is constant up to some
// column and linear in c after it, or the reverse. Dividing the linear part by block_q and rounding it gives row
// groups, so its sum over columns is a floor sum (FloorSum). If the RowRule lists rows, there is no closed form, and a
// loop walks over the columns.
#include <algorithm>
#include <utility>

#include "core/integer.h"
#include "tiling/backward/backward_tiles.h"

namespace fa::tiling {
namespace {

using core::CeilDiv;

__extension__ using Int128 = __int128;

// Returns the sum of floor((a i + b) / m) over 0 <= i < n. It requires a, b >= 0 and m > 0, and takes the steps of
// Euclid's algorithm.
double FloorSum(Int128 n, Int128 m, Int128 a, Int128 b) {
  Int128 sum = 0;
  while (n > 0) {
    sum += n * (n - 1) / 2 * (a / m) + n * (b / m);
    a %= m;
    b %= m;
    const Int128 top = a * n + b;
    n = top / m;
    b = top % m;
    std::swap(m, a);
  }
  return static_cast<double>(sum);
}

// Returns the columns that some row visits.
Interval VisitedColumns(const RowRule& rule, int64_t block_k) {
  const int64_t columns = CeilDiv(rule.sk, block_k);
  if (rule.sq == 0 || rule.sk == 0) return {};
  const int64_t of_prefix = CeilDiv(std::min(rule.prefix, rule.sk), block_k);
  if (rule.hi < rule.lo || rule.lo >= rule.sk) return {0, of_prefix};
  const int64_t end = std::clamp(CeilDiv(std::max<int64_t>(rule.sq + rule.hi, 0), block_k), of_prefix, columns);
  const int64_t begin = of_prefix > 0 ? 0 : std::max<int64_t>(rule.lo, 0) / block_k;
  return {std::min(begin, end), end};
}

// Returns the number of row groups of one query head that visit a column, summed over `columns`. Every column of
// `columns` must be visited by some row.
double RowGroups(const RowRule& rule, const BackwardCut& cut, Interval columns) {
  const int64_t block_k = cut.block_k, block_q = cut.block_q;
  double groups = 0;
  if (columns.empty()) return groups;
  if (columns.end * block_k > rule.sk) {  // the last column is shorter than block_k
    --columns.end;
    const Interval rows = rule.RowsOfKeys({columns.end * block_k, rule.sk});
    groups += static_cast<double>(CeilDiv(rows.end, block_q) - rows.begin / block_q);
  }
  const int64_t full_from =
      std::clamp(CeilDiv(std::max<int64_t>(rule.sq + rule.lo, 0), block_k) - 1, columns.begin, columns.end);
  groups +=
      FloorSum(full_from - columns.begin, block_q, block_k, (columns.begin + 1) * block_k - rule.lo + block_q - 1);
  groups += static_cast<double>(columns.end - full_from) * static_cast<double>(CeilDiv(rule.sq, block_q));

  const int64_t of_prefix = CeilDiv(std::min(rule.prefix, rule.sk), block_k);
  const int64_t first_cut = rule.hi < 0 ? 0 : rule.hi / block_k + 1;
  const int64_t cut_from = std::min(std::max({columns.begin, of_prefix, first_cut}), columns.end);
  return groups - FloorSum(columns.end - cut_from, block_q, block_k, cut_from * block_k - rule.hi);
}

// Counts the tiles of a RowRule that lists rows, column by column. From column to column, the begin and the end of the
// visiting rows never decrease. So if a column visits a row group before next_group, an earlier column has counted the
// group.
double CountListed(const RowRule& rule, const BackwardCut& cut) {
  double unvisited = 0, visits = 0, visited_groups = 0;
  int64_t next_group = 0;
  for (int64_t key = 0; key < rule.sk; key += cut.block_k) {
    const Interval rows = rule.RowsOfKeys({key, std::min(key + cut.block_k, rule.sk)});
    if (rows.empty()) {
      ++unvisited;
      continue;
    }
    const int64_t begin = rows.begin / cut.block_q, end = CeilDiv(rows.end, cut.block_q);
    visits += static_cast<double>(end - begin);
    visited_groups += static_cast<double>(end - std::max(begin, std::min(next_group, end)));
    next_group = std::max(next_group, end);
  }
  const double write_only = static_cast<double>(CeilDiv(rule.sq, cut.block_q)) - visited_groups;
  return unvisited + (visits + write_only) * static_cast<double>(cut.group);
}

}  // namespace

double CountPairTiles(const RowRule& rule, const BackwardCut& cut) {
  if (rule.listed != nullptr) return CountListed(rule, cut);
  const Interval visited = VisitedColumns(rule, cut.block_k);
  const auto unvisited = static_cast<double>(CeilDiv(rule.sk, cut.block_k) - visited.size());
  const Interval with_keys = rule.RowsOfKeys({0, rule.sk});
  const int64_t groups_with_keys =
      with_keys.empty() ? 0 : CeilDiv(with_keys.end, cut.block_q) - with_keys.begin / cut.block_q;
  const auto write_only = static_cast<double>(CeilDiv(rule.sq, cut.block_q) - groups_with_keys);
  return unvisited + (RowGroups(rule, cut, visited) + write_only) * static_cast<double>(cut.group);
}

}  // namespace fa::tiling
