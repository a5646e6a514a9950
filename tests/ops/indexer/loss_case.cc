#include "ops/indexer/loss_case.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

void RoundToF32(std::vector<double>* values) {
  for (double& value : *values) value = RoundTo(DType::kF32, value);
}

/// Returns an attention over the keys of the loss. The statistics of the loss come from this attention. The contents of
/// its V do not matter.
reference::SparseProblem AttentionOfStatistics(const LossCase& c, const reference::SparseProblem& attention) {
  reference::SparseProblem p = attention;
  p.merged = true;
  p.dv = 1;
  if (!c.dense) return p;
  const auto longest = std::max_element(c.tokens.lengths.sk.begin(), c.tokens.lengths.sk.end());
  p.selection.slots = longest == c.tokens.lengths.sk.end() ? 0 : *longest;
  p.selection.indices.clear();
  for (int64_t x = 0; x < p.selection.tokens() * p.selection.slots; ++x) {
    p.selection.indices.push_back(x % p.selection.slots);
  }
  return p;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const LossCase& c) {
  out << c.tokens << (c.dense ? " dense" : "") << " heads " << c.heads << "/" << c.heads_kv << " of " << c.d << "+"
      << c.d_rope << " index " << c.heads_index << " of " << c.d_index;
  if (c.f32_weights) out << " f32 weights";
  if (c.sink) out << " sink";
  if (c.head_mean) out << " head mean";
  if (c.foreign_statistics) out << " foreign statistics";
  if (c.l1) out << " L1";
  if (c.mean) out << " mean";
  return out;
}

SparseIndexerLossOptions OptionsOf(const LossCase& c) {
  SparseIndexerLossOptions options;
  options.layout = c.tokens.layout;
  options.scale = c.scale;
  options.mask = c.tokens.mask();
  options.reduction = c.mean ? LossReduction::kMean : LossReduction::kSum;
  options.target = c.l1 ? IndexerTarget::kL1 : IndexerTarget::kHeadMean;
  options.check_indices = c.check_indices;
  return options;
}

DenseIndexerLossOptions DenseOptionsOf(const LossCase& c) {
  const SparseIndexerLossOptions shared = OptionsOf(c);
  return {.layout = shared.layout,
          .scale = shared.scale,
          .mask = shared.mask,
          .reduction = shared.reduction,
          .target = shared.target};
}

reference::LossProblem MakeReferenceProblem(const LossCase& c) {
  const TokenCase& t = c.tokens;
  reference::LossProblem p{.dense = c.dense, .l1 = c.l1, .mean = c.mean};
  p.attention = {.heads = c.heads, .d = c.d, .d_rope = c.d_rope, .heads_kv = c.heads_kv, .selection = MakeSelection(t)};
  const auto usual = static_cast<float>(1 / std::sqrt(static_cast<double>(c.d + c.d_rope)));
  p.attention.scale = static_cast<double>(c.scale.value_or(usual));
  p.attention.q = DrawRows(t, t.lengths.sq, c.heads, c.d, Tag::kQ, t.dtype);
  p.attention.k = DrawRows(t, t.lengths.sk, c.heads_kv, c.d, Tag::kK, t.dtype);
  p.attention.q_rope = DrawRows(t, t.lengths.sq, c.heads, c.d_rope, Tag::kQRope, t.dtype);
  p.attention.k_rope = DrawRows(t, t.lengths.sk, c.heads_kv, c.d_rope, Tag::kKRope, t.dtype);
  for (int64_t n = 0; c.sink && n < c.heads; ++n) {
    // A sink weighs about as much as a few keys.
    p.attention.sink.push_back(RoundTo(DType::kF32, 1 + RandomNormal(t.seed, Tag::kSink, {n})));
  }
  p.indexer = {.heads = c.heads_index, .d = c.d_index, .selection = p.attention.selection};
  p.indexer.q = DrawRows(t, t.lengths.sq, c.heads_index, c.d_index, Tag::kQIndex, t.dtype);
  p.indexer.k = DrawRows(t, t.lengths.sk, 1, c.d_index, Tag::kKIndex, t.dtype);
  p.indexer.weights = DrawRows(t, t.lengths.sq, 1, c.heads_index, Tag::kWeights, c.weights_dtype());
  // Models include 1/sqrt(D N) in the weights, so that scores are near 1.
  const double fold = 1 / std::sqrt(static_cast<double>(c.d_index * c.heads_index));
  for (double& weight : p.indexer.weights) weight = RoundTo(c.weights_dtype(), weight * fold);

  reference::SparseResult forward = reference::SparseForward(AttentionOfStatistics(c, p.attention));
  p.max = std::move(forward.max);
  p.sum = std::move(forward.sum);
  if (c.foreign_statistics) {
    for (double& sum : p.sum) sum *= 1.7;
    for (double& mean : forward.p_head_mean) mean /= 1.7;
  }
  if (c.head_mean) p.p_head_mean = std::move(forward.p_head_mean);
  if (c.dense) {
    reference::IndexerStatistics statistics = reference::StatisticsOfScores(p.indexer);
    p.max_index = std::move(statistics.max);
    p.sum_index = std::move(statistics.sum);
  }
  for (auto* statistic : {&p.max, &p.sum, &p.p_head_mean, &p.max_index, &p.sum_index}) RoundToF32(statistic);
  return p;
}

LossCall::LossCall(const LossCase& c, reference::LossProblem values)
    : case_(c), values_(std::move(values)), tensors_(c.tokens) {
  const DType dtype = c.tokens.dtype;
  const auto query = [&](const std::vector<double>& from, int64_t heads, int64_t size) {
    RowTensor tensor = tensors_.MakeQuerySide(dtype, heads, size);
    tensors_.FillQueries(from, tensor);
    return tensor;
  };
  const auto key = [&](const std::vector<double>& from, int64_t heads, int64_t size) {
    RowTensor tensor = tensors_.MakeKeySide(dtype, heads, size);
    tensors_.FillKeys(from, tensor);
    return tensor;
  };
  q_ = query(values_.attention.q, c.heads, c.d);
  k_ = key(values_.attention.k, c.heads_kv, c.d);
  if (c.d_rope > 0) {
    q_rope_ = query(values_.attention.q_rope, c.heads, c.d_rope);
    k_rope_ = key(values_.attention.k_rope, c.heads_kv, c.d_rope);
  }
  q_index_ = query(values_.indexer.q, c.heads_index, c.d_index);
  k_index_ = key(values_.indexer.k, 1, c.d_index);
  weights_ = tensors_.MakeFlatQuerySide(c.weights_dtype(), c.heads_index);
  tensors_.FillQueries(values_.indexer.weights, weights_);
  max_ = tensors_.MakeStatistic(c.heads_kv, c.heads / c.heads_kv);
  tensors_.FillQueries(values_.max, max_);
  sum_ = tensors_.MakeStatistic(c.heads_kv, c.heads / c.heads_kv);
  tensors_.FillQueries(values_.sum, sum_);
  if (c.dense) {
    max_index_ = tensors_.MakeRowStatistic();
    tensors_.FillQueries(values_.max_index, max_index_);
    sum_index_ = tensors_.MakeRowStatistic();
    tensors_.FillQueries(values_.sum_index, sum_index_);
  } else {
    lists_ = tensors_.MakeLists(values_.attention.selection.indices);
  }
  if (c.sink) sink_ = Tensor(DType::kF32, {c.heads}, {}, c.tokens.placement);
  for (int64_t n = 0; n < std::ssize(values_.attention.sink); ++n) sink_.Set(n, values_.attention.sink[n]);
  if (c.head_mean) {
    head_mean_ = tensors_.MakeFlatQuerySide(DType::kF32, c.tokens.slots);
    tensors_.FillQueries(values_.p_head_mean, head_mean_);
  }
  dq_index_ = tensors_.MakeQuerySide(dtype, c.heads_index, c.d_index);
  dk_index_ = tensors_.MakeKeySide(dtype, 1, c.d_index);
  dweights_ = tensors_.MakeFlatQuerySide(c.weights_dtype(), c.heads_index);
  loss_ = Tensor(DType::kF32, {1}, {}, c.tokens.placement);
}

template <typename Args>
void LossCall::FillShared(Args* args) const {
  args->q = q_.tensor.view();
  args->k = k_.tensor.view();
  args->q_rope = q_rope_.tensor.view();
  args->k_rope = k_rope_.tensor.view();
  args->q_index = q_index_.tensor.view();
  args->k_index = k_index_.tensor.view();
  args->weights = weights_.tensor.view();
  args->softmax_max = max_.tensor.view();
  args->softmax_sum = sum_.tensor.view();
  args->lengths_q = tensors_.lengths_q();
  args->lengths_kv = tensors_.lengths_kv();
  args->dq_index = dq_index_.tensor.mutable_view();
  args->dk_index = dk_index_.tensor.mutable_view();
  args->dweights = dweights_.tensor.mutable_view();
  args->loss = loss_.mutable_view();
}

SparseIndexerLossArgs LossCall::sparse_args() const {
  SparseIndexerLossArgs args;
  FillShared(&args);
  args.sparse_indices = lists_.tensor.view();
  args.sink = sink_.view();
  args.p_head_mean = head_mean_.tensor.view();
  return args;
}

DenseIndexerLossArgs LossCall::dense_args() const {
  DenseIndexerLossArgs args;
  FillShared(&args);
  args.softmax_max_index = max_index_.tensor.view();
  args.softmax_sum_index = sum_index_.tensor.view();
  return args;
}

Status LossCall::Run(Context* context) const {
  return case_.dense ? DenseLightningIndexerGradKLLoss(dense_args(), dense_options(), context)
                     : SparseLightningIndexerGradKLLoss(sparse_args(), options(), context);
}

Result<PlanFor<SparseIndexerLossArgs>> LossCall::MakeSparsePlan(Context* context) const {
  return PlanSparseLightningIndexerGradKLLoss(sparse_args(), options(), context);
}

Result<PlanFor<DenseIndexerLossArgs>> LossCall::MakeDensePlan(Context* context) const {
  return PlanDenseLightningIndexerGradKLLoss(dense_args(), dense_options(), context);
}

TokenOutputs LossCall::Outputs() const {
  return {{"dq", tensors_.Queries(dq_index_)},
          {"dk", tensors_.Keys(dk_index_)},
          {"dweights", tensors_.Queries(dweights_)},
          {"loss", {{loss_.Get(0)}, {}}}};
}

Snapshot LossCall::TakeSnapshot(bool outputs_may_change) const {
  Snapshot snapshot;
  for (const RowTensor* input : {&q_, &k_, &q_rope_, &k_rope_, &q_index_, &k_index_, &weights_, &lists_, &max_, &sum_,
                                 &head_mean_, &max_index_, &sum_index_}) {
    snapshot.Add(input->tensor);
  }
  snapshot.Add(sink_);
  for (const Tensor* output : {&dq_index_.tensor, &dk_index_.tensor, &dweights_.tensor, &loss_}) {
    snapshot.Add(*output);
    if (outputs_may_change) snapshot.Allow(*output);
  }
  return snapshot;
}

AssertionResult LossIsTheReference(const LossCall& call, int threads) {
  const std::vector<ExpectedOutput> expected = ExpectLoss(call);
  for (const Isa isa : IsaLevels()) {
    const Snapshot before = call.TakeSnapshot();
    before.Forget();
    const Status status = call.Run(ContextOf(isa, threads));
    AssertionResult matches =
        status.ok() ? MatchesExpected(call.Outputs(), expected) : AssertionFailure() << status.message();
    if (matches && before.FirstChange() >= 0) {
      matches = AssertionFailure() << "byte " << before.FirstChange() << " of a buffer was overwritten";
    }
    if (!matches) return matches << "\n " << IsaName(isa) << " " << call.loss_case();
  }
  return AssertionSuccess();
}

AssertionResult LossIsTheReference(const LossCase& c, int threads) { return LossIsTheReference(LossCall(c), threads); }

TokenOutputs LossOf(const LossCase& c, Context* context) {
  const LossCall call(c);
  const Status status = call.Run(context);
  EXPECT_TRUE(status.ok()) << status.message() << "\n " << c;
  return call.Outputs();
}

}  // namespace fa::test
