#include "cases/forward_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "cases/case_tensors.h"
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
  // All sequences are equally long, hence all empty or none.
  const check::SequenceFacts sequence = {.index = batch,
                                         .sq = forward.sq,
                                         .sk = forward.sk,
                                         .first_non_empty = batch == 0,
                                         .last_non_empty = batch == forward.batch - 1};
  if (!check::Keeps(forward.options.mask, sequence, row, key)) return false;
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

double ForwardData::CheckRows() const {
  const int64_t sequences = case_.options.layout == Layout::kTND ? case_.batch : 1;
  return CheckRows({{0, sequences * case_.sq}});
}

double ForwardData::CheckRows(const std::vector<SequenceShards::Interval>& rows) const {
  int64_t count = 0;
  for (const auto& [begin, end] : rows) count += end - begin;
  double worst = 0;
  if (out_.array.size() == 0 || count == 0) return worst;
  const bool packed = case_.options.layout == Layout::kTND;
  const auto check = [&](int64_t batch, int64_t head, int64_t at) {
    size_t interval = 0;
    for (; at >= rows[interval].end - rows[interval].begin; ++interval) at -= rows[interval].end - rows[interval].begin;
    const int64_t row = rows[interval].begin + at;
    worst = std::max(worst, CheckOutRow(packed ? row / case_.sq : batch, head, packed ? row % case_.sq : row));
  };
  // The first and the last row, where masks and tails differ most, and some between.
  check(0, 0, 0);
  check(case_.batch - 1, case_.heads - 1, count - 1);
  constexpr int kRandomRows = 6;
  std::mt19937_64 random(4);
  const auto below = [&random](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint64_t>(limit)); };
  for (int i = 0; i < kRandomRows; ++i) {
    const int64_t batch = below(case_.batch), head = below(case_.heads), row = below(count);
    check(batch, head, row);
  }
  return worst;
}

}  // namespace fa::tool
