#include "tiling/ranks/sequence_part.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace fa::tiling {

Sequence PartOf(const Sequence& whole, Interval rows) {
  Sequence part = whole;
  part.sq = rows.size();
  RowRule& rule = part.rule;
  if (rule.listed != nullptr) {
    const auto first = rule.listed->begin() + rows.begin;
    rule.listed = std::make_shared<const std::vector<Interval>>(first, first + rows.size());
  } else {
    rule.lo += rows.begin;
    rule.hi += rows.begin;
  }
  return part;
}

std::vector<RowPart> PartsOf(std::span<const Sequence> sequences, Interval of, std::span<const PlacedRows> placed) {
  std::vector<RowPart> parts;
  for (int64_t s = of.begin; s < of.end; ++s) {
    const Sequence& sequence = sequences[static_cast<size_t>(s)];
    const Interval axis{sequence.q_offset, sequence.q_offset + sequence.sq};
    const auto first = std::ssize(parts);
    for (const PlacedRows& run : Within(placed, {&axis, 1})) {
      parts.push_back({s, {{run.rows.begin - axis.begin, run.rows.end - axis.begin}, run.at}});
    }
    std::sort(parts.begin() + first, parts.end(),
              [](const RowPart& a, const RowPart& b) { return a.placed.rows.begin < b.placed.rows.begin; });
  }
  return parts;
}

std::vector<Interval> KeysSeen(std::span<const Sequence> sequences, std::span<const RowPart> parts) {
  std::vector<Interval> seen;
  for (const RowPart& part : parts) {
    const Sequence& sequence = sequences[static_cast<size_t>(part.sequence)];
    const Interval keys = sequence.rule.KeysOfRows(part.placed.rows);
    if (!keys.empty()) seen.push_back({sequence.k_offset + keys.begin, sequence.k_offset + keys.end});
  }
  return UnionOf(std::move(seen));
}

}  // namespace fa::tiling
