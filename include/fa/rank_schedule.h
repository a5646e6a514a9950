#ifndef FA_RANK_SCHEDULE_H_
#define FA_RANK_SCHEDULE_H_

/// @file
/// Predicts an attention call over ranks before it runs, without any of the ranks.
/// @code{.cpp}
/// // 8 ranks, a sequence of 131072 rows. Only shapes matter: nothing is read through these addresses.
/// static const float shape_only = 0;
/// static float written_never = 0;
/// fa::AttentionArgs whole;
/// whole.q = whole.k = whole.v = fa::View(&shape_only, {1, 8, 131072, 64});
/// whole.out = fa::View(&written_never, {1, 8, 131072, 64});
/// const auto schedule = fa::ScheduleFlashAttention(whole, {.mask = fa::Mask::Causal()}, {}, {.ranks = 8});
/// if (!schedule.ok()) return schedule.status();
/// std::puts(schedule->text.c_str());
/// @endcode

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

/// The machines for which a call over ranks is predicted: equal machines, one per rank. The prediction may run on any
/// machine.
struct RankMachines {
  int ranks = 1;                        ///< 1..4096
  int threads = 0;                      ///< threads per rank; 0: the context's number of threads
  double flops_per_thread = 0;          ///< FLOPs per second; 0: half the peak of a 2 GHz core of the context's level
  double network_bytes_per_s = 12.5e9;  ///< bytes per second that a rank can send and, at the same time, receive
  double latency_s = 5e-6;              ///< time that one message takes on top of the time for its bytes
};

/// What an attention call over ranks will do: which rows each rank holds, what it sends, receives and computes, and the
/// predicted time. Plan::Describe() of the real call says the same.
struct RankSchedule {
  /// What one rank holds, sends, receives and computes.
  struct Rank {
    std::vector<SequenceShards::Interval> q_rows, k_rows;  ///< rows that the rank holds, in its order
    int64_t sent_bytes = 0, received_bytes = 0;            ///< bytes of the messages of one run
    int64_t staged_bytes = 0;                              ///< largest workspace for rows of other ranks and for sums
    double flops = 0;
    double product_seconds = 0;
    double message_seconds = 0;  ///< time of the rank's messages; matrix products are computed during part of it
    double end_seconds = 0;      ///< time from the start of the run until the rank ends
  };

  SequenceShards::Strategy strategy = SequenceShards::Strategy::kSequence;  ///< the strategy that was chosen or forced
  bool as_one_process = true;  ///< whether cuts lie at multiples of row_unit; then the bits are those of one process
  int64_t row_unit = 0;
  int64_t units = 0;  ///< number of units of work, which run one after the other
  double seconds = 0;
  double efficiency = 1;  ///< time that ranks compute matrix products, as a fraction of all ranks' time
  double hidden = 1;      ///< fraction of the messages' time during which matrix products are computed
  std::vector<Rank> ranks;
  /// The schedule as a PlanInfo. Its workers are the ranks, and its tasks are the units. Each tile has some rows of a
  /// rank and the keys that these rows see; only about the first million tiles are listed.
  PlanInfo info;
  std::string text;  ///< the whole schedule in words
};

/// Returns the schedule of FlashAttention over ranks (fa/ranked_attention.h). No rank takes part: nothing is sent or
/// computed.
/// @param whole  the whole call, of which only shapes are read, as in PlanFlashAttention; given tensors have non-null
///               data
/// @param shards  the cut; sq and sk are taken from the whole call's tensors
/// @return kInvalidArgument where FlashAttention over ranks returns it, or if a number of `machines` is out of range.
/// kOutOfMemory if the prediction would take more than a minute, or if there are more units, blocks or bytes than a
/// plan can have
[[nodiscard]] FA_API Result<RankSchedule> ScheduleFlashAttention(const AttentionArgs& whole,
                                                                 const AttentionOptions& options,
                                                                 const SequenceShards& shards,
                                                                 const RankMachines& machines,
                                                                 Context* context = nullptr);

/// Returns the schedule of FlashAttentionGrad over ranks, as ScheduleFlashAttention does for the forward.
[[nodiscard]] FA_API Result<RankSchedule> ScheduleFlashAttentionGrad(const AttentionGradArgs& whole,
                                                                     const AttentionOptions& options,
                                                                     const SequenceShards& shards,
                                                                     const RankMachines& machines,
                                                                     Context* context = nullptr);

}  // namespace fa

#endif  // FA_RANK_SCHEDULE_H_
