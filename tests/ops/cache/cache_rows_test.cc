// Tests ScatterRows and GatherRows, with results worked out by hand and with byte-wise loops.
#include "fa/cache_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "fa/view.h"
#include "ops/cache/cache_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

/// A scatter of T rows with 2 heads of 3 columns into 3 pages of 4 rows. A test may change its arguments.
struct SmallScatter {
  std::vector<float> key = std::vector<float>(24), value = key;
  std::vector<float> key_cache = std::vector<float>(72, -1.0F), value_cache = key_cache;
  std::vector<int32_t> slots = {5, -1, 5, 11};
  ScatterRowsArgs args;
  ScatterRowsOptions options;

  SmallScatter() {
    std::iota(key.begin(), key.end(), 0.0F);
    std::iota(value.begin(), value.end(), 100.0F);
    args.key = View(key, {4, 2, 3});
    args.value = View(value, {4, 2, 3});
    args.slot_mapping = View(slots, {4});
    args.key_cache = View(key_cache, {3, 4, 2, 3});
    args.value_cache = View(value_cache, {3, 4, 2, 3});
  }
  [[nodiscard]] Status Run() const { return ScatterRows(args, options); }
};

TEST(ScatterRows, LastRowOfAPlaceRemainsAndNegativePlacesAreSkipped) {
  SmallScatter c;
  ASSERT_TRUE(c.Run().ok()) << c.Run().message();
  std::vector<float> want(72, -1.0F);
  std::iota(want.begin() + 30, want.begin() + 36, 12.0F);  // row 2 goes to place 5
  std::iota(want.begin() + 66, want.end(), 18.0F);         // row 3 goes to place 11
  EXPECT_EQ(c.key_cache, want);
}

// If each row is contiguous, places are prefetched before the code checks whether they are skipped. Even the least slot
// must do no harm.
TEST(ScatterRows, TheLeastPlaceIsSkippedInRowsOfEverySize) {
  for (const int64_t columns : {16, 32, 64, 80}) {
    const std::vector<float> key(static_cast<size_t>(3 * columns), 1.0F);
    std::vector<float> cache(static_cast<size_t>(4 * columns), -1.0F), want = cache;
    const std::vector<int64_t> slots = {INT64_MIN, 2, INT64_MIN + 1};
    ScatterRowsArgs args;
    args.key = View(key, {3, 1, columns});
    args.key_cache = View(cache, {2, 2, 1, columns});
    args.slot_mapping = View(slots, {3});
    ASSERT_TRUE(ScatterRows(args, {}).ok());
    std::fill_n(want.begin() + 2 * columns, columns, 1.0F);
    EXPECT_EQ(cache, want) << columns;
  }
}

TEST(ScatterRows, ChecksAllPlacesBeforeItWrites) {
  for (const int32_t bad : {12, 1 << 30, INT32_MAX}) {
    SmallScatter c;
    c.slots[3] = bad;
    const Status status = c.Run();
    EXPECT_EQ(status.argument(), "slot_mapping");
    EXPECT_THAT(status.message(),
                HasSubstr("slot_mapping[3]=" + std::to_string(bad) + ", want less than 12 (key_cache)"));
    EXPECT_EQ(c.key_cache, std::vector<float>(72, -1.0F));
    EXPECT_EQ(c.value_cache, c.key_cache);
  }
  SmallScatter smaller;  // its cache of keys has the place, but its cache of values does not
  smaller.args.value_cache = View(smaller.value_cache, {2, 4, 2, 3});
  EXPECT_THAT(smaller.Run().message(), HasSubstr("slot_mapping[3]=11, want less than 8 (value_cache)"));
  EXPECT_EQ(smaller.key_cache, std::vector<float>(72, -1.0F));
}

TEST(ScatterRows, SourceRowsAreChecked) {
  SmallScatter c;
  const std::vector<int64_t> sources = {0, 3, 4, 1};
  c.args.source_rows = View(sources, {4});
  EXPECT_THAT(c.Run().message(), HasSubstr("source_rows[2]=4, want 0..3"));
  EXPECT_EQ(c.key_cache, std::vector<float>(72, -1.0F));
}

TEST(ScatterRows, NamesTheTensorThatDoesNotFit) {
  const auto refused = [](auto spoil, const std::string& text) {
    SmallScatter c;
    spoil(c);
    EXPECT_THAT(c.Run().message(), HasSubstr(text));
    EXPECT_EQ(c.key_cache, std::vector<float>(72, -1.0F));
  };
  refused([](auto& c) { c.args.key.shape = {4, 6}; }, "key.shape=[4,6], want [T,N,D]");
  refused([](auto& c) { c.args.key_cache.shape = {3, 4, 3, 2}; }, "key_cache.shape[2]=3, want 2 (key.shape[1])");
  refused([](auto& c) { c.args.key_cache.shape = {3, 4, 6}; }, "key_cache.shape=[3,4,6], want [Bn,Bs,N,D]");
  refused([](auto& c) { c.options.form = CacheForm::kBnNBsD; }, "key_cache.shape[1]=4, want 2 (key.shape[1])");
  refused([](auto& c) { c.options.form = CacheForm::kNZ; }, "key_cache.shape[1]=4, want 2");
  refused([](auto& c) { c.options.form = static_cast<CacheForm>(9); }, "form=9, want BnBsND, BnNBsD or NZ");
  refused([](auto& c) { c.args.value_cache.dtype = DType::kI32; }, "value_cache.dtype=i32, want f32 (value.dtype)");
  refused([](auto& c) { c.args.slot_mapping.dtype = DType::kF32; }, "slot_mapping.dtype=f32, want i32 or i64");
  refused([](auto& c) { c.args.slot_mapping.shape = {3}; }, "slot_mapping.shape[0]=3, want 4 (key.shape[0])");
  refused([](auto& c) { c.args.value = {}; }, "value: missing");
  refused([](auto& c) { c.args.value_cache = {}; }, "value_cache: missing");
  refused([](auto& c) { c.args.value_cache.shape = {6, 2, 2, 3}; }, "value_cache has 2 rows per page, want 4");
  refused([](auto& c) { c.args.value_cache = c.args.key_cache; }, "value_cache: shares memory with key_cache");
  refused(
      [](auto& c) {
        c.args.key = c.args.key_cache, c.args.key.shape = {4, 2, 3};
      },
      "key_cache: shares memory with key");
  refused([](auto& c) { c.args.key_cache.stride = {0, 6, 3, 1}; }, "key_cache.stride=[0,6,3,1]");
}

TEST(ScatterRows, WithoutRowsWritesNothing) {
  SmallScatter c;
  c.args.key.shape = c.args.value.shape = {0, 2, 3};
  c.args.slot_mapping.shape = {0};
  EXPECT_TRUE(c.Run().ok()) << c.Run().message();
  c.args.value = {nullptr, DType::kF32, {0, 2, 3}, {}};  // an empty tensor needs no memory
  EXPECT_TRUE(c.Run().ok()) << c.Run().message();
  EXPECT_EQ(c.key_cache, std::vector<float>(72, -1.0F));
}

// The random tests compare all forms with loops; this test writes the elements of kNZ out by hand.
TEST(ScatterRows, ChunksLieAsOnTheDevice) {
  const std::vector<uint16_t> key = {10, 11, 12, 13, 20, 21, 22, 23};  // one row of 2 heads of 4 columns
  const std::vector<int32_t> slots = {1};
  for (const Dims& shape : {Dims{1, 2, 2, 2, 2}, Dims{1, 4, 2, 2}}) {  // chunks of 2 columns, 2 rows per page
    std::vector<uint16_t> cache(16);
    ScatterRowsArgs args;
    args.key = View(key, DType::kF16, {1, 2, 4});
    args.slot_mapping = View(slots, {1});
    args.key_cache = View(cache, DType::kF16, shape);
    ASSERT_TRUE(ScatterRows(args, {.form = CacheForm::kNZ}).ok());
    EXPECT_EQ(cache, (std::vector<uint16_t>{0, 0, 10, 11, 0, 0, 12, 13, 0, 0, 20, 21, 0, 0, 22, 23}));
  }
}

template <typename Problem, typename Case, typename Run>
void ExpectTheReferenceOnThreads(const Case& c, Run run) {
  const Problem problem(c);
  for (const int threads : {1, 2, 7}) {
    const Snapshot before = problem.TakeSnapshot();
    before.Forget();
    problem.RestoreInputs();
    const Status status = run(problem.args(), problem.options(), ContextOf(Isa::kPortable, threads));
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(problem.MatchesReference()) << threads << " threads of " << c;
    EXPECT_EQ(before.FirstChange(), -1) << c;
  }
}

// The call is so large that every thread gets some places of the cache. Many rows have the same place.
TEST(ScatterRows, EveryFormOnAnyNumberOfThreads) {
  for (const CacheForm form : {CacheForm::kBnBsND, CacheForm::kBnNBsD, CacheForm::kNZ}) {
    for (const bool any_strides : {false, true}) {
      ScatterCase c;
      c.form = form;
      c.rows = 3000;
      c.heads = 3;
      c.key_size = c.value_size = 64;
      c.chunk = 16;
      c.pages = 40;
      c.page_rows = 37;
      c.any_strides = any_strides;
      ExpectTheReferenceOnThreads<ScatterProblem>(c, ScatterRows);
    }
  }
}

// Rows too large for the CPU's caches are written around them. The key and value caches need not begin at the start of
// a cache line.
TEST(ScatterRows, RowsThatDoNotStayInTheCaches) {
  const int64_t last_cache = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 1 << 25);
  constexpr int64_t kPageRows = 37, kColumns = 656;
  // Rows of key and value together take just more than a quarter of the last cache.
  const int64_t rows = last_cache / 8 / kColumns + 1, pages = rows / kPageRows;
  const auto places = static_cast<size_t>(pages * kPageRows * kColumns);
  std::vector<int8_t> key(static_cast<size_t>(rows * kColumns)), value(key.size());
  for (size_t i = 0; i < key.size(); ++i) {
    key[i] = static_cast<int8_t>(i * 2654435761U >> 24);
    value[i] = static_cast<int8_t>(i * 2246822519U >> 24);
  }
  std::vector<int32_t> slots(static_cast<size_t>(rows));
  for (size_t t = 0; t < slots.size(); ++t) slots[t] = static_cast<int32_t>(t * 7919U % (places / kColumns + 3)) - 3;
  std::vector<int8_t> want_key(places, 1), want_value(places, 2);
  for (size_t t = 0; t < slots.size(); ++t) {
    if (slots[t] < 0) continue;
    const int64_t from = static_cast<int64_t>(t) * kColumns, to = int64_t{slots[t]} * kColumns;
    std::copy_n(key.begin() + from, kColumns, want_key.begin() + to);
    std::copy_n(value.begin() + from, kColumns, want_value.begin() + to);
  }
  for (const int threads : {1, 3}) {
    std::vector<int8_t> key_cache(places, 1), value_cache(places, 2);
    ScatterRowsArgs args;
    args.key = View(key, {rows, 1, kColumns});
    args.value = View(value, {rows, 1, kColumns});
    args.key_cache = View(key_cache, {pages, kPageRows, 1, kColumns});
    args.value_cache = View(value_cache, {pages, kPageRows, 1, kColumns});
    args.slot_mapping = View(slots, {rows});
    const Status status = ScatterRows(args, {}, ContextOf(Isa::kPortable, threads));
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(key_cache == want_key) << threads;
    EXPECT_TRUE(value_cache == want_value) << threads;
  }
}

TEST(GatherRows, EveryFormOnAnyNumberOfThreads) {
  for (const CacheForm form : {CacheForm::kBnBsND, CacheForm::kBnNBsD, CacheForm::kNZ}) {
    for (const bool cumulative : {false, true}) {
      GatherCase c;
      c.form = form;
      c.flat = c.flat_rows = form == CacheForm::kNZ && cumulative;
      c.rows = 3000;
      c.heads = 3;
      c.key_size = c.value_size = 64;
      c.chunk = 16;
      c.pages = 40;
      c.page_rows = 37;
      c.sequences = 9;
      c.table_columns = 12;
      c.cumulative = cumulative;
      c.has_offset = true;
      ExpectTheReferenceOnThreads<GatherProblem>(c, GatherRows);
    }
  }
}

/// A gather of 5 and 3 rows from 3 pages of 4 rows with one column. A test may change its arguments.
struct SmallGather {
  std::vector<int64_t> cache = std::vector<int64_t>(12), key = std::vector<int64_t>(9, -1), value = key;
  std::vector<int32_t> table = {2, 0, 1, 7}, offsets = {0, 0};
  std::vector<int64_t> lengths = {5, 3};
  GatherRowsArgs args;
  GatherRowsOptions options;

  SmallGather() {
    std::iota(cache.begin(), cache.end(), 0);
    args.key_cache = args.value_cache = View(cache, {3, 4, 1, 1});
    args.block_table = View(table, {2, 2});
    args.seq_lens = View(lengths, {2});
    args.seq_offset = View(offsets, {2});
    args.key = View(key, {9, 1, 1});
    args.value = View(value, {9, 1, 1});
  }
  [[nodiscard]] Status Run() const { return GatherRows(args, options); }
};

TEST(GatherRows, PutsSequencesOneAfterAnother) {
  SmallGather c;
  ASSERT_TRUE(c.Run().ok()) << c.Run().message();
  EXPECT_EQ(c.key, (std::vector<int64_t>{8, 9, 10, 11, 0, 4, 5, 6, -1})) << "the last row stays as it was";
  EXPECT_EQ(c.value, c.key);
}

TEST(GatherRows, PagesThatDoNotExistAreZeros) {
  SmallGather c;
  // Both sequences begin at their second page: page 0, and page 7, which does not exist. Then the table ends.
  c.offsets = {4, 4};
  ASSERT_TRUE(c.Run().ok()) << c.Run().message();
  EXPECT_EQ(c.key, (std::vector<int64_t>{0, 1, 2, 3, 0, 0, 0, 0, -1}));
}

TEST(GatherRows, DropsRowsPastTheOutput) {
  SmallGather c;
  c.lengths = {7, INT64_MAX};
  ASSERT_TRUE(c.Run().ok()) << c.Run().message();
  EXPECT_EQ(c.key, (std::vector<int64_t>{8, 9, 10, 11, 0, 1, 2, 4, 5}));
}

TEST(GatherRows, ChecksContentsBeforeItWrites) {
  const auto refused = [](auto spoil, const std::string& text) {
    SmallGather c;
    spoil(c);
    EXPECT_THAT(c.Run().message(), HasSubstr(text));
    EXPECT_EQ(c.key, std::vector<int64_t>(9, -1));
    EXPECT_EQ(c.value, c.key);
  };
  const auto cumulative = [](auto& c) {
    c.options.cumulative = true;
    c.args.seq_lens = View(c.lengths, {3});
  };
  refused([](auto& c) { c.lengths[1] = -1; }, "seq_lens[1]=-1, want >= 0");
  refused([](auto& c) { c.offsets[1] = 3; }, "seq_offset[1]=3, want a multiple of 4");
  refused([](auto& c) { c.offsets[0] = -4; }, "seq_offset[0]=-4, want a multiple of 4");
  refused([&](auto& c) { c.lengths = {1, 5, 6}, cumulative(c); }, "seq_lens[0]=1, want 0");
  refused([&](auto& c) { c.lengths = {0, 5, 4}, cumulative(c); }, "seq_lens[2]=4, want >= 5");
  refused([](auto& c) { c.options.cumulative = true; }, "seq_lens.shape[0]=2, want 3 (cumulative");
  refused([](auto& c) { c.args.value_cache.shape = {6, 2, 1, 1}; }, "value_cache has 2 rows per page, want 4");
  refused(
      [](auto& c) {
        c.args.key_cache.shape = c.args.value_cache.shape = {3, 0, 1, 1};
      },
      "key_cache has 0 rows per page");
  refused([](auto& c) { c.args.value.shape = {8, 1, 1}; }, "value.shape[0]=8, want 9 (key.shape[0])");
  refused([](auto& c) { c.args.value = c.args.key; }, "value: shares memory with key");
  refused([](auto& c) { c.args.key.dtype = DType::kU64; }, "key.dtype=u64, want i64 (key_cache.dtype)");
}

}  // namespace
}  // namespace fa::test
