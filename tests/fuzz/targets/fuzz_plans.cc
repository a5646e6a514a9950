#include <string>
#include <vector>

#include "fuzz/calls/families.h"
#include "fuzz/targets/fuzzed_call.h"
#include "fuzz/targets/targets.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr int kMostPlanChanges = 8;
constexpr DType kPlanTypes[] = {DType::kF32,  DType::kF16, DType::kBF16, DType::kI8, DType::kU8,
                                DType::kBool, DType::kI32, DType::kI64,  DType::kU64};

void ChangeTensor(const TensorField& field, InputBytes& input) {
  const TensorView was = field.view();
  MutableTensorView now{const_cast<void*>(was.data), was.dtype, was.shape, was.stride};
  const auto x = static_cast<int>(input.Below(static_cast<size_t>(std::max(1, was.shape.rank()))));
  switch (input.Below(6)) {
    case 0: now.data = was.data == nullptr ? &now : nullptr; break;
    case 1:
      if (x < was.shape.rank()) now.shape[x] = input.Number();
      break;
    case 2:
      if (x < was.stride.rank()) now.stride[x] = input.Number();
      break;
    case 3: now.dtype = kPlanTypes[input.Below(std::size(kPlanTypes))]; break;
    case 4:
      now.shape = {};
      now.stride = {};
      for (size_t rank = input.Below(Dims::kMaxRank + 1); rank > 0; --rank) {
        now.shape.push_back(input.Number());
        now.stride.push_back(input.Number());
      }
      break;
    default: now.stride = {};
  }
  field.Set(now);
}

}  // namespace

void FuzzPlans(std::span<const uint8_t> bytes) {
  InputBytes input(bytes);
  const size_t family = input.Below(kFamiliesWithPlans);
  FuzzCall& call = FuzzedCall(family, input);
  std::vector<std::vector<int64_t>> lengths(kMostPlanChanges);  // the arguments point to these lengths
  for (int change = 0; change < kMostPlanChanges && !input.empty(); ++change) {
    const std::vector<TensorField> tensors = call.Tensors();
    const std::vector<LengthsField> fields = call.Lengths();
    const size_t which = input.Below(tensors.size() + fields.size());
    if (which < tensors.size()) {
      ChangeTensor(tensors[which], input);
      continue;
    }
    std::vector<int64_t>& values = lengths[static_cast<size_t>(change)];
    for (size_t count = input.Below(6); count > 0; --count) values.push_back(input.Number());
    *fields[which - tensors.size()].values = values;
  }
  const auto run = call.PlanRuns(ContextOf(DetectIsa(), 2));
  const Status status = run.status();
  Require(status.code() != StatusCode::kInternal, status.message());
  Require(status.ok() || status.message().size() > 10, "a reason: " + status.message());
  call.Restore();
}

}  // namespace fa::test
