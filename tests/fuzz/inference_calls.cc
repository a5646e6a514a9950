// Calls of prompt and decode attention.
#include "fuzz/families.h"
#include "ops/inference/decode/random_decode_case.h"
#include "ops/inference/prompt/random_prompt_case.h"

namespace fa::test {
namespace {

class PromptCall : public PlannedCall<PromptProblem, PromptCase> {
 public:
  explicit PromptCall(const PromptCase& c) : PlannedCall(c, PlanPromptFlashAttention, PromptFlashAttention) {}
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override {
    if (!expected_) expected_ = problem_.MakeExpected();
    return MatchesExpected(problem_, *expected_);
  }

 private:
  std::optional<PromptProblem::Expected> expected_;
};

class DecodeCall : public PlannedCall<DecodeProblem, DecodeCase> {
 public:
  explicit DecodeCall(const DecodeCase& c) : PlannedCall(c, PlanDecodeAttention, DecodeAttention) {
    DecodeCall::Restore();
  }
  /// The arguments span views of their own, which may change.
  void Restore() override {
    PlannedCall::Restore();
    k_.assign(args_.k.begin(), args_.k.end());
    v_.assign(args_.v.begin(), args_.v.end());
    args_.k = k_;
    args_.v = v_;
  }
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override {
    if (!want_) want_ = reference::Forward(problem_.values());
    return test::MatchesReference(problem_, *want_);
  }

 private:
  std::vector<TensorView> k_, v_;
  std::optional<reference::ForwardResult> want_;
};

}  // namespace

std::unique_ptr<FuzzCall> RandomPromptCall(uint64_t seed) {
  return std::make_unique<PromptCall>(RandomPromptCase(seed, false));
}

std::unique_ptr<FuzzCall> RandomInt8PromptCall(uint64_t seed) {
  return std::make_unique<PromptCall>(RandomPromptCase(seed, true));
}

std::unique_ptr<FuzzCall> RandomDecodeCall(uint64_t seed) {
  return std::make_unique<DecodeCall>(RandomDecodeCase(seed));
}

}  // namespace fa::test
