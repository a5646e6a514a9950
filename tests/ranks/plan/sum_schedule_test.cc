#include "ranks/plan/sum_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "ranks/plan/sequence_part.h"
#include "support/each_case.h"
#include "tiling/plan_limits.h"
#include "tiling/tile_shape.h"

namespace fa::tiling {
namespace {

using test::Axis;
using test::ForEachCase;

Sequence MakeSequence(const Mask& mask, int64_t sq, int64_t sk) {
  Sequence sequence;
  sequence.sq = sq;
  sequence.sk = sk;
  sequence.rule = MakeRowRule(mask, 0, sq, sk, true, true);
  return sequence;
}

/// Returns whether any of the rows keeps any of the keys.
bool Keeps(const Sequence& sequence, Interval rows, Interval keys) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const Interval kept = sequence.rule.Keys(row);
    if (kept.begin < keys.end && keys.begin < kept.end) return true;
  }
  return false;
}

// Expects that the schedule adds in the order of one process. The blocks of a chunk have ascending heads and rows, and
// each block sends its sums to the next one. The blocks of the same rows take their chunks in ascending or in
// descending order. For each head, there is a block for each part and chunk in which the mask keeps a pair.
void ExpectTheChainsOfOneProcess(const Sequence& sequence, const RowShards& q, int64_t group, int workers,
                                 bool head_by_head = false) {
  const std::vector<Sequence> sequences{sequence};
  const SumSchedule schedule = MakeSumSchedule({.sequences = sequences,
                                                .of = {0, 1},
                                                .q = q,
                                                .group = group,
                                                .head_by_head = head_by_head,
                                                .heads_kv = 1,
                                                .workers = workers,
                                                .pair_seconds = 1e-9,
                                                .key_seconds = 1e-8,
                                                .message_seconds = 1e-6});
  std::map<int32_t, std::vector<SumBlock>> of_chunk;
  std::map<std::tuple<int64_t, int64_t>, std::vector<int64_t>> of_rows;  // first keys of chunks by (first row, head)
  for (const SumBlock& block : schedule.blocks) {
    std::vector<SumBlock>& chain = of_chunk[block.chunk];
    if (head_by_head) {
      EXPECT_EQ(block.heads.size(), 1);
    }
    EXPECT_EQ(block.begins_heads, chain.empty() || chain.back().heads != block.heads);
    if (!chain.empty()) {
      EXPECT_EQ(chain.back().ends_heads, block.begins_heads);
    }
    if (chain.empty()) {
      EXPECT_EQ(block.from, -1);
    } else {
      EXPECT_EQ(chain.back().to, block.rank);
      EXPECT_EQ(block.from, chain.back().rank);
      const bool later = chain.back().heads.end <= block.heads.begin ||
                         (chain.back().heads == block.heads && chain.back().rows.end <= block.rows.begin);
      EXPECT_TRUE(later);
    }
    chain.push_back(block);
    for (int64_t head = block.heads.begin; head < block.heads.end; ++head) {
      of_rows[{block.rows.begin, head}].push_back(schedule.chunks[static_cast<size_t>(block.chunk)].keys.begin);
    }
  }
  int64_t keys = 0;
  for (int32_t c = 0; c < std::ssize(schedule.chunks); ++c) {
    const SumChunk& chunk = schedule.chunks[static_cast<size_t>(c)];
    EXPECT_EQ(chunk.at, keys);
    EXPECT_EQ(chunk.keys.begin % kColumnKeys, 0);
    keys += chunk.keys.size();
    int64_t wanted = 0, found = 0;
    for (const RankPart& part : PartsOfAllRanks(sequences, 0, q)) {
      if (Keeps(sequence, part.placed.rows, chunk.keys)) wanted += group;
    }
    for (const SumBlock& block : of_chunk[c]) found += block.heads.size();
    EXPECT_EQ(found, wanted);
    EXPECT_EQ(chunk.last, wanted == 0 ? -1 : of_chunk[c].back().rank);
    if (wanted > 0) {
      EXPECT_EQ(of_chunk[c].back().to, -1);
      EXPECT_TRUE(of_chunk[c].back().ends_heads);
    }
    // For all heads, the last block of a chunk lies on the same rank, chunk.last.
    for (const SumBlock& block : of_chunk[c]) EXPECT_TRUE(!block.ends_heads || block.rank == chunk.last);
  }
  EXPECT_EQ(keys, sequence.sk);
  EXPECT_EQ(schedule.keys, sequence.sk);
  const bool descends = sequence.sq > 0 && sequence.rule.Keys(0).end < sequence.sk;
  for (const auto& [rows, begins] : of_rows) {
    for (size_t i = 1; i < begins.size(); ++i) EXPECT_EQ(begins[i] < begins[i - 1], descends);
  }
}

TEST(SumSchedule, KeepsTheChainsOfOneProcess) {
  using Cut = SequenceShards::Cut;
  const auto check = [](Cut cut, const Mask& mask, int64_t sk, int ranks, int workers, bool head_by_head) {
    ExpectTheChainsOfOneProcess(MakeSequence(mask, 1700, sk), RowShards::Make(cut, 1700, ranks, 128), 3, workers,
                                head_by_head);
  };
  ForEachCase(check, Axis{"cut", {Cut::kContiguous, Cut::kZigzag}},
              Axis{"mask", {Mask::None(), Mask::Causal(), Mask::Band(300, 100), Mask::Prefix({400})}},
              Axis{"sk", {0, 500, 1700}}, Axis{"ranks", {1, 2, 3, 8}}, Axis{"workers", {1, 16}},
              Axis{"head_by_head", {false, true}});
}

TEST(SumSchedule, TilesAreSmallerWhereChainsWaitForColumnsBehindEachOther) {
  const auto rows = [](int64_t rows_of_block, int64_t columns, int64_t at_once) {
    EXPECT_EQ(TileRowsOfBlocks(rows_of_block, columns, at_once, /*few_chunks=*/false), 128);
    return TileRowsOfBlocks(rows_of_block, columns, at_once, /*few_chunks=*/true);
  };
  EXPECT_EQ(rows(8192, 16, 1), 128);
  EXPECT_EQ(rows(8192, 16, 2), 128);
  EXPECT_EQ(rows(8192, 16, 16), 64);
  EXPECT_EQ(rows(8192, 1, 16), 128);
  EXPECT_EQ(rows(1 << 20, 16, 16), 128);
  EXPECT_EQ(rows(0, 0, 16), 128);
}

TEST(SumSchedule, HasNoMoreBlocksThanItSays) {
  const auto check = [&](int ranks, int64_t sk, int64_t heads_kv) {
    const std::vector<Sequence> sequences{MakeSequence(Mask::None(), 1700, sk)};
    const RowShards q = RowShards::Make(SequenceShards::Cut::kZigzag, 1700, ranks, 128);
    const SumSchedule schedule =
        MakeSumSchedule({.sequences = sequences, .of = {0, 1}, .q = q, .group = 3, .heads_kv = heads_kv});
    EXPECT_LE(std::ssize(schedule.blocks), MostSumBlocks(sk, 2 * ranks, 3)) << ranks << " " << sk;
  };
  ForEachCase(check, Axis{"ranks", {1, 2, 8}}, Axis{"sk", {int64_t{500}, int64_t{1700}, int64_t{9000}}},
              Axis{"heads_kv", {1, 4}});
}

// In each unit of heads, rank 0 has the first and the last block, and rank 1 the middle block. A rank that waits for
// sums has no other work.
TEST(SumSchedule, ARankThatWaitsInEveryUnitIsPredictedToWaitInEveryUnit) {
  SumSchedule schedule;
  schedule.chunks = {{.keys = {0, 128}}};
  schedule.keys = 128;
  schedule.blocks = {{.rank = 0, .seconds = 1, .to = 1},
                     {.rank = 1, .seconds = 1, .from = 0, .to = 0},
                     {.rank = 0, .seconds = 1, .from = 1}};
  const std::vector<Sequence> sequences{MakeSequence(Mask::None(), 256, 128)};
  const RowShards q = RowShards::Make(SequenceShards::Cut::kContiguous, 256, 2, 128);
  SumCall call{.sequences = sequences, .of = {0, 1}, .q = q};
  EXPECT_DOUBLE_EQ(PredictedSeconds(schedule, call, 1), 3);
  EXPECT_DOUBLE_EQ(PredictedSeconds(schedule, call, 4), 12);
  constexpr int64_t kMany = int64_t{1} << 60;  // so many that they cannot be simulated one by one
  EXPECT_DOUBLE_EQ(PredictedSeconds(schedule, call, kMany), 3 * static_cast<double>(kMany));
  call.message_seconds = 0.25;
  call.key_seconds = 0.5 / 128;
  EXPECT_DOUBLE_EQ(PredictedSeconds(schedule, call, 4), 4 * (3 + 2 * 0.75));
}

SumSchedule CausalSchedule(int64_t rows, int ranks, int workers, int64_t heads_kv, double* seconds) {
  const std::vector<Sequence> sequences{MakeSequence(Mask::Causal(), rows, rows)};
  const RowShards q = RowShards::Make(SequenceShards::Cut::kZigzag, rows, ranks, 128);
  const SumCall call{.sequences = sequences,
                     .of = {0, 1},
                     .q = q,
                     .group = 4,
                     .heads_kv = heads_kv,
                     .workers = workers,
                     .pair_seconds = 1.0 / workers};
  SumSchedule schedule = MakeSumSchedule(call);
  *seconds = PredictedSeconds(schedule, call, 1);
  return schedule;
}

// Returns the number of pairs per worker if the pairs of all query heads are divided evenly.
double Ideal(int64_t rows, int ranks, int workers, int64_t heads_kv) {
  return static_cast<double>(4 * heads_kv * rows * (rows + 1) / 2) / ranks / workers;
}

TEST(SumSchedule, AnEvenCutOfACausalMaskKeepsRanksOfOneThreadBusy) {
  for (const int ranks : {2, 4, 16}) {
    double seconds = 0;
    (void)CausalSchedule(int64_t{16384} * ranks, ranks, 1, 1, &seconds);
    const double efficiency = Ideal(int64_t{16384} * ranks, ranks, 1, 1) / seconds;
    EXPECT_GE(efficiency, 0.95) << ranks;
    EXPECT_LT(efficiency, 1) << ranks;
  }
}

TEST(SumSchedule, ChunksHaveColumnsForAllWorkers) {
  for (const int64_t heads_kv : {1, 2, 8}) {
    double seconds = 0;
    const SumSchedule schedule = CausalSchedule(int64_t{1} << 17, 8, 16, heads_kv, &seconds);
    ASSERT_GT(schedule.chunks.size(), 1u);
    for (const SumChunk& chunk : schedule.chunks) EXPECT_EQ(chunk.keys.size() % (kColumnKeys * 16 / heads_kv), 0);
  }
}

// With one head, each of 64 columns passes through the 32 tiles of a rank's rows, one after another. So 64 workers wait
// for more than half of the time.
TEST(SumSchedule, WorkersOfOneHeadAreKnownToWaitForEachOther) {
  double one = 0, eight = 0;
  (void)CausalSchedule(int64_t{1} << 16, 8, 64, 1, &one);
  (void)CausalSchedule(int64_t{1} << 16, 8, 64, 8, &eight);
  EXPECT_GT(one, 2 * Ideal(int64_t{1} << 16, 8, 64, 1));
  EXPECT_LT(eight, 8 * one / 2);
}

// RankedBackward.SmallerTilesOfBlocksChangeNoBit runs the same case with 4 threads per rank.
TEST(SumSchedule, TilesAreSmallWhereColumnsRunSideBySide) {
  const std::vector<Sequence> sequences{MakeSequence(Mask::None(), 1024, 1024)};
  const RowShards q = RowShards::Make(SequenceShards::Cut::kContiguous, 1024, 2, 128);
  for (const int workers : {1, 4}) {
    const SumSchedule schedule =
        MakeSumSchedule({.sequences = sequences, .of = {0, 1}, .q = q, .group = 2, .workers = workers});
    int64_t most = 0, least = kFullBlockQ;
    for (const SumBlock& block : schedule.blocks) {
      const int64_t columns = schedule.chunks[static_cast<size_t>(block.chunk)].keys.size() / kColumnKeys;
      const int64_t rows = TileRowsOfBlocks(block.rows.size(), columns, workers, schedule.few_chunks);
      most = std::max(most, rows);
      least = std::min(least, rows);
    }
    EXPECT_EQ(most, workers == 1 ? kFullBlockQ : kFullBlockQ / 2);
    EXPECT_EQ(least, most);
  }
}

/// Returns a schedule of two ranks, which hold the rows of each cut sequence alternately, 128 rows at a time. One more
/// sequence lies on rank 0 alone.
SumSchedule ScheduleOfCutSequences(int64_t cut_sequences) {
  constexpr int64_t kRows = 1024, kKeys = 6 * kColumnKeys * kRows / 128;  // as many chunks as a sequence can have
  std::vector<Sequence> sequences;
  std::vector<std::vector<Interval>> rows(2);
  for (int64_t s = 0; s <= cut_sequences; ++s) {
    Sequence& sequence = sequences.emplace_back(MakeSequence(Mask::None(), kRows, kKeys));
    sequence.q_offset = s * kRows;
    sequence.k_offset = s * kKeys;
    for (int64_t row = 0; row < kRows; row += 128) {
      const size_t rank = s < cut_sequences ? static_cast<size_t>(row / 128 % 2) : 0;
      rows[rank].push_back({sequence.q_offset + row, sequence.q_offset + row + 128});
    }
  }
  const RowShards q((cut_sequences + 1) * kRows, rows);
  return MakeSumSchedule({.sequences = sequences, .of = {0, cut_sequences + 1}, .q = q});
}

// A chunk's number is the tag of its messages. If two chunks had the same number, a rank could mix up their sums.
TEST(SumSchedule, NumbersChunksThatTravel) {
  const SumSchedule schedule = ScheduleOfCutSequences(3);
  std::set<int32_t> numbers, of_blocks;
  for (const SumBlock& block : schedule.blocks) {
    const SumChunk& chunk = schedule.chunks[static_cast<size_t>(block.chunk)];
    EXPECT_EQ(chunk.travel_number < 0, chunk.sequence == 3);
    if (block.to >= 0 && block.to != block.rank) of_blocks.insert(block.chunk);
  }
  for (const SumChunk& chunk : schedule.chunks) {
    EXPECT_TRUE(chunk.travel_number < 0 || numbers.insert(chunk.travel_number).second);
  }
  EXPECT_EQ(std::ssize(numbers), schedule.travelling_chunks);
  EXPECT_EQ(numbers.size(), of_blocks.size());
  EXPECT_EQ(*numbers.begin(), 0);
  EXPECT_EQ(*numbers.rbegin(), schedule.travelling_chunks - 1);
  EXPECT_EQ(schedule.travelling_chunks, 3 * 48);
}

TEST(SumSchedule, RefusesMoreChunksThatTravelThanMessagesHaveTags) {
  const int64_t most = kMostTravellingChunks / 48;
  EXPECT_EQ(ScheduleOfCutSequences(most).travelling_chunks, 48 * most);
  try {
    (void)ScheduleOfCutSequences(most + 1);
    ADD_FAILURE() << "not refused";
  } catch (const PlanTooLarge& error) {
    EXPECT_STREQ(error.what(),
                 "the plan: 32016 chunks of sums that travel between ranks, want at most 32000 "
                 "(shards.cut contiguous parts fewer sequences, shards.strategy heads sends no sums)");
  }
}

}  // namespace
}  // namespace fa::tiling
