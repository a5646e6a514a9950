// Tests offsets beyond 2^31 and 2^32 elements. The tensors of a small call spread over terabytes of address space, but
// only the pages that are touched take memory.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "support/cases/sparse_memory.h"
#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr int64_t kPast31 = (int64_t{1} << 31) + 64;
constexpr int64_t kPast32 = (int64_t{1} << 32) + 192;
/// The bytes between the beginnings of two tensors. They are far more than a row has.
constexpr int64_t kApart = int64_t{1} << 20;

class BackwardLargeStrides : public ::testing::TestWithParam<DType> {};

TEST_P(BackwardLargeStrides, GiveTheBitsOfTheDenseCall) {
  BackwardCase c;
  c.forward.dtype = GetParam();
  c.forward.heads = c.forward.heads_kv = 2;
  c.forward.lengths = EqualLengths(2, 3, 5);
  c.forward.pse = PseForm::kFull;
  c.forward.pse_type = reference::PseType::kScaleThenAdd;
  c.forward.dense_mask = MaskForm::kPerHead;
  const BackwardProblem problem(c);
  const AttentionGradArgs dense = problem.args();

  // Consecutive rows are kPast31 elements apart. Heads follow the rows, and batch elements follow the heads.
  const Dims stride{2 * (6 * kPast31 + kPast32), 6 * kPast31 + kPast32, kPast31, 1};
  const size_t bytes = static_cast<size_t>(2 * stride[0]) * sizeof(float);
  constexpr TensorView AttentionGradArgs::*kInputs[] = {
      &AttentionGradArgs::q,   &AttentionGradArgs::k,          &AttentionGradArgs::v,    &AttentionGradArgs::pse,
      &AttentionGradArgs::out, &AttentionGradArgs::dense_mask, &AttentionGradArgs::d_out};
  constexpr MutableTensorView AttentionGradArgs::*kOutputs[] = {&AttentionGradArgs::dq, &AttentionGradArgs::dk,
                                                                &AttentionGradArgs::dv, &AttentionGradArgs::dpse};
  // The rows of the eleven tensors interleave, because each tensor begins kApart bytes after the one before. So
  // together they take an eleventh of the address space that eleven separate tensors would take.
  const SparseMemory memory(bytes);
  if (!memory.ok()) GTEST_SKIP() << "this system does not map " << bytes << " bytes";
  AttentionGradArgs args = dense;
  std::byte* next = memory.data();
  const auto spread = [&](auto* view) {
    view->data = next;
    view->stride = stride;
    next += kApart;
  };
  for (const auto input : kInputs) {
    spread(&(args.*input));
    CopyRows(dense.*input, {const_cast<void*>((args.*input).data), (args.*input).dtype, (args.*input).shape, stride});
  }
  for (const auto output : kOutputs) spread(&(args.*output));
  for (const Isa isa : IsaLevels()) {
    const BackwardOutputs usual = OutputsOf(problem, ContextOf(isa));
    problem.ForgetOutputs();
    const Status status = FlashAttentionGrad(args, problem.options(), ContextOf(isa));
    ASSERT_TRUE(status.ok()) << status.message();
    for (const auto output : kOutputs) CopyRows(args.*output, dense.*output);
    EXPECT_TRUE(SameBits(usual, problem.Outputs())) << Name(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(DType, BackwardLargeStrides, ::testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace fa::test
