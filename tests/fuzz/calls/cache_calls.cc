// Makes random calls that merge results by their lse, and calls that scatter or gather rows of caches.
#include "fuzz/calls/families.h"
#include "ops/cache/cache_case.h"
#include "ops/dense/merge_by_lse_case.h"

namespace fa::test {
namespace {

class MergeLseCall : public PlannedCall<MergeByLseProblem, MergeByLseCase> {
 public:
  explicit MergeLseCall(const MergeByLseCase& c) : PlannedCall(c, PlanMergeByLse, MergeByLse) {
    MergeLseCall::Restore();
  }
  /// Restores the arguments. Their lists become copies in this object, which the fuzzer may change.
  void Restore() override {
    PlannedCall::Restore();
    lse_.assign(args_.lse.begin(), args_.lse.end());
    local_out_.assign(args_.local_out.begin(), args_.local_out.end());
    args_.lse = lse_;
    args_.local_out = local_out_;
  }
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override { return problem_.MatchesReference(); }

 private:
  std::vector<TensorView> lse_, local_out_;
};

/// A call that does not write all elements of its outputs.
template <typename Problem, typename Case>
class CacheCall : public PlannedCall<Problem, Case> {
 public:
  using PlannedCall<Problem, Case>::PlannedCall;
  void RestoreInputs() override { this->problem_.RestoreInputs(); }
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override { return this->problem_.MatchesReference(); }
  [[nodiscard]] bool may_move() const override { return false; }
  [[nodiscard]] bool keeps_elements() const override { return true; }
};

}  // namespace

std::unique_ptr<FuzzCall> RandomMergeLseCall(uint64_t seed) {
  return std::make_unique<MergeLseCall>(RandomMergeByLseCase(seed));
}

std::unique_ptr<FuzzCall> RandomScatterCall(uint64_t seed) {
  return std::make_unique<CacheCall<ScatterProblem, ScatterCase>>(RandomScatterCase(seed), PlanScatterRows,
                                                                  ScatterRows);
}

std::unique_ptr<FuzzCall> RandomGatherCall(uint64_t seed) {
  return std::make_unique<CacheCall<GatherProblem, GatherCase>>(RandomGatherCase(seed), PlanGatherRows, GatherRows);
}

}  // namespace fa::test
