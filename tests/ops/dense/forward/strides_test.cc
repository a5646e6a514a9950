// Strided, broadcast, shared and interleaved tensors give the bits of the same call on dense tensors.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/compare/compare.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

class ForwardStrides : public ::testing::TestWithParam<Isa> {
 protected:
  static Context* context() { return ContextOf(GetParam()); }
  /// Runs the problem with its arguments and with changed arguments. Both must give outputs of the same bits.
  template <typename Change>
  static void ExpectSameBits(const ForwardProblem& problem, const Change& change) {
    const ForwardOutputs usual = OutputsOf(problem, context());
    problem.ForgetOutputs();
    AttentionArgs args = problem.args();
    change(&args);
    const Status status = FlashAttention(args, problem.options(), context());
    ASSERT_TRUE(status.ok()) << status.message() << problem.forward_case();
    EXPECT_TRUE(SameBits(usual, problem.Outputs())) << problem.forward_case();
  }
  static ForwardCase Usual(DType dtype) {
    ForwardCase c;
    c.dtype = dtype;
    c.heads = c.heads_kv = 2;
    c.lengths = EqualLengths(3, 37, 37);
    return c;
  }
};

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

TEST_P(ForwardStrides, PackedQkvAndOutInOneBuffer) {
  for (const Layout layout : {Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kTND}) {
    for (const DType dtype : kDTypes) {
      ForwardCase c = Usual(dtype);
      c.layout = layout;
      c.packing = Packing::kTogether;
      EXPECT_TRUE(RunsLikeTheReference(c, context()));
      c.heads = 4;
      c.d = 20;
      c.dv = 9;
      c.lengths = EqualLengths(2, 21, 66);
      EXPECT_TRUE(RunsLikeTheReference(c, context()));
    }
  }
}

TEST_P(ForwardStrides, ReadsNothingOutsideItsTensors) {
  const auto check = [&](Place place, DType dtype, int64_t d) {
    ForwardCase c = Usual(dtype);
    c.d = c.dv = d;
    c.placement.place = place;
    c.pse = PseForm::kFull;
    c.pse_type = reference::PseType::kScaleThenAdd;
    c.dense_mask = MaskForm::kPerHead;
    c.dropout = DropoutForm::kMask;
    c.keep_prob = 0.5F;
    c.sink = true;
    EXPECT_TRUE(RunsLikeTheReference(c, context()));
    c.layout = Layout::kTND;
    c.lengths = {{3, 0, 70}, {9, 2, 131}};
    EXPECT_TRUE(RunsLikeTheReference(c, context()));
  };
  ForEachCase(check, Axis{"place", {Place::kAtEnd, Place::kAtStart}}, Axis{"dtype", kDTypes},
              Axis{"d", {1, 7, 16, 40, 65}});
}

TEST_P(ForwardStrides, InputsMayBeOneTensor) {
  for (const DType dtype : kDTypes) {
    const ForwardCase c = Usual(dtype);
    reference::Problem values = MakeReferenceProblem(c);
    values.k = values.v = values.q;
    ExpectSameBits(ForwardProblem(c, values), [](AttentionArgs* args) { args->k = args->v = args->q; });
  }
}

TEST_P(ForwardStrides, MultiHeadLatentValuesAreColumnsOfTheKeys) {
  for (const DType dtype : kDTypes) {
    ForwardCase c = Usual(dtype);
    c.d = 48;
    c.dv = 32;
    reference::Problem values = MakeReferenceProblem(c);
    for (size_t x = 0; x < values.v.size(); ++x) values.v[x] = values.k[x / 32 * 48 + x % 32];
    ExpectSameBits(ForwardProblem(c, values), [](AttentionArgs* args) {
      args->v.data = args->k.data;
      args->v.stride = args->k.stride;
    });
  }
}

/// Copies the first sequence, head or row of k or v to all others. `dimension` says which: 0, 1 or 2.
void Repeat(int dimension, const ForwardCase& c, int64_t size, std::vector<double>* values) {
  const int64_t heads = c.heads_kv;
  const int64_t rows = c.max_sk();
  for (int64_t x = 0; x < static_cast<int64_t>(values->size()); ++x) {
    const int64_t s = dimension == 2 ? 0 : x / size % rows;
    const int64_t n = dimension == 1 ? 0 : x / size / rows % heads;
    const int64_t b = dimension == 0 ? 0 : x / size / rows / heads;
    (*values)[x] = (*values)[((b * heads + n) * rows + s) * size + x % size];
  }
}

TEST_P(ForwardStrides, StrideZeroInKeysAndValues) {
  for (const DType dtype : kDTypes) {
    for (const int dimension : {0, 1, 2}) {
      const ForwardCase c = Usual(dtype);
      reference::Problem values = MakeReferenceProblem(c);
      Repeat(dimension, c, c.d, &values.k);
      Repeat(dimension, c, c.dv, &values.v);
      ExpectSameBits(ForwardProblem(c, values), [&](AttentionArgs* args) {
        args->k.stride[dimension] = 0;
        args->v.stride[dimension] = 0;
      });
    }
  }
}

TEST_P(ForwardStrides, StrideZeroInQueries) {
  ForwardCase c = Usual(DType::kF32);
  reference::Problem values = MakeReferenceProblem(c);
  Repeat(0, c, c.d, &values.q);
  ExpectSameBits(ForwardProblem(c, values), [](AttentionArgs* args) { args->q.stride[0] = 0; });
}

TEST_P(ForwardStrides, StrideZeroInBiasAndMask) {
  for (const int dimension : {0, 1, 2}) {
    ForwardCase c = Usual(DType::kBF16);
    c.pse = PseForm::kFull;
    c.pse_type = reference::PseType::kAddThenScale;
    c.dense_mask = MaskForm::kPerHead;
    reference::Problem values = MakeReferenceProblem(c);
    Repeat(dimension, c, 37, &values.pse.values);
    std::vector<double> mask(values.dense_mask.values.begin(), values.dense_mask.values.end());
    Repeat(dimension, c, 37, &mask);
    std::copy(mask.begin(), mask.end(), values.dense_mask.values.begin());
    ExpectSameBits(ForwardProblem(c, values), [&](AttentionArgs* args) {
      args->pse.stride[dimension] = 0;
      args->dense_mask.stride[dimension] = 0;
    });
  }
}

TEST_P(ForwardStrides, PaddedRowsOfBiasMaskAndSlopes) {
  ForwardCase c = Usual(DType::kF16);
  c.pse = PseForm::kFull;
  c.pse_type = reference::PseType::kScaleThenAdd;
  c.dense_mask = MaskForm::kPerHead;
  const ForwardProblem problem(c);
  const AttentionArgs dense = problem.args();
  const Dims stride{2 * 37 * 45 + 3, 37 * 45, 45, 1};
  const Tensor pse(DType::kF16, dense.pse.shape, stride);
  const Tensor mask(DType::kU8, dense.dense_mask.shape, stride);
  for (int64_t row = 0; row < 3 * 2 * 37; ++row) {
    for (int64_t j = 0; j < 37; ++j) {
      const int64_t to = row / 74 * stride[0] + row / 37 % 2 * stride[1] + row % 37 * stride[2] + j;
      pse.Set(to, problem.values().pse.values[row * 37 + j]);
      mask.Set(to, problem.values().dense_mask.values[row * 37 + j]);
    }
  }
  ExpectSameBits(problem, [&](AttentionArgs* args) {
    args->pse = pse.view();
    args->dense_mask = mask.view();
  });
}

TEST_P(ForwardStrides, AnEmptyStrideMeansDense) {
  const ForwardCase c = Usual(DType::kF32);
  ExpectSameBits(ForwardProblem(c), [](AttentionArgs* args) {
    args->q.stride = args->k.stride = args->v.stride = args->out.stride = {};
    args->softmax_max.stride = args->softmax_sum.stride = args->lse.stride = {};
  });
}

INSTANTIATE_TEST_SUITE_P(Isa, ForwardStrides, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& info) { return IsaName(info.param); });

}  // namespace
}  // namespace fa::test
