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
  kNormal,    ///< values of mean 0 and variance 1
  kDenormal,  ///< every second value is normal, the others are normal values times 2^-130
};

/// The dense tensors of one call. The tensors stay at their addresses.
class CallTensors {
 public:
  explicit CallTensors(ValueKind kind) : kind_(kind) {}

  /// Returns an f32 tensor of drawn values.
  TensorView Input(const Dims& shape);
  /// Returns an f32 tensor with the same value everywhere.
  TensorView Constant(const Dims& shape, float value);
  /// Returns i32 lists [..., K]. Each list has K different keys below `keys`. K divides `keys`.
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

/// One small call of an operator through the public interface. It has several tasks on up to four workers.
struct OperatorCall {
  std::string name;
  std::shared_ptr<CallTensors> tensors;
  std::function<Status(Context*)> run;         ///< bind, plan and run
  std::function<Result<Plan>(Context*)> plan;  ///< null for an operator without plans
};

/// Returns a call of an operator that has plans. `alive` is the memory that the arguments point into, besides
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

/// Each function returns a small call of an operator. The functions are SmallForwardCall and so on.
#define FA_DECLARE(name, function, args, options, text) [[nodiscard]] OperatorCall Small##name##Call(ValueKind kind);
FA_OPERATORS(FA_DECLARE)
#undef FA_DECLARE

/// Returns a call of every operator, and a call "DropoutMask". The name of a call is the operator's short name in
/// fa/operators.h.
[[nodiscard]] std::vector<OperatorCall> EveryOperator(ValueKind kind);
[[nodiscard]] std::vector<std::string> OperatorNames();
/// Returns the call of that name. @throws std::out_of_range
[[nodiscard]] OperatorCall OperatorOf(const std::string& name, ValueKind kind);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_OPERATOR_CALLS_H_
