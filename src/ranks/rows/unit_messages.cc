#include "ranks/rows/unit_messages.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fa::ops {
namespace {

using tiling::Interval;
using tiling::PlacedRows;
using tiling::RowAxis;

void Measure(std::span<const RowTensor> tensors, PeerRows& rows) {
  rows.bytes = 0;
  for (const RowTensor& tensor : tensors) {
    int64_t count = 0;
    for (const PlacedRows& run : rows.Of(tensor.axis)) count += run.rows.size();
    rows.bytes += rows.heads.size() * tensor.HeadBytes(count);
  }
}

/// Gives the messages their offsets, one after the other, each at a multiple of 64 bytes. Messages without bytes are
/// removed.
size_t LayOut(std::span<const RowTensor> tensors, std::vector<PeerRows>& messages) {
  size_t bytes = 0;
  for (PeerRows& message : messages) {
    Measure(tensors, message);
    message.offset = bytes;
    bytes += AlignedBytes(message.bytes);
  }
  std::erase_if(messages, [](const PeerRows& message) { return message.bytes == 0; });
  return bytes;
}

std::vector<PlacedRows> Staged(const StagedRows& staged, std::vector<PlacedRows> pieces) {
  for (PlacedRows& piece : pieces) piece.at = staged.Place(piece.rows.begin);
  return pieces;
}

/// Returns where `keys` lie in a tensor that has all keys of the unit one after the other.
std::vector<PlacedRows> OfUnit(const tiling::RankCall& call, const tiling::RankUnit& unit,
                               std::span<const Interval> keys) {
  const int64_t first = AxisOf(call, unit, RowAxis::kKey).begin;
  std::vector<PlacedRows> placed;
  for (const Interval& interval : keys) placed.push_back({interval, interval.begin - first});
  return placed;
}

void Finish(std::span<const RowTensor> tensors, UnitMessages& messages) {
  messages.send_bytes = LayOut(tensors, messages.send);
  messages.receive_bytes = LayOut(tensors, messages.receive);
  Measure(tensors, messages.kept_from);
  Measure(tensors, messages.kept_to);
}

/// Adds the rows that `rank` sends to a peer and the rows that it gets from this peer.
void Add(UnitMessages& messages, int rank, PeerRows to, PeerRows from) {
  if (to.peer == rank) {
    messages.kept_from = std::move(to);
    messages.kept_to = std::move(from);
  } else {
    messages.send.push_back(std::move(to));
    messages.receive.push_back(std::move(from));
  }
}

/// Returns the messages that carry every rank's rows to the ranks that compute with them. The sizes of these messages
/// are not set yet.
UnitMessages RowMessages(const tiling::RankCall& call, const tiling::RankPlan& plan, const tiling::RankUnit& unit,
                         int rank, const StagedRows& queries, const StagedRows& keys) {
  UnitMessages messages;
  const auto needed = [&](int of_rank, RowAxis axis) { return NeededRows(call, plan, unit, of_rank, axis); };
  const std::vector<Interval> my_queries = needed(rank, RowAxis::kQuery), my_keys = needed(rank, RowAxis::kKey);
  const Interval my_heads = unit.heads[static_cast<size_t>(rank)];
  for (int peer = 0; peer < call.ranks(); ++peer) {
    PeerRows to{.peer = peer, .heads = unit.heads[static_cast<size_t>(peer)], .queries = {}, .keys = {}};
    to.queries = Within(call.q.Of(rank), needed(peer, RowAxis::kQuery));
    to.keys = Within(call.k.Of(rank), needed(peer, RowAxis::kKey));
    // Heads are counted from the first head that is staged.
    PeerRows from{.peer = peer, .heads = {0, my_heads.size()}, .queries = {}, .keys = {}};
    from.queries = Staged(queries, Within(call.q.Of(peer), my_queries));
    from.keys = Staged(keys, Within(call.k.Of(peer), my_keys));
    Add(messages, rank, std::move(to), std::move(from));
  }
  return messages;
}

}  // namespace

StagedRows::StagedRows(std::span<const Interval> needed, int64_t slack) {
  for (const Interval& interval : needed) {
    if (slack > 0) zeros.push_back({{0, slack}, rows});
    rows += slack;
    runs.push_back({interval, rows});
    rows += interval.size();
    if (slack > 0) zeros.push_back({{0, slack}, rows});
    rows += slack;
    lead = std::max(lead, interval.end);
  }
}

int64_t StagedRows::Place(int64_t row) const {
  const auto after =
      std::partition_point(runs.begin(), runs.end(), [row](const PlacedRows& run) { return run.rows.begin <= row; });
  const PlacedRows& run = *(after - 1);
  return run.at + row - run.rows.begin;
}

UnitMessages MessagesIn(const tiling::RankCall& call, const tiling::RankPlan& plan, const tiling::RankUnit& unit,
                        int rank, const StagedRows& queries, const StagedRows& keys,
                        std::span<const RowTensor> tensors) {
  UnitMessages messages = RowMessages(call, plan, unit, rank, queries, keys);
  Finish(tensors, messages);
  return messages;
}

UnitMessages MessagesHome(const tiling::RankCall& call, const tiling::RankUnit& unit, int rank,
                          const StagedRows& finished, std::span<const RowTensor> tensors) {
  UnitMessages messages;
  const Interval heads = unit.heads[static_cast<size_t>(rank)];
  const std::vector<Interval> mine = FinishedKeys(call, unit, rank);
  for (int peer = 0; peer < call.ranks(); ++peer) {
    PeerRows to{.peer = peer, .heads = {0, heads.size()}, .queries = {}, .keys = {}};
    to.keys = Staged(finished, Within(call.k.Of(peer), mine));
    to.every_key = Staged(finished, OfUnit(call, unit, mine));
    PeerRows from{.peer = peer, .heads = heads, .queries = {}, .keys = {}};
    const std::vector<Interval> theirs = FinishedKeys(call, unit, peer);
    from.keys = Within(call.k.Of(rank), theirs);
    from.every_key = OfUnit(call, unit, theirs);
    Add(messages, rank, std::move(to), std::move(from));
  }
  Finish(tensors, messages);
  return messages;
}

UnitMessages MessagesMoved(const tiling::RankCall& call, const tiling::RankPlan& plan, int rank,
                           std::span<const RowTensor> tensors) {
  UnitMessages messages;
  const Interval heads{0, call.problem.heads_kv};
  for (int peer = 0; peer < call.ranks(); ++peer) {
    Add(messages, rank, {.peer = peer, .heads = heads, .queries = RowsBetween(call, plan, rank, peer).held, .keys = {}},
        {.peer = peer, .heads = heads, .queries = RowsBetween(call, plan, peer, rank).computed, .keys = {}});
  }
  Finish(tensors, messages);
  return messages;
}

UnitMessages MessagesMovedBack(const tiling::RankCall& call, const tiling::RankPlan& plan, int rank,
                               std::span<const RowTensor> tensors) {
  UnitMessages in = MessagesMoved(call, plan, rank, tensors);
  UnitMessages back{.send = std::move(in.receive),
                    .receive = std::move(in.send),
                    .kept_from = std::move(in.kept_to),
                    .kept_to = std::move(in.kept_from)};
  Finish(tensors, back);
  return back;
}

void ClearSlack(std::span<const RowTensor> tensors, std::span<const size_t> at, const StagedRows& keys, int64_t heads,
                std::byte* staged) {
  for (size_t t = 0; t < tensors.size(); ++t) {
    const RowTensor& tensor = tensors[t];
    if (tensor.axis != RowAxis::kKey) continue;
    const auto element = static_cast<int64_t>(SizeOf(tensor.rows.dtype));
    for (int64_t head = 0; head < heads; ++head) {
      for (const PlacedRows& run : keys.zeros) {
        std::memset(staged + at[t] + tensor.rows.Offset(0, head, run.at) * element, 0,
                    static_cast<size_t>(run.rows.size() * tensor.RowBytes()));
      }
    }
  }
}

UnitMessages MessagesBack(const tiling::RankCall& call, const tiling::RankPlan& plan, const tiling::RankUnit& unit,
                          int rank, const StagedRows& queries, const StagedRows& keys,
                          std::span<const RowTensor> tensors) {
  UnitMessages in = RowMessages(call, plan, unit, rank, queries, keys);
  UnitMessages back{.send = std::move(in.receive),
                    .receive = std::move(in.send),
                    .kept_from = std::move(in.kept_to),
                    .kept_to = std::move(in.kept_from)};
  const Interval axis = AxisOf(call, unit, RowAxis::kKey);
  for (auto* messages : {&back.send, &back.receive}) {
    for (PeerRows& message : *messages) message.every_key = OfUnit(call, unit, {&axis, 1});
  }
  back.kept_from.every_key = back.kept_to.every_key = OfUnit(call, unit, {&axis, 1});
  Finish(tensors, back);
  return back;
}

}  // namespace fa::ops
