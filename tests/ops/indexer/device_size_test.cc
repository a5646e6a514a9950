// Tests the sparse operators at the sizes that DeepSeek-V3.2 uses on the vendor's device.
#include <gtest/gtest.h>

#include "ops/indexer/indexer_case.h"
#include "ops/indexer/loss_case.h"
#include "ops/sparse/sparse_case.h"

namespace fa::test {
namespace {

void SetTokens(TokenCase& tokens, int64_t queries) {
  tokens.dtype = DType::kBF16;
  tokens.lengths = {{queries}, {8192}};
  tokens.slots = 2048;
}

SparseCase Attention(int64_t queries) {
  SparseCase c{.heads = 64, .d = 512, .d_rope = 64, .dv = 512, .merged = true};
  SetTokens(c.tokens, queries);
  return c;
}

IndexerCase Indexer(int64_t queries, IndexerValues values) {
  IndexerCase c{.heads = 64, .d = 128, .f32_weights = true, .f32_values = true, .values = values};
  SetTokens(c.tokens, queries);
  return c;
}

TEST(DeviceSize, SparseForward) { EXPECT_TRUE(ForwardIsTheReference(Attention(2))); }

TEST(DeviceSize, SparseBackward) { EXPECT_TRUE(BackwardIsTheReference(Attention(1))); }

TEST(DeviceSize, Indexer) {
  EXPECT_TRUE(ForwardIsTheReference(Indexer(1, IndexerValues::kNormal)));
  EXPECT_TRUE(ForwardIsTheReference(Indexer(1, IndexerValues::kSmallIntegers)));
}

TEST(DeviceSize, IndexerBackward) { EXPECT_TRUE(BackwardIsTheReference(Indexer(2, IndexerValues::kNormal))); }

TEST(DeviceSize, SparseLoss) {
  LossCase c{.heads = 64, .d = 512, .d_rope = 64, .heads_index = 64, .d_index = 128, .f32_weights = true};
  SetTokens(c.tokens, 1);
  EXPECT_TRUE(LossIsTheReference(c));
}

}  // namespace
}  // namespace fa::test
