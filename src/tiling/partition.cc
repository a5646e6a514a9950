#include "tiling/partition.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "core/integer.h"

namespace fa::tiling {
namespace {

using Positions = std::vector<int64_t>;

// FarthestEnd returns the largest end, and FarthestBegin the smallest begin, for which units [begin, end) weigh at most
// `load`.
int64_t FarthestEnd(std::span<const int64_t> load_before, int64_t begin, int64_t load) {
  const int64_t limit = load_before[static_cast<size_t>(begin)] + load;
  return std::upper_bound(load_before.begin() + begin, load_before.end(), limit) - load_before.begin() - 1;
}

int64_t FarthestBegin(std::span<const int64_t> load_before, int64_t end, int64_t load) {
  const int64_t limit = load_before[static_cast<size_t>(end)] - load;
  return std::lower_bound(load_before.begin(), load_before.begin() + end, limit) - load_before.begin();
}

bool Fits(std::span<const int64_t> load_before, std::span<const int64_t> shares, int64_t bound) {
  int64_t position = 0;
  for (const int64_t share : shares) position = FarthestEnd(load_before, position, bound * share);
  return position == std::ssize(load_before) - 1;
}

// Returns the least load per share with which greedy packing succeeds.
int64_t LeastBound(std::span<const int64_t> load_before, std::span<const int64_t> shares, int64_t share_sum) {
  const int64_t total = load_before.back();
  int64_t low = core::CeilDiv(total, share_sum);
  if (Fits(load_before, shares, low)) return low;
  // Invariant: the load `low` does not suffice, the load `high` does.
  int64_t high = low;
  do {
    low = high;
    high = std::min(2 * high, total);
  } while (!Fits(load_before, shares, high));
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (Fits(load_before, shares, middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

std::vector<int64_t> PartitionByLoad(std::span<const int64_t> load_before, std::span<const int64_t> shares) {
  const int64_t units = std::ssize(load_before) - 1;
  const auto parts = shares.size();
  assert(units >= 0 && parts > 0 && load_before.front() == 0);
  Positions cuts(parts + 1, units);
  cuts.front() = 0;
  if (parts == 1 || units == 0) return cuts;

  const int64_t share_sum = std::accumulate(shares.begin(), shares.end(), int64_t{0});
  const int64_t bound = LeastBound(load_before, shares, share_sum);

  // earliest[p] is the first cut after which the parts p, p + 1, ... can hold all remaining units.
  Positions earliest(parts + 1, units);
  for (size_t part = parts; part-- > 1;) {
    earliest[part] = FarthestBegin(load_before, earliest[part + 1], bound * shares[part]);
  }
  const double load_per_share = static_cast<double>(load_before.back()) / static_cast<double>(share_sum);
  int64_t shares_before = 0;
  for (size_t part = 0; part + 1 < parts; ++part) {
    shares_before += shares[part];
    const auto even_load = static_cast<int64_t>(load_per_share * static_cast<double>(shares_before));
    auto even = std::lower_bound(load_before.begin(), load_before.end(), even_load);
    if (even == load_before.end()) --even;
    if (even != load_before.begin() && even_load - *(even - 1) < *even - even_load) --even;
    const int64_t latest = FarthestEnd(load_before, cuts[part], bound * shares[part]);
    cuts[part + 1] = std::min(std::max({even - load_before.begin(), earliest[part + 1], cuts[part]}), latest);
  }
  return cuts;
}

std::vector<int64_t> PartitionOverNodes(std::span<const int64_t> load_before, std::span<const int64_t> head_begin,
                                        int workers, int nodes) {
  const std::vector<int64_t> equal_shares(static_cast<size_t>(workers), 1);
  if (nodes <= 1 || nodes > workers) return PartitionByLoad(load_before, equal_shares);

  std::vector<int64_t> node_workers(static_cast<size_t>(nodes), 0);
  for (int worker = 0; worker < workers; ++worker) {
    ++node_workers[static_cast<size_t>(NodeOfWorker(worker, workers, nodes))];
  }
  std::vector<int64_t> head_load_before;
  head_load_before.reserve(head_begin.size());
  for (const int64_t unit : head_begin) head_load_before.push_back(load_before[static_cast<size_t>(unit)]);
  const std::vector<int64_t> node_cuts = PartitionByLoad(head_load_before, node_workers);

  // Remote memory has about half the bandwidth, but tiles read K and V from L2 nearly all the time. So a head that is
  // split over two nodes costs little. If keeping heads whole would lose more than an eighth of the workers' time, cuts
  // may split heads.
  const double even_load = static_cast<double>(load_before.back()) / workers;
  std::vector<int64_t> cuts{0};
  cuts.reserve(static_cast<size_t>(workers) + 1);
  std::vector<int64_t> node_load_before;
  for (size_t node = 0; node < node_workers.size(); ++node) {
    const int64_t begin = head_begin[static_cast<size_t>(node_cuts[node])];
    const int64_t end = head_begin[static_cast<size_t>(node_cuts[node + 1])];
    const int64_t base = load_before[static_cast<size_t>(begin)];
    const int64_t load = load_before[static_cast<size_t>(end)] - base;
    if (static_cast<double>(load) > 1.125 * even_load * static_cast<double>(node_workers[node])) {
      return PartitionByLoad(load_before, equal_shares);
    }
    node_load_before.clear();
    for (int64_t unit = begin; unit <= end; ++unit) {
      node_load_before.push_back(load_before[static_cast<size_t>(unit)] - base);
    }
    const std::span shares(equal_shares.data(), static_cast<size_t>(node_workers[node]));
    const std::vector<int64_t> inside = PartitionByLoad(node_load_before, shares);
    for (size_t part = 1; part < inside.size(); ++part) cuts.push_back(begin + inside[part]);
  }
  return cuts;
}

}  // namespace fa::tiling
