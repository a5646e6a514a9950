#include "tools/forward_call.h"

#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "npy/npy_file.h"
#include "support/compare/agrees.h"
#include "support/compare/tolerance.h"

namespace fa::test {
namespace {

using reference::Format;

DType DTypeOf(Format format) {
  return format == Format::kF32 ? DType::kF32 : format == Format::kF16 ? DType::kF16 : DType::kBF16;
}

int64_t Sum(const std::vector<int64_t>& rows) { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }

std::string PrefixSums(const std::vector<int64_t>& rows) {
  std::string text;
  int64_t sum = 0;
  for (const int64_t length : rows) {
    if (!text.empty()) text += ',';
    text += std::to_string(sum += length);
  }
  return text;
}

}  // namespace

ForwardCall::ForwardCall(std::string layout, const reference::Problem& given, Format format)
    : problem(given), layout_(std::move(layout)), format_(format) {
  const auto add = [this](const char* flag, std::vector<double>& values, int64_t heads,
                          const std::vector<int64_t>& rows, int64_t columns) {
    values = RandomRows(heads, rows, columns);
    AddFile(flag, InLayout(values, heads, rows, columns));
  };
  add("--query", problem.q, problem.heads, problem.lengths.sq, problem.d);
  add("--key", problem.k, problem.heads_kv, problem.lengths.sk, problem.d);
  add("--value", problem.v, problem.heads_kv, problem.lengths.sk, problem.dv);
  if (problem.d_rope > 0) {
    add("--query-rope", problem.q_rope, problem.heads, problem.lengths.sq, problem.d_rope);
    add("--key-rope", problem.k_rope, problem.heads_kv, problem.lengths.sk, problem.d_rope);
  }
  problem.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(problem.d + problem.d_rope)));
  flags += " --layout " + layout_ + " --head-num " + std::to_string(problem.heads);
  if (format == Format::kBF16) flags += " --dtype bf16";
  if (layout_ == "TND") {
    flags += " --actual-seq-qlen " + PrefixSums(problem.lengths.sq);
    flags += " --actual-seq-kvlen " + PrefixSums(problem.lengths.sk);
  }
}

std::vector<double> ForwardCall::RandomRows(int64_t heads, const std::vector<int64_t>& rows, int64_t columns) {
  std::mt19937_64 random(seed_++);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<size_t>(heads * Sum(rows) * columns));
  for (double& value : values) value = reference::RoundTo(format_, normal(random));
  return values;
}

int64_t ForwardCall::At(const std::string& layout, int64_t heads, const std::vector<int64_t>& rows, int64_t columns,
                        int64_t b, int64_t n, int64_t i) const {
  const auto batch = static_cast<int64_t>(rows.size());
  const int64_t before = std::accumulate(rows.begin(), rows.begin() + b, int64_t{0});
  if (layout == "BNSD") return ((b * heads + n) * rows[static_cast<size_t>(b)] + i) * columns;
  if (layout == "SBH") return ((i * batch + b) * heads + n) * columns;
  return ((before + i) * heads + n) * columns;  // in BSND, BSH and TND, a row has all heads side by side
}

std::vector<int64_t> ForwardCall::Shape(const std::string& layout, int64_t heads, const std::vector<int64_t>& rows,
                                        int64_t columns) const {
  const auto batch = static_cast<int64_t>(rows.size());
  if (layout == "BNSD") return {batch, heads, rows[0], columns};
  if (layout == "BSND") return {batch, rows[0], heads, columns};
  if (layout == "BSH") return {batch, rows[0], heads * columns};
  if (layout == "SBH") return {rows[0], batch, heads * columns};
  return {Sum(rows), heads, columns};
}

npy::Array ForwardCall::InLayout(const std::vector<double>& canonical, int64_t heads, const std::vector<int64_t>& rows,
                                 int64_t columns) const {
  const std::string layout = layout_ == "BNSD_BSND" ? "BNSD" : layout_;
  const npy::ElementType type = format_ == Format::kF32   ? npy::ElementType::kF32
                                : format_ == Format::kF16 ? npy::ElementType::kF16
                                                          : npy::ElementType::kU16;
  npy::Array array(type, Shape(layout, heads, rows, columns));
  size_t from = 0;
  for (int64_t b = 0; b < static_cast<int64_t>(rows.size()); ++b) {
    for (int64_t n = 0; n < heads; ++n) {
      for (int64_t i = 0; i < rows[static_cast<size_t>(b)]; ++i) {
        for (int64_t d = 0; d < columns; ++d, ++from) {
          const auto to = static_cast<size_t>(At(layout, heads, rows, columns, b, n, i) + d);
          if (format_ == Format::kF32) {
            array.as<float>()[to] = static_cast<float>(canonical[from]);
          } else {
            array.as<uint16_t>()[to] = reference::Encode16(format_, canonical[from]);
          }
        }
      }
    }
  }
  return array;
}

void ForwardCall::AddFile(const std::string& flag, const npy::Array& array) {
  const std::string path = scratch_.Path("input" + std::to_string(files_++) + ".npy");
  npy::Save(path, array);
  flags += " " + flag + " " + path;
}

CliResult ForwardCall::Run() {
  return RunCli("run forward" + flags + " --out " + scratch_.Path("out.npy") + " --softmax-max " +
                scratch_.Path("max.npy") + " --softmax-sum " + scratch_.Path("sum.npy") + " --lse " +
                scratch_.Path("lse.npy"));
}

::testing::AssertionResult ForwardCall::Matches() {
  const CliResult result = Run();
  if (result.exit_code != 0) {
    return ::testing::AssertionFailure() << "exit code " << result.exit_code << ": " << result.err;
  }
  const Outputs outputs = {.out = npy::Load(scratch_.Path("out.npy")),
                           .max = npy::Load(scratch_.Path("max.npy")),
                           .sum = npy::Load(scratch_.Path("sum.npy")),
                           .lse = npy::Load(scratch_.Path("lse.npy"))};
  const ::testing::AssertionResult shapes = ShapesMatch(outputs);
  return shapes ? ValuesMatch(outputs) : shapes;
}

::testing::AssertionResult ForwardCall::ShapesMatch(const Outputs& outputs) const {
  const std::vector<int64_t>& rows = problem.lengths.sq;
  if (outputs.out.shape() != Shape(OutLayout(), problem.heads, rows, problem.dv)) {
    return ::testing::AssertionFailure() << "out has shape " << npy::ShapeText(outputs.out.shape());
  }
  std::vector<int64_t> stats_shape = {problem.batch(), problem.heads, rows[0]};
  if (layout_ == "TND") stats_shape = {Sum(rows), problem.heads};
  for (const npy::Array* stats : {&outputs.max, &outputs.sum, &outputs.lse}) {
    if (stats->shape() != stats_shape || stats->type() != npy::ElementType::kF32) {
      return ::testing::AssertionFailure() << "statistics have shape " << npy::ShapeText(stats->shape());
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult ForwardCall::ValuesMatch(const Outputs& outputs) const {
  const reference::ForwardResult want = reference::Forward(problem);
  const ForwardTolerance tolerance(problem, want, DTypeOf(format_));
  std::string wrong;
  const auto compare = [&wrong](const char* what, int64_t row, double got, double expected, double allowed) {
    if (Agrees(got, expected, got == expected ? 0 : allowed)) return;
    wrong = std::string(what) + " of row " + std::to_string(row) + ": " + std::to_string(got) + ", want " +
            std::to_string(expected);
  };
  const std::vector<int64_t>& rows = problem.lengths.sq;
  const std::string stats_layout = layout_ == "TND" ? "TND" : "BNSD";
  int64_t row = 0;
  for (int64_t b = 0; b < problem.batch(); ++b) {
    for (int64_t n = 0; n < problem.heads; ++n) {
      for (int64_t i = 0; i < rows[static_cast<size_t>(b)]; ++i, ++row) {
        const int64_t at = At(OutLayout(), problem.heads, rows, problem.dv, b, n, i);
        for (int64_t d = 0; d < problem.dv; ++d) {
          const int64_t element = row * problem.dv + d;
          compare("out", row, Value(outputs.out, at + d), want.out[static_cast<size_t>(element)],
                  tolerance.Out(row, element));
        }
        const auto index = static_cast<size_t>(row);
        const auto stats = static_cast<size_t>(At(stats_layout, problem.heads, rows, 1, b, n, i));
        compare("max", row, outputs.max.as<float>()[stats], want.max[index], tolerance.Max(row));
        compare("sum", row, outputs.sum.as<float>()[stats], want.sum[index], tolerance.Sum(row));
        compare("lse", row, outputs.lse.as<float>()[stats], want.lse[index], tolerance.Lse(row));
      }
    }
  }
  if (!wrong.empty()) return ::testing::AssertionFailure() << wrong;
  return ::testing::AssertionSuccess();
}

double ForwardCall::Value(const npy::Array& array, int64_t at) const {
  const auto index = static_cast<size_t>(at);
  return format_ == Format::kF32 ? array.as<float>()[index] : reference::Decode16(format_, array.as<uint16_t>()[index]);
}

reference::Problem SmallProblem() {
  return {.heads = 4, .heads_kv = 2, .d = 24, .dv = 16, .lengths = {.sq = {19, 19}, .sk = {33, 33}}};
}

std::vector<float> RandomFloats(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace fa::test
