// fa bench prompt: int8 as a fraction of the peak of int8 dot products, floats as `fa bench forward` does it.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "bench/bench_report.h"
#include "cases/case_tensors.h"
#include "cases/forward_data.h"
#include "cases/prompt_case.h"
#include "commands.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

/// Memory for an int8 case: random bytes, the same in every run.
class Int8Data {
 public:
  explicit Int8Data(const ForwardCase& c)
      : case_(c), q_(NewLike(c.args.q)), k_(NewLike(c.args.k)), v_(NewLike(c.args.v)) {
    args_ = PromptArgsOf(c);
    out_ = NewLike(args_.out);
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

  [[nodiscard]] const PromptAttentionArgs& args() const { return args_; }
  [[nodiscard]] double bytes() const {
    return static_cast<double>(q_.array.size_bytes() + k_.array.size_bytes() + v_.array.size_bytes() +
                               out_.array.size_bytes());
  }

  /// Compares the first row, the last row and some between with plain loops in double. Throws Failure.
  void CheckRows() const {
    if (out_.array.size() == 0) return;
    for (int64_t i = 0; i < 8; ++i) {
      CheckRow(i * (case_.batch - 1) / 7, i * (case_.heads - 1) / 7, i * (case_.sq - 1) / 7);
    }
  }

 private:
  void CheckRow(int64_t batch, int64_t head, int64_t row) const {
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
    double steps = 0;  // by how many integers of P8 the row may differ: one where a product is next to a half
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
    tool::CheckRow(
        RowsOf(out_, OutputLayout(layout), case_.OutSizes(), batch, head), row,
        {.name = fmt::format("out[batch {}, head {}, row {}", batch, head, row), .value = want, .bound = bound});
  }

  const ForwardCase& case_;
  PromptAttentionArgs args_;
  Tensor q_, k_, v_, out_;
};

void Run(const BenchFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.measure.context);
  const ForwardCase prompt(flags.forward);
  auto plan = PlanPromptFlashAttention(PromptArgsOf(prompt), PromptOptionsOf(prompt), context.get());
  ThrowUnlessOkFromShape(plan.status());
  Workspace workspace;
  const auto measure = [&](const PromptAttentionArgs& args, double bytes, const std::function<void()>& check) {
    MeasureAndReport({.op = "prompt",
                      .flags = flags.measure,
                      .subject = SubjectOf(prompt),
                      .context = *context,
                      .info = plan->info(),
                      .bytes = bytes,
                      .dtype = flags.forward.dtype,
                      .call = [&] { ThrowUnlessOk(plan->Run(args, workspace)); },
                      .check = check});
  };
  if (prompt.dtype == DType::kI8) {
    const Int8Data data(prompt);
    measure(data.args(), data.bytes(), [&] { data.CheckRows(); });
    return;
  }
  ForwardData data(prompt);
  const AttentionArgs forward = data.Args();
  PromptAttentionArgs args = PromptArgsOf(prompt);
  args.q = forward.q;
  args.k = forward.k;
  args.v = forward.v;
  args.out = forward.out;
  measure(args, data.bytes(), [&] { data.CheckRows(); });
}

}  // namespace

void AddBenchPrompt(CLI::App& bench) {
  AddBench(bench, "prompt", "Time prompt attention, int8 too; the result is checked first", Run, /*takes_int8=*/true);
}

}  // namespace fa::tool
