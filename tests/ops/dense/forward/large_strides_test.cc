// Tests offsets beyond 2^31 and 2^32 elements. The tensors of a small call spread over terabytes of address space, but
// only the pages that are touched take memory.
#include <gtest/gtest.h>

#include "support/cases/sparse_memory.h"
#include "support/compare/compare.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr int64_t kPast31 = (int64_t{1} << 31) + 64;
constexpr int64_t kPast32 = (int64_t{1} << 32) + 192;
/// The bytes between the beginnings of two tensors. They are far more than a row has.
constexpr int64_t kApart = int64_t{1} << 20;

class ForwardLargeStrides : public ::testing::TestWithParam<std::tuple<Isa, DType>> {};

TEST_P(ForwardLargeStrides, GiveTheBitsOfTheDenseCall) {
  const auto [isa, dtype] = GetParam();
  ForwardCase c;
  c.dtype = dtype;
  c.heads = 2;
  c.heads_kv = 2;
  c.lengths = EqualLengths(2, 3, 5);
  c.pse = PseForm::kFull;
  c.pse_type = reference::PseType::kScaleThenAdd;
  c.dense_mask = MaskForm::kPerHead;
  const ForwardProblem problem(c);
  const AttentionArgs dense = problem.args();
  const ForwardOutputs usual = OutputsOf(problem, ContextOf(isa));

  // Consecutive rows are kPast31 elements apart. Heads follow the rows, and batch elements follow the heads.
  const Dims stride{2 * (6 * kPast31 + kPast32), 6 * kPast31 + kPast32, kPast31, 1};
  const size_t bytes = static_cast<size_t>(2 * stride[0]) * sizeof(float);
  // The rows of the six tensors interleave, because each tensor begins kApart bytes after the one before. So together
  // they take a sixth of the address space that six separate tensors would take.
  const SparseMemory memory(bytes);
  if (!memory.ok()) GTEST_SKIP() << "this system does not map " << bytes << " bytes";
  const auto spread = [&](int which, const TensorView& view) {
    const MutableTensorView to{memory.data() + which * kApart, view.dtype, view.shape, stride};
    CopyRows(view, to);
    return to;
  };
  AttentionArgs args = dense;
  args.q = spread(0, dense.q);
  args.k = spread(1, dense.k);
  args.v = spread(2, dense.v);
  args.pse = spread(3, dense.pse);
  args.dense_mask = spread(4, dense.dense_mask);
  args.out = spread(5, dense.out);
  problem.ForgetOutputs();
  const Status status = FlashAttention(args, problem.options(), ContextOf(isa));
  ASSERT_TRUE(status.ok()) << status.message();
  CopyRows(args.out, dense.out);
  EXPECT_TRUE(SameBits(usual, problem.Outputs()));
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<Isa, DType>>& info) {
  return IsaName(std::get<0>(info.param)) + "_" + Name(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Isa, ForwardLargeStrides,
                         ::testing::Combine(::testing::ValuesIn(IsaLevels()),
                                            ::testing::Values(DType::kF32, DType::kF16, DType::kBF16)),
                         NameOf);

}  // namespace
}  // namespace fa::test
