#include "tools/backward_call.h"

#include <cmath>
#include <random>
#include <utility>

#include "npy/npy_file.h"
#include "support/cases/backward_case.h"
#include "support/compare/agrees.h"
#include "support/compare/gradient_tolerance.h"

namespace fa::test {
namespace {

using npy::ElementType;
using reference::Format;

npy::Array FloatsLike(std::vector<int64_t> shape, const std::vector<double>& values) {
  npy::Array array(ElementType::kF32, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) array.as<float>()[i] = static_cast<float>(values[i]);
  return array;
}

}  // namespace

BackwardCall::BackwardCall(std::string layout, const reference::Problem& problem, Format format)
    : forward(layout, problem, format), layout_(std::move(layout)), format_(format) {
  const reference::Problem& p = forward.problem;
  std::mt19937_64 random(99);
  std::normal_distribution<double> normal;
  d_out_.resize(p.q.size() / static_cast<size_t>(p.d) * static_cast<size_t>(p.dv));
  for (double& value : d_out_) value = reference::RoundTo(format, normal(random));
  // The layout BNSD_BSND has outputs of layout BSND.
  const ForwardCall bsnd("BSND", layout_ == "BNSD_BSND" ? problem : reference::Problem{.lengths = {{1}, {1}}}, format);
  const ForwardCall& owner = layout_ == "BNSD_BSND" ? bsnd : forward;
  npy::Save(PathOf("--dout"), owner.InLayout(d_out_, p.heads, p.lengths.sq, p.dv));
  for (const char* flag : {"--dq", "--dk", "--dv"}) Want(flag);
  if (p.d_rope > 0) {
    for (const char* flag : {"--dq-rope", "--dk-rope"}) Want(flag);
  }
}

std::string BackwardCall::PathOf(const std::string& flag) const { return forward.scratch().Path(flag + ".npy"); }

void BackwardCall::Want(const std::string& flag) { outputs += " " + flag + " " + PathOf(flag); }

std::string BackwardCall::InputWords() const {
  const ScratchFolder& scratch = forward.scratch();
  return "run backward" + forward.flags + " --dout " + PathOf("--dout") + " --out " + scratch.Path("out.npy") +
         " --softmax-max " + scratch.Path("max.npy") + " --softmax-sum " + scratch.Path("sum.npy");
}

CliResult BackwardCall::RunBackward(const std::string& more) const { return RunCli(InputWords() + outputs + more); }

::testing::AssertionResult BackwardCall::Matches() {
  for (const CliResult& result : {RunForward(), RunBackward()}) {
    if (result.exit_code != 0) {
      return ::testing::AssertionFailure() << "exit code " << result.exit_code << ": " << result.err;
    }
  }
  return AllMatch(Compute());
}

BackwardCall::References BackwardCall::Compute() const {
  const reference::Problem& p = forward.problem;
  return {.exact = reference::Backward(p, reference::Forward(p), d_out_),
          .naive = reference::NaiveBackward(p, reference::NaiveForward(p, format_), d_out_, format_)};
}

::testing::AssertionResult BackwardCall::AllMatch(const References& want) const {
  const reference::Problem& p = forward.problem;
  const std::vector<int64_t>&sq = p.lengths.sq, &sk = p.lengths.sk;
  ::testing::AssertionResult result = ::testing::AssertionSuccess();
  const auto check = [&](const std::string& flag, const npy::Array& exact, const npy::Array& naive) {
    if (result && outputs.find(flag + " ") != std::string::npos) result = TensorMatches(flag, exact, naive);
  };
  const auto check_rows = [&](const std::string& flag, std::vector<double> reference::Gradients::*tensor, int64_t heads,
                              const std::vector<int64_t>& rows, int64_t columns) {
    if (columns == 0) return;
    check(flag, forward.InLayout(want.exact.*tensor, heads, rows, columns),
          forward.InLayout(want.naive.*tensor, heads, rows, columns));
  };
  check_rows("--dq", &reference::Gradients::dq, p.heads, sq, p.d);
  check_rows("--dk", &reference::Gradients::dk, p.heads_kv, sk, p.d);
  check_rows("--dv", &reference::Gradients::dv, p.heads_kv, sk, p.dv);
  check_rows("--dq-rope", &reference::Gradients::dq_rope, p.heads, sq, p.d_rope);
  check_rows("--dk-rope", &reference::Gradients::dk_rope, p.heads_kv, sk, p.d_rope);
  const auto check_floats = [&](const std::string& flag, std::vector<double> reference::Gradients::*tensor,
                                const std::vector<int64_t>& shape) {
    check(flag, FloatsLike(shape, want.exact.*tensor), FloatsLike(shape, want.naive.*tensor));
  };
  check_floats("--dpse", &reference::Gradients::dpse, {p.batch(), p.heads, sq[0], sk[0]});
  if (result && outputs.find("--dslopes ") != std::string::npos) result = SlopesMatch(want.exact);
  check_floats("--dsink", &reference::Gradients::dsink, {p.heads});
  return result;
}

// A gradient of slopes is a sum over all pairs, whose terms mostly cancel. So the naive computation may be exact by
// chance, and its error cannot serve as a bound. GradientTolerance gives the bound instead.
::testing::AssertionResult BackwardCall::SlopesMatch(const reference::Gradients& exact) const {
  const reference::Problem& p = forward.problem;
  const BackwardValues values{.problem = p, .forward = reference::Forward(p), .d_out = d_out_};
  const std::vector<double> allowed = GradientTolerance(values, DType::kF32, DType::kF32, exact).dslopes;
  const npy::Array got = npy::Load(PathOf("--dslopes"));
  if (got.shape() != std::vector<int64_t>{p.batch(), p.heads} || got.type() != ElementType::kF32) {
    return ::testing::AssertionFailure() << "--dslopes: " << npy::Name(got.type()) << npy::ShapeText(got.shape());
  }
  for (size_t i = 0; i < allowed.size(); ++i) {
    const double error = std::abs(static_cast<double>(got.as<float>()[i]) - exact.dslopes[i]);
    if (!(error <= allowed[i])) {
      return ::testing::AssertionFailure() << "--dslopes[" << i << "]: error " << error << ", allowed " << allowed[i];
    }
  }
  return ::testing::AssertionSuccess();
}

// Checks that the error is at most 3 times the error of the naive computation in the same type. `exact` is rounded to
// that type, so either error may change by one rounding.
::testing::AssertionResult BackwardCall::TensorMatches(const std::string& flag, const npy::Array& exact,
                                                       const npy::Array& naive) const {
  const npy::Array got = npy::Load(PathOf(flag));
  if (got.shape() != exact.shape() || got.type() != exact.type()) {
    return ::testing::AssertionFailure() << flag << ": " << npy::Name(got.type()) << npy::ShapeText(got.shape());
  }
  const auto values = [this](const npy::Array& array) {
    std::vector<double> all;
    for (size_t i = 0; i < static_cast<size_t>(array.size()); ++i) all.push_back(Value(array, i));
    return all;
  };
  const std::vector<double> want = values(exact);
  const double error = LargestError(values(got), want), naive_error = LargestError(values(naive), want);
  const double largest = LargestError(want, std::vector<double>(want.size()));
  const double rounding = 2 * reference::UnitRoundoff(got.type() == ElementType::kF32 ? Format::kF32 : format_);
  if (error <= 3 * naive_error + rounding * largest) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << flag << ": error " << error << ", naive " << naive_error << ", largest value "
                                       << largest;
}

double BackwardCall::Value(const npy::Array& array, size_t at) const {
  return array.type() == ElementType::kF32 ? static_cast<double>(array.as<float>()[at])
                                           : reference::Decode16(format_, array.as<uint16_t>()[at]);
}

}  // namespace fa::test
