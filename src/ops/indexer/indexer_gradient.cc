#include "ops/indexer/indexer_gradient.h"

#include <algorithm>

#include "core/integer.h"
#include "ops/tile/strip.h"

namespace fa::ops {
namespace {

using core::kernels::RowBlock;
using core::kernels::StripKernels;

}  // namespace

Result<IndexerGradRows> BindIndexerGradients(const IndexerGradients& gradients, const SparseTensors& tensors,
                                             const IndexerShape& shape) {
  const WantedSize heads{shape.heads, {"heads of the query"}}, d{shape.d, {"head size of the query"}};
  Status status = tensors.CheckQueryOutput(gradients.dq_name, gradients.dq, shape.dtype, {heads, d});
  if (!status.ok()) return status;
  status = tensors.CheckKeyOutput(gradients.dk_name, gradients.dk, shape.dtype, {{1, {"one key head"}}, d});
  if (!status.ok()) return status;
  FA_RETURN_IF_ERROR(tensors.CheckQueryOutput("dweights", gradients.dweights, shape.weights.dtype, {heads}));
  return IndexerGradRows{SparseRowsOf(gradients.dq, tensors.packed()), SparseRowsOf(gradients.dk, tensors.packed()),
                         SparseValuesOf(gradients.dweights, tensors.packed())};
}

void ClearUnusedGradients(const IndexerShape& shape, const IndexerGradViews& gradients) {
  shape.sequences.ForUnusedQueries([&](int64_t batch, tiling::Interval unused) {
    for (int64_t row = unused.begin; row < unused.end; ++row) {
      for (int64_t head = 0; head < shape.heads; ++head) gradients.dq.Clear(batch, head, row, shape.d);
      gradients.dweights.Clear(batch, 0, row, shape.heads);
    }
  });
  shape.sequences.ForUnusedKeys([&](int64_t batch, tiling::Interval unused) {
    for (int64_t row = unused.begin; row < unused.end; ++row) gradients.dk.Clear(batch, 0, row, shape.d);
  });
}

IndexerGradient::IndexerGradient(const IndexerShape& shape, const core::kernels::KernelTable& table)
    : shape_(shape),
      table_(table),
      kernels_(core::kernels::IndexerKernelsFor(table.isa)),
      strips_(table, shape.heads) {}

IndexerGradient::Token::Token(Carver& carver, const IndexerGradient& gradient, int64_t block) {
  const HeadStrips& strips = gradient.strips_;
  const auto& shape = gradient.shape_;
  panel = carver.Floats(strips.PanelFloats(shape.d));
  q_rows = carver.Floats(shape.heads, gradient.table_.rows->PanelColumns(shape.d));
  weights = carver.Floats(strips.lanes());
  d_weights = carver.Floats(strips.lanes());
  dq = carver.Floats(strips.lanes(), shape.d);
  pairs = carver.Floats(gradient.table_.pairs() ? core::CeilDiv(block, 2) * strips.width() : 0);
}

GatherShape IndexerGradient::Gather(int64_t block) const {
  const KeyForm form = KeyFormOf(strips_.kernels(), shape_.dtype);
  return {.dtype = shape_.dtype,
          .form = form,
          .d = shape_.d,
          .shared_v = true,
          .pair_k = form == KeyForm::kPairs,
          .block = block};
}

void IndexerGradient::Begin(const SparseToken& at, const IndexerRows& rows, const Token& token) const {
  const RowBlock q = shape_.Heads(rows.q, at);
  strips_.Pack(q, shape_.d, token.panel);
  table_.rows->pack_rows(q, shape_.heads, shape_.d, token.q_rows);
  std::fill_n(token.weights, strips_.lanes(), 0.0F);
  shape_.ReadWeights(*table_.rows, rows.weights, at, token.weights);
  std::fill_n(token.d_weights, strips_.lanes(), 0.0F);
  std::fill_n(token.dq, strips_.lanes() * shape_.d, 0.0F);
}

void IndexerGradient::Products(const RowBlock& rows, int64_t keys, const Token& token, float* s) const {
  strips_.Scores(rows, keys, token.panel, shape_.d, false, s);
}

void IndexerGradient::Scores(const float* s, int64_t keys, const Token& token, float* scores) const {
  strips_.SumHeads(kernels_, s, keys, token.weights, /*relu=*/true, scores);
}

void IndexerGradient::AddQuerySide(const RowBlock& rows, int64_t keys, const float* d_scores, float* s,
                                   const Token& token) const {
  const StripKernels& kernels = strips_.kernels();
  const int64_t width = kernels.width;
  for (int64_t strip = 0; strip < strips_.strips(); ++strip, s += keys * width) {
    const int64_t first = strips_.First(strip);
    kernels_.relu_gradient(s, keys, width, token.weights + first, d_scores, token.d_weights + first);
    const float* e = s;
    if (table_.pairs()) {
      kernels.pairs.pair_keys(s, keys, token.pairs);
      e = token.pairs;
    }
    kernels.product(rows, keys, e, shape_.d, kUnitAlpha.data(), token.dq + first * shape_.d);
    if (table_.pairs()) kernels.pairs.pair_lanes(s, keys, s);
  }
}

void IndexerGradient::AddKeySide(const float* e, int64_t keys, int64_t begin, int64_t end, float* const* dk,
                                 const Token& token) const {
  const StripKernels& kernels = strips_.kernels();
  table_.rows->outer({.a = e + begin * kernels.OuterWidth(),
                      .strip_stride = keys * kernels.width,
                      .width = kernels.width,
                      .rows = shape_.heads,
                      .b = token.q_rows,
                      .b_rows = shape_.heads,
                      .keys = end - begin,
                      .columns = shape_.d,
                      .accumulate = true,
                      .c_rows = dk});
}

void IndexerGradient::AddSelected(const SelectedBlock& block, const Token& token, const KeySumTasks::Run& sums,
                                  int64_t sequence, OrderedCommit::Turn& turn) const {
  const int32_t* keys = block.selected.keys + block.first;
  const int64_t count = block.count;
  AddQuerySide(block.rows, count, block.d_scores, block.s, token);
  for (int64_t i = 0; i < count; ++i) block.targets[i] = sums.Row(sequence, keys[i]);
  turn.WaitFor(keys[count - 1] + 1);
  for (int64_t begin = 0, end = 0; begin < count; begin = end) {
    // The selection may have a key twice. A run of different keys ends before the second copy.
    end = begin + 1;
    while (end < count && keys[end] != keys[end - 1]) ++end;
    AddKeySide(block.s, count, begin, end, block.targets + begin, token);
  }
  // The last key may also be the first of the next block, so only the keys below it are finished.
  if (block.first + count < block.selected.count) turn.Publish(keys[count]);
}

void IndexerGradient::Finish(const SparseToken& at, const IndexerGradViews& gradients, float multiplier,
                             const Token& token) const {
  LaneArray<float> multipliers;
  std::fill_n(multipliers.data(), kMaxStripWidth, multiplier);
  const LaneArray<int32_t> none_is_zero = {};
  const int64_t row = shape_.sequences.Row(at);
  for (int64_t strip = 0; strip < strips_.strips(); ++strip) {
    const int64_t first = strips_.First(strip), count = strips_.Count(strip);
    LaneArray<void*> lanes;
    for (int64_t lane = 0; lane < count; ++lane) lanes[lane] = gradients.dq.At(at.sequence, first + lane, row);
    strips_.kernels().write_output(token.dq + first * shape_.d, shape_.d, multipliers, none_is_zero, lanes,
                                   shape_.dtype, count);
  }
  const layout::MutableRowsView& weights = gradients.dweights;
  table_.rows->narrow(token.d_weights, shape_.heads, 1, shape_.heads, multiplier,
                      {weights.At(at.sequence, 0, row), weights.rows.dtype, shape_.heads});
}

}  // namespace fa::ops
