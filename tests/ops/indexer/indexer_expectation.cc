#include "ops/indexer/indexer_expectation.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <set>

#include "support/compare/agrees.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

constexpr double kUnit = 0x1p-24;
constexpr double kInf = std::numeric_limits<double>::infinity();

double Flushed(DType dtype) { return dtype == DType::kBF16 ? static_cast<double>(FLT_MIN) : 0; }

double OutputRounding(DType dtype, double value) {
  return reference::UnitRoundoff(FormatOf(dtype)) * std::fabs(value) + reference::SmallestError(FormatOf(dtype));
}

ExpectedOutput Exactly(const char* name, std::vector<double> want, DType dtype) {
  for (double& value : want) value = RoundTo(dtype, value);
  std::vector<double> nothing(want.size());
  return {name, std::move(want), std::move(nothing)};
}

AssertionResult IsExactly(const IndexerCall& call, const TokenOutputs& got) {
  const reference::IndexerResult want = reference::IndexerForward(call.values());
  const std::vector<double> indices(want.indices.begin(), want.indices.end());
  std::vector<ExpectedOutput> expected = {{"sparse_indices", indices, std::vector<double>(indices.size())}};
  if (call.indexer_case().wants_values) {
    expected.push_back(Exactly("sparse_values", want.values, call.indexer_case().values_dtype()));
  }
  return MatchesExpected(got, expected);
}

std::string Where(int64_t token, int64_t slot) {
  return "token " + std::to_string(token) + " entry " + std::to_string(slot);
}

AssertionResult RowIsSelection(const IndexerCall& call, int64_t b, int64_t t, const double* indices,
                               const double* values) {
  const reference::IndexerProblem& p = call.values();
  const DType dtype = call.indexer_case().tokens.dtype, values_dtype = call.indexer_case().values_dtype();
  const int64_t token = p.selection.FirstToken(b) + t, slots = p.selection.slots, limit = p.selection.Limit(b, t);
  const int64_t used = std::min(slots, limit);
  std::vector<double> scores, tolerances;
  for (int64_t key = 0; key < limit; ++key) {
    scores.push_back(p.Score(token, p.selection.FirstKey(b) + key));
    tolerances.push_back(ScoreTolerance(p, token, p.selection.FirstKey(b) + key, dtype));
  }
  std::set<int64_t> selected;
  // The least value of score + tolerance over the selected keys. A key that is left out must not have score - tolerance
  // above it.
  double smallest = kInf;
  for (int64_t slot = 0; slot < slots; ++slot) {
    const auto key = static_cast<int64_t>(indices[slot]);
    if (slot >= used) {
      if (key == -1 && (values == nullptr || values[slot] == -kInf)) continue;
      return AssertionFailure() << Where(token, slot) << " is used: " << key;
    }
    if (key < 0 || key >= limit) return AssertionFailure() << Where(token, slot) << " = " << key << " of " << limit;
    if (!selected.insert(key).second) return AssertionFailure() << Where(token, slot) << " = " << key << " once more";
    smallest = std::min(smallest, scores[key] + tolerances[key]);
    if (values == nullptr) continue;
    const double allowed = tolerances[key] + OutputRounding(values_dtype, std::fabs(scores[key]) + tolerances[key]);
    if (!Agrees(values[slot], scores[key], allowed)) {
      return AssertionFailure() << Where(token, slot) << ": value " << values[slot] << ", want " << scores[key]
                                << " +- " << allowed;
    }
    if (slot > 0 && !(values[slot] <= values[slot - 1])) return AssertionFailure() << Where(token, slot) << " ascends";
    // In 16-bit types, values may be equal although the scores differ.
    const bool tie = values_dtype == DType::kF32 && slot > 0 && values[slot] == values[slot - 1];
    if (tie && key < static_cast<int64_t>(indices[slot - 1])) {
      return AssertionFailure() << Where(token, slot) << ": equal scores by descending key";
    }
  }
  for (int64_t key = 0; key < limit; ++key) {
    if (selected.count(key) != 0 || scores[key] - tolerances[key] <= smallest) continue;
    return AssertionFailure() << "token " << token << ": key " << key << " of score " << scores[key]
                              << " is left out, the smallest selected is at most " << smallest;
  }
  return AssertionSuccess();
}

}  // namespace

double ErrorOfSum(int64_t n) { return kUnit * (4 * std::sqrt(static_cast<double>(n)) + 8); }

double ScoreTolerance(const reference::IndexerProblem& p, int64_t token, int64_t key, DType dtype) {
  double tolerance = 0, sum = 0;
  for (int64_t g = 0; g < p.heads; ++g) {
    double magnitude = 0;
    const double product = p.Product(token, g, key, &magnitude);
    const double weight = std::fabs(p.weights[token * p.heads + g]);
    const double flushed = static_cast<double>(p.d) * Flushed(dtype);
    tolerance += weight * (ErrorOfSum(p.d) * magnitude + flushed);
    sum += weight * std::max(product, 0.0);
  }
  tolerance += ErrorOfSum(p.heads) * sum;
  // Two more products add a rounding each: weight times scale, and the sum times the key's scale.
  return p.k_scale.empty() ? tolerance : std::fabs(p.k_scale[key]) * (tolerance + 2 * kUnit * sum);
}

AssertionResult IsSelection(const IndexerCall& call, const TokenOutputs& got) {
  if (call.indexer_case().values == IndexerValues::kSmallIntegers) return IsExactly(call, got);
  const reference::Selection& s = call.values().selection;
  const std::vector<double>& indices = ValuesOf(got, "sparse_indices");
  const bool has_values = call.indexer_case().wants_values;
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      const int64_t first = (s.FirstToken(b) + t) * s.slots;
      const double* values = has_values ? &ValuesOf(got, "sparse_values")[first] : nullptr;
      if (AssertionResult row = RowIsSelection(call, b, t, &indices[first], values); !row) return row;
    }
  }
  return UnusedRowsAreFilled(got);
}

IndexerGradientTolerance::IndexerGradientTolerance(const reference::IndexerProblem& problem, DType dtype)
    : problem_(problem),
      dtype_(dtype),
      dq_(problem.q.size()),
      dk_(problem.k.size()),
      dweights_(problem.weights.size()) {}

void IndexerGradientTolerance::AddTerm(size_t at, double magnitude, double error, double rounding, Sum* sum) const {
  sum->error[at] += error;
  sum->squares[at] += rounding * rounding;
  sum->magnitude[at] += magnitude;
  sum->terms[at] += 1;
}

void IndexerGradientTolerance::Add(int64_t token, int64_t key, double d_score, double d_score_error) {
  const reference::IndexerProblem& p = problem_;
  const bool rounds = dtype_ != DType::kF32;
  const double unit = reference::UnitRoundoff(FormatOf(dtype_)), flushed = Flushed(dtype_);
  const double smallest = std::max(reference::SmallestError(FormatOf(dtype_)), flushed);
  for (int64_t g = 0; g < p.heads; ++g) {
    const auto row = static_cast<size_t>(token * p.heads + g);
    double magnitude = 0;
    const double product = p.Product(token, g, key, &magnitude);
    const double product_error = ErrorOfSum(p.d) * magnitude + static_cast<double>(p.d) * flushed;
    if (product < -product_error || magnitude == 0) continue;
    const bool sure = product > product_error;
    const double used = std::max(product, 0.0);
    AddTerm(row, std::fabs(d_score) * used, std::fabs(d_score) * product_error + d_score_error * (used + product_error),
            0, &dweights_);
    const double factor = std::fabs(p.weights[row] * d_score);
    const double factor_error = std::fabs(p.weights[row]) * d_score_error + 2 * kUnit * factor + (sure ? 0 : factor);
    const double rounding = rounds ? unit * factor + smallest : 0;
    for (int64_t x = 0; x < p.d; ++x) {
      const double k = std::fabs(p.k[key * p.d + x]), q = std::fabs(p.q[static_cast<int64_t>(row) * p.d + x]);
      AddTerm(row * static_cast<size_t>(p.d) + static_cast<size_t>(x), factor * k, factor_error * k + flushed,
              rounding * k, &dq_);
      AddTerm(static_cast<size_t>(key * p.d + x), factor * q, factor_error * q + flushed, rounding * q, &dk_);
    }
  }
}

ExpectedOutput IndexerGradientTolerance::ExpectSum(const char* name, const std::vector<double>& want, const Sum& sum,
                                                   DType dtype) const {
  ExpectedOutput expected{name, want, std::vector<double>(want.size())};
  for (size_t x = 0; x < want.size(); ++x) {
    const double error = sum.error[x] + 4 * std::sqrt(sum.squares[x]) +
                         ErrorOfSum(static_cast<int64_t>(sum.terms[x])) * sum.magnitude[x];
    if (error > 0) expected.allowed[x] = error + OutputRounding(dtype, std::fabs(want[x]) + error);
  }
  return expected;
}

std::vector<ExpectedOutput> IndexerGradientTolerance::Expect(const reference::IndexerGradients& want,
                                                             DType weights_dtype) const {
  return {ExpectSum("dq", want.dq, dq_, dtype_), ExpectSum("dk", want.dk, dk_, dtype_),
          ExpectSum("dweights", want.dweights, dweights_, weights_dtype)};
}

std::vector<ExpectedOutput> ExpectBackward(const IndexerGradCall& call) {
  const reference::IndexerProblem& p = call.values();
  const reference::Selection& s = p.selection;
  const DType dtype = call.indexer_case().tokens.dtype, weights_dtype = call.indexer_case().weights_dtype();
  const reference::IndexerGradients want = reference::IndexerBackward(p, call.d_values());
  if (call.indexer_case().values == IndexerValues::kSmallIntegers) {
    return {Exactly("dq", want.dq, dtype), Exactly("dk", want.dk, dtype),
            Exactly("dweights", want.dweights, weights_dtype)};
  }
  IndexerGradientTolerance tolerance(p, dtype);
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      const int64_t token = s.FirstToken(b) + t;
      for (const reference::SelectedKey& at : s.KeysOf(b, t)) {
        tolerance.Add(token, s.FirstKey(b) + at.key, call.d_values()[token * s.slots + at.slot], 0);
      }
    }
  }
  return tolerance.Expect(want, weights_dtype);
}

}  // namespace fa::test
