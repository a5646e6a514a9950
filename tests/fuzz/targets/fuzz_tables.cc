#include <cstring>
#include <memory>
#include <vector>

#include "fuzz/calls/call_outputs.h"
#include "fuzz/calls/families.h"
#include "fuzz/targets/fuzzed_call.h"
#include "fuzz/targets/targets.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

bool HoldsIndices(const TensorField& field) {
  const TensorView view = field.view();
  return !field.is_output() && !field.absent() && (view.dtype == DType::kI32 || view.dtype == DType::kI64) &&
         Extent(view.shape, view.stride) > 0;
}

/// Overwrites one index. The destructor restores the old value.
class ChangedIndex {
 public:
  ChangedIndex(const TensorField& field, InputBytes& input) {
    const TensorView view = field.view();
    int64_t offset = 0;
    for (int x = 0; x < view.shape.rank(); ++x) {
      offset += (input.Take<uint16_t>() % view.shape[x]) * view.stride[x];
    }
    size_ = SizeOf(view.dtype);
    at_ = const_cast<std::byte*>(static_cast<const std::byte*>(view.data)) + offset * static_cast<int64_t>(size_);
    std::memcpy(&was_, at_, size_);
    const int64_t value = input.Number();
    std::memcpy(at_, &value, size_);  // on a little-endian CPU the low bytes come first
  }
  ~ChangedIndex() { std::memcpy(at_, &was_, size_); }
  ChangedIndex(const ChangedIndex&) = delete;
  ChangedIndex& operator=(const ChangedIndex&) = delete;

 private:
  std::byte* at_;
  size_t size_;
  int64_t was_ = 0;
};

}  // namespace

void FuzzTables(std::span<const uint8_t> bytes) {
  constexpr int kMostChanges = 12;
  InputBytes input(bytes);
  const size_t family = input.Below(std::size(kFamilies));
  FuzzCall& call = FuzzedCall(family, input);
  std::vector<TensorField> indices;
  for (const TensorField& field : call.Tensors()) {
    if (HoldsIndices(field)) indices.push_back(field);
  }
  if (indices.empty()) return;
  std::vector<std::unique_ptr<ChangedIndex>> changes;
  while (!input.empty() && changes.size() < kMostChanges) {
    changes.push_back(std::make_unique<ChangedIndex>(indices[input.Below(indices.size())], input));
  }
  const Snapshot before = call.TakeSnapshot();
  before.Forget();
  call.RestoreInputs();
  const CallOutputs untouched(&call);
  const Status status = call.Run(ContextOf(DetectIsa(), 2), {});
  Require(before.FirstChange() < 0, "a buffer was overwritten by " + call.Describe());
  if (!status.ok()) {
    Require(status.code() == StatusCode::kInvalidArgument, status.message());
    Require(untouched.FirstDifference(CallOutputs(&call)).empty(), "refused, but wrote: " + call.Describe());
  }
  while (!changes.empty()) changes.pop_back();  // in reverse order, because two changes may be of the same index
}

}  // namespace fa::test
