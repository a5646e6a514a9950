#include "ops/token/key_selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace fa::ops {
namespace {

/// Selects keys in memory of exactly the size that KeySelection asks for, so that sanitizers notice an access beyond
/// the memory.
class Selector {
 public:
  Selector(int64_t entries, int64_t block_size, int64_t sk, DType dtype = DType::kI32) {
    lists_.rows.dtype = dtype;
    lists_.entries = entries;
    lists_.block_size = block_size;
    Carver count(nullptr);
    static_cast<void>(KeySelection(count, lists_, sk));
    memory_.resize(count.used());
  }
  template <typename Index>
  SelectedKeys Select(const std::vector<Index>& list, int64_t limit) {
    Carver carver(memory_.data());
    return KeySelection(carver, lists_, limit).Select(list.data(), limit);
  }

 private:
  KeyLists lists_;
  std::vector<std::byte> memory_;
};

std::vector<int32_t> Keys(const SelectedKeys& selected) { return {selected.keys, selected.keys + selected.count}; }
std::vector<int32_t> Slots(const SelectedKeys& selected) { return {selected.slots, selected.slots + selected.count}; }

TEST(KeySelection, EndsAtTheFirstMinusOne) {
  Selector selector(5, 1, 9);
  EXPECT_EQ(Keys(selector.Select<int32_t>({4, 2, -1, 3, 1}, 9)), (std::vector<int32_t>{2, 4}));
  EXPECT_EQ(Keys(selector.Select<int32_t>({-1, 2, 0, 3, 1}, 9)), std::vector<int32_t>{});
}

TEST(KeySelection, ReadsNoMoreEntriesThanTheLimitHasBlocks) {
  Selector selector(6, 2, 5);
  // Keys 0..4 form three blocks, so three entries are read.
  EXPECT_EQ(Keys(selector.Select<int32_t>({2, 0, 9, 1, 1, 1}, 5)), (std::vector<int32_t>{0, 1, 4}));
  EXPECT_EQ(Keys(selector.Select<int32_t>({0, 1, 2, 3, 4, 5}, 0)), std::vector<int32_t>{});
}

TEST(KeySelection, SkipsEntriesBeyondTheLimitAndInvalidOnes) {
  Selector selector(6, 1, 6);
  EXPECT_EQ(Keys(selector.Select<int32_t>({5, -7, 6, 1, 2147483647, 3}, 6)), (std::vector<int32_t>{1, 3, 5}));
  EXPECT_EQ(Keys(selector.Select<int32_t>({3, 1, 0, 2, 2, 2}, 3)), (std::vector<int32_t>{0, 1}));
}

TEST(KeySelection, TheTailBlockIsShortWhereverItStands) {
  Selector selector(3, 4, 10);
  EXPECT_EQ(Keys(selector.Select<int32_t>({2, 0, -1}, 10)), (std::vector<int32_t>{0, 1, 2, 3, 8, 9}));
}

TEST(KeySelection, DuplicatesStayWithTheirOwnSlots) {
  Selector selector(4, 2, 8);
  const SelectedKeys selected = selector.Select<int32_t>({3, 1, 3, -1}, 7);
  EXPECT_EQ(Keys(selected), (std::vector<int32_t>{2, 3, 6, 6}));
  EXPECT_EQ(Slots(selected), (std::vector<int32_t>{1, 1, 0, 2}));
  EXPECT_FALSE(selected.distinct);
  EXPECT_TRUE(selector.Select<int32_t>({3, 1, 2, -1}, 7).distinct);
}

TEST(KeySelection, LongIndicesSelectTheSame) {
  Selector selector(4, 1, 100, DType::kI64);
  EXPECT_EQ(Keys(selector.Select<int64_t>({70, int64_t{1} << 40, 3, -1}, 100)), (std::vector<int32_t>{3, 70}));
}

TEST(KeySelection, SortsAsAStableSortDoesAtEverySize) {
  std::mt19937 random(5);
  for (const int64_t entries : {15, 16, 17, 255, 256, 257, 2048, 5000}) {
    // With more than 2^22 keys the radix sort makes a third pass.
    for (const int64_t sk : {int64_t{5000}, int64_t{100000}, int64_t{1} << 23}) {
      Selector selector(entries, 1, sk);
      std::vector<int32_t> list(static_cast<size_t>(entries)), order(list.size()), keys(list.size());
      for (int32_t& key : list) key = static_cast<int32_t>(random() % static_cast<uint32_t>(sk));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return list[static_cast<size_t>(a)] < list[static_cast<size_t>(b)];
      });
      for (size_t i = 0; i < list.size(); ++i) keys[i] = list[static_cast<size_t>(order[i])];
      const SelectedKeys selected = selector.Select(list, sk);
      EXPECT_EQ(Keys(selected), keys) << entries << " of " << sk;
      EXPECT_EQ(Slots(selected), order) << entries << " of " << sk;
    }
  }
}

TEST(KeySelection, TheCheckNamesTheFirstEntryThatIsNoBlock) {
  SparseSequences sequences;
  sequences.list = {{.sq = 2, .sk = 10}, {.sq = 1, .sk = 7, .first_token = 2}};
  sequences.mask = SparseMask::kNone;
  std::vector<int32_t> list(2 * 2 * 20, 0);
  KeyLists lists;
  lists.rows = {.dtype = DType::kI32, .batch = 40, .row = 20};
  lists.entries = 20;
  lists.block_size = 1;
  EXPECT_TRUE(CheckKeyLists(lists, list.data(), sequences).ok());
  list[40 + 20] = 99;  // no token reads this entry
  list[20 + 10] = 99;  // slot 10 is not read: with 10 keys to select from, only slots 0..9 are
  list[40 + 3] = -1;
  list[40 + 4] = 99;  // after the first -1, which ends the list
  EXPECT_TRUE(CheckKeyLists(lists, list.data(), sequences).ok());
  list[20 + 9] = 10;
  EXPECT_EQ(CheckKeyLists(lists, list.data(), sequences).message(),
            "invalid argument: sparse_indices[0][1][0][9]=10, want -1..9");
  list[20 + 9] = 9;
  list[40 + 2] = -2;
  EXPECT_EQ(CheckKeyLists(lists, list.data(), sequences).message(),
            "invalid argument: sparse_indices[1][0][0][2]=-2, want -1..6");
  lists.block_size = 4;
  list[40 + 2] = 0;
  list[40 + 1] = 2;
  EXPECT_EQ(CheckKeyLists(lists, list.data(), sequences).message(),
            "invalid argument: sparse_indices[1][0][0][1]=2, want -1..1");
}

TEST(KeySelection, TheCheckNamesRowsOfPackedTensors) {
  SparseSequences sequences;
  sequences.list = {{.sq = 2, .sk = 3}, {.sq = 1, .sk = 2, .q_offset = 2, .k_offset = 3, .first_token = 2}};
  sequences.packed = true;
  sequences.mask = SparseMask::kNone;
  KeyLists lists;
  lists.rows.row = 2;
  lists.entries = 2;
  const std::vector<int32_t> list = {0, 1, 2, 1, 1, 2};
  EXPECT_EQ(CheckKeyLists(lists, list.data(), sequences).message(),
            "invalid argument: sparse_indices[2][0][1]=2, want -1..1");
}

}  // namespace
}  // namespace fa::ops
