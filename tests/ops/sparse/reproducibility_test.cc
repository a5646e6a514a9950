// The bits of a token's results do not depend on the number of threads, on the place and order of its keys, or on other
// tokens.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "ops/sparse/sparse_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

// Without this setting oneTBB would give no more workers than the machine has cores.
const tbb::global_control kEightThreads(tbb::global_control::max_allowed_parallelism, 8);

class SparseBits : public ::testing::TestWithParam<std::tuple<Isa, DType, int64_t>> {
 protected:
  static Context* ContextWith(int threads) { return ContextOf(std::get<0>(GetParam()), threads); }

  static SparseCase Usual(bool merged) {
    SparseCase c{.heads = std::get<2>(GetParam()), .d = 40, .d_rope = 8, .dv = 40, .merged = merged};
    c.tokens.dtype = std::get<1>(GetParam());
    c.tokens.lengths = {{9, 0, 14, 5}, {300, 3, 70, 140}};
    c.tokens.slots = 150;
    c.tokens.lists = ListForm::kMessy;
    return c;
  }
};

TEST_P(SparseBits, DoNotDependOnThreads) {
  for (const bool merged : {false, true}) {
    SparseCase c = Usual(merged);
    c.sink = merged;
    const TokenOutputs forward = ForwardOf(c, ContextWith(1));
    const TokenOutputs backward = BackwardOf(c, ContextWith(1));
    for (const int threads : {1, 2, 3, 4}) {
      EXPECT_TRUE(SameBits(ForwardOf(c, ContextWith(threads)), forward)) << threads << " threads " << c;
      EXPECT_TRUE(SameBits(BackwardOf(c, ContextWith(threads)), backward)) << threads << " threads " << c;
    }
  }
}

// Many tokens add to the gradients of the same keys. Any other order of additions would change bits.
TEST_P(SparseBits, OfManyTokensOnTheSameKeysDoNotDependOnThreads) {
  SparseCase c = Usual(true);
  c.tokens.lengths = {{80}, {12}};
  c.tokens.causal = false;
  c.tokens.slots = 12;
  const TokenOutputs want = BackwardOf(c, ContextWith(1));
  for (int run = 0; run < 6; ++run) EXPECT_TRUE(SameBits(BackwardOf(c, ContextWith(2 + run % 3)), want)) << run;
}

TEST_P(SparseBits, DoNotDependOnTheOrderOfTheList) {
  for (const ListForm lists : {ListForm::kDistinct, ListForm::kMessy}) {
    for (const int64_t block_size : {1, 8}) {
      SparseCase c = Usual(false);
      c.head_mean = false;
      c.tokens.lists = lists;
      c.tokens.block_size = block_size;
      const TokenOutputs forward = ForwardOf(c, ContextWith(2));
      const TokenOutputs backward = BackwardOf(c, ContextWith(2));
      for (const uint64_t order : {1, 2}) {
        c.tokens.list_order = order;
        EXPECT_TRUE(SameBits(ForwardOf(c, ContextWith(2)), forward)) << c;
        EXPECT_TRUE(SameBits(BackwardOf(c, ContextWith(2)), backward)) << c;
      }
    }
  }
}

// Each value of the head mean stays at its key's entry when the entries are reordered.
TEST_P(SparseBits, OfTheHeadMeanMoveWithTheEntries) {
  SparseCase c = Usual(true);
  c.tokens.lists = ListForm::kDistinct;
  const auto mean_of_keys = [&] {
    const SparseCall call(c);
    EXPECT_TRUE(call.Run(ContextWith(2)).ok());
    const std::vector<double> means = ValuesOf(call.Outputs(), "p_head_mean");
    std::map<std::pair<int64_t, int64_t>, double> of_keys;
    for (int64_t x = 0; x < std::ssize(means); ++x) {
      const int64_t key = call.values().selection.indices[x];
      if (key >= 0) of_keys[{x / c.tokens.slots, key}] = means[x];
    }
    return of_keys;
  };
  const auto want = mean_of_keys();
  c.tokens.list_order = 3;
  EXPECT_EQ(mean_of_keys(), want);
}

TEST_P(SparseBits, DoNotDependOnLayoutAndPages) {
  const SparseCase c = Usual(false);
  const TokenOutputs forward = ForwardOf(c, ContextWith(2));
  const TokenOutputs backward = BackwardOf(c, ContextWith(2));
  SparseCase packed = c;
  packed.tokens.layout = Layout::kTND;
  const auto same_values = [](const TokenOutputs& got, const TokenOutputs& want) {
    for (const TokenOutput& output : want) EXPECT_EQ(ValuesOf(got, output.name), output.rows.values) << output.name;
  };
  same_values(ForwardOf(packed, ContextWith(2)), forward);
  same_values(BackwardOf(packed, ContextWith(2)), backward);
  for (const int64_t page_rows : {1, 16, 50}) {
    for (const Layout layout : {Layout::kBSND, Layout::kTND}) {
      SparseCase paged = c;
      paged.tokens.layout = layout;
      paged.tokens.page_rows = page_rows;
      paged.tokens.page_order = static_cast<uint64_t>(page_rows);
      same_values(ForwardOf(paged, ContextWith(2)), forward);
    }
  }
}

TEST_P(SparseBits, DoNotDependOnTheOtherSequences) {
  const SparseCase c = Usual(true);
  const std::vector<double> out = ValuesOf(ForwardOf(c, ContextWith(2)), "out");
  const TokenOutputs backward = BackwardOf(c, ContextWith(2));
  size_t at_query = 0, at_dq = 0, at_dk = 0;
  for (int64_t b = 0; b < c.tokens.batch(); ++b) {
    SparseCase alone = c;
    alone.tokens.lengths = {{c.tokens.lengths.sq[b]}, {c.tokens.lengths.sk[b]}};
    alone.tokens.first_sequence = b;
    for (const double value : ValuesOf(ForwardOf(alone, ContextWith(3)), "out")) ASSERT_EQ(value, out[at_query++]) << b;
    const TokenOutputs gradients = BackwardOf(alone, ContextWith(3));
    for (const double value : ValuesOf(gradients, "dq")) ASSERT_EQ(value, ValuesOf(backward, "dq")[at_dq++]) << b;
    for (const double value : ValuesOf(gradients, "dk")) ASSERT_EQ(value, ValuesOf(backward, "dk")[at_dk++]) << b;
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<Isa, DType, int64_t>>& info) {
  const auto [isa, dtype, heads] = info.param;
  return IsaName(isa) + "_" + Name(dtype) + "_" + std::to_string(heads);
}
INSTANTIATE_TEST_SUITE_P(Isa, SparseBits,
                         ::testing::Combine(::testing::ValuesIn(IsaLevels()),
                                            ::testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                                            ::testing::Values(18)),
                         NameOf);
// With these numbers of heads, some levels have kernels that read keys in place.
INSTANTIATE_TEST_SUITE_P(FewHeads, SparseBits,
                         ::testing::Combine(::testing::ValuesIn(IsaLevels()), ::testing::Values(DType::kBF16),
                                            ::testing::Values(12, 16)),
                         NameOf);

}  // namespace
}  // namespace fa::test
