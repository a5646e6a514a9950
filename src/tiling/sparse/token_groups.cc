#include "tiling/sparse/token_groups.h"

#include <algorithm>

namespace fa::tiling {
namespace {

// The most and the fewest tokens of a group. Each token has a state of 100 KB with 64 heads of 128 columns. Reading and
// writing the states once per block of keys takes a thirtieth of the time of the block's products.
constexpr int64_t kMostTokens = 32;
constexpr int64_t kLeastTokens = 8;

// With this number of tasks per worker, the last tasks leave no worker idle for long.
constexpr int64_t kTasksPerWorker = 4;

}  // namespace

int64_t TokensOfAGroup(const SparseSequences& sequences, int workers) {
  return std::clamp(sequences.tokens / (kTasksPerWorker * workers), kLeastTokens, kMostTokens);
}

std::vector<TokenGroup> MakeTokenGroups(const SparseSequences& sequences, int64_t tokens) {
  std::vector<TokenGroup> groups;
  for (int64_t b = 0; b < std::ssize(sequences.list); ++b) {
    const int64_t first = std::ssize(groups), sq = sequences.list[static_cast<size_t>(b)].sq;
    for (int64_t row = 0; row < sq; row += tokens) groups.push_back({b, {row, std::min(row + tokens, sq)}, first});
  }
  return groups;
}

}  // namespace fa::tiling
