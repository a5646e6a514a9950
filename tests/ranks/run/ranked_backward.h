#ifndef FA_TESTS_RANKS_RUN_RANKED_BACKWARD_H_
#define FA_TESTS_RANKS_RUN_RANKED_BACKWARD_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fa/ranked_attention.h"
#include "ranks/run/on_rank_levels.h"
#include "support/cases/random_backward_case.h"
#include "support/cases/random_forward_case.h"
#include "support/cases/rank_rows.h"
#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"
#include "support/execution/thread_transport.h"
#include "support/sanitizer.h"

/// Runs the backward over ranks, which are threads, and the same call in one process.
namespace fa::test {

inline SequenceShards ShardsOf(const BackwardCase& c, SequenceShards::Cut cut, SequenceShards::Strategy strategy) {
  return {.cut = cut,
          .sq = c.forward.tensor_rows_q(),
          .sk = c.forward.tensor_rows_k(),
          .intervals = {},
          .strategy = strategy};
}

/// A gradient that every rank writes as a whole, into its own memory.
class OwnSum {
 public:
  explicit OwnSum(const MutableTensorView& whole) : whole_(whole) {
    if (whole.data == nullptr) return;
    if (whole_.stride.empty()) whole_.stride = DenseStride(whole.shape);
    count_ = 1;
    for (int i = 0; i < whole.shape.rank(); ++i) count_ *= whole.shape[i];
    bytes_.assign(static_cast<size_t>(count_ + 1) * SizeOf(whole.dtype), '\xff');
  }
  [[nodiscard]] MutableTensorView view() {
    if (whole_.data == nullptr) return whole_;
    used_ = true;
    return {bytes_.data(), whole_.dtype, whole_.shape, {}};
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  /// Copies the gradient into the tensor of the whole call.
  void Put() const {
    if (!used_) return;
    const size_t element = SizeOf(whole_.dtype);
    for (int64_t flat = 0; flat < count_; ++flat) {
      int64_t rest = flat, at = 0;
      for (int i = whole_.shape.rank() - 1; i >= 0; --i) {
        at += rest % whole_.shape[i] * whole_.stride[i];
        rest /= whole_.shape[i];
      }
      std::memcpy(static_cast<std::byte*>(whole_.data) + static_cast<size_t>(at) * element,
                  bytes_.data() + static_cast<size_t>(flat) * element, element);
    }
  }

 private:
  MutableTensorView whole_;
  int64_t count_ = 0;
  bool used_ = false;
  std::string bytes_;
};

/// The gradients that one rank writes as a whole.
struct OwnSums {
  OwnSum dsink, dslopes, dpse;
};

/// What each rank returned: its status, the gradients that it writes as a whole, and the text of its plan.
struct RanksRun {
  std::vector<Status> statuses;
  std::vector<OwnSums> sums;
  std::vector<std::string> plans;
};

/// Runs all ranks. Ranks that succeed write their gradients into the tensors of `problem`.
/// @param one_row  whether a bias of one row applies to all queries, also on a rank with only one query
inline RanksRun RunRanks(const BackwardProblem& problem, const SequenceShards& shards, ThreadRanks& all, int ranks,
                         Isa isa, int threads = 1, bool one_row = false) {
  const AttentionGradArgs whole = problem.args();
  const auto count = static_cast<size_t>(ranks);
  const MutableTensorView dpse =
      problem.backward_case().forward.pse == PseForm::kRow ? whole.dpse : MutableTensorView();
  RanksRun run{std::vector<Status>(count), {}, std::vector<std::string>(count)};
  for (int rank = 0; rank < ranks; ++rank) {
    run.sums.push_back({OwnSum(whole.dsink), OwnSum(whole.dslopes), OwnSum(dpse)});
  }
  all.Run([&](const std::shared_ptr<Transport>& transport) {
    const auto rank = static_cast<size_t>(transport->rank());
    RankTensors tensors(RowsOfRank(shards, shards.sq, transport->rank(), ranks),
                        RowsOfRank(shards, shards.sk, transport->rank(), ranks));
    AttentionGradArgs args = PartOf(whole, problem.backward_case().forward.layout, tensors);
    args.dsink = run.sums[rank].dsink.view();
    args.dslopes = run.sums[rank].dslopes.view();
    if (dpse.data != nullptr && (one_row || args.dpse.data == whole.dpse.data)) {
      args.pse = whole.pse;
      args.dpse = run.sums[rank].dpse.view();
    }
    const auto plan = PlanFlashAttentionGrad(args, problem.options(), shards, transport, ContextOf(isa, threads));
    Status& status = run.statuses[rank];
    status = plan.ok() ? plan->Run(args) : plan.status();
    if (!status.ok()) return;
    tensors.Return();
    run.plans[rank] = plan->Describe();
    EXPECT_TRUE(MovedBytesOfThePlan(*plan, *transport)) << run.plans[rank];
    EXPECT_TRUE(StagesInTheWorkspace(*plan, transport->rank())) << plan->workspace_bytes() << '\n' << run.plans[rank];
  });
  return run;
}

/// Returns MakeBackwardValues(c). Keeps the values of the last kKept cases, because the tests of all levels run a case
/// one after another.
inline BackwardValues ValuesOf(const BackwardCase& c) {
  constexpr size_t kKept = 64;
  static std::deque<std::pair<ForwardCase, BackwardValues>> kept;
  auto found = std::find_if(kept.begin(), kept.end(), [&](const auto& values) { return values.first == c.forward; });
  if (found == kept.end()) {
    if (kept.size() == kKept) kept.pop_front();
    found = kept.emplace(kept.end(), c.forward, MakeBackwardValues(c));
  }
  return found->second;
}

/// A case, and its results in one process.
class OneProcess {
 public:
  OneProcess(const BackwardCase& c, Isa isa)
      : problem_(c, ValuesOf(c)), isa_(isa), want_(OutputsOf(problem_, ContextOf(isa, 2))) {}

  void ExpectSameBits(const SequenceShards& shards, int ranks, int threads = 1, bool can_test = true,
                      bool one_row = false) const {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, cut " << static_cast<int>(shards.cut) << ", strategy "
                                    << static_cast<int>(shards.strategy) << ' ' << problem_.backward_case());
    problem_.ForgetOutputs();
    ThreadRanks all(ranks, can_test);
    const RanksRun run = RunRanks(problem_, shards, all, ranks, isa_, threads, one_row);
    for (const Status& status : run.statuses) ASSERT_TRUE(status.ok()) << status.message();
    for (const auto of : {&OwnSums::dsink, &OwnSums::dslopes, &OwnSums::dpse}) {
      const OwnSum& first = run.sums.front().*of;
      for (const OwnSums& sums : run.sums) EXPECT_TRUE((sums.*of).bytes() == first.bytes());
      first.Put();
    }
    EXPECT_TRUE(SameBits(want_, problem_.Outputs()));
  }

 private:
  BackwardProblem problem_;
  Isa isa_;
  BackwardOutputs want_;
};

inline void ExpectBitsOfOneProcess(const BackwardCase& c, const SequenceShards& shards, int ranks, Isa isa) {
  OneProcess(c, isa).ExpectSameBits(shards, ranks);
}

class RankedBackward : public OnRankLevels {};

inline const int64_t kRows = Sanitized() ? 390 : 777;

inline BackwardCase LongCase(DType dtype, int mode) { return {.forward = LongForwardCase(dtype, mode, kRows)}; }

}  // namespace fa::test

#endif  // FA_TESTS_RANKS_RUN_RANKED_BACKWARD_H_
