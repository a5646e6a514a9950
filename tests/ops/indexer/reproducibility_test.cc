// The bits of a token's selection and of every gradient do not depend on the number of threads, on the place of the
// keys, or on the rest of the call.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <map>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "ops/indexer/indexer_case.h"
#include "ops/indexer/loss_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

// Without this setting oneTBB would give no more workers than the machine has cores.
const tbb::global_control kEightThreads(tbb::global_control::max_allowed_parallelism, 8);

void ExpectSameValues(const TokenOutputs& got, const TokenOutputs& want) {
  for (const TokenOutput& output : want) EXPECT_EQ(ValuesOf(got, output.name), output.rows.values) << output.name;
}

class IndexerBits : public ::testing::TestWithParam<std::tuple<Isa, DType>> {
 protected:
  static Context* ContextWith(int threads) { return ContextOf(std::get<0>(GetParam()), threads); }

  static TokenCase Tokens() {
    TokenCase c;
    c.dtype = std::get<1>(GetParam());
    c.lengths = {{9, 0, 40, 1}, {300, 3, 170, 640}};
    c.slots = 100;
    return c;
  }
  static IndexerCase Usual() { return {.tokens = Tokens(), .heads = 6, .d = 40, .f32_values = true}; }
  static LossCase UsualLoss(bool dense) {
    LossCase c{.tokens = Tokens(), .dense = dense, .heads = 3, .d = 24, .heads_index = 5, .d_index = 24};
    c.tokens.lists = ListForm::kMessy;
    return c;
  }
};

TEST_P(IndexerBits, DoNotDependOnThreads) {
  const IndexerCase c = Usual();
  const TokenOutputs forward = ForwardOf(c, ContextWith(1));
  const TokenOutputs backward = BackwardOf(c, ContextWith(1));
  for (const int threads : {1, 2, 3, 4}) {
    EXPECT_TRUE(SameBits(ForwardOf(c, ContextWith(threads)), forward)) << threads;
    EXPECT_TRUE(SameBits(BackwardOf(c, ContextWith(threads)), backward)) << threads;
  }
}

TEST_P(IndexerBits, OfHeadsOfWholeTilesDoNotDependOnThreads) {
  IndexerCase c = Usual();
  c.heads = 64;
  c.d = 32;
  const TokenOutputs forward = ForwardOf(c, ContextWith(1));
  for (const int threads : {2, 3, 8}) EXPECT_TRUE(SameBits(ForwardOf(c, ContextWith(threads)), forward)) << threads;
}

TEST_P(IndexerBits, OfLossesDoNotDependOnThreads) {
  for (const bool dense : {false, true}) {
    const LossCase c = UsualLoss(dense);
    const TokenOutputs want = LossOf(c, ContextWith(1));
    for (const int threads : {1, 2, 3, 4}) EXPECT_TRUE(SameBits(LossOf(c, ContextWith(threads)), want)) << threads;
  }
}

TEST_P(IndexerBits, OfManyTokensOnTheSameKeysDoNotDependOnThreads) {
  IndexerCase c = Usual();
  c.tokens.lengths = {{80}, {12}};
  c.tokens.causal = false;
  c.tokens.slots = 12;
  LossCase loss = UsualLoss(false);
  loss.tokens = c.tokens;
  const TokenOutputs backward = BackwardOf(c, ContextWith(1));
  const TokenOutputs of_loss = LossOf(loss, ContextWith(1));
  for (int run = 0; run < 6; ++run) {
    EXPECT_TRUE(SameBits(BackwardOf(c, ContextWith(2 + run % 3)), backward)) << run;
    EXPECT_TRUE(SameBits(LossOf(loss, ContextWith(2 + run % 3)), of_loss)) << run;
  }
}

TEST_P(IndexerBits, DoNotDependOnLayoutAndPages) {
  const IndexerCase c = Usual();
  const TokenOutputs forward = ForwardOf(c, ContextWith(2));
  IndexerCase packed = c;
  packed.tokens.layout = Layout::kTND;
  ExpectSameValues(ForwardOf(packed, ContextWith(2)), forward);
  ExpectSameValues(BackwardOf(packed, ContextWith(2)), BackwardOf(c, ContextWith(2)));
  for (const int64_t page_rows : {1, 16, 50}) {
    for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
      IndexerCase paged = c;
      paged.tokens.layout = layout;
      paged.tokens.page_rows = page_rows;
      paged.tokens.page_order = static_cast<uint64_t>(page_rows);
      ExpectSameValues(ForwardOf(paged, ContextWith(2)), forward);
    }
  }
  for (const bool dense : {false, true}) {
    const LossCase loss = UsualLoss(dense);
    LossCase packed_loss = loss;
    packed_loss.tokens.layout = Layout::kTND;
    ExpectSameValues(LossOf(packed_loss, ContextWith(2)), LossOf(loss, ContextWith(2)));
  }
}

TEST_P(IndexerBits, DoNotDependOnTheOtherSequences) {
  const IndexerCase c = Usual();
  const TokenOutputs forward = ForwardOf(c, ContextWith(2)), backward = BackwardOf(c, ContextWith(2));
  std::map<std::string, size_t> next;
  for (int64_t b = 0; b < c.tokens.batch(); ++b) {
    IndexerCase alone = c;
    alone.tokens.lengths = {{c.tokens.lengths.sq[b]}, {c.tokens.lengths.sk[b]}};
    alone.tokens.first_sequence = b;
    for (const auto& [together, apart] :
         {std::pair{forward, ForwardOf(alone, ContextWith(3))}, {backward, BackwardOf(alone, ContextWith(3))}}) {
      for (const TokenOutput& output : apart) {
        const auto all = ValuesOf(together, output.name).begin() + static_cast<int64_t>(next[output.name]);
        const std::vector<double> part(all, all + std::ssize(output.rows.values));
        ASSERT_EQ(output.rows.values, part) << output.name << " of sequence " << b;
        next[output.name] += part.size();
      }
    }
  }
}

/// Returns the value gradients of `from` in the order in which `to` has the lists' entries. If a key is listed twice,
/// its two gradients keep their order.
std::vector<double> MovedWithTheEntries(const IndexerCase& from, const IndexerCase& to) {
  const std::vector<double> d_values = DrawValueGradients(from);
  const std::vector<int64_t> lists = MakeSelection(from.tokens).indices, moved_lists = MakeSelection(to.tokens).indices;
  std::vector<double> moved;
  for (size_t first = 0; first < lists.size(); first += static_cast<size_t>(from.tokens.slots)) {
    std::map<int64_t, std::queue<double>> of_key;
    const size_t end = first + static_cast<size_t>(from.tokens.slots);
    for (size_t x = first; x < end; ++x) of_key[lists[x]].push(d_values[x]);
    for (size_t x = first; x < end; ++x) {
      moved.push_back(of_key.at(moved_lists[x]).front());
      of_key[moved_lists[x]].pop();
    }
  }
  return moved;
}

// Entries move with their gradients. If all keys differ, any order gives the same bits. If a list names a key twice,
// the order of its two gradients matters, so it stays the same.
TEST_P(IndexerBits, OfTheBackwardDoNotDependOnTheOrderOfTheList) {
  for (const ListForm lists : {ListForm::kDistinct, ListForm::kMessy}) {
    IndexerCase c = Usual();
    c.tokens.lists = lists;
    const TokenOutputs want = BackwardOf(c, ContextWith(2));
    for (const uint64_t order : {1, 2}) {
      IndexerCase shuffled = c;
      shuffled.tokens.list_order = order;
      const IndexerGradCall call(shuffled, MakeReferenceProblem(shuffled), MovedWithTheEntries(c, shuffled));
      ASSERT_NE(call.values().selection.indices, MakeSelection(c.tokens).indices);
      ASSERT_TRUE(call.Run(ContextWith(2)).ok());
      EXPECT_TRUE(SameBits(call.Outputs(), want)) << shuffled;
    }
  }
}

TEST_P(IndexerBits, OfTheSparseLossDoNotDependOnTheOrderOfTheList) {
  LossCase c = UsualLoss(false);
  const TokenOutputs want = LossOf(c, ContextWith(2));
  c.tokens.list_order = 2;
  EXPECT_TRUE(SameBits(LossOf(c, ContextWith(2)), want));
}

INSTANTIATE_TEST_SUITE_P(Isa, IndexerBits,
                         ::testing::Combine(::testing::ValuesIn(IsaLevels()),
                                            ::testing::Values(DType::kF32, DType::kBF16, DType::kF16)),
                         [](const auto& info) {
                           return IsaName(std::get<0>(info.param)) + "_" + Name(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace fa::test
