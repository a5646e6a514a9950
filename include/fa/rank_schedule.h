#ifndef FA_RANK_SCHEDULE_H_
#define FA_RANK_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "fa/options.h"
#include "fa/plan_info.h"
#include "fa/sequence_shards.h"
#include "fa/status.h"

namespace fa {

/// Equal machines that an attention call over ranks is predicted for, one per rank. This machine need not be one.
struct RankMachines {
  int ranks = 1;                ///< 1..4096
  int threads = 0;              ///< of a rank; 0: the context's
  double flops_per_thread = 0;  ///< per second; 0: half the multiply-adds of a core of 2 GHz of the context's level
  double network_bytes_per_s = 12.5e9;  ///< that a rank sends, and at the same time receives
  double latency_s = 5e-6;              ///< of one message
};

/// One attention call over ranks before it runs, as data: who holds, sends, receives and computes what, and for how
/// long that is predicted to take. Plan::Describe() of the call itself says the same.
struct RankSchedule {
  /// What one rank holds, moves and computes.
  struct Rank {
    std::vector<SequenceShards::Interval> q_rows, k_rows;  ///< that it holds, in this order
    int64_t sent_bytes = 0, received_bytes = 0;            ///< of one run
    int64_t staged_bytes = 0;                              ///< keys and values (queries and results) of others, at most
    double flops = 0;
    double product_seconds = 0;
    double message_seconds = 0;  ///< some of which pass during products
    double end_seconds = 0;      ///< from the start of the run
  };

  SequenceShards::Strategy strategy = SequenceShards::Strategy::kSequence;  ///< chosen or forced
  bool as_one_process = true;  ///< the bits are those of one process: the cut is at multiples of row_unit
  int64_t row_unit = 0;
  int64_t units = 0;  ///< of work, one after the other
  double seconds = 0;
  double efficiency = 1;  ///< of all ranks' time, the share in products
  double hidden = 1;      ///< of the time that messages take, the share that passes during products
  std::vector<Rank> ranks;
  /// Workers are ranks, tasks are units; tiles are rows of ranks with the keys that they see, the first million of
  /// them.
  PlanInfo info;
  std::string text;  ///< all of it in words
};

/// The schedule of FlashAttention over ranks (fa/ranked_attention.h), without any of them: nothing is sent or computed.
/// @param whole   the whole call, shapes only, as for PlanFlashAttention; data must not be null where a tensor is given
/// @param shards  sq and sk are those of the whole call's tensors, whatever they say
/// @return kInvalidArgument, as FlashAttention over ranks; a number of `machines` out of range. kOutOfMemory: more
/// sequences and ranks than are looked at within a minute, or more units, blocks or bytes than a plan can have
[[nodiscard]] FA_API Result<RankSchedule> ScheduleFlashAttention(const AttentionArgs& whole,
                                                                 const AttentionOptions& options,
                                                                 const SequenceShards& shards,
                                                                 const RankMachines& machines,
                                                                 Context* context = nullptr);

/// The schedule of FlashAttentionGrad over ranks, likewise.
[[nodiscard]] FA_API Result<RankSchedule> ScheduleFlashAttentionGrad(const AttentionGradArgs& whole,
                                                                     const AttentionOptions& options,
                                                                     const SequenceShards& shards,
                                                                     const RankMachines& machines,
                                                                     Context* context = nullptr);

}  // namespace fa

#endif  // FA_RANK_SCHEDULE_H_
