// Every mask that does not list rows is given by lo, hi and prefix, which row_interval.h explains. The begin and the
// end of a row's interval of keys are the row number plus a constant, clamped. So the union and the intersection of the
// rows' intervals follow from the first and the last row, and counts are sums of arithmetic series. Only masks that
// list rows need loops over rows.
#include "tiling/row_interval.h"

#include <cassert>
#include <limits>
#include <utility>

namespace fa::tiling {
namespace {

// With sq = sk = 2^32 or more, some intermediate numbers of pairs do not fit into 64 bits.
__extension__ using Int128 = __int128;

Interval Intersect(Interval a, Interval b) {
  const Interval both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return both.empty() ? Interval{} : both;
}

// Returns the sum of clamp(i + offset, low, high) over the rows i.
Int128 SumOfClamped(Interval rows, int64_t offset, int64_t low, int64_t high) {
  const int64_t rise = std::clamp(low - offset, rows.begin, rows.end);  // first row whose i + offset reaches low
  const int64_t flat = std::clamp(high - offset, rise, rows.end);       // first row whose i + offset reaches high
  const Int128 rising = flat - rise;
  return Int128{rise - rows.begin} * low + rising * (Int128{rise} + flat - 1 + Int128{2} * offset) / 2 +
         Int128{rows.end - flat} * high;
}

}  // namespace

Interval RowRule::WithoutEmptyEnds(Interval rows) const {
  while (!rows.empty() && Keys(rows.begin).empty()) ++rows.begin;
  while (!rows.empty() && Keys(rows.end - 1).empty()) --rows.end;
  return rows.empty() ? Interval{} : rows;
}

Interval RowRule::RowsOfKeys(Interval keys) const {
  const Interval wanted = Intersect(keys, {0, sk});
  if (wanted.empty()) return {};
  if (listed != nullptr) {
    const auto begin = std::partition_point(
        listed->begin(), listed->end(), [&](const Interval& keys_of_row) { return keys_of_row.end <= wanted.begin; });
    const auto end = std::partition_point(begin, listed->end(),
                                          [&](const Interval& keys_of_row) { return keys_of_row.begin < wanted.end; });
    return WithoutEmptyEnds({begin - listed->begin(), end - listed->begin()});
  }
  if (wanted.begin < prefix) return Interval{0, sq};
  if (hi < lo) return {};
  return Intersect({0, sq}, {wanted.begin - hi, wanted.end - lo});
}

Interval RowRule::KeysOfRows(Interval rows) const {
  Interval with_keys = Intersect(rows, RowsOfKeys({0, sk}));
  if (listed != nullptr) with_keys = WithoutEmptyEnds(with_keys);
  if (with_keys.empty()) return {};
  return {Keys(with_keys.begin).begin, Keys(with_keys.end - 1).end};
}

Interval RowRule::KeysOfEveryRow(Interval rows) const {
  const Interval inside = Intersect(rows, {0, sq});
  if (inside.empty()) return {};
  const Interval first = Keys(inside.begin);
  const Interval last = Keys(inside.end - 1);
  // Without a list, the rows with keys are consecutive: if both end rows have keys, all rows between them have keys. In
  // a list, a row between the end rows may have no keys. Then the last row's keys begin at or after the end of the
  // first row's keys, so the intersection is empty.
  if (first.empty() || last.empty()) return {};
  return Intersect(first, last);
}

TileClass RowRule::Classify(Interval rows, Interval keys) const {
  const Interval wanted = Intersect(keys, {0, sk});
  Interval visited = Intersect(rows, RowsOfKeys(wanted));
  if (listed != nullptr) visited = WithoutEmptyEnds(visited);
  if (visited.empty()) return TileClass::kNone;
  const Interval every = KeysOfEveryRow(rows);
  return every.begin <= wanted.begin && wanted.end <= every.end ? TileClass::kFull : TileClass::kPartial;
}

int64_t RowRule::KeptPairs(Interval rows) const {
  const Interval with_keys = Intersect(rows, RowsOfKeys({0, sk}));
  if (with_keys.empty()) return 0;
  if (listed != nullptr) {
    Int128 pairs = 0;
    for (int64_t i = with_keys.begin; i < with_keys.end; ++i) pairs += Keys(i).size();
    return static_cast<int64_t>(std::min<Int128>(pairs, std::numeric_limits<int64_t>::max()));
  }
  const Int128 ends = SumOfClamped(with_keys, hi + 1, std::min(prefix, sk), sk);
  const Int128 begins = prefix > 0 ? Int128{0} : SumOfClamped(with_keys, lo, 0, sk);
  return static_cast<int64_t>(std::min<Int128>(ends - begins, std::numeric_limits<int64_t>::max()));
}

bool RowRule::HasEmptyRow() const {
  if (listed != nullptr) return std::any_of(listed->begin(), listed->end(), [](Interval keys) { return keys.empty(); });
  // The rows with keys are consecutive. A row without keys lies before or after them, so the first or the last row has
  // no keys.
  return sq > 0 && (Keys(0).empty() || Keys(sq - 1).empty());
}

RowRule ListedRowRule(std::span<const int64_t> begins, std::span<const int64_t> ends, int64_t sk, int64_t* wrong_row) {
  const auto sq = static_cast<int64_t>(begins.size());
  std::vector<Interval> keys(begins.size());
  Interval above;
  *wrong_row = -1;
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = {std::clamp<int64_t>(begins[i], 0, sk), std::clamp<int64_t>(ends[i], 0, sk)};
    if (keys[i].empty()) {
      // An empty interval at the end of the row above keeps begins and ends from decreasing.
      keys[i] = {above.end, above.end};
    } else if (keys[i].begin < above.begin || keys[i].end < above.end) {
      *wrong_row = static_cast<int64_t>(i);
      break;
    }
    above = keys[i];
  }
  RowRule rule{.lo = -(sq + sk), .hi = sq + sk, .prefix = 0, .sq = sq, .sk = sk};
  rule.listed = std::make_shared<const std::vector<Interval>>(std::move(keys));
  return rule;
}

RowRule MakeRowRule(const Mask& mask, int64_t batch, int64_t sq, int64_t sk, bool first_non_empty,
                    bool last_non_empty) {
  // No distance between a row and a key exceeds `reach`, so a bound of `reach` means "no bound". Every input is clamped
  // to +-reach, so the sum of a few inputs cannot overflow.
  const int64_t reach = sq + sk;
  const int64_t delta = sk - sq;
  const auto saturate = [reach](int64_t x) { return std::clamp(x, -reach, reach); };
  const int64_t pre = saturate(mask.pre());
  const int64_t next = saturate(mask.next());

  RowRule rule{.lo = -reach, .hi = reach, .prefix = 0, .sq = sq, .sk = sk};
  switch (mask.kind()) {
    case Mask::Kind::kNone: break;
    case Mask::Kind::kCausal: rule.hi = delta; break;
    case Mask::Kind::kCausalTopLeft: rule.hi = 0; break;
    case Mask::Kind::kBand:
      rule.lo = saturate(delta - pre);
      rule.hi = saturate(delta + next);
      break;
    case Mask::Kind::kBandTopLeft:
      rule.lo = -pre;
      rule.hi = next;
      break;
    case Mask::Kind::kPrefix:
      assert(batch >= 0 && static_cast<size_t>(batch) < mask.prefix().size());
      rule.hi = delta;
      rule.prefix = std::clamp<int64_t>(mask.prefix()[static_cast<size_t>(batch)], 0, reach);
      break;
    case Mask::Kind::kCausalBandLast: rule.hi = last_non_empty ? saturate(delta + next) : delta; break;
    case Mask::Kind::kCausalBandFirst:
      rule.hi = first_non_empty ? saturate(sk - std::max<int64_t>(sq - next, 0)) : 0;
      break;
    case Mask::Kind::kRows: assert(false); break;
  }
  return rule;
}

}  // namespace fa::tiling
