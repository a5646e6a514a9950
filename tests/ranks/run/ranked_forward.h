#ifndef FA_TESTS_RANKS_RUN_RANKED_FORWARD_H_
#define FA_TESTS_RANKS_RUN_RANKED_FORWARD_H_

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "fa/ranked_attention.h"
#include "ranks/run/on_rank_levels.h"
#include "support/cases/random_forward_case.h"
#include "support/cases/rank_rows.h"
#include "support/compare/compare.h"
#include "support/execution/contexts.h"
#include "support/execution/thread_transport.h"
#include "support/sanitizer.h"

/// Runs the forward over ranks, which are threads, and the same call in one process.
namespace fa::test {

inline SequenceShards ShardsOf(const ForwardCase& c, SequenceShards::Cut cut, SequenceShards::Strategy strategy) {
  return {.cut = cut, .sq = c.tensor_rows_q(), .sk = c.tensor_rows_k(), .intervals = {}, .strategy = strategy};
}

/// Runs all ranks and returns their statuses. Ranks that succeed write their outputs into the tensors of `problem`.
inline std::vector<Status> RunRanks(const ForwardProblem& problem, const SequenceShards& shards, ThreadRanks& all,
                                    int ranks, Isa isa, int threads = 1) {
  std::vector<Status> statuses(static_cast<size_t>(ranks));
  const AttentionArgs whole = problem.args();
  all.Run([&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    RankTensors tensors(RowsOfRank(shards, shards.sq, rank, ranks), RowsOfRank(shards, shards.sk, rank, ranks));
    const AttentionArgs args = PartOf(whole, problem.forward_case().layout, tensors);
    Status& status = statuses[static_cast<size_t>(rank)];
    const auto plan = PlanFlashAttention(args, problem.options(), shards, transport, ContextOf(isa, threads));
    status = plan.ok() ? plan->Run(args) : plan.status();
    if (!status.ok()) return;
    tensors.Return();
    EXPECT_TRUE(MovedBytesOfThePlan(*plan, *transport)) << plan->Describe();
    EXPECT_TRUE(StagesInTheWorkspace(*plan, transport->rank())) << plan->Describe();
  });
  return statuses;
}

/// A case, and its results in one process.
class ForwardOfOneProcess {
 public:
  ForwardOfOneProcess(const ForwardCase& c, Isa isa)
      : problem_(c), isa_(isa), want_(OutputsOf(problem_, ContextOf(isa, 2))) {}

  void ExpectSameBits(const SequenceShards& shards, int ranks) const {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, cut " << static_cast<int>(shards.cut) << ", strategy "
                                    << static_cast<int>(shards.strategy) << ' ' << problem_.forward_case());
    problem_.ForgetOutputs();
    ThreadRanks all(ranks);
    for (const Status& status : RunRanks(problem_, shards, all, ranks, isa_)) {
      ASSERT_TRUE(status.ok()) << status.message();
    }
    EXPECT_TRUE(SameBits(want_, problem_.Outputs()));
  }

 private:
  ForwardProblem problem_;
  Isa isa_;
  ForwardOutputs want_;
};

inline void ExpectBitsOfOneProcess(const ForwardCase& c, const SequenceShards& shards, int ranks, Isa isa) {
  ForwardOfOneProcess(c, isa).ExpectSameBits(shards, ranks);
}

inline const int64_t kForwardRows = Sanitized() ? 700 : 1111;

inline ForwardCase LongForwardCase(DType dtype, int mode) { return LongForwardCase(dtype, mode, kForwardRows); }

inline ForwardCase BiasedCase(PseForm pse, MaskForm mask) {
  ForwardCase c = LongForwardCase(DType::kBF16, 3);
  c.lengths = EqualLengths(2, 400, 300);
  c.pse = pse;
  if (pse != PseForm::kNone) c.pse_type = reference::PseType::kAddThenScale;
  c.dense_mask = mask;
  return c;
}

inline ForwardCase CompressedCase(DType dtype) {
  ForwardCase c = LongForwardCase(dtype, 3);
  c.lengths = EqualLengths(2, 1300, 1300);
  c.pse = PseForm::kCompressed;
  c.pse_type = reference::PseType::kAddThenScale;
  c.d = c.dv = 8;
  return c;
}

}  // namespace fa::test

#endif  // FA_TESTS_RANKS_RUN_RANKED_FORWARD_H_
