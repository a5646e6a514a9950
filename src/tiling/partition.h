#ifndef FA_TILING_PARTITION_H_
#define FA_TILING_PARTITION_H_

#include <cstdint>
#include <span>
#include <vector>

namespace fa::tiling {

/// Cuts units 0..n-1 into contiguous parts so that the greatest ratio of load to share is as small as possible. The
/// function searches for the least bound by bisection and tests each bound by filling one part after the other, as the
/// device's PartitionSparseData does. If the bound permits several cuts, the function takes the cut nearest to an even
/// split, so that no part is smaller than necessary. The greatest load exceeds an even split by less than the heaviest
/// unit.
/// @param load_before  n + 1 entries: load_before[u] = load of the units before u
/// @param shares       per part, its share of the load relative to the other parts; all > 0
/// @return shares.size() + 1 positions, from 0 to n
[[nodiscard]] std::vector<int64_t> PartitionByLoad(std::span<const int64_t> load_before,
                                                   std::span<const int64_t> shares);

/// Cuts the units for workers that are spread evenly over `nodes` NUMA nodes (worker c on node NodeOfWorker(c)). A cut
/// between the workers of two nodes is moved to the boundary between two heads if that costs little balance.
/// `head_begin` has the first unit of each head, then n.
[[nodiscard]] std::vector<int64_t> PartitionOverNodes(std::span<const int64_t> load_before,
                                                      std::span<const int64_t> head_begin, int workers, int nodes);

[[nodiscard]] inline int NodeOfWorker(int worker, int workers, int nodes) {
  return static_cast<int>(int64_t{worker} * nodes / workers);
}

}  // namespace fa::tiling

#endif  // FA_TILING_PARTITION_H_
