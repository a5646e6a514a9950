#include <fmt/format.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numeric>
#include <utility>

#include "cases/case_tensors.h"
#include "cases/sparse_data.h"
#include "check/element.h"
#include "check/forward_row.h"
#include "flags/failure.h"

namespace fa::tool {

IndexerData::IndexerData(const SparseCase& sparse)
    : case_(sparse),
      q_(NewLike(sparse.IndexerGradArgs().q)),
      k_(NewLike(sparse.Keys(sparse.index_d))),
      weights_(NewLike(sparse.IndexerArgs().weights)) {
  FillRandom(q_, 11);
  FillRandom(k_, 12);
  FillRandom(weights_, 13);
  if (case_.rows) {
    q_codes_ = NewLike(case_.IndexerArgs().q);
    k_codes_ = NewTensor(*case_.rows, {case_.batch * case_.s2, case_.index_d});
    const float scale = *case_.rows == DType::kI8 ? 1.0F / 64 : 1;
    FillQuantized(*case_.rows, scale, 11, q_, q_codes_);
    FillQuantized(*case_.rows, scale, 12, k_, k_codes_);
    q_scale_ = NewLike(case_.QueryScales());
    k_scale_ = NewLike(case_.KeyScales());
    for (Tensor* scales : {&q_scale_, &k_scale_})
      std::fill_n(scales->array.as<float>().begin(), scales->array.size(), scale);
  }
  // Weights are as large as in models, so that scores are about 1.
  const double scale = 1 / std::sqrt(static_cast<double>(case_.index_heads * case_.index_d));
  for (int64_t i = 0; i < weights_.array.size(); ++i) {
    const double weight = check::LoadElement(weights_.array.bytes(), weights_.dtype, i);
    check::StoreElement(weights_.array.bytes(), weights_.dtype, i, static_cast<float>(weight * scale));
  }
  if (case_.paged()) {
    table_ = RandomPages(case_.IndexerArgs().block_table);
    k_pages_ = InPages(case_, case_.rows ? k_codes_ : k_, case_.index_d, table_);
  }
}

LightningIndexerArgs IndexerData::ForwardArgs() {
  LightningIndexerArgs args = case_.IndexerArgs();
  lists_ = NewLike(args.sparse_indices);
  values_ = NewLike(args.sparse_values);
  args.q.data = (case_.rows ? q_codes_ : q_).array.bytes();
  args.k.data = (case_.paged() ? k_pages_ : case_.rows ? k_codes_ : k_).array.bytes();
  if (case_.rows) {
    args.q_scale.data = q_scale_.array.bytes();
    args.k_scale.data = k_scale_.array.bytes();
  }
  if (case_.paged()) args.block_table.data = table_.array.bytes();
  args.weights.data = weights_.array.bytes();
  args.sparse_indices.data = lists_.array.bytes();
  args.sparse_values.data = values_.array.bytes();
  return args;
}

LightningIndexerGradArgs IndexerData::BackwardArgs() {
  LightningIndexerGradArgs args = case_.IndexerGradArgs();
  lists_ = RandomLists(case_);
  d_values_ = NewLike(args.d_values);
  FillRandom(d_values_, 14);
  dq_ = NewLike(args.dq);
  dk_ = NewLike(args.dk);
  dweights_ = NewLike(args.dweights);
  args.q.data = q_.array.bytes();
  args.k.data = k_.array.bytes();
  args.weights.data = weights_.array.bytes();
  args.sparse_indices.data = lists_.array.bytes();
  args.d_values.data = d_values_.array.bytes();
  args.dq.data = dq_.array.bytes();
  args.dk.data = dk_.array.bytes();
  args.dweights.data = dweights_.array.bytes();
  return args;
}

MsaIndexScoreArgs IndexerData::ScoreArgs() {
  MsaIndexScoreArgs args = case_.ScoreArgs();
  score_ = NewLike(args.score);
  args.q.data = q_.array.bytes();
  args.k.data = k_.array.bytes();
  args.score.data = score_.array.bytes();
  return args;
}

void IndexerData::SetLossArgs(SparseIndexerLossArgs& args) {
  dq_ = NewLike(args.dq_index);
  dk_ = NewLike(args.dk_index);
  dweights_ = NewLike(args.dweights);
  loss_ = NewLike(args.loss);
  args.q_index.data = q_.array.bytes();
  args.k_index.data = k_.array.bytes();
  args.weights.data = weights_.array.bytes();
  args.dq_index.data = dq_.array.bytes();
  args.dk_index.data = dk_.array.bytes();
  args.dweights.data = dweights_.array.bytes();
  args.loss.data = loss_.array.bytes();
}

void IndexerData::SetStatistics(Context& context, DenseIndexerLossArgs& args) {
  ThrowUnlessOkFromShape(LightningIndexer(ForwardArgs(), case_.IndexerOptions(), &context));
  max_ = NewLike(args.softmax_max_index);
  sum_ = NewLike(args.softmax_sum_index);
  for (int64_t token = 0; token < case_.batch * case_.s1; ++token) {
    // In a dense loss K is S2, so `scores` has the scores of all keys of the token, in descending order.
    const int64_t limit = case_.Limit(token % case_.s1);
    const float* scores = values_.array.as<float>().data() + token * case_.k;
    const double max = limit == 0 ? 0 : static_cast<double>(scores[0]);
    double sum = 0;
    for (int64_t key = 0; key < limit; ++key) sum += std::exp(static_cast<double>(scores[key]) - max);
    max_.array.as<float>()[static_cast<size_t>(token)] = static_cast<float>(max);
    sum_.array.as<float>()[static_cast<size_t>(token)] = static_cast<float>(sum);
  }
  args.softmax_max_index.data = max_.array.bytes();
  args.softmax_sum_index.data = sum_.array.bytes();
}

check::IndexerToken IndexerData::Token(int64_t token, std::vector<int64_t> keys) const {
  check::IndexerToken indexer;
  indexer.q = {.data = q_.array.bytes(),
               .dtype = q_.dtype,
               .offset = token * case_.index_heads * case_.index_d,
               .row_stride = case_.index_d,
               .columns = case_.index_d};
  indexer.k = {.data = k_.array.bytes(),
               .dtype = k_.dtype,
               .offset = token / case_.s1 * case_.s2 * case_.index_d,
               .row_stride = case_.index_d,
               .columns = case_.index_d};
  for (int64_t g = 0; g < case_.index_heads; ++g) {
    indexer.weights.push_back(
        check::LoadElement(weights_.array.bytes(), weights_.dtype, token * case_.index_heads + g));
  }
  indexer.keys = std::move(keys);
  return indexer;
}

// Checks that the list is in the order of the scores, and that no key outside the list has a larger score. Both checks
// allow for rounding errors of f32.
void IndexerData::CheckSelection(int64_t token) const {
  const int64_t limit = case_.Limit(token % case_.s1);
  std::vector<int64_t> all(static_cast<size_t>(limit));
  std::iota(all.begin(), all.end(), 0);
  const check::IndexerRow row = check::ComputeIndexerRow(Token(token, std::move(all)));
  const int32_t* list = lists_.array.as<int32_t>().data() + token * case_.k;
  const float* values = values_.array.as<float>().data() + token * case_.k;
  const auto fail = [&](int64_t slot, const char* what) {
    throw Failure(fmt::format("wrong result, not timed: sparse_indices[token {}, slot {}] = {}: {}", token, slot,
                              list[slot], what));
  };
  std::vector<bool> taken(static_cast<size_t>(limit));
  const int64_t used = std::min(case_.k, limit);
  double last = INFINITY;  // the previous score plus the tolerance of that score
  for (int64_t i = 0; i < case_.k; ++i) {
    if (i >= used) {
      if (list[i] != -1 || values[i] != -INFINITY) fail(i, "want -1 and -inf");
      continue;
    }
    if (list[i] < 0 || list[i] >= limit) fail(i, "no key");
    const auto key = static_cast<size_t>(list[i]);
    if (taken[key]) fail(i, "twice");
    taken[key] = true;
    const double score = row.score[key], bound = row.score_bound[key];
    if (!(std::fabs(static_cast<double>(values[i]) - score) <= bound)) fail(i, "its value is not its score");
    if (score - bound > last) fail(i, "not in descending order");
    last = std::min(last, score + bound);
  }
  for (size_t key = 0; key < taken.size(); ++key) {
    if (!taken[key] && row.score[key] - row.score_bound[key] > last) fail(used - 1, "a larger score is missing");
  }
}

// Compares the scores of a token's blocks for one head with the largest inner products in double. A sum of d products
// in any order is off by at most d + 1 units of the sum of their sizes. So is the maximum of such sums.
void IndexerData::CheckBlocks(int64_t token, int64_t head) const {
  const check::IndexerToken indexer = Token(token, {});
  const int64_t columns = score_.array.shape()[2], limit = case_.Limit(token % case_.s1);
  std::vector<double> want(static_cast<size_t>(columns), -INFINITY), bound(want.size());
  for (int64_t key = 0; key < limit; ++key) {
    double sum = 0, size = 0;
    for (int64_t c = 0; c < case_.index_d; ++c) {
      const double term = check::At(indexer.q, head, c) * check::At(indexer.k, key, c);
      sum += term;
      size += std::fabs(term);
    }
    const auto block = static_cast<size_t>(key / kMsaBlockSize);
    const auto terms = static_cast<double>(case_.index_d + 1);
    want[block] = std::max(want[block], sum);
    bound[block] = std::max(bound[block], terms * (size * 0x1p-24 + static_cast<double>(FLT_MIN)));
  }
  const float* row = score_.array.as<float>().data() + (head * case_.batch * case_.s1 + token) * columns;
  for (size_t block = 0; block < want.size(); ++block) {
    const auto got = static_cast<double>(row[block]);
    if (got == want[block] || std::fabs(got - want[block]) <= bound[block]) continue;
    throw Failure(fmt::format("wrong result, not timed: score[head {}, token {}, block {}] = {}, want {}", head, token,
                              block, got, want[block]));
  }
}

void IndexerData::CheckGradients(int64_t token, const check::IndexerToken& indexer, const check::IndexerRow& row,
                                 const check::ScoreGradient& gradient) const {
  const check::GradientRow weights = check::ComputeWeightGradient(indexer, row, gradient, dweights_.dtype);
  CheckRow({.data = dweights_.array.bytes(),
            .dtype = dweights_.dtype,
            .offset = 0,
            .row_stride = case_.index_heads,
            .columns = case_.index_heads},
           token, {.name = fmt::format("dweights[token {}", token), .value = weights.value, .bound = weights.bound});
  const int64_t head = token % case_.index_heads;
  const check::GradientRow dq = check::ComputeIndexQueryGradient(indexer, row, gradient, head);
  CheckRow({.data = dq_.array.bytes(),
            .dtype = dq_.dtype,
            .offset = token * case_.index_heads * case_.index_d,
            .row_stride = case_.index_d,
            .columns = case_.index_d},
           head, {.name = fmt::format("dq[token {}, head {}", token, head), .value = dq.value, .bound = dq.bound});
}

// Checks the first and the last token, which may select the fewest and the most keys.
void IndexerData::CheckForward() const {
  if (lists_.array.size() == 0) return;
  for (const int64_t token : {int64_t{0}, case_.batch * case_.s1 - 1}) CheckSelection(token);
}

void IndexerData::CheckScores() const {
  if (score_.array.size() == 0) return;
  for (const int64_t token : {int64_t{0}, case_.batch * case_.s1 - 1}) {
    for (const int64_t head : {int64_t{0}, case_.index_heads - 1}) CheckBlocks(token, head);
  }
}

void IndexerData::CheckBackward() const {
  if (lists_.array.size() == 0 || case_.index_heads == 0) return;
  for (const int64_t token : {int64_t{0}, case_.batch * case_.s1 - 1}) {
    const int32_t* list = lists_.array.as<int32_t>().data() + token * case_.k;
    const check::IndexerToken indexer = Token(token, std::vector<int64_t>(list, std::find(list, list + case_.k, -1)));
    check::ScoreGradient gradient;
    for (size_t i = 0; i < indexer.keys.size(); ++i) {
      gradient.value.push_back(
          static_cast<double>(d_values_.array.as<float>()[static_cast<size_t>(token * case_.k) + i]));
    }
    gradient.error.resize(gradient.value.size());
    CheckGradients(token, indexer, check::ComputeIndexerRow(indexer), gradient);
  }
}

void IndexerData::CheckLoss(const SparseAttentionData& attention) const {
  if (case_.batch * case_.s1 == 0 || case_.index_heads == 0) return;
  for (const int64_t token : {int64_t{0}, case_.batch * case_.s1 - 1}) {
    const check::IndexerToken indexer = Token(token, attention.KeysOf(token));
    const check::IndexerRow row = check::ComputeIndexerRow(indexer);
    CheckGradients(token, indexer, row, check::ComputeLossGradient(indexer, row, attention.Target(token)));
  }
}

}  // namespace fa::tool
