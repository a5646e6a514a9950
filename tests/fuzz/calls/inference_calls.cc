// Makes random calls of prompt and decode attention and of fused inference.
#include "fuzz/calls/families.h"
#include "ops/inference/decode/int8_decode.h"
#include "ops/inference/decode/random_decode_case.h"
#include "ops/inference/infer/random_infer_case.h"
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

/// A call of decode or of fused inference.
template <typename Problem, typename Case>
class AnyDecodeCall : public PlannedCall<Problem, Case> {
  using Base = PlannedCall<Problem, Case>;

 public:
  explicit AnyDecodeCall(const Case& c) : AnyDecodeCall(c, PlanDecodeAttention, DecodeAttention) {}
  AnyDecodeCall(const Case& c, typename Base::Planner make_plan, typename Base::OneShot one_shot)
      : Base(c, make_plan, one_shot) {
    AnyDecodeCall::Restore();
  }
  /// Restores the arguments. Their lists of keys and values become copies in this object, which the fuzzer may change.
  void Restore() override {
    Base::Restore();
    DecodeAttentionArgs& args = this->args_;
    k_.assign(args.k.begin(), args.k.end());
    v_.assign(args.v.begin(), args.v.end());
    args.k = k_;
    args.v = v_;
    k_rope_.assign(args.k_rope.begin(), args.k_rope.end());
    args.k_rope = k_rope_;
  }

 private:
  std::vector<TensorView> k_, k_rope_, v_;
};

class DecodeCall : public AnyDecodeCall<DecodeProblem, DecodeCase> {
 public:
  using AnyDecodeCall::AnyDecodeCall;
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override {
    if (!want_) want_ = reference::Forward(problem_.values());
    // The level of the call is not known here, so the bound holds for the least exact level.
    return test::MatchesReference(problem_, Isa::kAvx512Bf16, *want_);
  }

 private:
  std::optional<reference::ForwardResult> want_;
};

class InferCall : public AnyDecodeCall<InferProblem, InferCase> {
 public:
  explicit InferCall(const InferCase& c) : AnyDecodeCall(c, PlanInferAttention, InferAttention) {}
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override {
    if (!want_) want_ = reference::Forward(problem_.values());
    return test::MatchesReference(problem_, *want_);
  }

 private:
  std::optional<reference::ForwardResult> want_;
};

class Int8DecodeCall : public AnyDecodeCall<Int8DecodeProblem, PromptCase> {
 public:
  using AnyDecodeCall::AnyDecodeCall;
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override {
    if (!expected_) expected_ = problem_.prompt().MakeExpected();
    return MatchesExpected(problem_.prompt(), *expected_);
  }

 private:
  std::optional<PromptProblem::Expected> expected_;
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

std::unique_ptr<FuzzCall> RandomInferCall(uint64_t seed) { return std::make_unique<InferCall>(RandomInferCase(seed)); }

std::unique_ptr<FuzzCall> RandomInt8DecodeCall(uint64_t seed) {
  return std::make_unique<Int8DecodeCall>(RandomInt8DecodeCase(seed));
}

}  // namespace fa::test
