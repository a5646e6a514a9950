#include "gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "check/gradients.h"
#include "npy/npy_file.h"

namespace fa::demo {
namespace {

/// The largest error of one gradient so far. A NaN counts as the largest error.
class Comparison {
 public:
  Comparison(const npy::Array& got, const npy::Array& want) : got_(got), want_(want) {}

  void AddRow(int64_t row, const std::vector<double>& bound) {
    for (size_t column = 0; column < bound.size(); ++column) {
      const size_t at = static_cast<size_t>(row) * bound.size() + column;
      const double want = want_.as<double>()[at];
      const double difference = std::fabs(got_.as<float>()[at] - want);
      const double of_bound = difference / bound[column];
      error_ = WorseOf(error_, difference);
      of_bound_ = WorseOf(of_bound_, of_bound);
      largest_ = std::max(largest_, std::fabs(want));
    }
  }

  [[nodiscard]] double Relative() const { return largest_ > 0 ? error_ / largest_ : error_; }
  [[nodiscard]] double OfBound() const { return of_bound_; }

 private:
  const npy::Array& got_;
  const npy::Array& want_;
  double error_ = 0, of_bound_ = 0, largest_ = 0;
};

check::BackwardHead ReferenceHead(const Layer& layer, const Gradients& gradients, int64_t head) {
  const std::vector<int64_t>& shape = layer.q.shape();
  const check::HeadRows d_out = HeadOf(gradients.d_out, head);
  std::vector<check::RowFacts> facts;
  for (int64_t token = 0; token < shape[2]; ++token) {
    facts.push_back(check::FactsFromForward(ReferenceRow(layer, head, token), d_out, token));
  }
  return {.q = HeadOf(layer.q, head),
          .k = HeadOf(layer.k, head),
          .v = HeadOf(layer.v, head),
          .d_out = d_out,
          .sq = shape[2],
          .sk = shape[2],
          .scale = 1 / std::sqrt(static_cast<double>(shape[3])),
          .keeps = [](int64_t, int64_t) { return true; },
          .facts = [facts](int64_t token) { return facts[static_cast<size_t>(token)]; }};
}

}  // namespace

AttentionGradArgs Gradients::Args(const Layer& layer) {
  AttentionGradArgs args;
  args.q = View(layer.q);
  args.k = View(layer.k);
  args.v = View(layer.v);
  args.out = View(layer.out);
  args.d_out = View(d_out);
  args.softmax_max = View(layer.softmax_max);
  args.softmax_sum = View(layer.softmax_sum);
  args.dq = MutableView(dq);
  args.dk = MutableView(dk);
  args.dv = MutableView(dv);
  return args;
}

std::optional<Gradients> LoadGradients(const std::filesystem::path& folder, int index, const Layer& layer) {
  const auto path = [&](const char* name) { return folder / fmt::format("layer{}_{}.npy", index, name); };
  if (!std::filesystem::exists(path("dout"))) return std::nullopt;
  Gradients gradients;
  gradients.d_out = Load(path("dout"), npy::ElementType::kF32);
  gradients.want_dq = Load(path("dq"), npy::ElementType::kF64);
  gradients.want_dk = Load(path("dk"), npy::ElementType::kF64);
  gradients.want_dv = Load(path("dv"), npy::ElementType::kF64);
  const std::vector<int64_t>& shape = layer.q.shape();
  for (const npy::Array* array : {&gradients.d_out, &gradients.want_dq, &gradients.want_dk, &gradients.want_dv}) {
    if (array->shape() != shape) {
      throw npy::FormatError(fmt::format("{}: dout, dq, dk and dv differ in shape from q", path("dout").string()));
    }
  }
  gradients.dq = npy::Array(npy::ElementType::kF32, shape);
  gradients.dk = npy::Array(npy::ElementType::kF32, shape);
  gradients.dv = npy::Array(npy::ElementType::kF32, shape);
  return gradients;
}

GradientErrors CompareWithFloat64(const Layer& layer, const Gradients& gradients) {
  const std::vector<int64_t>& shape = layer.q.shape();
  const int64_t heads = shape[0] * shape[1], tokens = shape[2];
  Comparison dq(gradients.dq, gradients.want_dq), dk(gradients.dk, gradients.want_dk);
  Comparison dv(gradients.dv, gradients.want_dv);
  for (int64_t head = 0; head < heads; ++head) {
    const check::BackwardHead reference = ReferenceHead(layer, gradients, head);
    for (int64_t token = 0; token < tokens; ++token) {
      const int64_t row = head * tokens + token;
      dq.AddRow(row, check::ComputeQueryGradient(reference, token).bound);
      const check::KeyGradients key = check::ComputeKeyGradients(std::span(&reference, 1), token);
      dk.AddRow(row, key.dk.bound);
      dv.AddRow(row, key.dv.bound);
    }
  }
  return {.dq = dq.Relative(),
          .dk = dk.Relative(),
          .dv = dv.Relative(),
          .of_bound = WorseOf(WorseOf(dq.OfBound(), dk.OfBound()), dv.OfBound())};
}

}  // namespace fa::demo
