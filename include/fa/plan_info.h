#ifndef FA_PLAN_INFO_H_
#define FA_PLAN_INFO_H_

/// @file
/// What a plan says about its kernels, tiles, work, memory and predicted load.
/// @code{.cpp}
/// std::vector<float> q(8 * 128 * 64), out(q);
/// fa::AttentionArgs args;
/// args.q = args.k = args.v = fa::View(q.data(), {1, 8, 128, 64});
/// args.out = fa::View(out.data(), {1, 8, 128, 64});
/// const auto plan = fa::PlanFlashAttention(args, {.mask = fa::Mask::Causal()});
/// if (!plan.ok()) return plan.status();
/// const fa::PlanInfo info = plan->info();
/// std::printf("%lld tasks, %zu bytes\n", static_cast<long long>(info.tasks), info.workspace_bytes);
/// @endcode

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fa {

/// One block of work in a plan: some rows of one or several query heads, and an interval of keys.
struct PlanTile {
  int64_t batch = 0;
  int64_t head_kv = 0;
  int64_t head_begin = 0, head_end = 0;  ///< query heads
  int64_t row_begin = 0, row_end = 0;    ///< query rows of the sequence
  int64_t key_begin = 0, key_end = 0;    ///< keys visited
  int64_t cost = 0;                      ///< number of key blocks visited; 0: zeros are written to the rows
  int worker = 0;                        ///< worker that is expected to run the tile; backward: worker in a simulation
};

/// What a plan over ranks (docs/distributed.md) says about all ranks. Its vectors have one element per rank.
struct RanksInfo {
  std::string strategy;                             ///< "sequence" or "heads"
  bool as_one_process = true;                       ///< whether the bits equal those of the same call in one process
  int64_t units = 0;                                ///< number of units of work, which run one after the other
  int64_t heads_in_flight = 0;                      ///< KV heads per rank in the largest unit
  std::vector<int64_t> sent_bytes, received_bytes;  ///< bytes of the messages of one run (Transport::traffic)
  /// The bytes of the largest workspace for rows of other ranks and for sums.
  std::vector<int64_t> staged_bytes;
  double seconds = 0;     ///< predicted time of one run
  double efficiency = 1;  ///< predicted time that ranks compute matrix products, as a fraction of all ranks' time
  double hidden = 1;      ///< predicted fraction of the messages' time during which matrix products are computed
};

/// What a call will run, and why.
struct PlanInfo {
  std::string op;                    ///< "forward", "backward" ...
  std::string isa;                   ///< level of the kernels
  std::vector<std::string> kernels;  ///< registry names, in order of use
  std::string reason;                ///< why this tile shape, in words
  int64_t block_q = 0, block_k = 0;  ///< rows and keys of a tile
  int64_t tasks = 0, edges = 0;      ///< numbers of tasks and edges of the task graph
  int workers = 0;
  double flops = 0;          ///< floating-point operations of the kept pairs
  double flops_full = 0;     ///< floating-point operations if no pair were masked
  double flops_visited = 0;  ///< floating-point operations of all pairs that are computed, including masked ones
  size_t workspace_bytes = 0;
  std::vector<double> load;  ///< predicted busy time of each worker, as a fraction of the busiest worker's
  double efficiency = 0;     ///< simulated: work / (workers * makespan)
  std::vector<PlanTile> tiles;
  std::optional<RanksInfo> ranks;  ///< only for a plan over ranks
};

}  // namespace fa

#endif  // FA_PLAN_INFO_H_
