#include "forward_data.h"

#include <fmt/format.h>

#include <cmath>
#include <random>
#include <utility>

#include "check/element.h"
#include "check/forward_row.h"
#include "check/kept_rule.h"
#include "failure.h"
#include "layout_shapes.h"

namespace fa::tool {
namespace {

Tensor NewLike(const TensorView& view) { return NewTensor(view.dtype, {view.shape.begin(), view.shape.end()}); }

/// The sum of four uniform 16-bit numbers, scaled: near normal, variance 1, one random word an element.
void FillRandom(Tensor& tensor, uint64_t seed) {
  std::mt19937_64 random(seed);
  const double deviation = 65536 * std::sqrt(4.0 / 12.0);
  for (int64_t i = 0; i < tensor.array.size(); ++i) {
    const uint64_t word = random();
    const auto sum = static_cast<double>((word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48));
    check::StoreElement(tensor.array.bytes(), tensor.dtype, i, static_cast<float>((sum - 2 * 65535.0) / deviation));
  }
}

check::HeadRows RowsOf(const Tensor& tensor, Layout layout, const TensorSizes& sizes, int64_t batch, int64_t head) {
  const TensorStrides strides = StridesOf(layout, sizes);
  return {.data = tensor.array.bytes(),
          .dtype = tensor.dtype,
          .offset = batch * strides.batch + head * strides.head,
          .row_stride = strides.seq,
          .columns = sizes.d};
}

}  // namespace

ForwardData::ForwardData(const ForwardCase& forward)
    : case_(forward),
      q_(NewLike(forward.args.q)),
      k_(NewLike(forward.args.k)),
      v_(NewLike(forward.args.v)),
      out_(NewLike(forward.args.out)) {
  FillRandom(q_, 1);
  FillRandom(k_, 2);
  FillRandom(v_, 3);
}

AttentionArgs ForwardData::Args() {
  AttentionArgs args = case_.args;
  args.q.data = q_.array.bytes();
  args.k.data = k_.array.bytes();
  args.v.data = v_.array.bytes();
  args.out.data = out_.array.bytes();
  return args;
}

double ForwardData::bytes() const {
  return static_cast<double>(q_.array.size_bytes() + k_.array.size_bytes() + v_.array.size_bytes() +
                             out_.array.size_bytes());
}

bool ForwardData::Keeps(int64_t batch, int64_t head, int64_t row, int64_t key) const {
  // All sequences are equally long, hence all empty or none.
  const check::SequenceFacts sequence = {.index = batch,
                                         .sq = case_.sq,
                                         .sk = case_.sk,
                                         .first_non_empty = batch == 0,
                                         .last_non_empty = batch == case_.batch - 1};
  if (!check::Keeps(case_.options.mask, sequence, row, key)) return false;
  const Tensor* mask = case_.dense_mask();
  if (mask == nullptr) return true;
  const std::vector<int64_t>& shape = mask->array.shape();
  int64_t matrix = 0;
  if (shape.size() == 4) matrix = (shape[0] > 1 ? batch : 0) * shape[1] + (shape[1] > 1 ? head : 0);
  const int64_t rows = shape[shape.size() - 2], keys = shape.back();
  return mask->array.bytes()[(matrix * rows + row) * keys + key] == std::byte{0};
}

void ForwardData::CheckRow(int64_t batch, int64_t head, int64_t row) const {
  const Layout layout = case_.options.layout;
  const int64_t head_kv = head / (case_.heads / case_.heads_kv);
  const check::ForwardRow want = check::ComputeForwardRow(
      {.q = RowsOf(q_, layout, case_.QuerySizes(), batch, head),
       .k = RowsOf(k_, layout, case_.KeySizes(), batch, head_kv),
       .v = RowsOf(v_, layout, case_.ValueSizes(), batch, head_kv),
       .row = row,
       .sk = case_.sk,
       .scale = 1 / std::sqrt(static_cast<double>(case_.d)),
       .keeps = [&](int64_t key) { return Keeps(batch, head, row, key); }});
  const check::HeadRows out = RowsOf(out_, OutputLayout(layout), case_.OutSizes(), batch, head);
  for (int64_t d = 0; d < case_.dv; ++d) {
    const double got = check::LoadElement(out.data, out.dtype, out.offset + row * out.row_stride + d);
    const auto column = static_cast<size_t>(d);
    if (!(std::fabs(got - want.out[column]) <= want.bound[column])) {
      throw Failure(fmt::format("wrong result, not timed: out[batch {}, head {}, row {}, column {}] = {}, want {} +- {}",
                                batch, head, row, d, got, want.out[column], want.bound[column]));
    }
  }
}

void ForwardData::CheckRows() const {
  if (out_.array.size() == 0) return;
  // First and last row of all, where masks and tails differ most, and some between.
  CheckRow(0, 0, 0);
  CheckRow(case_.batch - 1, case_.heads - 1, case_.sq - 1);
  constexpr int kRandomRows = 6;
  std::mt19937_64 random(4);
  const auto below = [&random](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint64_t>(limit)); };
  for (int i = 0; i < kRandomRows; ++i) {
    const int64_t batch = below(case_.batch), head = below(case_.heads), row = below(case_.sq);
    CheckRow(batch, head, row);
  }
}

}  // namespace fa::tool
