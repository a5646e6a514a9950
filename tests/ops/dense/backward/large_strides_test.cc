// Offsets past 2^31 and 2^32 elements: the tensors of a small call spread over terabytes of address space, of which
// only the touched pages exist.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/cases/sparse_memory.h"
#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr int64_t kPast31 = (int64_t{1} << 31) + 64;
constexpr int64_t kPast32 = (int64_t{1} << 32) + 192;

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

  // Rows are 2^31 elements apart, heads follow the rows, batch elements follow the heads.
  const Dims stride{2 * (6 * kPast31 + kPast32), 6 * kPast31 + kPast32, kPast31, 1};
  const size_t bytes = static_cast<size_t>(2 * stride[0]) * sizeof(float);
  constexpr TensorView AttentionGradArgs::*kInputs[] = {
      &AttentionGradArgs::q,   &AttentionGradArgs::k,          &AttentionGradArgs::v,    &AttentionGradArgs::pse,
      &AttentionGradArgs::out, &AttentionGradArgs::dense_mask, &AttentionGradArgs::d_out};
  constexpr MutableTensorView AttentionGradArgs::*kOutputs[] = {&AttentionGradArgs::dq, &AttentionGradArgs::dk,
                                                                &AttentionGradArgs::dv, &AttentionGradArgs::dpse};
  std::vector<std::unique_ptr<SparseMemory>> memory;
  AttentionGradArgs args = dense;
  const auto spread = [&](auto* view) {
    memory.push_back(std::make_unique<SparseMemory>(bytes));
    view->data = memory.back()->data();
    view->stride = stride;
    return memory.back()->ok();
  };
  for (const auto input : kInputs) {
    if (!spread(&(args.*input))) GTEST_SKIP() << "this system does not map " << bytes << " bytes";
    CopyRows(dense.*input, {memory.back()->data(), (args.*input).dtype, (args.*input).shape, stride});
  }
  for (const auto output : kOutputs) {
    if (!spread(&(args.*output))) GTEST_SKIP() << "this system does not map " << bytes << " bytes";
  }
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
