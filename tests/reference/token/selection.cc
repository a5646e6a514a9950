#include "reference/token/selection.h"

#include <algorithm>
#include <numeric>

namespace reference {

int64_t Selection::FirstToken(int64_t b) const {
  return std::accumulate(lengths.sq.begin(), lengths.sq.begin() + b, int64_t{0});
}

int64_t Selection::FirstKey(int64_t b) const {
  return std::accumulate(lengths.sk.begin(), lengths.sk.begin() + b, int64_t{0});
}

int64_t Selection::Limit(int64_t b, int64_t t) const {
  if (!causal) return lengths.sk[b];
  const int64_t original = lengths.sk[b] * ratio + (residual.empty() ? 0 : residual[b]);
  int64_t limit = 0;
  while (limit < lengths.sk[b] && (limit + 1) * ratio <= original - lengths.sq[b] + t + 1) ++limit;
  return limit;
}

std::vector<SelectedKey> Selection::KeysOf(int64_t b, int64_t t) const {
  const int64_t limit = Limit(b, t);
  const int64_t read = whole ? slots : std::min(slots, (limit + block_size - 1) / block_size);
  std::vector<SelectedKey> keys;
  for (int64_t slot = 0; slot < read; ++slot) {
    const int64_t block = indices[(FirstToken(b) + t) * slots + slot];
    if (block == -1) break;
    if (block < 0 || block > limit / block_size) continue;
    for (int64_t key = block * block_size; key < std::min((block + 1) * block_size, limit); ++key) {
      keys.push_back({slot, key});
    }
  }
  return keys;
}

std::vector<SelectedKey> Selection::EveryKey(int64_t b, int64_t t) const {
  std::vector<SelectedKey> keys;
  for (int64_t key = 0; key < Limit(b, t); ++key) keys.push_back({key, key});
  return keys;
}

}  // namespace reference
