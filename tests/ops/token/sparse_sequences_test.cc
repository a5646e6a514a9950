#include "ops/token/sparse_sequences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/each_case.h"

namespace fa::ops {
namespace {

using test::Axis;
using test::ForEachCase;
using test::FromTo;

SparseLengths Packed(const std::vector<int64_t>& q, const std::vector<int64_t>& kv, int64_t q_rows, int64_t k_rows) {
  return {.layout = Layout::kTND, .q_rows = q_rows, .k_rows = k_rows, .lengths_q = q, .lengths_kv = kv};
}

std::string Message(const SparseLengths& lengths) {
  const auto bound = BindSparseSequences(lengths);
  const std::string prefix = "invalid argument: ";
  if (bound.ok() || bound.status().message().rfind(prefix, 0) != 0) return "";
  return bound.status().message().substr(prefix.size());
}

TEST(SparseSequences, LimitCountsFromTheRightEnd) {
  const SparseSequence sequence{.sq = 3, .sk = 5};
  EXPECT_EQ(sequence.Limit(SparseMask::kRightDownCausal, 0), 3);
  EXPECT_EQ(sequence.Limit(SparseMask::kRightDownCausal, 2), 5);
  EXPECT_EQ(sequence.Limit(SparseMask::kNone, 0), 5);
  const SparseSequence longer{.sq = 5, .sk = 3};
  EXPECT_EQ(longer.Limit(SparseMask::kRightDownCausal, 0), 0);
  EXPECT_EQ(longer.Limit(SparseMask::kRightDownCausal, 1), 0);
  EXPECT_EQ(longer.Limit(SparseMask::kRightDownCausal, 2), 1);
}

TEST(SparseSequences, MoreTokensThanTasksCanBeAreRefused) {
  const SparseLengths lengths{.batch = 3, .q_rows = int64_t{1} << 29, .k_rows = 1};
  EXPECT_EQ(Message(lengths), "q: 1610612736 tokens or more in use, want at most 1073741824");
}

TEST(SparseSequences, PrefixSumsWithALeadingZeroHaveAnEmptyFirstSequence) {
  const std::vector<int64_t> q = {0, 2, 2, 5}, kv = {0, 3, 7, 8};
  const auto bound = BindSparseSequences(Packed(q, kv, 6, 9));
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  ASSERT_EQ(bound->list.size(), 4u);
  EXPECT_EQ(bound->list[0].sq, 0);
  EXPECT_EQ(bound->list[3].sq, 3);
  EXPECT_EQ(bound->list[3].q_offset, 2);
  EXPECT_EQ(bound->list[3].k_offset, 7);
  EXPECT_EQ(bound->tokens, 5);
  EXPECT_EQ(bound->max_sk, 4);
}

TEST(SparseSequences, EveryTokenIsFoundOnceInOrder) {
  const std::vector<int64_t> q = {0, 2, 2, 5, 5}, kv = {1, 1, 1, 1, 1};
  const auto bound = BindSparseSequences(Packed(q, kv, 5, 1));
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  const std::vector<int64_t> sequences = {1, 1, 3, 3, 3}, rows = {0, 1, 0, 1, 2};
  for (int64_t token = 0; token < bound->tokens; ++token) {
    const SparseToken found = bound->Token(token);
    EXPECT_EQ(found.sequence, sequences[static_cast<size_t>(token)]);
    EXPECT_EQ(found.row, rows[static_cast<size_t>(token)]);
    EXPECT_EQ(bound->Row(found), token);
  }
}

TEST(SparseSequences, UnusedRowsAreTheTailOfPackedTensorsAndThePaddingOfBatchElements) {
  struct Visit {
    int64_t b, begin, end;
    bool operator==(const Visit&) const = default;
  };
  std::vector<Visit> visits;
  const auto visit = [&](int64_t b, tiling::Interval rows) { visits.push_back({b, rows.begin, rows.end}); };

  const std::vector<int64_t> q = {1, 4}, kv = {1, 3};
  const auto packed = BindSparseSequences(Packed(q, kv, 6, 3));
  ASSERT_TRUE(packed.ok());
  packed->ForUnusedQueries(visit);
  packed->ForUnusedKeys(visit);
  EXPECT_EQ(visits, (std::vector<Visit>{{0, 4, 6}}));

  visits.clear();
  const auto padded = BindSparseSequences({.batch = 2, .q_rows = 4, .k_rows = 3, .lengths_q = q, .lengths_kv = kv});
  ASSERT_TRUE(padded.ok()) << padded.status().message();
  padded->ForUnusedQueries(visit);
  padded->ForUnusedKeys(visit);
  EXPECT_EQ(visits, (std::vector<Visit>{{0, 1, 4}, {0, 1, 3}}));
}

TEST(SparseSequences, LengthsInsteadOfPrefixSumsAreRecognised) {
  const std::vector<int64_t> lengths = {2, 3}, sums = {2, 5};
  EXPECT_EQ(Message(Packed(lengths, sums, 5, 5)),
            "lengths_q[1]=3, want 5 (q.shape[0]): looks like per-batch lengths, want inclusive prefix sums");
  EXPECT_EQ(Message(Packed(sums, lengths, 5, 5)),
            "lengths_kv[1]=3, want 5 (k.shape[0]): looks like per-batch lengths, want inclusive prefix sums");
}

TEST(SparseSequences, ErrorsNameTheEntry) {
  const std::vector<int64_t> falling = {3, 2, 4}, high = {1, 9}, two = {1, 4}, one = {4}, negative = {-1, 4};
  EXPECT_EQ(Message(Packed(falling, falling, 4, 4)), "lengths_q[1]=2, want >= 3 (lengths_q[0])");
  EXPECT_EQ(Message(Packed(high, high, 4, 4)), "lengths_q[1]=9, want <= 4 (q.shape[0])");
  EXPECT_EQ(Message(Packed(negative, two, 4, 4)), "lengths_q[0]=-1, want >= 0");
  EXPECT_EQ(Message(Packed(two, one, 4, 4)), "lengths_kv has 1 entries, want 2 (lengths_q)");
  EXPECT_EQ(Message(Packed({}, {}, 4, 4)), "lengths_q: missing, want inclusive prefix sums (layout TND)");
  EXPECT_EQ(Message({.batch = 2, .q_rows = 4, .k_rows = 4, .lengths_q = one}),
            "lengths_q has 1 entries, want 2 (batch)");
  EXPECT_EQ(Message({.batch = 2, .q_rows = 4, .k_rows = 4, .lengths_kv = high}),
            "lengths_kv[1]=9, want 0..4 (k.shape[1])");
  EXPECT_EQ(Message({.paged = true, .batch = 2, .q_rows = 4, .k_rows = 8}),
            "lengths_kv: missing, want the lengths of paged keys");
  EXPECT_EQ(Message({.batch = 1, .q_rows = 1, .k_rows = 1, .mask = static_cast<SparseMask>(1)}),
            "mask=1, want none (0) or right-down causal (3)");
  EXPECT_EQ(Message({.batch = 1, .q_rows = 1, .k_rows = int64_t{1} << 31}),
            "k: sequence 0 has 2147483648 keys, want at most 2147483647");
}

TEST(SparseSequences, SelectableKeysAreThoseOfOneTokenAfterAnother) {
  const auto check = [&](SparseMask mask, int64_t sq, int64_t sk, int64_t block_size, int64_t entries) {
    SparseSequences sequences;
    sequences.mask = mask;
    sequences.list = {{.sq = sq, .sk = sk}, {.sq = 2, .sk = 7}};
    int64_t keys = 0;
    for (const SparseSequence& sequence : sequences.list) {
      for (int64_t t = 0; t < sequence.sq; ++t) {
        const int64_t limit = sequence.Limit(mask, t);
        keys += std::min(entries, (limit + block_size - 1) / block_size) * block_size;
      }
    }
    ASSERT_EQ(sequences.SelectableKeys(entries, block_size), static_cast<double>(keys))
        << sq << " queries, " << sk << " keys, " << entries << " entries of " << block_size;
  };
  ForEachCase(check, Axis{"mask", {SparseMask::kNone, SparseMask::kRightDownCausal}}, Axis{"sq", FromTo(0, 9)},
              Axis{"sk", FromTo(0, 9)}, Axis{"block_size", {1, 2, 4}}, Axis{"entries", {0, 1, 3, 100}});
}

}  // namespace
}  // namespace fa::ops
