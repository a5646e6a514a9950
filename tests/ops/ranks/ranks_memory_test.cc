// A call over ranks while memory is short: the allocations of all ranks fail in turn, once or from one on. Each rank
// gets a status and none waits for ever, and the next call has the bits of one process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <barrier>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "fa/ranked_attention.h"
#include "support/allocation_counter.h"
#include "support/cases/rank_rows.h"
#include "support/compare/compare.h"
#include "support/execution/contexts.h"
#include "support/execution/thread_transport.h"
#include "support/sanitizer.h"

namespace fa::test {
namespace {

using Strategy = SequenceShards::Strategy;

constexpr int kRanks = 2;
constexpr int64_t kRows = 60, kMostPlaces = 20000;
constexpr unsigned kSecondsToDeadlock = 300;

struct Ending {
  std::vector<Status> statuses = std::vector<Status>(kRanks);
  int64_t failed = 0;
};

class RanksMemory : public ::testing::TestWithParam<std::tuple<Strategy, bool>> {
 protected:
  RanksMemory() { alarm(kSecondsToDeadlock); }
  ~RanksMemory() override { alarm(0); }

  [[nodiscard]] static ForwardCase Case() {
    ForwardCase c;
    c.heads = c.heads_kv = 2;
    c.d = c.dv = 16;
    c.lengths = EqualLengths(1, kRows, kRows);
    return c;
  }
  /// Memory is short from the moment in which every rank is about to call until rank 0 has returned. @param place  0:
  /// it is not
  [[nodiscard]] Ending CallShortOfMemory(int64_t place) const {
    const auto [strategy, all_later] = GetParam();
    const SequenceShards shards = {.sq = kRows, .sk = kRows, .intervals = {}, .strategy = strategy};
    Ending ending;
    ThreadRanks all(kRanks);
    std::barrier start(kRanks);
    all.Run([&, all_later = all_later](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      RankTensors tensors(RowsOfRank(shards, kRows, rank, kRanks), RowsOfRank(shards, kRows, rank, kRanks));
      const AttentionArgs args = PartOf(problem_.args(), Case().layout, tensors);
      const AttentionOptions options = problem_.options();
      Status& status = ending.statuses[static_cast<size_t>(rank)];
      start.arrive_and_wait();
      if (rank == 0 && place > 0) {
        const FailingAllocations failing(place, all_later);
        status = FlashAttention(args, options, shards, transport, context_);
        ending.failed = failing.failed();
      } else {
        status = FlashAttention(args, options, shards, transport, context_);
      }
      if (status.ok()) tensors.Return();
    });
    return ending;
  }

  Context* context_ = ContextOf(DetectIsa(), 1);
  ForwardProblem problem_{Case()};
};

TEST_P(RanksMemory, EveryRankGetsAStatus) {
  const ForwardOutputs want = OutputsOf(problem_, context_);
  int64_t shortages = 0;
  for (int64_t place = 1;; place += kSanitized ? 1 + place / 16 : 1) {
    ASSERT_LT(place, kMostPlaces);
    const Ending ending = CallShortOfMemory(place);
    for (const Status& status : ending.statuses) {
      shortages += status.code() == StatusCode::kOutOfMemory ? 1 : 0;
      EXPECT_TRUE(status.ok() || ending.failed > 0) << status.message();
    }
    problem_.ForgetOutputs();
    for (const Status& status : CallShortOfMemory(0).statuses) ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_TRUE(SameBits(want, problem_.Outputs())) << "after place " << place;
    if (ending.failed == 0) break;
  }
  EXPECT_GT(shortages, 10);
}

INSTANTIATE_TEST_SUITE_P(Strategies, RanksMemory,
                         ::testing::Combine(::testing::Values(Strategy::kHeads, Strategy::kSequence),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) == Strategy::kHeads ? "Heads" : "Sequence") +
                                  (std::get<1>(info.param) ? "_from_there_on" : "_once");
                         });

}  // namespace
}  // namespace fa::test
