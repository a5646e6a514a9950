// Tests offsets beyond 2^31 elements in every tensor of every operator. The tensors of small calls spread over
// terabytes of address space, but only touched pages take memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "fuzz/calls/call_outputs.h"
#include "fuzz/calls/families.h"
#include "support/cases/sparse_memory.h"
#include "support/execution/contexts.h"
#include "support/execution/emulator.h"

namespace fa::test {
namespace {

/// The stride of dimensions whose neighbours are far apart. It is no multiple of the page size, so neighbours have
/// different offsets in their pages.
constexpr int64_t kPast31 = (int64_t{1} << 31) + 72;
/// The most elements over which a tensor spreads. All tensors of a call then span some terabytes of the 128 TiB of
/// address space.
constexpr int64_t kLargestSpan = int64_t{1} << 39;
/// The most rows or heads that are far apart under an emulator, which needs memory for every page
/// (support/cases/sparse_memory.cc).
constexpr int64_t kMostFarNeighbours = 8;

/// Returns strides whose span is at most kLargestSpan. As many outermost dimensions as possible have strides of at
/// least kPast31. The others are dense.
Dims FarStrides(const Dims& shape) {
  const int inner = shape.rank() - 1;
  for (int last = inner - 1; last >= 0; --last) {
    Dims stride = DenseStride(shape);
    int64_t step = std::max(kPast31, stride[last]);
    for (int x = last; x >= 0; --x) {
      stride[x] = step;
      step *= std::max<int64_t>(shape[x], 1);
    }
    if (step <= kLargestSpan) return stride;
  }
  return DenseStride(shape);
}

/// Returns a stride of kPast31 for the outermost dimension of size 2 to kMostFarNeighbours, and dense strides for the
/// others.
Dims OneFarStride(const Dims& shape) {
  for (int x = 0; x < shape.rank() - 1; ++x) {
    if (shape[x] < 2 || shape[x] > kMostFarNeighbours) continue;
    Dims others = shape;
    others[x] = 1;
    Dims stride = DenseStride(others);
    stride[x] = kPast31;
    return stride;
  }
  return DenseStride(shape);
}

/// A tensor of a call, moved to memory in which its rows are far apart.
class FarTensor {
 public:
  explicit FarTensor(const TensorField& field)
      : field_(field),
        near_(field.view()),
        far_{nullptr, near_.dtype, near_.shape, Emulated() ? OneFarStride(near_.shape) : FarStrides(near_.shape)},
        memory_(std::max<size_t>(static_cast<size_t>(Extent(far_.shape, far_.stride)), 1) * SizeOf(near_.dtype)) {
    far_.data = memory_.data();
    if (!ok()) return;
    CopyRows(near_, far_);
    field_.Set(far_);
  }
  [[nodiscard]] bool ok() const { return memory_.ok(); }
  [[nodiscard]] bool is_far() const {
    for (int x = 0; x < far_.shape.rank(); ++x) {
      if (far_.stride[x] >= kPast31 && far_.shape[x] > 1) return true;
    }
    return false;
  }
  void CopyBack() const {
    if (field_.is_output()) CopyRows(far_, {const_cast<void*>(near_.data), near_.dtype, near_.shape, near_.stride});
  }

 private:
  TensorField field_;
  TensorView near_;
  MutableTensorView far_;
  SparseMemory memory_;
};

class LargeOffsets : public EveryOperator {};

TEST_P(LargeOffsets, GiveTheBitsOfTheUsualOnes) {
  constexpr int kCases = 8;
  size_t far = 0;
  for (uint64_t seed = 601; seed < 601 + kCases; ++seed) {
    const std::unique_ptr<FuzzCall> call = GetParam().make(seed);
    if (!call->may_move() && !call->keeps_elements()) continue;
    for (const Isa isa : IsaLevels()) {
      const CallOutputs usual = OutputsOf(call.get(), ContextOf(isa));
      call->TakeSnapshot().Forget();
      call->RestoreInputs();
      std::vector<std::unique_ptr<FarTensor>> tensors;
      for (const TensorField& field : call->Tensors()) {
        if (field.absent()) continue;
        tensors.push_back(std::make_unique<FarTensor>(field));
        if (!tensors.back()->ok()) GTEST_SKIP() << "this system does not map so much";
        if (tensors.back()->is_far()) ++far;
      }
      const Status status = call->Run(ContextOf(isa), {});
      ASSERT_TRUE(status.ok()) << status.message() << "\n " << call->Describe();
      for (const auto& tensor : tensors) tensor->CopyBack();
      call->Restore();
      ASSERT_EQ(usual.FirstDifference(CallOutputs(call.get())), "") << IsaName(isa) << " " << call->Describe();
    }
  }
  EXPECT_GT(far, 10U);
}

INSTANTIATE_TEST_SUITE_P(All, LargeOffsets, ::testing::ValuesIn(std::span(kFamilies).first(std::size(kFamilies) - 1)),
                         FamilyName);

}  // namespace
}  // namespace fa::test
