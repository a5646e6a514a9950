// Tests FetchRuns, the lists of cache lines that kernels prefetch.

#include "ops/tile/fetch_runs.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace fa::test {
namespace {

using ops::FetchRuns;

constexpr int64_t kLine = FetchRuns::kLineBytes;

alignas(kLine) constexpr char kMemory[64 * kLine] = {};

/// Returns the begin and end of every run, as bytes from the start of kMemory.
std::vector<std::pair<int64_t, int64_t>> Listed(const FetchRuns& runs) {
  std::vector<std::pair<int64_t, int64_t>> listed;
  const core::kernels::FetchList list = runs.list();
  for (const auto* run = list.run; run != list.end; ++run) {
    listed.emplace_back(run->begin - kMemory, run->end - kMemory);
  }
  return listed;
}

using Runs = std::vector<std::pair<int64_t, int64_t>>;

TEST(FetchRuns, AddsTheBytesThatAreAskedForOrEveryLineThatTheyTouch) {
  std::array<FetchRuns::Run, 4> memory;
  FetchRuns runs(memory);
  runs.Add(kMemory + 8, kLine);
  EXPECT_EQ(runs.lines(), 1);
  runs.AddLines(kMemory + 8, kLine);
  EXPECT_EQ(runs.lines(), 1 + 2);
  runs.AddLines(kMemory + 4 * kLine, kLine);
  EXPECT_EQ(runs.lines(), 1 + 2 + 1);
  EXPECT_EQ(Listed(runs), (Runs{{8, 8 + kLine}, {0, 8 + kLine}, {4 * kLine, 5 * kLine}}));
}

TEST(FetchRuns, AddsRowsThatFollowEachOtherAsOneRunAndOthersWhileThereIsRoom) {
  const auto* memory_of_rows = reinterpret_cast<const std::byte*>(kMemory);
  std::array<FetchRuns::Run, 3> memory;
  FetchRuns runs(memory);
  runs.AddRows(memory_of_rows, 0, 32, 32);
  EXPECT_EQ(runs.lines(), 0);
  runs.AddRows(memory_of_rows, 5, 32, 32);
  runs.AddRows(memory_of_rows + 8 * kLine, 5, 32, 2 * kLine);
  EXPECT_EQ(Listed(runs), (Runs{{0, 5 * 32}, {8 * kLine, 8 * kLine + 32}, {10 * kLine, 10 * kLine + 32}}));
  EXPECT_EQ(runs.lines(), 3 + 2);
}

TEST(FetchRuns, TakesTheNextLinesOfAnotherList) {
  std::array<FetchRuns::Run, 2> from_memory;
  FetchRuns from(from_memory);
  from.Add(kMemory, 3 * kLine);
  from.Add(kMemory + 10 * kLine, 2 * kLine);
  core::kernels::FetchList list = from.list();
  std::array<FetchRuns::Run, 8> memory;
  FetchRuns runs(memory);
  runs.Take(list, 2);
  EXPECT_EQ(Listed(runs), (Runs{{0, 2 * kLine}}));
  runs.Take(list, 2);
  EXPECT_EQ(Listed(runs), (Runs{{0, 2 * kLine}, {2 * kLine, 3 * kLine}, {10 * kLine, 11 * kLine}}));
  runs.Take(list, 100);  // asks for more lines than the list still has
  EXPECT_EQ(runs.lines(), 5);
  EXPECT_EQ(Listed(runs).back(), std::pair(11 * kLine, 12 * kLine));
  runs.Take(list, 100);
  EXPECT_EQ(runs.lines(), 5);
}

TEST(FetchRuns, LeavesInTheOtherListWhatItHasNoRoomFor) {
  std::array<FetchRuns::Run, 3> from_memory;
  FetchRuns from(from_memory);
  for (int64_t i = 0; i < 3; ++i) from.Add(kMemory + 4 * i * kLine, kLine);
  core::kernels::FetchList list = from.list();
  std::array<FetchRuns::Run, 2> memory, rest_memory;
  FetchRuns runs(memory), rest(rest_memory);
  runs.Take(list, 3);
  EXPECT_EQ(Listed(runs), (Runs{{0, kLine}, {4 * kLine, 5 * kLine}}));
  rest.Take(list, 3);
  EXPECT_EQ(Listed(rest), (Runs{{8 * kLine, 9 * kLine}}));
}

}  // namespace
}  // namespace fa::test
