// Several workers and callers work at once, so that ThreadSanitizer can find races. Tokens wait for other tokens'
// terms, and several callers share one context. Each call must give the bits of one worker.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <string>

#include "ops/indexer/indexer_case.h"
#include "ops/indexer/loss_case.h"
#include "ops/sparse/sparse_case.h"
#include "support/execution/contexts.h"
#include "support/execution/many_callers.h"

namespace fa::test {
namespace {

// Without this setting oneTBB would give no more workers than the machine has cores.
const tbb::global_control kEightThreads(tbb::global_control::max_allowed_parallelism, 8);

/// Returns many tokens and few keys, so that every token waits at every key.
TokenCase Tokens(DType dtype) {
  TokenCase c;
  c.dtype = dtype;
  c.lengths = {{24, 9}, {40, 70}};
  c.slots = 30;
  c.lists = ListForm::kMessy;
  return c;
}

/// The number of operators that OutputsOf can run.
constexpr int kOperators = 6;
TokenOutputs OutputsOf(int which, DType dtype, Context* context) {
  const SparseCase attention{.tokens = Tokens(dtype), .heads = 6, .d = 24, .d_rope = 8, .dv = 24, .merged = true};
  const IndexerCase indexer{.tokens = Tokens(dtype)};
  switch (which) {
    case 0: return ForwardOf(attention, context);
    case 1: return BackwardOf(attention, context);
    case 2: return ForwardOf(indexer, context);
    case 3: return BackwardOf(indexer, context);
    default: return LossOf({.tokens = Tokens(dtype), .dense = which == 5}, context);
  }
}

class SparseThreads : public ::testing::TestWithParam<int> {};

TEST_P(SparseThreads, WorkersGiveTheBitsOfOne) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const TokenOutputs want = OutputsOf(GetParam(), dtype, ContextOf(DetectIsa(), 1));
    for (int run = 0; run < 6; ++run) {
      EXPECT_TRUE(SameBits(OutputsOf(GetParam(), dtype, ContextOf(DetectIsa(), 2 + run % 3)), want)) << run;
    }
  }
}

TEST_P(SparseThreads, CallersShareAContext) {
  const TokenOutputs want = OutputsOf(GetParam(), DType::kF32, ContextOf(DetectIsa(), 1));
  Context* context = ContextOf(DetectIsa(), 2);
  GoodCallers good(kCallers);
  OnThreads([&](int caller) {
    good[static_cast<size_t>(caller)] = SameBits(OutputsOf(GetParam(), DType::kF32, context), want) ? 1 : 0;
  });
  ExpectAll(good);
}

std::string OperatorName(const ::testing::TestParamInfo<int>& info) {
  constexpr const char* kNames[] = {"Forward",         "Backward",    "Indexer",
                                    "IndexerBackward", "IndexerLoss", "DenseIndexerLoss"};
  return kNames[info.param];
}

INSTANTIATE_TEST_SUITE_P(Operator, SparseThreads, ::testing::Range(0, kOperators), OperatorName);

}  // namespace
}  // namespace fa::test
