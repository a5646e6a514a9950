#include "ops/indexer/indexer_case.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/indexer/indexer_expectation.h"
#include "support/compressed_number.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<double> Draw(const IndexerCase& c, const std::vector<int64_t>& rows, int64_t heads, int64_t size, Tag tag,
                         DType dtype) {
  std::vector<double> values = DrawRows(c.tokens, rows, heads, size, tag, dtype);
  if (c.values == IndexerValues::kNormal) return values;
  // The integers are the normal values times 1.2, truncated towards 0. Each depends only on its index, as normal values
  // do.
  for (double& value : values) value = static_cast<double>(static_cast<int>(1.2 * value));
  return values;
}

/// Draws quantised rows as numbers.
std::vector<double> DrawCodes(const IndexerCase& c, const std::vector<int64_t>& rows, int64_t heads, Tag tag) {
  std::vector<double> numbers = Draw(c, rows, heads, c.d, tag, DType::kF32);
  const double spread = c.values == IndexerValues::kSmallIntegers ? 1 : *c.codes == DType::kI8 ? 40 : 1.5;
  for (double& number : numbers) {
    number = CompressedNumber(*c.codes, NearestCode(*c.codes, static_cast<float>(spread * number)));
  }
  return numbers;
}

/// Draws scales of any sign. If all values are to be small integers, scales are small powers of 2.
std::vector<double> DrawScales(const IndexerCase& c, const std::vector<int64_t>& rows, int64_t size, Tag tag) {
  std::vector<double> scales = DrawRows(c.tokens, rows, 1, size, tag, c.scale_dtype);
  for (double& scale : scales) {
    if (c.values == IndexerValues::kSmallIntegers) scale = std::exp2(std::clamp(std::floor(scale), -2.0, 2.0));
    if (c.unit_scales) scale = 1;
  }
  return scales;
}

/// Returns an offset per token.
std::vector<double> IndexOffsets(const IndexerCase& c) {
  std::vector<double> offsets;
  for (const int64_t sq : c.tokens.lengths.sq) {
    for (int64_t t = 0; t < sq; ++t) offsets.push_back(static_cast<double>(1000 * (offsets.size() % 7) + 5));
  }
  return offsets;
}

std::vector<double> QueryScales(const IndexerCase& c) {
  return DrawScales(c, c.tokens.lengths.sq, c.heads, Tag::kQRope);
}

/// Returns the elements of a tensor of type c.codes that stand for the numbers. A tensor of f8e4m3 has its codes as
/// elements.
std::vector<double> ElementsOf(const IndexerCase& c, std::vector<double> numbers) {
  if (*c.codes == DType::kI8) return numbers;
  for (double& number : numbers) number = NearestCode(*c.codes, static_cast<float>(number));
  return numbers;
}

/// Returns a view of the first dimensions of a tensor whose other dimensions have one element.
TensorView FirstDims(const Tensor& tensor, int rank) {
  TensorView view = tensor.view();
  const Dims shape = view.shape, stride = view.stride;
  view.shape = view.stride = {};
  for (int dim = 0; dim < rank; ++dim) {
    view.shape.push_back(shape[dim]);
    view.stride.push_back(stride[dim]);
  }
  return view;
}

template <typename Call, typename Check>
AssertionResult OnEveryLevel(const Call& call, int threads, const Check& check) {
  for (const Isa isa : IsaLevels()) {
    const Snapshot before = call.TakeSnapshot();
    before.Forget();
    const Status status = call.Run(ContextOf(isa, threads));
    AssertionResult matches = status.ok() ? check(call.Outputs()) : AssertionFailure() << status.message();
    if (matches && before.FirstChange() >= 0) {
      matches = AssertionFailure() << "byte " << before.FirstChange() << " of a buffer was overwritten";
    }
    if (!matches) return matches << "\n " << IsaName(isa) << " " << call.indexer_case();
  }
  return AssertionSuccess();
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const IndexerCase& c) {
  out << c.tokens << " heads " << c.heads << " of " << c.d;
  if (c.f32_weights) out << " f32 weights";
  if (c.f32_values) out << " f32 values";
  if (c.values == IndexerValues::kSmallIntegers) out << " integers";
  if (c.codes) out << " codes of " << Name(*c.codes) << " scales " << Name(c.scale_dtype);
  if (c.unit_scales) out << " unit scales";
  if (c.flat_scales) out << " flat scales";
  if (c.ratio != 1) out << " ratio " << c.ratio;
  if (c.offsets) out << " offsets";
  return out;
}

LightningIndexerOptions OptionsOf(const IndexerCase& c) {
  return {.layout = c.tokens.layout, .mask = c.tokens.mask(), .cmp_ratio = c.ratio};
}

LightningIndexerGradOptions GradOptionsOf(const IndexerCase& c) {
  return {.layout = c.tokens.layout, .mask = c.tokens.mask(), .check_indices = c.check_indices};
}

reference::IndexerProblem MakeReferenceProblem(const IndexerCase& c) {
  const TokenCase& t = c.tokens;
  reference::IndexerProblem p{.heads = c.heads, .d = c.d, .selection = MakeSelection(t)};
  p.q = Draw(c, t.lengths.sq, c.heads, c.d, Tag::kQIndex, t.dtype);
  p.k = Draw(c, t.lengths.sk, 1, c.d, Tag::kKIndex, t.dtype);
  p.weights = Draw(c, t.lengths.sq, 1, c.heads, Tag::kWeights, c.weights_dtype());
  p.selection.ratio = c.ratio;
  p.selection.residual = c.residual;
  if (!c.codes) return p;
  p.q = DrawCodes(c, t.lengths.sq, c.heads, Tag::kQIndex);
  p.k = DrawCodes(c, t.lengths.sk, 1, Tag::kKIndex);
  p.k_scale = DrawScales(c, t.lengths.sk, 1, Tag::kKRope);
  const std::vector<double> q_scale = QueryScales(c);
  for (size_t x = 0; x < p.weights.size(); ++x) p.weights[x] *= q_scale[x];
  return p;
}

std::vector<double> DrawValueGradients(const IndexerCase& c) {
  return Draw(c, c.tokens.lengths.sq, 1, c.tokens.slots, Tag::kDOut, c.values_dtype());
}

IndexerCall::IndexerCall(const IndexerCase& c, reference::IndexerProblem values)
    : case_(c), values_(std::move(values)), tensors_(c.tokens) {
  const DType dtype = c.codes.value_or(c.tokens.dtype);
  q_ = tensors_.MakeQuerySide(dtype, c.heads, c.d);
  tensors_.FillQueries(c.codes ? ElementsOf(c, values_.q) : values_.q, q_);
  k_ = tensors_.MakeKeySide(dtype, 1, c.d);
  tensors_.FillKeys(c.codes ? ElementsOf(c, values_.k) : values_.k, k_);
  weights_ = tensors_.MakeFlatQuerySide(c.weights_dtype(), c.heads);
  tensors_.FillQueries(
      c.codes ? Draw(c, c.tokens.lengths.sq, 1, c.heads, Tag::kWeights, c.weights_dtype()) : values_.weights, weights_);
  if (c.codes) {
    q_scale_ = tensors_.MakeFlatQuerySide(c.scale_dtype, c.heads);
    tensors_.FillQueries(QueryScales(c), q_scale_);
    k_scale_ = tensors_.MakeKeySide(c.scale_dtype, 1, 1);
    tensors_.FillKeys(values_.k_scale, k_scale_);
  }
  if (c.offsets) {
    index_offset_ = tensors_.MakeFlatQuerySide(DType::kI32, 1);
    tensors_.FillQueries(IndexOffsets(c), index_offset_);
  }
  indices_ = tensors_.MakeQuerySide(DType::kI32, 1, c.tokens.slots);
  if (c.wants_values) sparse_values_ = tensors_.MakeQuerySide(c.values_dtype(), 1, c.tokens.slots);
}

LightningIndexerArgs IndexerCall::args() const {
  LightningIndexerArgs args;
  args.q = q_.tensor.view();
  args.k = k_.tensor.view();
  args.weights = weights_.tensor.view();
  args.q_scale = q_scale_.tensor.view();
  if (case_.codes) {
    args.k_scale = FirstDims(k_scale_.tensor, k_scale_.tensor.shape().rank() - (case_.flat_scales ? 2 : 1));
  }
  args.index_offset = index_offset_.tensor.view();
  args.residual_kv = case_.residual;
  args.block_table = tensors_.block_table().view();
  args.lengths_q = tensors_.lengths_q();
  args.lengths_kv = tensors_.lengths_kv();
  args.sparse_indices = indices_.tensor.mutable_view();
  args.sparse_values = sparse_values_.tensor.mutable_view();
  return args;
}

TokenOutputs IndexerCall::Outputs() const {
  TokenOutputs outputs = {{"sparse_indices", tensors_.Queries(indices_), -1}};
  if (case_.offsets) {
    const std::vector<double> offsets = IndexOffsets(case_);
    std::vector<double>& indices = outputs.front().rows.values;
    for (size_t x = 0; x < indices.size(); ++x) {
      if (indices[x] != -1) indices[x] -= offsets[x / static_cast<size_t>(case_.tokens.slots)];
    }
  }
  if (case_.wants_values) outputs.push_back({"sparse_values", tensors_.Queries(sparse_values_), -kInf});
  return outputs;
}

Snapshot IndexerCall::TakeSnapshot(bool outputs_may_change) const {
  Snapshot snapshot;
  for (const RowTensor* input : {&q_, &k_, &weights_, &q_scale_, &k_scale_, &index_offset_}) {
    snapshot.Add(input->tensor);
  }
  snapshot.Add(tensors_.block_table());
  for (const RowTensor* output : {&indices_, &sparse_values_}) {
    snapshot.Add(output->tensor);
    if (outputs_may_change) snapshot.Allow(output->tensor);
  }
  return snapshot;
}

IndexerGradCall::IndexerGradCall(const IndexerCase& c, reference::IndexerProblem values, std::vector<double> d_values)
    : case_(c), values_(std::move(values)), d_values_values_(std::move(d_values)), tensors_(c.tokens) {
  const DType dtype = c.tokens.dtype;
  q_ = tensors_.MakeQuerySide(dtype, c.heads, c.d);
  tensors_.FillQueries(values_.q, q_);
  k_ = tensors_.MakeKeySide(dtype, 1, c.d);
  tensors_.FillKeys(values_.k, k_);
  weights_ = tensors_.MakeFlatQuerySide(c.weights_dtype(), c.heads);
  tensors_.FillQueries(values_.weights, weights_);
  lists_ = tensors_.MakeLists(values_.selection.indices);
  d_values_ = c.flat_d_values ? tensors_.MakeFlatQuerySide(c.values_dtype(), c.tokens.slots)
                              : tensors_.MakeQuerySide(c.values_dtype(), 1, c.tokens.slots);
  tensors_.FillQueries(d_values_values_, d_values_);
  dq_ = tensors_.MakeQuerySide(dtype, c.heads, c.d);
  dk_ = tensors_.MakeKeySide(dtype, 1, c.d);
  dweights_ = tensors_.MakeFlatQuerySide(c.weights_dtype(), c.heads);
}

LightningIndexerGradArgs IndexerGradCall::args() const {
  LightningIndexerGradArgs args;
  args.q = q_.tensor.view();
  args.k = k_.tensor.view();
  args.weights = weights_.tensor.view();
  args.sparse_indices = lists_.tensor.view();
  args.d_values = d_values_.tensor.view();
  args.lengths_q = tensors_.lengths_q();
  args.lengths_kv = tensors_.lengths_kv();
  args.dq = dq_.tensor.mutable_view();
  args.dk = dk_.tensor.mutable_view();
  args.dweights = dweights_.tensor.mutable_view();
  return args;
}

TokenOutputs IndexerGradCall::Outputs() const {
  return {{"dq", tensors_.Queries(dq_)}, {"dk", tensors_.Keys(dk_)}, {"dweights", tensors_.Queries(dweights_)}};
}

Snapshot IndexerGradCall::TakeSnapshot(bool outputs_may_change) const {
  Snapshot snapshot;
  for (const RowTensor* input : {&q_, &k_, &weights_, &lists_, &d_values_}) snapshot.Add(input->tensor);
  for (const RowTensor* output : {&dq_, &dk_, &dweights_}) {
    snapshot.Add(output->tensor);
    if (outputs_may_change) snapshot.Allow(output->tensor);
  }
  return snapshot;
}

AssertionResult ForwardIsTheReference(const IndexerCall& call, int threads) {
  return OnEveryLevel(call, threads, [&](const TokenOutputs& got) { return IsSelection(call, got); });
}

AssertionResult ForwardIsTheReference(const IndexerCase& c, int threads) {
  return ForwardIsTheReference(IndexerCall(c), threads);
}

AssertionResult BackwardIsTheReference(const IndexerGradCall& call, int threads) {
  const std::vector<ExpectedOutput> expected = ExpectBackward(call);
  return OnEveryLevel(call, threads, [&](const TokenOutputs& got) { return MatchesExpected(got, expected); });
}

AssertionResult BackwardIsTheReference(const IndexerCase& c, int threads) {
  return BackwardIsTheReference(IndexerGradCall(c), threads);
}

TokenOutputs ForwardOf(const IndexerCase& c, Context* context) {
  const IndexerCall call(c);
  const Status status = call.Run(context);
  EXPECT_TRUE(status.ok()) << status.message() << "\n " << c;
  return call.Outputs();
}

TokenOutputs BackwardOf(const IndexerCase& c, Context* context) {
  const IndexerGradCall call(c);
  const Status status = call.Run(context);
  EXPECT_TRUE(status.ok()) << status.message() << "\n " << c;
  return call.Outputs();
}

}  // namespace fa::test
