// Tests how ranks, which are threads, send and add sums. There is no real backward. Each tile adds one number to a
// column's sum, so that the order of additions shows.
#include "ranks/run/chain_messages.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "core/run/random_graph.h"
#include "core/run/serial_executor.h"
#include "ranks/plan/row_shards.h"
#include "ranks/plan/sequence_part.h"
#include "ranks/rows/messenger.h"
#include "support/each_case.h"
#include "support/execution/thread_executor.h"
#include "support/execution/thread_transport.h"
#include "support/hang_alarm.h"

namespace fa::ops {
namespace {

using test::HangAlarm;
using test::ThreadRanks;

constexpr int64_t kRows = 900, kGroup = 2, kHeadsKv = 2;
constexpr unsigned kSecondsToDeadlock = 300;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

/// The schedule of one unit under a causal mask, and the graph of each rank. A unit has the heads that are in flight
/// together.
class Unit {
 public:
  Unit(int ranks, int workers)
      : workers_(workers), q_(tiling::RowShards::Make(SequenceShards::Cut::kZigzag, kRows, ranks, 128)) {
    tiling::Sequence& sequence = whole_.emplace_back();
    sequence.sq = sequence.sk = kRows;
    sequence.rule = tiling::MakeRowRule(Mask::Causal(), 0, kRows, kRows, true, true);
    schedule = tiling::MakeSumSchedule({.sequences = whole_,
                                        .of = {0, 1},
                                        .q = q_,
                                        .group = kGroup,
                                        .head_by_head = true,
                                        .heads_kv = kHeadsKv,
                                        .workers = workers,
                                        .pair_seconds = 1,
                                        .key_seconds = 1,
                                        .message_seconds = 1});
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<tiling::RowPart> parts = PartsOf(whole_, {0, 1}, q_.Of(rank));
      std::vector<tiling::Sequence> own;
      std::vector<int64_t>& begins = part_begin.emplace_back();
      for (const tiling::RowPart& part : parts) {
        own.push_back(PartOf(sequence, part.placed.rows));
        begins.push_back(part.placed.rows.begin);
      }
      graphs.push_back(MakeChainGraph(schedule, {.own = own,
                                                 .parts = parts,
                                                 .whole = whole_,
                                                 .group = kGroup,
                                                 .heads_kv = kHeadsKv,
                                                 .slot_row_of = no_slots_,
                                                 .workers = workers,
                                                 .rank = rank}));
    }
  }

  [[nodiscard]] int ranks() const { return static_cast<int>(graphs.size()); }
  [[nodiscard]] const tiling::SumChunk& ChunkOf(const tiling::SumBlock& block) const {
    return schedule.chunks[static_cast<size_t>(block.chunk)];
  }
  [[nodiscard]] int64_t SentBytes(int rank) const {
    int64_t bytes = 0;
    for (const tiling::ChainBlock& block : graphs[static_cast<size_t>(rank)].blocks) {
      if (block.sends()) bytes += ChunkOf(block.of).keys.size() * kHeadsKv * static_cast<int64_t>(sizeof(float));
    }
    return bytes;
  }
  [[nodiscard]] std::unique_ptr<core::Executor> MakeExecutor() const {
    if (workers_ == 1) return std::make_unique<core::SerialExecutor>();
    return std::make_unique<test::ThreadExecutor>(workers_);
  }

  tiling::SumSchedule schedule;
  std::vector<tiling::ChainGraph> graphs;
  std::vector<std::vector<int64_t>> part_begin;  // first row of each part of each rank

 private:
  int workers_;
  std::vector<tiling::Sequence> whole_;
  tiling::RowShards q_;
  std::vector<int64_t> no_slots_;
};

/// The sums of columns after all ranks have added to them, by kv head and first key.
class Finals {
 public:
  void Put(int64_t head_kv, int64_t key, float sum) {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(sums_.emplace(std::pair(head_kv, key), sum).second);
  }
  [[nodiscard]] const std::map<std::pair<int64_t, int64_t>, float>& sums() const { return sums_; }

 private:
  std::mutex mutex_;
  std::map<std::pair<int64_t, int64_t>, float> sums_;
};

/// Runs a rank's graph and its messages to their end. The task that starts after `throws_at` others throws
/// std::bad_alloc. If `throws_at` is -1, no task starts.
/// @return the status of the run
Status RunRank(const Unit& unit, Transport& transport, int64_t throws_at, Finals& finals) {
  const auto rank = static_cast<size_t>(transport.rank());
  const tiling::ChainGraph& graph = unit.graphs[rank];
  std::vector<float> data(static_cast<size_t>(unit.schedule.keys * kHeadsKv), std::numeric_limits<float>::quiet_NaN());
  std::vector<ChainMessages::BlockState> states(graph.blocks.size());
  std::vector<Transport::Request> leaving(static_cast<size_t>(unit.schedule.travelling_chunks), kNoRequest);
  const int64_t requests = ChainMessages::kMostReceives + unit.schedule.travelling_chunks;
  EXPECT_TRUE(transport.Reserve(requests, data.size() * sizeof(float)).ok());
  const ChainMessages::Sums sums{data.data(), kHeadsKv, unit.schedule.chunks};
  UnitProgress no_others(transport, {});
  ChainMessages messages(transport, graph.blocks, states, sums, leaving, no_others);

  std::atomic<int64_t> started = 0;
  auto run_task = [&](int32_t task, int /*worker*/) {
    if (started++ == throws_at) throw std::bad_alloc();
    const tiling::BackwardItem& item = graph.plan.items[static_cast<size_t>(task)];
    if (item.key_begin == item.key_end) return;
    const tiling::SumBlock& block = graph.blocks[static_cast<size_t>(item.key_sums)].of;
    const tiling::Interval& keys = unit.ChunkOf(block).keys;
    float& sum = sums.Of(block.chunk)[static_cast<size_t>(item.head_kv * keys.size() + item.key_begin - keys.begin)];
    if (item.first_of_column && block.from < 0) sum = 0;
    const int64_t row = unit.part_begin[rank][static_cast<size_t>(item.sequence)] + item.row_begin;
    if (item.row_begin < item.row_end) sum = sum * 0.5f + static_cast<float>(item.head * kRows + row + 1);
    if (item.last_of_column && block.to < 0) finals.Put(item.head_kv, item.key_begin, sum);
    messages.TileHasRun(item.key_sums);
  };
  Status ended = Status::OutOfMemory("before the first task");
  if (throws_at >= 0) {
    const test::StateMemory state(graph.plan.graph);
    ended = unit.MakeExecutor()->RunWithArrivals(graph.plan.graph, core::TaskFunction(run_task), state.get(), messages);
  }
  EXPECT_TRUE(messages.failed().ok()) << messages.failed().message();
  if (!messages.done()) {
    EXPECT_FALSE(ended.ok());
    const Status passed = messages.PassOn();
    EXPECT_TRUE(passed.ok()) << passed.message();
  }
  EXPECT_TRUE(messages.done());
  for (const Transport::Request& request : leaving) EXPECT_TRUE(request == kNoRequest || transport.Wait(request).ok());
  return ended;
}

/// Runs all ranks. A task of rank 1 throws, but every message is still sent and received.
std::vector<Status> RunAll(const Unit& unit, bool can_test, int64_t throws_at, Finals& finals) {
  std::vector<Status> ended(static_cast<size_t>(unit.ranks()));
  ThreadRanks all(unit.ranks(), can_test);
  all.Run([&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    ended[static_cast<size_t>(rank)] = RunRank(unit, *transport, rank == 1 ? throws_at : kNever, finals);
  });
  int64_t sent = 0, received = 0;
  for (int rank = 0; rank < unit.ranks(); ++rank) {
    EXPECT_EQ(all.sent_bytes(rank), unit.SentBytes(rank)) << "rank " << rank;
    sent += all.sent_bytes(rank);
    received += all.received_bytes(rank);
  }
  EXPECT_EQ(sent, received);
  return ended;
}

TEST(ChainMessages, SumsHaveTheOrderOfOneRank) {
  const HangAlarm alarm(kSecondsToDeadlock);
  Finals alone;
  for (const Status& status : RunAll(Unit(1, 1), true, kNever, alone)) EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(alone.sums().size(), static_cast<size_t>(kHeadsKv) * 8);
  const auto check = [&](int ranks, int workers) {
    const Unit unit(ranks, workers);
    EXPECT_GT(unit.schedule.travelling_chunks, 0);
    for (const bool can_test : {false, true}) {
      Finals finals;
      for (const Status& status : RunAll(unit, can_test, kNever, finals)) {
        EXPECT_TRUE(status.ok()) << status.message();
      }
      EXPECT_EQ(finals.sums(), alone.sums()) << ranks << " ranks, " << workers << " workers";
    }
  };
  test::ForEachCase(check, test::Axis{"ranks", {2, 3, 4}}, test::Axis{"workers", {1, 3}});
}

TEST(ChainMessages, ARankWhoseTileFailsPassesItsMessagesOn) {
  const HangAlarm alarm(kSecondsToDeadlock);
  for (const int workers : {1, 3}) {
    const Unit unit(3, workers);
    for (const bool can_test : {false, true}) {
      const int64_t tiles = std::ssize(unit.graphs[1].plan.items);
      ASSERT_GT(tiles, 20);
      for (int64_t throws_at = -1; throws_at < tiles; ++throws_at) {
        SCOPED_TRACE(testing::Message() << "tile " << throws_at << ", " << workers << " workers");
        Finals finals;
        const std::vector<Status> ended = RunAll(unit, can_test, throws_at, finals);
        EXPECT_TRUE(ended[0].ok()) << ended[0].message();
        EXPECT_EQ(ended[1].code(), StatusCode::kOutOfMemory);
        EXPECT_TRUE(ended[2].ok()) << ended[2].message();
      }
    }
  }
}

}  // namespace
}  // namespace fa::ops
