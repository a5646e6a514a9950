// Makes random calls that merge results or make dropout masks. Dropout masks have no plans.

#include <algorithm>

#include "fuzz/calls/families.h"
#include "ops/dense/merge_case.h"
#include "reference/philox.h"
#include "support/cases/random_token_case.h"

namespace fa::test {
namespace {

class MergeCall : public PlannedCall<MergeProblem, MergeCase> {
 public:
  explicit MergeCall(const MergeCase& c) : PlannedCall(c, PlanMergePartials, MergePartials) {}
  void RestoreInputs() override { problem_.RestoreInputs(); }
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override { return problem_.MatchesReference(); }
  [[nodiscard]] bool may_move() const override { return !case_.in_place; }
  [[nodiscard]] bool may_share(const TensorField& output, const TensorField& input) const override {
    const std::string name = output.name();
    return input.name() == "prev_" + (name == "out" ? name : name.substr(name.find('_') + 1));
  }
};

class DropoutMaskCall : public FuzzCall {
 public:
  explicit DropoutMaskCall(uint64_t seed) {
    RandomChoices random(seed);
    state_ = {.seed = seed * 7919, .offset = static_cast<uint64_t>(random.Pick(0, 1)) << 40 | seed};
    keep_prob_ = random.OneOf({0.05F, 0.5F, 0.9F, 1.0F});
    bits_ = random.OneOf<int64_t>({random.Pick(0, 9), random.Pick(1, 3000), random.Pick(30000, 70000)});
    Placement placement{.place = random.OneOf({Place::kInside, Place::kAtEnd, Place::kAtStart})};
    if (placement.place == Place::kInside) placement.misalignment = random.Pick(0, 17);
    mask_ = Tensor(DType::kU8, {(bits_ + 7) / 8}, {}, placement);
    DropoutMaskCall::Restore();
  }
  [[nodiscard]] std::string Describe() const override {
    return std::to_string(bits_) + " bits, keep_prob " + std::to_string(keep_prob_);
  }
  [[nodiscard]] std::vector<TensorField> Tensors() override { return {{"mask", &view_}}; }
  [[nodiscard]] std::vector<LengthsField> Lengths() override { return {}; }
  void Restore() override { view_ = mask_.mutable_view(); }
  [[nodiscard]] Status Run(Context* context, WorkspaceFill /*fill*/) override {
    const int64_t bytes = view_.shape.rank() == 0 || view_.data == nullptr ? 0 : std::max<int64_t>(view_.shape[0], 0);
    return GenerateDropoutMask(state_, keep_prob_, bits_,
                               {static_cast<uint8_t*>(view_.data), static_cast<size_t>(bytes)}, context);
  }
  [[nodiscard]] Snapshot TakeSnapshot() const override {
    Snapshot snapshot;
    snapshot.Allow(mask_);
    snapshot.Add(mask_);
    return snapshot;
  }
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override {
    for (int64_t f = 0; f < (bits_ + 7) / 8 * 8; ++f) {
      const bool got = (static_cast<int>(mask_.Get(f / 8)) >> (f % 8) & 1) != 0;
      const bool want = f < bits_ && reference::PhiloxKeeps(state_.seed, state_.offset, static_cast<double>(keep_prob_),
                                                            static_cast<uint64_t>(f));
      if (got != want) return ::testing::AssertionFailure() << "bit " << f << " is " << got;
    }
    return ::testing::AssertionSuccess();
  }

 private:
  PhiloxState state_;
  float keep_prob_ = 1;
  int64_t bits_ = 0;
  Tensor mask_;
  MutableTensorView view_;
};

}  // namespace

std::unique_ptr<FuzzCall> RandomMergeCall(uint64_t seed) { return std::make_unique<MergeCall>(RandomMergeCase(seed)); }

std::unique_ptr<FuzzCall> RandomDropoutMaskCall(uint64_t seed) { return std::make_unique<DropoutMaskCall>(seed); }

}  // namespace fa::test
