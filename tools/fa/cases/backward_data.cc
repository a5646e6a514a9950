#include "cases/backward_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cases/case_tensors.h"
#include "cases/some_rows.h"
#include "flags/failure.h"
#include "flags/layout_shapes.h"

namespace fa::tool {

BackwardData::BackwardData(const ForwardCase& forward, Context& context)
    : case_(forward),
      forward_(forward),
      d_out_(NewLike(forward.args.out)),
      max_(NewLike(forward.GradArgs().softmax_max)),
      sum_(NewLike(forward.GradArgs().softmax_sum)),
      dq_(NewLike(forward.args.q)),
      dk_(NewLike(forward.args.k)),
      dv_(NewLike(forward.args.v)) {
  FillRandom(d_out_, 4);
  AttentionArgs args = forward_.Args();
  args.softmax_max = max_.MutableView();
  args.softmax_sum = sum_.MutableView();
  ThrowUnlessOkFromShape(FlashAttention(args, case_.options, &context));
}

AttentionGradArgs BackwardData::Args() {
  const AttentionArgs forward = forward_.Args();
  AttentionGradArgs args = case_.GradArgs();
  args.q = forward.q;
  args.k = forward.k;
  args.v = forward.v;
  args.out.data = forward.out.data;
  args.d_out.data = d_out_.array.bytes();
  args.softmax_max.data = max_.array.bytes();
  args.softmax_sum.data = sum_.array.bytes();
  args.dq.data = dq_.array.bytes();
  args.dk.data = dk_.array.bytes();
  args.dv.data = dv_.array.bytes();
  return args;
}

double BackwardData::bytes() const {
  double bytes = forward_.bytes();
  for (const Tensor* tensor : {&d_out_, &max_, &sum_, &dq_, &dk_, &dv_}) {
    bytes += static_cast<double>(tensor->array.size_bytes());
  }
  return bytes;
}

check::BackwardHead BackwardData::Head(int64_t batch, int64_t head) const {
  const Layout layout = case_.options.layout;
  const check::HeadRows out = forward_.OutRows(batch, head);
  const check::HeadRows d_out = RowsOf(d_out_, OutputLayout(layout), case_.OutSizes(), batch, head);
  // Statistics have the order [B,N,Sq]. In TND the heads are innermost.
  const Layout stats_layout = layout == Layout::kTND ? Layout::kTND : Layout::kBNSD;
  const TensorStrides stats = StridesOf(stats_layout, {case_.batch, case_.sq, case_.heads, 1});
  const int64_t first = batch * stats.batch + head * stats.head;
  const float* max = max_.array.as<float>().data();
  const float* sum = sum_.array.as<float>().data();
  return {.q = forward_.QueryRows(batch, head),
          .k = forward_.KeyRows(batch, head),
          .v = forward_.ValueRows(batch, head),
          .d_out = d_out,
          .sq = case_.sq,
          .sk = case_.sk,
          .scale = 1 / std::sqrt(static_cast<double>(case_.d)),
          .keeps = [this, batch, head](int64_t row, int64_t key) { return forward_.Keeps(batch, head, row, key); },
          .facts =
              [=](int64_t row) {
                const int64_t at = first + row * stats.seq;
                return check::FactsFromInputs(out, d_out, row, max[at], sum[at]);
              }};
}

double BackwardData::CheckQueryRow(int64_t batch, int64_t head, int64_t row) const {
  const check::GradientRow dq = check::ComputeQueryGradient(Head(batch, head), row);
  return CheckRow(
      RowsOf(dq_, case_.options.layout, case_.QuerySizes(), batch, head), row,
      {.name = fmt::format("dq[batch {}, head {}, row {}", batch, head, row), .value = dq.value, .bound = dq.bound});
}

double BackwardData::CheckKeyRow(int64_t batch, int64_t head_kv, int64_t key) const {
  const Layout layout = case_.options.layout;
  const int64_t group_size = case_.heads / case_.heads_kv;
  std::vector<check::BackwardHead> group;
  for (int64_t g = 0; g < group_size; ++g) group.push_back(Head(batch, head_kv * group_size + g));
  const check::KeyGradients want = check::ComputeKeyGradients(group, key);
  const std::string place = fmt::format("[batch {}, kv head {}, key {}", batch, head_kv, key);
  const double dk = CheckRow(RowsOf(dk_, layout, case_.KeySizes(), batch, head_kv), key,
                             {.name = "dk" + place, .value = want.dk.value, .bound = want.dk.bound});
  const double dv = CheckRow(RowsOf(dv_, layout, case_.ValueSizes(), batch, head_kv), key,
                             {.name = "dv" + place, .value = want.dv.value, .bound = want.dv.bound});
  return std::max(dk, dv);
}

double BackwardData::CheckRows() const { return CheckRows(AllRows(case_, case_.sq), AllRows(case_, case_.sk)); }

double BackwardData::CheckRows(const std::vector<SequenceShards::Interval>& queries,
                               const std::vector<SequenceShards::Interval>& keys) const {
  constexpr int kRandomRows = 4;
  double worst = 0;
  const bool packed = case_.options.layout == Layout::kTND;
  if (dq_.array.size() > 0) {
    worst = CheckSomeRows(
        {.intervals = queries, .batch = case_.batch, .heads = case_.heads, .length = case_.sq, .packed = packed},
        kRandomRows, [&](int64_t batch, int64_t head, int64_t row) { return CheckQueryRow(batch, head, row); });
  }
  if (dk_.array.size() > 0) {
    const double of_keys = CheckSomeRows(
        {.intervals = keys, .batch = case_.batch, .heads = case_.heads_kv, .length = case_.sk, .packed = packed},
        kRandomRows, [&](int64_t batch, int64_t head_kv, int64_t key) { return CheckKeyRow(batch, head_kv, key); });
    worst = std::max(worst, of_keys);
  }
  return worst;
}

}  // namespace fa::tool
