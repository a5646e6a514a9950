#ifndef FA_PLAN_INFO_H_
#define FA_PLAN_INFO_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fa {

/// One block of work in a plan: rows of one query head (or of folded heads) against an interval of keys.
struct PlanTile {
  int64_t batch = 0;
  int64_t head_kv = 0;
  int64_t head_begin = 0, head_end = 0;  ///< query heads
  int64_t row_begin = 0, row_end = 0;    ///< query rows of the sequence
  int64_t key_begin = 0, key_end = 0;    ///< keys visited
  int64_t cost = 0;                      ///< key blocks visited; 0 = the rows are only written
  int worker = 0;                        ///< whose range it starts in; backward: who runs it in the simulation
};

/// What a plan over ranks (docs/distributed.md) says of all of them: vectors have an element per rank.
struct RanksInfo {
  std::string strategy;                             ///< "sequence" or "heads"
  bool as_one_process = true;                       ///< the bits are those of one process
  int64_t units = 0;                                ///< of work, one after the other
  int64_t heads_in_flight = 0;                      ///< kv heads of a unit, per rank, at most
  std::vector<int64_t> sent_bytes, received_bytes;  ///< of one run; a run counts its own (Transport::traffic)
  std::vector<int64_t> staged_bytes;  ///< of the workspace: rows of others and sums of the units in flight, at most
  double seconds = 0;                 ///< predicted, of one run
  double efficiency = 1;              ///< predicted: of all ranks' time, the share in products
  double hidden = 1;  ///< predicted: of the time that messages take, the share that passes during products
};

/// What will run and why.
struct PlanInfo {
  std::string op;                    ///< "forward"
  std::string isa;                   ///< level of the kernels
  std::vector<std::string> kernels;  ///< registry names, in order of use
  std::string reason;                ///< why this tile shape, in words
  int64_t block_q = 0, block_k = 0;  ///< rows and keys of a tile
  int64_t tasks = 0, edges = 0;      ///< of the task graph
  int workers = 0;
  double flops = 0;          ///< of kept pairs
  double flops_full = 0;     ///< were nothing masked
  double flops_visited = 0;  ///< of the pairs in visited blocks, after clipping
  size_t workspace_bytes = 0;
  std::vector<double> load;  ///< predicted busy share of each worker, 1 = the longest
  double efficiency = 0;     ///< simulated: work / (workers * makespan)
  std::vector<PlanTile> tiles;
  std::optional<RanksInfo> ranks;  ///< of a plan over ranks
};

}  // namespace fa

#endif  // FA_PLAN_INFO_H_
