// Strided, broadcast, shared and interleaved tensors give the bits of the same call on dense tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "support/compare/compare_gradients.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

/// Runs the problem with its arguments and with changed arguments, on every level. Both must give gradients of the same
/// bits.
template <typename Change>
void ExpectSameBits(const BackwardProblem& problem, const Change& change) {
  for (const Isa isa : IsaLevels()) {
    problem.ForgetOutputs();
    const BackwardOutputs usual = OutputsOf(problem, ContextOf(isa));
    problem.ForgetOutputs();
    AttentionGradArgs args = problem.args();
    change(&args);
    const Status status = FlashAttentionGrad(args, problem.options(), ContextOf(isa));
    ASSERT_TRUE(status.ok()) << status.message() << problem.backward_case();
    EXPECT_TRUE(SameBits(usual, problem.Outputs())) << Name(isa) << problem.backward_case();
  }
}

BackwardCase Usual(DType dtype) {
  BackwardCase c;
  c.forward.dtype = dtype;
  c.forward.heads = c.forward.heads_kv = 2;
  c.forward.lengths = EqualLengths(3, 37, 37);
  return c;
}

TEST(BackwardStrides, PackedQkvAndPackedGradients) {
  for (const Layout layout : {Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kTND}) {
    for (const DType dtype : kDTypes) {
      BackwardCase c = Usual(dtype);
      c.forward.layout = layout;
      c.forward.packing = c.packing = Packing::kTogether;
      EXPECT_TRUE(RunsLikeTheReference(c));
      c.forward.heads = 4;
      c.forward.d = 20;
      c.forward.dv = 9;
      c.forward.lengths = EqualLengths(2, 21, 66);
      EXPECT_TRUE(RunsLikeTheReference(c));
    }
  }
}

// One [B, S, 6, N, D] buffer holds q, k, v and their gradients.
TEST(BackwardStrides, GradientsInTheBufferOfTheInputs) {
  for (const DType dtype : kDTypes) {
    BackwardCase c = Usual(dtype);
    c.forward.layout = Layout::kBSND;
    const BackwardProblem problem(c);
    const Dims shape{3, 37, 2, 16}, stride{37 * 6 * 32, 6 * 32, 16, 1};
    const Tensor whole(dtype, {3, 37, 6, 2, 16}, {});
    const auto slot = [&](int64_t which) { return Tensor(dtype, shape, stride, whole.buffer(), which * 32); };
    const AttentionGradArgs dense = problem.args();
    const auto element = static_cast<int64_t>(SizeOf(dtype));
    const auto copy_row = [&](const void* from, const Dims& from_stride, void* to, const Dims& to_stride, int64_t row) {
      const auto offset = [&](const Dims& s) {
        return (row / 74 * s[0] + row / 2 % 37 * s[1] + row % 2 * s[2]) * element;
      };
      std::memcpy(static_cast<std::byte*>(to) + offset(to_stride),
                  static_cast<const std::byte*>(from) + offset(from_stride), static_cast<size_t>(16 * element));
    };
    const Tensor q = slot(0), k = slot(1), v = slot(2), dq = slot(3), dk = slot(4), dv = slot(5);
    for (int64_t row = 0; row < 3 * 37 * 2; ++row) {
      copy_row(dense.q.data, dense.q.stride, q.mutable_view().data, stride, row);
      copy_row(dense.k.data, dense.k.stride, k.mutable_view().data, stride, row);
      copy_row(dense.v.data, dense.v.stride, v.mutable_view().data, stride, row);
    }
    AttentionGradArgs args = dense;
    args.q = q.view();
    args.k = k.view();
    args.v = v.view();
    args.dq = dq.mutable_view();
    args.dk = dk.mutable_view();
    args.dv = dv.mutable_view();
    for (const Isa isa : IsaLevels()) {
      const BackwardOutputs usual = OutputsOf(problem, ContextOf(isa));
      problem.ForgetOutputs();
      Snapshot before;
      for (const Tensor* gradient : {&dq, &dk, &dv}) before.Allow(*gradient);
      const Status status = FlashAttentionGrad(args, problem.options(), ContextOf(isa));
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(before.FirstChange(), -1);
      for (int64_t row = 0; row < 3 * 37 * 2; ++row) {
        copy_row(args.dq.data, stride, dense.dq.data, dense.dq.stride, row);
        copy_row(args.dk.data, stride, dense.dk.data, dense.dk.stride, row);
        copy_row(args.dv.data, stride, dense.dv.data, dense.dv.stride, row);
      }
      EXPECT_TRUE(SameBits(usual, problem.Outputs())) << Name(isa);
    }
  }
}

TEST(BackwardStrides, ReadsAndWritesNothingOutsideItsTensors) {
  const auto check = [&](Place place, DType dtype, int64_t d) {
    BackwardCase c = Usual(dtype);
    c.forward.d = c.forward.dv = d;
    c.forward.placement.place = place;
    c.forward.pse = PseForm::kFull;
    c.forward.pse_type = reference::PseType::kScaleThenAdd;
    c.forward.dense_mask = MaskForm::kPerHead;
    c.forward.dropout = DropoutForm::kMask;
    c.forward.keep_prob = 0.5F;
    c.forward.sink = true;
    c.eight_statistics = d == 7;
    EXPECT_TRUE(RunsLikeTheReference(c));
    c.forward.layout = Layout::kTND;
    c.forward.lengths = {{3, 0, 70}, {9, 2, 131}};
    EXPECT_TRUE(RunsLikeTheReference(c));
  };
  ForEachCase(check, Axis{"place", {Place::kAtEnd, Place::kAtStart}}, Axis{"dtype", kDTypes},
              Axis{"d", {1, 7, 16, 40, 65}});
}

TEST(BackwardStrides, InputsMayBeOneTensor) {
  for (const DType dtype : kDTypes) {
    const BackwardCase c = Usual(dtype);
    reference::Problem problem = MakeReferenceProblem(c.forward);
    problem.k = problem.v = problem.q;
    ExpectSameBits(BackwardProblem(c, MakeBackwardValues(c, problem)),
                   [](AttentionGradArgs* args) { args->k = args->v = args->q; });
  }
}

/// Copies the first sequence, head or row to all others. `dimension` says which: 0, 1 or 2.
void Repeat(int dimension, const std::vector<int64_t>& sizes, std::vector<double>* values) {
  const int64_t heads = sizes[1], rows = sizes[2], size = sizes[3];
  for (int64_t x = 0; x < static_cast<int64_t>(values->size()); ++x) {
    const int64_t s = dimension == 2 ? 0 : x / size % rows;
    const int64_t n = dimension == 1 ? 0 : x / size / rows % heads;
    const int64_t b = dimension == 0 ? 0 : x / size / rows / heads;
    (*values)[x] = (*values)[((b * heads + n) * rows + s) * size + x % size];
  }
}

TEST(BackwardStrides, StrideZeroInEveryInput) {
  for (const DType dtype : kDTypes) {
    for (const int dimension : {0, 1, 2}) {
      const BackwardCase c = Usual(dtype);
      BackwardValues values = MakeBackwardValues(c);
      reference::Problem& p = values.problem;
      for (auto* repeated : {&p.q, &p.k, &p.v, &values.d_out}) Repeat(dimension, {3, 2, 37, 16}, repeated);
      values = {.problem = p, .forward = MakeBackwardValues(c, p).forward, .d_out = values.d_out};
      ExpectSameBits(BackwardProblem(c, values), [&](AttentionGradArgs* args) {
        args->q.stride[dimension] = 0;
        args->k.stride[dimension] = 0;
        args->v.stride[dimension] = 0;
        args->d_out.stride[dimension] = 0;
      });
    }
  }
}

// d_out is a single row of ones with stride 0, so the results are the gradients of sum(out).
TEST(BackwardStrides, OutputGradientOfOneRow) {
  for (const DType dtype : kDTypes) {
    const BackwardCase c = Usual(dtype);
    BackwardValues values = MakeBackwardValues(c);
    for (double& x : values.d_out) x = 1;
    ExpectSameBits(BackwardProblem(c, values), [&](AttentionGradArgs* args) { args->d_out.stride = {0, 0, 0, 1}; });
  }
}

// A bias that strides of 0 broadcast still has one gradient per pair; its gradient is not summed.
TEST(BackwardStrides, StrideZeroInBiasAndMask) {
  for (const int dimension : {0, 1, 2}) {
    BackwardCase c = Usual(DType::kBF16);
    c.forward.pse = PseForm::kFull;
    c.forward.pse_type = reference::PseType::kAddThenScale;
    c.forward.dense_mask = MaskForm::kPerHead;
    reference::Problem problem = MakeReferenceProblem(c.forward);
    Repeat(dimension, {3, 2, 37, 37}, &problem.pse.values);
    std::vector<double> mask(problem.dense_mask.values.begin(), problem.dense_mask.values.end());
    Repeat(dimension, {3, 2, 37, 37}, &mask);
    std::copy(mask.begin(), mask.end(), problem.dense_mask.values.begin());
    ExpectSameBits(BackwardProblem(c, MakeBackwardValues(c, problem)), [&](AttentionGradArgs* args) {
      args->pse.stride[dimension] = 0;
      args->dense_mask.stride[dimension] = 0;
    });
  }
}

TEST(BackwardStrides, PaddedRowsOfTheBiasGradient) {
  const auto check = [&](DType dtype, bool broadcast) {
    BackwardCase c = Usual(dtype);
    c.forward.pse = PseForm::kFull;
    c.forward.pse_type = reference::PseType::kScaleThenAdd;
    c.forward.pse_broadcast_batch = broadcast;
    const BackwardProblem problem(c);
    const AttentionGradArgs dense = problem.args();
    const Tensor padded(dtype, dense.dpse.shape, {2 * 37 * 45 + 3, 37 * 45, 45, 1}, Placement{});
    for (const Isa isa : IsaLevels()) {
      const BackwardOutputs usual = OutputsOf(problem, ContextOf(isa));
      Snapshot before;
      before.Allow(padded);
      AttentionGradArgs args = dense;
      args.dpse = padded.mutable_view();
      ASSERT_TRUE(FlashAttentionGrad(args, problem.options(), ContextOf(isa)).ok());
      EXPECT_EQ(before.FirstChange(), -1);
      for (int64_t x = 0; x < static_cast<int64_t>(usual.gradients.dpse.size()); ++x) {
        const int64_t row = x / 37;
        const int64_t at = row / 74 * padded.stride()[0] + row / 37 % 2 * padded.stride()[1] + row % 37 * 45 + x % 37;
        ASSERT_EQ(padded.Get(at), usual.gradients.dpse[x]) << x;
      }
    }
  };
  ForEachCase(check, Axis{"dtype", kDTypes}, Axis{"broadcast", {false, true}});
}

TEST(BackwardStrides, PaddedRowsOfTheSlopeGradient) {
  BackwardCase c = Usual(DType::kF32);
  c.forward.pse = PseForm::kSlopes;
  c.forward.pse_type = reference::PseType::kSlopes;
  const BackwardProblem problem(c);
  const Tensor padded(DType::kF32, {3, 2}, {5, 1});
  for (const Isa isa : IsaLevels()) {
    const BackwardOutputs usual = OutputsOf(problem, ContextOf(isa));
    Snapshot before;
    before.Allow(padded);
    AttentionGradArgs args = problem.args();
    args.dslopes = padded.mutable_view();
    ASSERT_TRUE(FlashAttentionGrad(args, problem.options(), ContextOf(isa)).ok());
    EXPECT_EQ(before.FirstChange(), -1);
    for (int64_t x = 0; x < 6; ++x) EXPECT_EQ(padded.Get(x / 2 * 5 + x % 2), usual.gradients.dslopes[x]) << x;
  }
}

/// Returns a tensor of this shape whose first dimension has the smallest stride, 3.
Tensor Spread(const Dims& shape) {
  Dims stride = shape;
  int64_t step = 3;
  for (int i = 0; i < shape.rank(); ++i) {
    stride[i] = step;
    step *= shape[i] + 1;
  }
  return {DType::kF32, shape, stride};
}

/// Calls use(x, offset in the tensor) for each element x, counted in the order of the shape.
template <typename Use>
void ForEachElement(const TensorView& tensor, const Use& use) {
  const Dims stride = tensor.stride.empty() ? DenseStride(tensor.shape) : tensor.stride;
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  for (int64_t x = 0; x < count; ++x) {
    int64_t rest = x, offset = 0;
    for (int i = tensor.shape.rank() - 1; i >= 0; --i) {
      offset += rest % tensor.shape[i] * stride[i];
      rest /= tensor.shape[i];
    }
    use(x, offset);
  }
}

TEST(BackwardStrides, SinksAndTheirGradientsOfAnyStrides) {
  const auto check = [](reference::SinkForm form, Layout layout) {
    BackwardCase c = Usual(DType::kF32);
    c.forward.layout = layout;
    c.forward.sink = true;
    c.forward.sink_form = form;
    const BackwardProblem problem(c);
    AttentionGradArgs args = problem.args();
    const MutableTensorView gradient = args.dsink;
    std::vector<float> values;
    ForEachElement(args.sink,
                   [&](int64_t, int64_t at) { values.push_back(static_cast<const float*>(args.sink.data)[at]); });
    const Tensor sink = Spread(args.sink.shape), dsink = Spread(args.sink.shape);
    ForEachElement(sink.view(), [&](int64_t x, int64_t at) { sink.Set(at, values[static_cast<size_t>(x)]); });
    for (const Isa isa : IsaLevels()) {
      const BackwardOutputs usual = OutputsOf(problem, ContextOf(isa));
      args.sink = sink.view();
      args.dsink = dsink.mutable_view();
      const Status status = FlashAttentionGrad(args, problem.options(), ContextOf(isa));
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(SameBits(usual, problem.Outputs()));
      ForEachElement(dsink.view(), [&](int64_t x, int64_t at) {
        EXPECT_EQ(dsink.Get(at), static_cast<const float*>(gradient.data)[x]);
      });
    }
  };
  using enum reference::SinkForm;
  ForEachCase(check, Axis{"form", {kPerHead, kPerRow}}, Axis{"layout", {Layout::kBNSD, Layout::kTND}});
  check(kPerRowOfAll, Layout::kBNSD);
}

TEST(BackwardStrides, AnEmptyStrideMeansDense) {
  for (const DType dtype : kDTypes) {
    ExpectSameBits(BackwardProblem(Usual(dtype)), [](AttentionGradArgs* args) {
      args->q.stride = args->k.stride = args->v.stride = args->out.stride = args->d_out.stride = {};
      args->dq.stride = args->dk.stride = args->dv.stride = {};
      args->softmax_max.stride = args->softmax_sum.stride = {};
    });
  }
}

}  // namespace
}  // namespace fa::test
