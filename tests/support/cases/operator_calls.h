#ifndef FA_TESTS_SUPPORT_OPERATOR_CALLS_H_
#define FA_TESTS_SUPPORT_OPERATOR_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fa/context.h"
#include "fa/operators.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::test {

enum class ValueKind : uint8_t {
  kNormal,  ///< values of mean 0 and variance 1
  /// Every second value is normally distributed. The others are normally distributed values times 2^-130, which are
  /// subnormal.
  kDenormal,
};

/// The dense tensors of one call. Their addresses stay the same.
class CallTensors {
 public:
  explicit CallTensors(ValueKind kind) : kind_(kind) {}

  /// Returns an f32 tensor of drawn values.
  TensorView Input(const Dims& shape);
  /// Returns an f32 tensor with the same value everywhere.
  TensorView Constant(const Dims& shape, float value);
  /// Returns i32 lists [..., K]. Each list names K different keys below `keys`, which K must divide.
  TensorView Lists(const Dims& shape, int64_t keys);
  /// Returns an f32 or i32 tensor that the call writes.
  MutableTensorView Output(const Dims& shape, DType dtype = DType::kF32);
  [[nodiscard]] std::vector<uint32_t> OutputBits() const;
  /// Sets every element of every output to NaN.
  void ForgetOutputs();

 private:
  std::vector<uint32_t>& Add(std::deque<std::vector<uint32_t>>& to, const Dims& shape);

  ValueKind kind_;
  uint64_t drawn_ = 0;
  std::deque<std::vector<uint32_t>> inputs_, outputs_;
};

/// One small call of an operator through the public interface. It has several tasks with up to four workers.
struct OperatorCall {
  std::string name;
  std::shared_ptr<CallTensors> tensors;
  std::function<Status(Context*)> run;         ///< calls the operator, which binds, plans and runs
  std::function<Result<Plan>(Context*)> plan;  ///< makes a plan; null for an operator without plans
};

/// Returns a call of an operator that has plans. `alive` is memory that the arguments point into, in addition to
/// `tensors`.
template <typename Args, typename Options>
OperatorCall MakeOperatorCall(std::string name, std::shared_ptr<CallTensors> tensors, const Args& args,
                              const Options& options, Status (*run)(const Args&, const Options&, Context*),
                              Result<PlanFor<Args>> (*plan)(const Args&, const Options&, Context*),
                              std::shared_ptr<const void> alive = nullptr) {
  return {.name = std::move(name),
          .tensors = std::move(tensors),
          .run = [=, alive = alive](Context* context) { return run(args, options, context); },
          .plan = [=, alive = alive](Context* context) { return AnyPlan(plan(args, options, context)); }};
}

/// Declares SmallForwardCall and so on. Each function returns a small call of its operator.
#define FA_DECLARE(name, function, args, options, text) [[nodiscard]] OperatorCall Small##name##Call(ValueKind kind);
FA_OPERATORS(FA_DECLARE)
#undef FA_DECLARE

/// Returns a call of every operator, and a call "DropoutMask". A call has the short name that its operator has in
/// fa/operators.h.
[[nodiscard]] std::vector<OperatorCall> EveryOperator(ValueKind kind);
[[nodiscard]] std::vector<std::string> OperatorNames();
/// Returns the call of that name. @throws std::out_of_range
[[nodiscard]] OperatorCall OperatorOf(const std::string& name, ValueKind kind);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_OPERATOR_CALLS_H_
