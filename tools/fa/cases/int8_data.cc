#include "cases/int8_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "cases/case_tensors.h"
#include "cases/forward_data.h"
#include "cases/prompt_case.h"
#include "flags/layout_shapes.h"

namespace fa::tool {

Int8Data::Int8Data(const ForwardCase& prompt)
    : case_(prompt),
      args_(PromptArgsOf(prompt)),
      q_(NewLike(prompt.args.q)),
      k_(NewLike(prompt.args.k)),
      v_(NewLike(prompt.args.v)),
      out_(NewLike(args_.out)) {
  uint64_t seed = 0;
  for (Tensor* tensor : {&q_, &k_, &v_}) {
    std::mt19937_64 random(++seed);
    for (std::byte& byte : tensor->array.as<std::byte>()) byte = static_cast<std::byte>(random());
  }
  args_.q.data = q_.array.bytes();
  args_.k.data = k_.array.bytes();
  args_.v.data = v_.array.bytes();
  args_.out.data = out_.array.bytes();
}

double Int8Data::bytes() const {
  return static_cast<double>(q_.array.size_bytes() + k_.array.size_bytes() + v_.array.size_bytes() +
                             out_.array.size_bytes());
}

double Int8Data::CheckRows() const {
  double worst = 0;
  if (out_.array.size() == 0) return worst;
  for (int64_t i = 0; i < 8; ++i) {
    worst = std::max(worst, CheckOutRow(i * (case_.batch - 1) / 7, i * (case_.heads - 1) / 7, i * (case_.sq - 1) / 7));
  }
  return worst;
}

double Int8Data::CheckOutRow(int64_t batch, int64_t head, int64_t row) const {
  const int64_t head_kv = head / (case_.heads / case_.heads_kv);
  const Layout layout = case_.options.layout;
  const check::HeadRows q = RowsOf(q_, layout, case_.QuerySizes(), batch, head);
  const check::HeadRows k = RowsOf(k_, layout, case_.KeySizes(), batch, head_kv);
  const check::HeadRows v = RowsOf(v_, layout, case_.ValueSizes(), batch, head_kv);
  const auto at = [](const check::HeadRows& rows, int64_t r, int64_t c) {
    return static_cast<const int8_t*>(rows.data)[rows.offset + r * rows.row_stride + c];
  };
  const auto value = [](const TensorView& scale) {
    return static_cast<double>(*static_cast<const float*>(scale.data));
  };
  const double scale = value(args_.deq_scale1) / std::sqrt(static_cast<double>(case_.d));
  std::vector<double> score(static_cast<size_t>(case_.sk), -INFINITY), want(static_cast<size_t>(case_.dv), 0);
  for (int64_t j = 0; j < case_.sk; ++j) {
    if (!KeepsPair(case_, batch, head, row, j)) continue;
    int64_t sum = 0;
    for (int64_t c = 0; c < case_.d; ++c) sum += int64_t{at(q, row, c)} * at(k, j, c);
    score[static_cast<size_t>(j)] = static_cast<double>(sum) * scale;
  }
  const double max = *std::max_element(score.begin(), score.end());
  double sum = 0;
  for (const double s : score) sum += max == -INFINITY ? 0 : std::exp(s - max);
  // The number of 8-bit probabilities that may be off by 1, because their value before rounding is nearly
  // midway between two integers.
  double steps = 0;
  for (int64_t j = 0; j < case_.sk && sum > 0; ++j) {
    const double scaled = std::exp(score[static_cast<size_t>(j)] - max) * value(args_.quant_scale1);
    const double p8 = std::nearbyint(scaled);
    steps += std::fabs(std::fabs(scaled - p8) - 0.5) < 1e-3 ? 1 : 0;
    for (int64_t c = 0; c < case_.dv; ++c)
      want[static_cast<size_t>(c)] += p8 * at(v, j, c) * value(args_.deq_scale2) / sum;
  }
  std::vector<double> bound(want.size());
  for (size_t c = 0; c < want.size(); ++c) {
    bound[c] = steps * 128 * value(args_.deq_scale2) / std::max(sum, 1.0) + std::fabs(want[c]) * 0x1p-10 + 0x1p-24;
  }
  return CheckRow(
      RowsOf(out_, OutputLayout(layout), case_.OutSizes(), batch, head), row,
      {.name = fmt::format("out[batch {}, head {}, row {}", batch, head, row), .value = want, .bound = bound});
}

}  // namespace fa::tool
