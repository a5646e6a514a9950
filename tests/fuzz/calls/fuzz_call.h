#ifndef FA_TESTS_FUZZ_FUZZ_CALL_H_
#define FA_TESTS_FUZZ_FUZZ_CALL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fa/plan.h"
#include "support/cases/call_fields.h"
#include "support/tensor.h"

namespace fa::test {

/// The byte with which Run fills the workspace. Without a value, the call takes a workspace from the context's pool.
using WorkspaceFill = std::optional<uint8_t>;

/// Aligned memory of any size. Its end is less than one alignment before an unreadable page. Overrun() returns whether
/// the bytes between were written.
class ExactWorkspace {
 public:
  ExactWorkspace(size_t bytes, uint8_t fill)
      : buffer_((bytes + kAlignment - 1) / kAlignment * kAlignment, Place::kAtEnd), bytes_(bytes) {
    std::memset(buffer_.data(), fill, bytes);
  }
  [[nodiscard]] std::span<std::byte> bytes() const { return {buffer_.data(), bytes_}; }
  [[nodiscard]] bool Overrun() const {
    return std::any_of(buffer_.data() + bytes_, buffer_.data() + buffer_.size(),
                       [](std::byte byte) { return byte != std::byte{0xFF}; });
  }

 private:
  static constexpr size_t kAlignment = 64;
  GuardedBuffer buffer_;
  size_t bytes_;
};

/// One call of an operator, whose arguments the fuzzer may change. The tensors lie in guarded buffers.
class FuzzCall {
 public:
  FuzzCall() = default;
  virtual ~FuzzCall() = default;
  FuzzCall(const FuzzCall&) = delete;
  FuzzCall& operator=(const FuzzCall&) = delete;

  [[nodiscard]] virtual std::string Describe() const = 0;
  /// Returns the fields of the arguments that hold a tensor. They include absent tensors, whose data is null.
  [[nodiscard]] virtual std::vector<TensorField> Tensors() = 0;
  /// Returns the fields that hold lengths.
  [[nodiscard]] virtual std::vector<LengthsField> Lengths() = 0;
  /// Restores the arguments of the case.
  virtual void Restore() = 0;
  /// Restores inputs that an in-place output has overwritten. The fuzzer calls it before each Run.
  virtual void RestoreInputs() {}
  /// Runs the call with its present arguments. The workspace has exactly the bytes that the plan wants, and lies before
  /// an unreadable page.
  [[nodiscard]] virtual Status Run(Context* context, WorkspaceFill fill) = 0;
  /// Returns a plan of the call, or nothing if the operator has no plans.
  [[nodiscard]] virtual std::optional<Result<Plan>> MakePlan(Context* /*context*/) const { return {}; }
  /// A function that runs a plan of the call. PlanRuns makes a plan and returns such a function.
  using PlannedRun = std::function<Status(Workspace& workspace)>;
  [[nodiscard]] virtual Result<PlannedRun> PlanRuns(Context* /*context*/) const {
    return Status::Internal("an operator without plans");
  }
  /// Remembers the bytes of all buffers of the case. Later only elements of outputs may differ.
  [[nodiscard]] virtual Snapshot TakeSnapshot() const = 0;
  /// Compares the case's outputs with the reference in double.
  [[nodiscard]] virtual ::testing::AssertionResult MatchesReference() = 0;
  /// Returns whether tensors may be moved to other memory. They may not if an output shares memory with an input.
  [[nodiscard]] virtual bool may_move() const { return true; }
  /// Returns whether the operator lets `output` be the very tensor `input`.
  [[nodiscard]] virtual bool may_share(const TensorField& /*output*/, const TensorField& /*input*/) const {
    return false;
  }
  /// Returns whether the call leaves some elements of its outputs as they were. If so, may_move() is false.
  [[nodiscard]] virtual bool keeps_elements() const { return false; }
};

/// A call of an operator that has plans. Problem has the tensors of a case, and the functions args(), options() and
/// TakeSnapshot().
template <typename Problem, typename Case>
class PlannedCall : public FuzzCall {
 public:
  using Args = decltype(std::declval<const Problem&>().args());
  using Options = decltype(std::declval<const Problem&>().options());
  using Planner = Result<PlanFor<Args>> (*)(const Args&, const Options&, Context*);
  using OneShot = Status (*)(const Args&, const Options&, Context*);

  PlannedCall(const Case& c, Planner make_plan, OneShot one_shot)
      : problem_(c), case_(c), make_plan_(make_plan), one_shot_(one_shot) {
    PlannedCall::Restore();
  }

  [[nodiscard]] std::string Describe() const override {
    std::ostringstream text;
    text << case_;
    return text.str();
  }
  [[nodiscard]] std::vector<TensorField> Tensors() override { return FieldsOf(&args_).tensors; }
  [[nodiscard]] std::vector<LengthsField> Lengths() override { return FieldsOf(&args_).lengths; }
  void Restore() override {
    args_ = problem_.args();
    options_ = problem_.options();
  }
  [[nodiscard]] Status Run(Context* context, WorkspaceFill fill) override {
    if (!fill) return one_shot_(args_, options_, context);
    const auto plan = make_plan_(args_, options_, context);
    if (!plan.ok()) return plan.status();
    const ExactWorkspace workspace(plan->workspace_bytes(), *fill);
    const Status status = plan->Run(args_, workspace.bytes());
    return workspace.Overrun() ? Status::Internal("wrote past the workspace") : status;
  }
  [[nodiscard]] std::optional<Result<Plan>> MakePlan(Context* context) const override {
    return AnyPlan(make_plan_(args_, options_, context));
  }
  [[nodiscard]] Result<PlannedRun> PlanRuns(Context* context) const override {
    const auto plan = make_plan_(args_, options_, context);
    if (!plan.ok()) return plan.status();
    return PlannedRun([this, runs = *plan](Workspace& workspace) { return runs.Run(args_, workspace); });
  }
  [[nodiscard]] Snapshot TakeSnapshot() const override { return problem_.TakeSnapshot(); }

 protected:
  Problem problem_;
  Case case_;
  Args args_;
  Options options_;

 private:
  Planner make_plan_;
  OneShot one_shot_;
};

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_FUZZ_CALL_H_
