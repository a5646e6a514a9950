// Another thread changes lists and block tables during a call. Results may be anything, but no access may be outside
// the tensors, which lie between unreadable pages.
#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

#include "ops/indexer/indexer_case.h"
#include "ops/indexer/loss_case.h"
#include "ops/sparse/sparse_case.h"
#include "support/execution/contexts.h"
#include "support/flipping_words.h"

namespace fa::test {
namespace {

constexpr int kCalls = 100;
constexpr int32_t kFarAway = std::numeric_limits<int32_t>::max();

int32_t* WordAt(const Tensor& tensor, int64_t offset) { return reinterpret_cast<int32_t*>(tensor.Address(offset)); }

// If a call checks its indices, only a word that changes between its check and its use can do harm. This is rare, so
// the test makes many calls.
constexpr int kCheckedCalls = 500;
constexpr int kMostCalls = 1'000'000;

/// Makes at least `calls` calls while another thread flips the words between right and wrong. If that thread sleeps
/// while the words are wrong, every call is refused. So more calls follow until one succeeds.
/// @return the number of calls that succeeded
template <typename Call>
int RunWhileFlipping(const Call& call, const std::vector<int32_t*>& words, Context* context, int calls = kCalls) {
  int through = 0;
  const FlippingWords flipping(words, kFarAway);
  for (int i = 0; i < calls || (through == 0 && i < kMostCalls); ++i) {
    if (through == 0) std::this_thread::yield();
    const Status status = call.Run(context);
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument) << status.message();
    through += status.ok() ? 1 : 0;
  }
  return through;
}

SparseCase Usual(int64_t heads) {
  SparseCase c{.heads = heads, .d = 16, .dv = 16, .head_mean = false};
  c.tokens.lengths = {{6}, {400}};
  c.tokens.slots = 320;
  return c;
}

std::vector<int32_t*> SomeEntries(const RowTensor& lists) {
  std::vector<int32_t*> words;
  for (int64_t slot = 5; slot < 320; slot += 16) words.push_back(WordAt(lists.tensor, lists.Offset(0, 0, 3) + slot));
  return words;
}

TEST(ChangingTables, OfListsLeadNowhere) {
  for (const Isa isa : {IsaLevels().front(), IsaLevels().back()}) {
    for (const int64_t heads : {2, 12}) {
      SparseCase c = Usual(heads);
      c.check_indices = false;
      const SparseCall forward(c);
      EXPECT_EQ(RunWhileFlipping(forward, SomeEntries(forward.lists()), ContextOf(isa)), kCalls);
      const SparseGradCall backward(c);
      EXPECT_EQ(RunWhileFlipping(backward, SomeEntries(backward.lists()), ContextOf(isa)), kCalls);
    }
  }
}

TEST(ChangingTables, OfListsOfTheIndexersGradientsLeadNowhere) {
  for (const Isa isa : {IsaLevels().front(), IsaLevels().back()}) {
    IndexerCase backward;
    backward.tokens = Usual(2).tokens;
    backward.check_indices = false;
    const IndexerGradCall gradient(backward);
    EXPECT_EQ(RunWhileFlipping(gradient, SomeEntries(gradient.lists()), ContextOf(isa)), kCalls);
    LossCase c;
    c.tokens = Usual(2).tokens;
    c.check_indices = false;
    const LossCall loss(c);
    EXPECT_EQ(RunWhileFlipping(loss, SomeEntries(loss.lists()), ContextOf(isa)), kCalls);
  }
}

TEST(ChangingTables, OfListsThatAreCheckedLeadNowhere) {
  const SparseCall call(Usual(2));
  EXPECT_GT(RunWhileFlipping(call, SomeEntries(call.lists()), ContextOf(IsaLevels().back()), kCheckedCalls), 0);
}

TEST(ChangingTables, OfPagesLeadNowhere) {
  for (const int64_t heads : {2, 12}) {
    SparseCase c = Usual(heads);
    c.tokens.page_rows = 16;
    const SparseCall call(c);
    EXPECT_GT(RunWhileFlipping(call, {WordAt(call.block_table(), 3)}, ContextOf(IsaLevels().back()), kCheckedCalls), 0);
  }
}

}  // namespace
}  // namespace fa::test
