#include "ranks/call/cut_rows.h"

#include <string>

#include "core/run/guarded_call.h"
#include "ops/bind/argument_error.h"

namespace fa {
namespace ops {

using Cut = SequenceShards::Cut;
using tiling::Interval;
using tiling::RowShards;

Status CheckShards(const SequenceShards& shards, int ranks) {
  if (shards.sq < 0) return Status::InvalidArgument(Arg("shards.sq").Is(std::to_string(shards.sq)) + ", want >= 0");
  if (shards.sk < 0) return Status::InvalidArgument(Arg("shards.sk").Is(std::to_string(shards.sk)) + ", want >= 0");
  if (shards.heads_in_flight < 0) {
    return Status::InvalidArgument(Arg("shards.heads_in_flight").Is(std::to_string(shards.heads_in_flight)) +
                                   ", want >= 0");
  }
  if (shards.cut != Cut::kIntervals) return Status::Ok();
  const auto lists = static_cast<int64_t>(shards.intervals.size());
  if (lists != ranks) {
    return Status::InvalidArgument(Arg("shards.intervals").Has(std::to_string(lists)) + " lists, want " +
                                   std::to_string(ranks) + " (ranks)");
  }
  if (shards.sk != shards.sq) {
    return Status::InvalidArgument(Arg("shards.sk").Is(std::to_string(shards.sk)) + ", want " +
                                   std::to_string(shards.sq) + " (" + Arg("shards.sq") + ", for cuts at intervals)");
  }
  return Status::Ok();
}

const char* Name(Cut cut) {
  switch (cut) {
    case Cut::kContiguous: return "contiguous";
    case Cut::kZigzag: return "zigzag";
    default: return "intervals";
  }
}

Result<RowShards> CutRows(const SequenceShards& shards, int64_t rows, int ranks) {
  if (shards.cut != Cut::kIntervals) return RowShards::Make(shards.cut, rows, ranks, tiling::kRowUnit);
  std::vector<std::vector<Interval>> intervals;
  for (const auto& of_rank : shards.intervals) {
    std::vector<Interval>& list = intervals.emplace_back();
    for (const SequenceShards::Interval& interval : of_rank) list.push_back({interval.begin, interval.end});
  }
  bool outside = false;
  const int64_t wrong = tiling::FirstRowNotCoveredOnce(rows, intervals, &outside);
  if (wrong >= 0 || outside) {
    return Status::InvalidArgument(
        Arg("shards.intervals").Says(outside ? "the interval that begins at " : "not held once: row ") +
        std::to_string(wrong) + (outside ? " is not one in 0.." + std::to_string(rows) : std::string()));
  }
  return RowShards(rows, std::move(intervals));
}

}  // namespace ops

Result<std::vector<SequenceShards::Interval>> RowsHeld(const SequenceShards& shards, int64_t rows, int rank,
                                                       int ranks) {
  using ops::Arg;
  return core::GuardedCall("the cut", [&]() -> Result<std::vector<SequenceShards::Interval>> {
    if (ranks < 1) return Status::InvalidArgument(Arg("ranks").Is(std::to_string(ranks)) + ", want >= 1");
    if (rank < 0 || rank >= ranks) {
      return Status::InvalidArgument(Arg("rank").Is(std::to_string(rank)) + ", want 0.." + std::to_string(ranks - 1));
    }
    if (rows < 0) return Status::InvalidArgument(Arg("rows").Is(std::to_string(rows)) + ", want >= 0");
    FA_RETURN_IF_ERROR(ops::CheckShards(shards, ranks));
    const auto cut = ops::CutRows(shards, rows, ranks);
    if (!cut.ok()) return cut.status();
    std::vector<SequenceShards::Interval> held;
    for (const tiling::PlacedRows& placed : cut->Of(rank)) held.push_back({placed.rows.begin, placed.rows.end});
    return held;
  });
}

}  // namespace fa
