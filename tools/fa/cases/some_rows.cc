#include "cases/some_rows.h"

#include <algorithm>
#include <cstddef>
#include <random>

namespace fa::tool {

double CheckSomeRows(const HeldRows& rows, int random,
                     const std::function<double(int64_t batch, int64_t head, int64_t row)>& check) {
  int64_t count = 0;
  for (const auto& [begin, end] : rows.intervals) count += end - begin;
  if (rows.batch == 0 || rows.heads == 0 || count == 0) return 0;
  double worst = 0;
  const auto check_held = [&](int64_t batch, int64_t head, int64_t at) {
    size_t i = 0;
    for (; at >= rows.intervals[i].end - rows.intervals[i].begin; ++i) {
      at -= rows.intervals[i].end - rows.intervals[i].begin;
    }
    const int64_t row = rows.intervals[i].begin + at;
    worst =
        std::max(worst, check(rows.packed ? row / rows.length : batch, head, rows.packed ? row % rows.length : row));
  };
  check_held(0, 0, 0);
  check_held(rows.batch - 1, rows.heads - 1, count - 1);
  std::mt19937_64 generator(4);
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(generator() % static_cast<uint64_t>(limit)); };
  for (int i = 0; i < random; ++i) {
    const int64_t batch = below(rows.batch), head = below(rows.heads), at = below(count);
    check_held(batch, head, at);
  }
  return worst;
}

}  // namespace fa::tool
