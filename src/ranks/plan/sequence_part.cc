#include "ranks/plan/sequence_part.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/integer.h"

namespace fa::tiling {

Sequence PartOf(const Sequence& whole, Interval rows) {
  Sequence part = whole;
  part.sq = rows.size();
  if (!part.kept_by_all) {
    part.kept_by_all = {whole.rule.KeysOfRows({0, whole.sq}), whole.rule.KeysOfEveryRow({0, whole.sq})};
  }
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

std::vector<RankPart> PartsOfAllRanks(std::span<const Sequence> sequences, int64_t sequence, const RowShards& q) {
  std::vector<RankPart> all;
  for (int rank = 0; rank < q.ranks(); ++rank) {
    for (const RowPart& part : PartsOf(sequences, {sequence, sequence + 1}, q.Of(rank))) {
      all.push_back({rank, part.placed});
    }
  }
  std::sort(all.begin(), all.end(),
            [](const RankPart& a, const RankPart& b) { return a.placed.rows.begin < b.placed.rows.begin; });
  return all;
}

std::vector<Interval> KeysSeen(std::span<const Sequence> sequences, std::span<const RowPart> parts, int64_t unit) {
  std::vector<Interval> seen;
  for (const RowPart& part : parts) {
    const Sequence& sequence = sequences[static_cast<size_t>(part.sequence)];
    const Interval keys = sequence.rule.KeysOfRows(part.placed.rows);
    if (keys.empty()) continue;
    seen.push_back({sequence.k_offset + keys.begin / unit * unit,
                    sequence.k_offset + std::min(core::RoundUp(keys.end, unit), sequence.sk)});
  }
  return UnionOf(std::move(seen));
}

}  // namespace fa::tiling
