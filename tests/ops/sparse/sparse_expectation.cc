#include "ops/sparse/sparse_expectation.h"

#include <cfloat>
#include <cmath>
#include <limits>

#include "support/compare/gradient_tolerance.h"
#include "support/compare/tolerance.h"

namespace fa::test {
namespace {

constexpr double kUnit = 0x1p-24;

double OfSum(int64_t n) { return kUnit * (4 * std::sqrt(static_cast<double>(n)) + 8); }

void Append(const double* from, int64_t count, std::vector<double>* to) { to->insert(to->end(), from, from + count); }

/// Returns the part of the dense problem that does not depend on keys. A token's query heads become the rows of one
/// head.
reference::Problem DenseOf(const reference::SparseProblem& p) {
  reference::Problem dense{.d = p.d, .d_rope = p.d_rope, .dv = p.dv};
  dense.q = p.q;
  dense.q_rope = p.q_rope;
  dense.scale = p.scale;
  return dense;
}

/// Adds a key of zeros for the heads of a token. The bias of this key is each head's sink.
void AddSinkKey(const reference::SparseProblem& p, int64_t keys, reference::Problem* dense) {
  dense->k.insert(dense->k.end(), static_cast<size_t>(p.d), 0);
  dense->v.insert(dense->v.end(), static_cast<size_t>(p.dv), 0);
  dense->k_rope.insert(dense->k_rope.end(), static_cast<size_t>(p.d_rope), 0);
  dense->pse_type = reference::PseType::kScaleThenAdd;
  dense->pse.offset.push_back(std::ssize(dense->pse.values));
  dense->pse.head.push_back(0);
  dense->pse.row.push_back(keys + 1);
  for (const double sink : p.sink) {
    dense->pse.values.insert(dense->pse.values.end(), static_cast<size_t>(keys), 0);
    dense->pse.values.push_back(sink);
  }
}

/// Returns a problem in which every token is a batch element with the keys of its list.
reference::Problem GatheredProblem(const reference::SparseProblem& p) {
  const reference::Selection& s = p.selection;
  reference::Problem dense = DenseOf(p);
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      const std::vector<reference::SelectedKey> keys = s.KeysOf(b, t);
      dense.lengths.sq.push_back(p.heads);
      dense.lengths.sk.push_back(std::ssize(keys) + (p.sink.empty() ? 0 : 1));
      for (const reference::SelectedKey& at : keys) {
        const int64_t key = s.FirstKey(b) + at.key;
        Append(&p.k[key * p.d], p.d, &dense.k);
        Append(p.Value(key), p.dv, &dense.v);
        if (p.d_rope > 0) Append(&p.k_rope[key * p.d_rope], p.d_rope, &dense.k_rope);
      }
      if (!p.sink.empty()) AddSinkKey(p, std::ssize(keys), &dense);
    }
  }
  return dense;
}

/// Returns a problem in which every sequence is a batch element, with all its keys, a mask and a bias.
reference::Problem MaskedProblem(const reference::SparseProblem& p) {
  const reference::Selection& s = p.selection;
  reference::Problem dense = DenseOf(p);
  dense.k = p.k;
  dense.k_rope = p.k_rope;
  for (int64_t key = 0; key < s.keys(); ++key) Append(p.Value(key), p.dv, &dense.v);
  dense.pse_type = reference::PseType::kScaleThenAdd;
  for (int64_t b = 0; b < s.batch(); ++b) {
    const int64_t sk = s.lengths.sk[b];
    dense.lengths.sq.push_back(s.lengths.sq[b] * p.heads);
    dense.lengths.sk.push_back(sk);
    const auto first = static_cast<int64_t>(dense.dense_mask.values.size());
    for (auto* offsets : {&dense.dense_mask.offset, &dense.pse.offset}) offsets->push_back(first);
    for (auto* strides : {&dense.dense_mask.head, &dense.pse.head}) strides->push_back(0);
    for (auto* strides : {&dense.dense_mask.row, &dense.pse.row}) strides->push_back(sk);
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      std::vector<double> times(static_cast<size_t>(sk));
      for (const reference::SelectedKey& at : s.KeysOf(b, t)) times[at.key] += 1;
      for (int64_t n = 0; n < p.heads; ++n) {
        for (const double count : times) {
          dense.dense_mask.values.push_back(count == 0 ? 1 : 0);
          dense.pse.values.push_back(count == 0 ? 0 : std::log(count));
        }
      }
    }
  }
  return dense;
}

ExpectedOutput ExpectDSink(const SparseGradCall& call, std::vector<double> want) {
  const reference::SparseProblem& p = call.values();
  const reference::SparseResult& forward = call.forward();
  ExpectedOutput expected{"dsink", std::move(want), std::vector<double>(p.sink.size())};
  for (int64_t row = 0; row < std::ssize(forward.sum); ++row) {
    if (forward.sum[row] == 0) continue;
    double magnitude = 0;
    for (int64_t x = row * p.dv; x < (row + 1) * p.dv; ++x) magnitude += std::fabs(call.d_out()[x] * forward.out[x]);
    const int64_t n = row % p.heads;
    expected.allowed[n] += std::exp(p.sink[n] - forward.max[row]) / forward.sum[row] * OfSum(p.dv) * magnitude;
  }
  for (int64_t n = 0; n < p.heads; ++n) {
    if (expected.allowed[n] > 0) expected.allowed[n] += kUnit * std::fabs(expected.want[n]) + 0x1p-149;
  }
  return expected;
}

ExpectedOutput ExpectHeadMean(const reference::SparseProblem& p, const reference::SparseResult& want,
                              const reference::ForwardResult& gathered, const ForwardTolerance& tolerance,
                              DType dtype) {
  const reference::Selection& s = p.selection;
  ExpectedOutput expected{"p_head_mean", want.p_head_mean, std::vector<double>(want.p_head_mean.size())};
  const double exp_relative = dtype == DType::kF32 ? 4 * kUnit : 4e-6;
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      const int64_t token = s.FirstToken(b) + t;
      for (const reference::SelectedKey& at : s.KeysOf(b, t)) {
        double& allowed = expected.allowed[token * s.slots + at.slot];
        for (int64_t n = 0; n < p.heads; ++n) {
          const int64_t row = token * p.heads + n;
          double magnitude = 0;
          const double score = p.Score(token, n, s.FirstKey(b) + at.key, &magnitude);
          const double probability = std::exp(score - want.max[row]) / want.sum[row];
          const double relative = OfSum(p.d + p.d_rope) * magnitude + exp_relative +
                                  tolerance.Sum(row) / gathered.sum[row] + OfSum(p.heads);
          allowed += (probability * relative + static_cast<double>(FLT_MIN)) / static_cast<double>(p.heads);
        }
      }
    }
  }
  return expected;
}

/// Adds the errors of kernels that round dequantised rows of K and V. If each element of K may be off by the fraction
/// u, a score may be off by e = u times the sum of the magnitudes of its terms. A probability is then off by the factor
/// exp(2 e), for the row's largest e. The elements of V are off by u too.
void AllowRoundedRows(const SparseCall& call, const reference::SparseResult& want,
                      std::vector<ExpectedOutput>& expected) {
  const reference::SparseProblem& p = call.values();
  const reference::Selection& s = p.selection;
  const reference::Format format = FormatOf(call.sparse_case().tokens.dtype);
  const double unit = reference::UnitRoundoff(format), smallest = reference::SmallestError(format);
  const auto allow = [&](const char* name, int64_t element, double more) {
    for (ExpectedOutput& output : expected) {
      if (output.name == name) output.allowed[element] += more;
    }
  };
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      const std::vector<reference::SelectedKey> keys = s.KeysOf(b, t);
      for (int64_t n = 0; n < p.heads && !keys.empty(); ++n) {
        const int64_t token = s.FirstToken(b) + t, row = token * p.heads + n;
        double error = 0;
        std::vector<double> probabilities;
        for (const reference::SelectedKey& at : keys) {
          double magnitude = 0;
          const double score = p.Score(token, n, s.FirstKey(b) + at.key, &magnitude);
          error = std::max(error, unit * magnitude);
          probabilities.push_back(std::exp(score - want.max[row]) / want.sum[row]);
        }
        const double factor = std::exp(2 * error) - 1;
        allow("max", row, error);
        allow("sum", row, factor * want.sum[row]);
        std::vector<double> of_values(static_cast<size_t>(p.dv));
        for (size_t i = 0; i < keys.size(); ++i) {
          const double* value = p.Value(s.FirstKey(b) + keys[i].key);
          for (int64_t x = 0; x < p.dv; ++x) {
            const double own = std::fabs(value[x]), of_out = std::fabs(want.out[row * p.dv + x]);
            of_values[x] += probabilities[i] * (factor * (own + of_out) + (1 + factor) * (unit * own + smallest));
          }
          allow("p_head_mean", token * s.slots + keys[i].slot,
                factor * probabilities[i] / static_cast<double>(p.heads));
        }
        for (int64_t x = 0; x < p.dv; ++x) allow("out", row * p.dv + x, of_values[x]);
      }
    }
  }
}

}  // namespace

std::vector<ExpectedOutput> ExpectForward(const SparseCall& call) {
  const reference::SparseProblem& p = call.values();
  const DType dtype = call.sparse_case().tokens.dtype;
  const reference::SparseResult want = reference::SparseForward(p);
  const reference::Problem gathered = GatheredProblem(p);
  const reference::ForwardResult exact = reference::Forward(gathered);
  const ForwardTolerance tolerance(gathered, exact, dtype);
  ExpectedOutput out{"out", want.out, std::vector<double>(want.out.size())};
  ExpectedOutput max{"max", want.max, std::vector<double>(want.max.size())};
  ExpectedOutput sum{"sum", want.sum, std::vector<double>(want.sum.size())};
  ExpectedOutput lse{"lse", want.max, std::vector<double>(want.max.size())};
  for (int64_t row = 0; row < std::ssize(want.max); ++row) {
    lse.want[row] =
        want.sum[row] == 0 ? -std::numeric_limits<double>::infinity() : want.max[row] + std::log(want.sum[row]);
    // The outputs of a row that sees only its sink are exact.
    if (exact.magnitudes.keys[row] <= (p.sink.empty() ? 0 : 1)) continue;
    for (int64_t x = row * p.dv; x < (row + 1) * p.dv; ++x) out.allowed[x] = tolerance.Out(row, x);
    max.allowed[row] = tolerance.Max(row);
    sum.allowed[row] = tolerance.Sum(row);
    lse.allowed[row] = tolerance.Lse(row);
  }
  std::vector<ExpectedOutput> expected = {std::move(out)};
  if (call.sparse_case().lse) {
    expected.push_back(std::move(lse));
  } else if (call.sparse_case().statistics) {
    expected.push_back(std::move(max));
    expected.push_back(std::move(sum));
  }
  if (call.args().p_head_mean.data != nullptr) {
    expected.push_back(ExpectHeadMean(p, want, exact, tolerance, dtype));
  }
  if (call.sparse_case().rounds_rows()) AllowRoundedRows(call, want, expected);
  return expected;
}

std::vector<ExpectedOutput> ExpectBackward(const SparseGradCall& call) {
  const reference::SparseProblem& p = call.values();
  reference::SparseGradients want = reference::SparseBackward(p, call.forward(), call.d_out());
  BackwardValues dense{.problem = MaskedProblem(p), .forward = {}, .d_out = call.d_out()};
  dense.forward.out = call.forward().out;
  dense.forward.max = call.forward().max;
  dense.forward.sum = call.forward().sum;
  // GradientTolerance uses only the sizes and magnitudes of `exact`. With merged values, dk also has the gradient of V,
  // and is rounded once.
  const reference::Gradients exact{.dq = want.dq,
                                   .dk = want.dk,
                                   .dv = p.merged ? std::vector<double>(dense.problem.v.size()) : want.dv,
                                   .dq_rope = want.dq_rope,
                                   .dk_rope = want.dk_rope,
                                   .dpse = std::vector<double>(dense.problem.pse.values.size()),
                                   .dslopes = {},
                                   .dsink = {}};
  reference::Gradients allowed = GradientTolerance(dense, call.sparse_case().tokens.dtype, DType::kF32, exact);
  if (p.merged) {
    for (int64_t x = 0; x < std::ssize(allowed.dv); ++x) allowed.dk[x / p.dv * p.d + x % p.dv] += allowed.dv[x];
  }
  std::vector<ExpectedOutput> expected = {{"dq", std::move(want.dq), std::move(allowed.dq)},
                                          {"dk", std::move(want.dk), std::move(allowed.dk)}};
  if (!p.merged) expected.push_back({"dv", std::move(want.dv), std::move(allowed.dv)});
  if (p.d_rope > 0) {
    expected.push_back({"dq_rope", std::move(want.dq_rope), std::move(allowed.dq_rope)});
    expected.push_back({"dk_rope", std::move(want.dk_rope), std::move(allowed.dk_rope)});
  }
  if (!p.sink.empty()) expected.push_back(ExpectDSink(call, std::move(want.dsink)));
  return expected;
}

}  // namespace fa::test
