#include "cases/forward_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cases/case_tensors.h"
#include "cases/some_rows.h"
#include "check/kept_rule.h"
#include "flags/layout_shapes.h"

namespace fa::tool {
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

double ForwardData::key_value_bytes() const {
  return static_cast<double>(k_.array.size_bytes() + v_.array.size_bytes());
}

bool KeepsPair(const ForwardCase& forward, int64_t batch, int64_t head, int64_t row, int64_t key) {
  // All sequences are equally long. So if one is empty, all are empty.
  const check::SequenceFacts sequence = {.index = batch,
                                         .sq = forward.sq,
                                         .sk = forward.sk,
                                         .first_non_empty = batch == 0,
                                         .last_non_empty = batch == forward.batch - 1};
  if (!check::Keeps(forward.options.mask, sequence, row, key)) return false;
  if (const PairMask* blocks = forward.args.pair_mask; blocks != nullptr) {
    const Dims shape = blocks->shape();
    return blocks->keeps(shape[0] > 1 ? batch : 0, head / (forward.heads / shape[1]), row, key);
  }
  const Tensor* mask = forward.dense_mask();
  if (mask == nullptr) return true;
  const std::vector<int64_t>& shape = mask->array.shape();
  int64_t matrix = 0;
  if (shape.size() == 4) matrix = (shape[0] > 1 ? batch : 0) * shape[1] + (shape[1] > 1 ? head : 0);
  const int64_t rows = shape[shape.size() - 2], keys = shape.back();
  return mask->array.bytes()[(matrix * rows + row) * keys + key] == std::byte{0};
}

bool ForwardData::Keeps(int64_t batch, int64_t head, int64_t row, int64_t key) const {
  return KeepsPair(case_, batch, head, row, key);
}

check::HeadRows ForwardData::QueryRows(int64_t batch, int64_t head) const {
  return RowsOf(q_, case_.options.layout, case_.QuerySizes(), batch, head);
}

check::HeadRows ForwardData::KeyRows(int64_t batch, int64_t head) const {
  return RowsOf(k_, case_.options.layout, case_.KeySizes(), batch, head / (case_.heads / case_.heads_kv));
}

check::HeadRows ForwardData::ValueRows(int64_t batch, int64_t head) const {
  return RowsOf(v_, case_.options.layout, case_.ValueSizes(), batch, head / (case_.heads / case_.heads_kv));
}

check::HeadRows ForwardData::OutRows(int64_t batch, int64_t head) const {
  return RowsOf(out_, OutputLayout(case_.options.layout), case_.OutSizes(), batch, head);
}

double ForwardData::CheckOutRow(int64_t batch, int64_t head, int64_t row) const {
  const check::ForwardRow want =
      check::ComputeForwardRow({.q = QueryRows(batch, head),
                                .k = KeyRows(batch, head),
                                .v = ValueRows(batch, head),
                                .row = row,
                                .sk = case_.sk,
                                .scale = 1 / std::sqrt(static_cast<double>(case_.d)),
                                .keeps = [&](int64_t key) { return Keeps(batch, head, row, key); }});
  return CheckRow(
      OutRows(batch, head), row,
      {.name = fmt::format("out[batch {}, head {}, row {}", batch, head, row), .value = want.out, .bound = want.bound});
}

std::vector<SequenceShards::Interval> AllRows(const ForwardCase& forward, int64_t length) {
  return {{0, (forward.options.layout == Layout::kTND ? forward.batch : 1) * length}};
}

double ForwardData::CheckRows() const { return CheckRows(AllRows(case_, case_.sq)); }

double ForwardData::CheckRows(const std::vector<SequenceShards::Interval>& rows) const {
  if (out_.array.size() == 0) return 0;
  constexpr int kRandomRows = 6;
  return CheckSomeRows({.intervals = rows,
                        .batch = case_.batch,
                        .heads = case_.heads,
                        .length = case_.sq,
                        .packed = case_.options.layout == Layout::kTND},
                       kRandomRows,
                       [&](int64_t batch, int64_t head, int64_t row) { return CheckOutRow(batch, head, row); });
}

}  // namespace fa::tool
