// Compares the mask algebra with dense masks, which the test makes pair by pair from the modes' definitions.
#include "tiling/row_interval.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <vector>

#include "fa/mask.h"

namespace fa::tiling {
namespace {

constexpr int64_t kMaxSize = 9;
constexpr int64_t kMaxDistance = 11;

struct ModeCase {
  Mask mask;
  bool first = false, last = false;  // whether the batch element is the first or the last non-empty one
};

// Returns whether a mode keeps a pair, by the mode's definition. Distances are so small here that plain arithmetic
// cannot overflow.
bool KeptByDefinition(const ModeCase& mode, int64_t i, int64_t j, int64_t sq, int64_t sk) {
  const int64_t delta = sk - sq;
  const int64_t pre = mode.mask.pre(), next = mode.mask.next();
  switch (mode.mask.kind()) {
    case Mask::Kind::kNone: return true;
    case Mask::Kind::kCausal: return j <= i + delta;
    case Mask::Kind::kCausalTopLeft: return j <= i;
    case Mask::Kind::kBand: return i + delta - pre <= j && j <= i + delta + next;
    case Mask::Kind::kBandTopLeft: return i - pre <= j && j <= i + next;
    case Mask::Kind::kPrefix: return j < mode.mask.prefix()[0] || j <= i + delta;
    case Mask::Kind::kCausalBandLast: return j <= i + delta + (mode.last ? next : 0);
    case Mask::Kind::kCausalBandFirst: return j <= (mode.first ? i + sk - std::max<int64_t>(sq - next, 0) : i);
    case Mask::Kind::kRows: break;  // kRows is tested elsewhere in this file
  }
  return false;
}

Mask MaskOfSparseMode(int64_t mode, int64_t pre, int64_t next) {
  return Mask::FromSparseMode(mode, pre, next, {}, false).value();
}

// Returns every kind of mask with every small pre, next and prefix.
std::vector<ModeCase> AllModes(int64_t sk) {
  std::vector<ModeCase> modes{{Mask::None()}, {Mask::Causal()}, {Mask::CausalTopLeft()}};
  for (int64_t prefix = 0; prefix <= sk; ++prefix) modes.push_back({Mask::Prefix({prefix})});
  for (int64_t next = -kMaxDistance; next <= kMaxDistance; ++next) {
    for (int64_t pre = -kMaxDistance; pre <= kMaxDistance; ++pre) {
      modes.push_back({Mask::Band(pre, next)});
      modes.push_back({Mask::BandTopLeft(pre, next)});
    }
    for (const bool chosen : {false, true}) {
      modes.push_back({MaskOfSparseMode(7, Mask::kUnlimited, next), !chosen, chosen});
      modes.push_back({MaskOfSparseMode(8, Mask::kUnlimited, next), chosen, !chosen});
    }
  }
  return modes;
}

RowRule RuleOf(const ModeCase& mode, int64_t sq, int64_t sk) {
  return MakeRowRule(mode.mask, 0, sq, sk, mode.first, mode.last);
}

template <typename Visit>
void ForAllSizes(Visit visit) {
  for (int64_t sq = 0; sq <= kMaxSize; ++sq) {
    for (int64_t sk = 0; sk <= kMaxSize; ++sk) visit(sq, sk);
  }
}

// Returns the distinct rules that the modes give for a size. Everything else about a mode follows from its rule.
std::vector<RowRule> DistinctRules(int64_t sq, int64_t sk) {
  std::set<std::tuple<int64_t, int64_t, int64_t>> seen;
  std::vector<RowRule> rules;
  for (const ModeCase& mode : AllModes(sk)) {
    const RowRule rule = RuleOf(mode, sq, sk);
    if (seen.emplace(rule.lo, rule.hi, rule.prefix).second) rules.push_back(rule);
  }
  return rules;
}

template <typename Visit>
void ForAllRules(Visit visit) {
  ForAllSizes([&](int64_t sq, int64_t sk) {
    for (const RowRule& rule : DistinctRules(sq, sk)) visit(rule);
  });
}

template <typename Visit>
void ForAllIntervals(int64_t size, Visit visit) {
  for (int64_t begin = 0; begin <= size; ++begin) {
    for (int64_t end = begin; end <= size; ++end) visit(Interval{begin, end});
  }
}

// Counts kept pairs one by one, by RowRule::Keys alone. before_[i][j] is the number of kept pairs in the rows above i
// and the keys left of j.
class DenseMask {
 public:
  explicit DenseMask(const RowRule& rule) {
    for (int64_t i = 0; i < rule.sq; ++i) {
      for (int64_t j = 0; j < rule.sk; ++j) {
        const Interval keys = rule.Keys(i);
        const int64_t kept = keys.begin <= j && j < keys.end ? 1 : 0;
        before_[i + 1][j + 1] = before_[i][j + 1] + before_[i + 1][j] - before_[i][j] + kept;
      }
    }
  }
  [[nodiscard]] int64_t Count(Interval rows, Interval keys) const {
    return before_[rows.end][keys.end] - before_[rows.begin][keys.end] - before_[rows.end][keys.begin] +
           before_[rows.begin][keys.begin];
  }

 private:
  int64_t before_[kMaxSize + 1][kMaxSize + 1] = {};
};

// Returns the smallest interval that contains every x in [0, size) for which `holds`, or {0, 0} if there is none.
template <typename Holds>
Interval HullWhere(int64_t size, Holds holds) {
  Interval hull{size, 0};
  for (int64_t x = 0; x < size; ++x) {
    if (!holds(x)) continue;
    hull.begin = std::min(hull.begin, x);
    hull.end = x + 1;
  }
  return hull.empty() ? Interval{} : hull;
}

std::string Text(const RowRule& rule) {
  return "lo " + std::to_string(rule.lo) + " hi " + std::to_string(rule.hi) + " prefix " + std::to_string(rule.prefix) +
         " sq " + std::to_string(rule.sq) + " sk " + std::to_string(rule.sk);
}

std::string Text(Interval interval) {
  return "[" + std::to_string(interval.begin) + "," + std::to_string(interval.end) + ")";
}

TEST(RowInterval, KeysOfARowAreThoseOfTheModeTableForAllSmallShapes) {
  int64_t wrong = 0, kept_pairs = 0;
  ForAllSizes([&](int64_t sq, int64_t sk) {
    for (const ModeCase& mode : AllModes(sk)) {
      const RowRule rule = RuleOf(mode, sq, sk);
      for (int64_t i = 0; i < sq; ++i) {
        const Interval keys = rule.Keys(i);
        for (int64_t j = 0; j < sk; ++j) {
          const bool kept = KeptByDefinition(mode, i, j, sq, sk);
          kept_pairs += kept;
          wrong += kept != (keys.begin <= j && j < keys.end);
        }
      }
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(kept_pairs, 0);
}

TEST(RowInterval, ClassifyAgreesWithADenseMaskForAllSmallShapes) {
  int64_t wrong = 0, partial = 0;
  ForAllRules([&](const RowRule& rule) {
    const DenseMask dense(rule);
    ForAllIntervals(rule.sq, [&](Interval rows) {
      ForAllIntervals(rule.sk, [&](Interval keys) {
        const int64_t kept = dense.Count(rows, keys);
        const TileClass want = kept == 0                           ? TileClass::kNone
                               : kept == rows.size() * keys.size() ? TileClass::kFull
                                                                   : TileClass::kPartial;
        partial += want == TileClass::kPartial;
        if (rule.Classify(rows, keys) == want) return;
        if (++wrong == 1) ADD_FAILURE() << Text(rule) << " rows " << Text(rows) << " keys " << Text(keys);
      });
    });
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(partial, 0);
}

TEST(RowInterval, KeysOfRowsIsTheHullForAllSmallShapes) {
  ForAllRules([](const RowRule& rule) {
    const DenseMask dense(rule);
    ForAllIntervals(rule.sq, [&](Interval rows) {
      const Interval want = HullWhere(rule.sk, [&](int64_t j) { return dense.Count(rows, {j, j + 1}) > 0; });
      ASSERT_EQ(rule.KeysOfRows(rows), want) << Text(rule) << " rows " << Text(rows);
    });
  });
}

TEST(RowInterval, KeysOfEveryRowIsTheIntersectionForAllSmallShapes) {
  ForAllRules([](const RowRule& rule) {
    const DenseMask dense(rule);
    ForAllIntervals(rule.sq, [&](Interval rows) {
      const Interval want = HullWhere(rule.sk, [&](int64_t j) {
        return rows.size() > 0 && dense.Count(rows, {j, j + 1}) == rows.size();
      });
      ASSERT_EQ(rule.KeysOfEveryRow(rows), want) << Text(rule) << " rows " << Text(rows);
    });
  });
}

TEST(RowInterval, RowsOfKeysAreExactlyTheRowsThatKeepOneForAllSmallShapes) {
  ForAllRules([](const RowRule& rule) {
    const DenseMask dense(rule);
    ForAllIntervals(rule.sk, [&](Interval keys) {
      const auto keeps_one = [&](int64_t i) { return dense.Count({i, i + 1}, keys) > 0; };
      const Interval rows = rule.RowsOfKeys(keys);
      ASSERT_EQ(rows, HullWhere(rule.sq, keeps_one)) << Text(rule) << " keys " << Text(keys);
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        ASSERT_TRUE(keeps_one(i)) << Text(rule) << " keys " << Text(keys) << " has a hole at row " << i;
      }
    });
  });
}

TEST(RowInterval, KeptPairsAreCountedExactlyForAllSmallShapes) {
  ForAllRules([](const RowRule& rule) {
    const DenseMask dense(rule);
    ForAllIntervals(rule.sq, [&](Interval rows) {
      ASSERT_EQ(rule.KeptPairs(rows), dense.Count(rows, {0, rule.sk})) << Text(rule) << " rows " << Text(rows);
    });
  });
}

// Visits every combination of begins and ends for 3 rows over 4 keys.
template <typename Visit>
void ForAllLists(Visit visit) {
  constexpr int64_t kRows = 3, kKeys = 4, kPairs = (kKeys + 1) * (kKeys + 1);
  for (int64_t number = 0; number < kPairs * kPairs * kPairs; ++number) {
    std::vector<int64_t> begins, ends;
    for (int64_t i = 0, rest = number; i < kRows; ++i, rest /= kPairs) {
      begins.push_back(rest % kPairs / (kKeys + 1));
      ends.push_back(rest % kPairs % (kKeys + 1));
    }
    visit(begins, ends, kKeys);
  }
}

TEST(ListedRows, AreTakenIfNoRowWithKeysIsBeforeOneAboveIt) {
  int64_t taken = 0, refused = 0;
  ForAllLists([&](const std::vector<int64_t>& begins, const std::vector<int64_t>& ends, int64_t sk) {
    int64_t want = -1;
    for (size_t i = 0; i < begins.size() && want < 0; ++i) {
      for (size_t above = 0; above < i; ++above) {
        const bool both = begins[i] < ends[i] && begins[above] < ends[above];
        if (both && (begins[i] < begins[above] || ends[i] < ends[above])) want = static_cast<int64_t>(i);
      }
    }
    int64_t got = 0;
    const RowRule rule = ListedRowRule(begins, ends, sk, &got);
    if (got != want) {
      // A row without keys ends where the row above ends. A later row that begins before that end is refused, even if
      // `want` allows it.
      bool gap = false;
      for (size_t i = 0; i < begins.size(); ++i) gap = gap || begins[i] >= ends[i];
      ASSERT_TRUE(gap && want < 0) << got << " " << want;
    }
    (got < 0 ? taken : refused) += 1;
    if (got >= 0) return;
    for (size_t i = 0; i < begins.size(); ++i) {
      const Interval keys = rule.Keys(static_cast<int64_t>(i));
      if (begins[i] < ends[i]) {
        ASSERT_EQ(keys, (Interval{begins[i], ends[i]}));
      } else {
        ASSERT_TRUE(keys.empty());
      }
    }
  });
  EXPECT_GT(taken, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(ListedRows, AgreeWithADenseMaskForAllSmallLists) {
  int64_t lists = 0;
  ForAllLists([&](const std::vector<int64_t>& begins, const std::vector<int64_t>& ends, int64_t sk) {
    int64_t wrong = 0;
    const RowRule rule = ListedRowRule(begins, ends, sk, &wrong);
    if (wrong >= 0) return;
    ++lists;
    const DenseMask dense(rule);
    bool empty_row = false;
    for (int64_t i = 0; i < rule.sq; ++i) empty_row = empty_row || dense.Count({i, i + 1}, {0, sk}) == 0;
    ASSERT_EQ(rule.HasEmptyRow(), empty_row);
    ForAllIntervals(rule.sq, [&](Interval rows) {
      const auto kept_by_some = [&](int64_t j) { return dense.Count(rows, {j, j + 1}) > 0; };
      const auto kept_by_all = [&](int64_t j) { return !rows.empty() && dense.Count(rows, {j, j + 1}) == rows.size(); };
      ASSERT_EQ(rule.KeysOfRows(rows), HullWhere(sk, kept_by_some)) << Text(rows);
      ASSERT_EQ(rule.KeysOfEveryRow(rows), HullWhere(sk, kept_by_all)) << Text(rows);
      ASSERT_EQ(rule.KeptPairs(rows), dense.Count(rows, {0, sk})) << Text(rows);
      ForAllIntervals(sk, [&](Interval keys) {
        const int64_t kept = dense.Count(rows, keys);
        const TileClass want = kept == 0                           ? TileClass::kNone
                               : kept == rows.size() * keys.size() ? TileClass::kFull
                                                                   : TileClass::kPartial;
        ASSERT_EQ(rule.Classify(rows, keys), want) << Text(rows) << Text(keys);
      });
    });
    ForAllIntervals(sk, [&](Interval keys) {
      ASSERT_EQ(rule.RowsOfKeys(keys), HullWhere(rule.sq, [&](int64_t i) {
                  return dense.Count({i, i + 1}, keys) > 0;
                }));
    });
  });
  EXPECT_GT(lists, 1000);
}

TEST(ListedRows, AreCutToTheKeys) {
  const std::vector<int64_t> begins{-5, std::numeric_limits<int64_t>::min(), 2}, ends{1, 3, Mask::kUnlimited};
  int64_t wrong = 0;
  const RowRule rule = ListedRowRule(begins, ends, 4, &wrong);
  EXPECT_EQ(wrong, -1);
  EXPECT_EQ(rule.Keys(0), (Interval{0, 1}));
  EXPECT_EQ(rule.Keys(1), (Interval{0, 3}));
  EXPECT_EQ(rule.Keys(2), (Interval{2, 4}));
}

TEST(RowInterval, RectanglesBeyondTheMatrixAreCutToIt) {
  const RowRule rule = MakeRowRule(Mask::Causal(), 0, 4, 6, true, true);
  const int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(rule.KeysOfRows({least, most}), (Interval{0, 6}));
  EXPECT_EQ(rule.KeysOfEveryRow({-5, 40}), (Interval{0, 3}));
  EXPECT_EQ(rule.RowsOfKeys({5, most}), (Interval{3, 4}));
  EXPECT_EQ(rule.KeptPairs({-1, 100}), 3 + 4 + 5 + 6);
  EXPECT_EQ(rule.Classify({3, 100}, {0, 256}), TileClass::kFull);
  EXPECT_EQ(rule.Classify({4, 100}, {0, 256}), TileClass::kNone);
  EXPECT_EQ(rule.Classify({0, 4}, {6, 256}), TileClass::kNone);
}

// Extreme distances mean "no bound" or "no key". They give the same masks as pre and next of +-(sq + sk).
TEST(RowInterval, ExtremeDistancesSaturate) {
  const int64_t extremes[] = {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::min() + 1,
                              std::numeric_limits<int64_t>::max() - 1, std::numeric_limits<int64_t>::max()};
  ForAllSizes([&](int64_t sq, int64_t sk) {
    const auto expect_same_keys = [&](const Mask& extreme, const Mask& saturated) {
      for (const bool chosen : {false, true}) {
        const RowRule a = MakeRowRule(extreme, 0, sq, sk, chosen, chosen);
        const ModeCase definition{saturated, chosen, chosen};
        for (int64_t i = 0; i < sq; ++i) {
          const Interval want = HullWhere(sk, [&](int64_t j) { return KeptByDefinition(definition, i, j, sq, sk); });
          const Interval got = a.Keys(i);
          ASSERT_TRUE(got == want || (got.empty() && want.empty())) << Text(a) << " row " << i;
        }
      }
    };
    const auto cut = [&](int64_t x) { return x < 0 ? -(sq + sk) : sq + sk; };
    for (const int64_t x : extremes) {
      expect_same_keys(MaskOfSparseMode(7, 0, x), MaskOfSparseMode(7, 0, cut(x)));
      expect_same_keys(MaskOfSparseMode(8, 0, x), MaskOfSparseMode(8, 0, cut(x)));
      expect_same_keys(Mask::Prefix({x}), Mask::Prefix({cut(x)}));
      for (const int64_t y : extremes) {
        expect_same_keys(Mask::Band(x, y), Mask::Band(cut(x), cut(y)));
        expect_same_keys(Mask::BandTopLeft(x, y), Mask::BandTopLeft(cut(x), cut(y)));
      }
    }
  });
}

TEST(RowInterval, HugeSizesAreCountedInClosedForm) {
  constexpr int64_t kBillion = 1'000'000'000;
  const auto pairs = [](const Mask& mask, int64_t sq, int64_t sk) {
    return MakeRowRule(mask, 0, sq, sk, true, true).KeptPairs({0, sq});
  };
  EXPECT_EQ(pairs(Mask::None(), kBillion, kBillion), kBillion * kBillion);
  EXPECT_EQ(pairs(Mask::Causal(), kBillion, kBillion), kBillion * (kBillion + 1) / 2);
  EXPECT_EQ(pairs(Mask::Band(0, 0), kBillion, kBillion), kBillion);
  EXPECT_EQ(pairs(Mask::Prefix({kBillion}), kBillion, kBillion), kBillion * kBillion);
  // In a window of 512 keys, the first 511 rows have fewer keys than that.
  EXPECT_EQ(pairs(Mask::Band(511, 0), kBillion, kBillion), kBillion * 512 - 511 * 512 / 2);
  EXPECT_EQ(pairs(Mask::None(), int64_t{1} << 40, int64_t{1} << 40), std::numeric_limits<int64_t>::max());
}

TEST(RowInterval, HandChecksOfTheDevicesChunkModes) {
  const RowRule mode7 = MakeRowRule(MaskOfSparseMode(7, 6, -2), 0, 2, 6, false, true);
  EXPECT_EQ(mode7.Keys(0), (Interval{0, 3}));
  EXPECT_EQ(mode7.Keys(1), (Interval{0, 4}));
  const RowRule mode8 = MakeRowRule(MaskOfSparseMode(8, 4, 1), 0, 3, 4, true, false);
  EXPECT_EQ(mode8.Keys(0), (Interval{0, 3}));
}

TEST(RowInterval, PrefixIsTakenFromTheBatchElement) {
  const Mask mask = Mask::Prefix({1, 3});
  EXPECT_EQ(MakeRowRule(mask, 0, 4, 4, true, false).Keys(0), (Interval{0, 1}));
  EXPECT_EQ(MakeRowRule(mask, 1, 4, 4, false, true).Keys(0), (Interval{0, 3}));
}

}  // namespace
}  // namespace fa::tiling
