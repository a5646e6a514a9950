#include "tiling/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace fa::tiling {
namespace {

std::vector<int64_t> Before(const std::vector<int64_t>& loads) {
  std::vector<int64_t> before{0};
  for (const int64_t load : loads) before.push_back(before.back() + load);
  return before;
}

std::vector<int64_t> LoadsOfParts(const std::vector<int64_t>& before, const std::vector<int64_t>& cuts) {
  std::vector<int64_t> loads;
  for (size_t part = 0; part + 1 < cuts.size(); ++part) {
    loads.push_back(before[static_cast<size_t>(cuts[part + 1])] - before[static_cast<size_t>(cuts[part])]);
  }
  return loads;
}

// Returns the smallest load that the most loaded part can have, if the parts are contiguous. Dynamic programming tries
// all cuts.
int64_t LeastGreatestLoad(const std::vector<int64_t>& before, size_t parts) {
  const size_t n = before.size();
  std::vector<int64_t> best(before);  // the greatest loads with one part
  for (size_t part = 1; part < parts; ++part) {
    std::vector<int64_t> next(n, 0);
    for (size_t end = 0; end < n; ++end) {
      next[end] = before[end];
      for (size_t cut = 0; cut <= end; ++cut) {
        next[end] = std::min(next[end], std::max(best[cut], before[end] - before[cut]));
      }
    }
    best = next;
  }
  return best.back();
}

TEST(Partition, GreatestLoadIsTheLeastPossible) {
  std::mt19937_64 random(3);
  for (int n = 0; n < 300; ++n) {
    std::vector<int64_t> loads(random() % 30);
    for (int64_t& load : loads) load = static_cast<int64_t>(random() % 50);
    const size_t parts = 1 + random() % 8;
    const std::vector<int64_t> before = Before(loads);
    const std::vector<int64_t> cuts = PartitionByLoad(before, std::vector<int64_t>(parts, 1));
    ASSERT_EQ(cuts.size(), parts + 1);
    ASSERT_EQ(cuts.front(), 0);
    ASSERT_EQ(cuts.back(), std::ssize(loads));
    ASSERT_TRUE(std::is_sorted(cuts.begin(), cuts.end()));
    const std::vector<int64_t> of_parts = LoadsOfParts(before, cuts);
    ASSERT_EQ(*std::max_element(of_parts.begin(), of_parts.end()), LeastGreatestLoad(before, parts));
  }
}

TEST(Partition, GreatestLoadExceedsAnEvenSplitByLessThanTheHeaviestUnit) {
  std::mt19937_64 random(5);
  for (int n = 0; n < 100; ++n) {
    std::vector<int64_t> loads(1 + random() % 5000);
    for (int64_t& load : loads) load = 1 + static_cast<int64_t>(random() % 1000);
    const int workers = 1 + static_cast<int>(random() % 128);
    const std::vector<int64_t> before = Before(loads);
    const std::vector<int64_t> of_parts =
        LoadsOfParts(before, PartitionByLoad(before, std::vector<int64_t>(static_cast<size_t>(workers), 1)));
    const int64_t heaviest = *std::max_element(loads.begin(), loads.end());
    EXPECT_LE(*std::max_element(of_parts.begin(), of_parts.end()), before.back() / workers + heaviest);
  }
}

TEST(Partition, EqualUnitsAreSpreadEvenlyWhereTheBoundLeavesFreedom) {
  const std::vector<int64_t> before = Before(std::vector<int64_t>(10, 7));
  std::vector<int64_t> of_parts = LoadsOfParts(before, PartitionByLoad(before, std::vector<int64_t>(4, 1)));
  std::sort(of_parts.begin(), of_parts.end());
  EXPECT_EQ(of_parts, (std::vector<int64_t>{14, 14, 21, 21}));
}

TEST(Partition, SharesScaleTheLoads) {
  const std::vector<int64_t> before = Before(std::vector<int64_t>(30, 1));
  EXPECT_EQ(PartitionByLoad(before, std::vector<int64_t>{1, 3, 2}), (std::vector<int64_t>{0, 5, 20, 30}));
}

TEST(Partition, FewerUnitsThanPartsLeaveEmptyParts) {
  const std::vector<int64_t> before = Before({5, 5});
  const std::vector<int64_t> of_parts = LoadsOfParts(before, PartitionByLoad(before, std::vector<int64_t>(5, 1)));
  EXPECT_EQ(std::accumulate(of_parts.begin(), of_parts.end(), int64_t{0}), 10);
  EXPECT_EQ(*std::max_element(of_parts.begin(), of_parts.end()), 5);
}

TEST(Partition, NodesAreCutBetweenHeadsWhereThatBalances) {
  // 6 heads of 16 units on 2 nodes with 8 workers each: each node gets 3 heads.
  const std::vector<int64_t> before = Before(std::vector<int64_t>(96, 10));
  const std::vector<int64_t> head_begin{0, 16, 32, 48, 64, 80, 96};
  const std::vector<int64_t> cuts = PartitionOverNodes(before, head_begin, 16, 2);
  ASSERT_EQ(cuts.size(), 17U);
  EXPECT_EQ(cuts[8], 48);
  for (const int64_t load : LoadsOfParts(before, cuts)) EXPECT_EQ(load, 60);
}

TEST(Partition, NodesAreCutInsideAHeadWhereANodeWouldBeShortOfWork) {
  // There are 3 heads for 2 nodes. With whole heads, one node would have twice the load of the other.
  const std::vector<int64_t> before = Before(std::vector<int64_t>(96, 10));
  const std::vector<int64_t> cuts = PartitionOverNodes(before, std::vector<int64_t>{0, 32, 64, 96}, 16, 2);
  for (const int64_t load : LoadsOfParts(before, cuts)) EXPECT_EQ(load, 60);
}

TEST(Partition, UnequalNodesGetWorkByTheirWorkers) {
  // 5 workers on 2 nodes: one node has 3 workers, the other 2.
  const std::vector<int64_t> before = Before(std::vector<int64_t>(50, 1));
  std::vector<int64_t> head_begin;
  for (int64_t head = 0; head <= 50; head += 2) head_begin.push_back(head);
  const std::vector<int64_t> cuts = PartitionOverNodes(before, head_begin, 5, 2);
  EXPECT_EQ(cuts, (std::vector<int64_t>{0, 10, 20, 30, 40, 50}));
}

}  // namespace
}  // namespace fa::tiling
