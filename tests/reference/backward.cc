// Computes dV = drop(P)^T dO, dP = drop(dO V^T), dS = P (dP - rowsum(dO O)), dQ = scale dS K and dK = scale dS^T Q,
// pair by pair.
#include <cfloat>
#include <cmath>

#include "reference/attention.h"
#include "reference/exponential.h"
#include "reference/scores.h"

namespace reference {
namespace {

template <typename Real>
struct Sums {
  std::vector<Real> dq, dk, dv, dq_rope, dk_rope, dpse, dslopes, dsink;
};

template <typename Real>
void AddScaled(Real factor, const double* x, int64_t size, Real* y) {
  for (int64_t c = 0; c < size; ++c) y[c] += factor * static_cast<Real>(x[c]);
}

/// Adds the terms of one query row to all gradients.
template <typename Real>
class RowGradient {
 public:
  RowGradient(const Problem& problem, const ForwardResult& forward, const std::vector<double>& d_out, Format format,
              Sums<Real>* sums)
      : p_(problem), forward_(forward), d_out_(d_out), format_(format), sums_(sums) {}

  void Add(int64_t b, int64_t n, int64_t i) {
    const int64_t statistic = p_.QueryRow(b, n, i, 1);
    if (p_.lengths.sk[b] == 0 || forward_.sum[statistic] == static_cast<double>(FLT_MAX)) return;
    const Real max = static_cast<Real>(forward_.max[statistic]);
    const Real sum = static_cast<Real>(forward_.sum[statistic]);
    const int64_t o = p_.QueryRow(b, n, i, p_.dv);
    double unused = 0;
    const Real delta = Dot<Real>(&d_out_[o], &forward_.out[o], p_.dv, 0, &unused);
    if (!p_.sink.empty()) {
      const int64_t sink = p_.SinkIndex(b, n, i);
      sums_->dsink[sink] -= ExpBelow(static_cast<Real>(p_.sink[sink]), max) / sum * delta;
    }

    ScoresOfRow<Real>(p_, b, n, i, &scores_);
    const int64_t n_kv = n / (p_.heads / p_.heads_kv);
    for (const auto& score : scores_) {
      const int64_t v = p_.KeyRow(b, n_kv, score.key, p_.dv);
      const Real probability = std::exp(score.value - max) / sum;
      const Real dp = score.drop * Dot<Real>(&d_out_[o], &p_.v[v], p_.dv, 0, &unused);
      AddScaled(Rounded(score.drop * probability), &d_out_[o], p_.dv, &sums_->dv[v]);
      AddScore(b, n, i, score, probability * (dp - delta));
    }
  }

 private:
  [[nodiscard]] Real Rounded(Real x) const {
    if (format_ == Format::kF32) return x;  // f32 inputs are multiplied without rounding
    return static_cast<Real>(RoundTo(format_, static_cast<double>(x)));
  }

  void AddScore(int64_t b, int64_t n, int64_t i, const Score<Real>& score, Real ds) {
    const Real scale = static_cast<Real>(p_.scale);
    if (p_.pse_type == PseType::kScaleThenAdd) sums_->dpse[PseIndex(p_, b, n, i, score.key)] += ds;
    if (p_.pse_type == PseType::kAddThenScale) sums_->dpse[PseIndex(p_, b, n, i, score.key)] += scale * ds;
    if (!p_.slopes.empty()) sums_->dslopes[b * p_.heads + n] -= ds * score.distance;

    const Real product = Rounded(ds * score.cap_slope);
    const int64_t n_kv = n / (p_.heads / p_.heads_kv);
    const int64_t q = p_.QueryRow(b, n, i, p_.d);
    const int64_t k = p_.KeyRow(b, n_kv, score.key, p_.d);
    AddScaled(scale * product, &p_.k[k], p_.d, &sums_->dq[q]);
    AddScaled(scale * product, &p_.q[q], p_.d, &sums_->dk[k]);
    if (p_.d_rope == 0) return;
    const int64_t q_rope = p_.QueryRow(b, n, i, p_.d_rope);
    const int64_t k_rope = p_.KeyRow(b, n_kv, score.key, p_.d_rope);
    AddScaled(scale * product, &p_.k_rope[k_rope], p_.d_rope, &sums_->dq_rope[q_rope]);
    AddScaled(scale * product, &p_.q_rope[q_rope], p_.d_rope, &sums_->dk_rope[k_rope]);
  }

  const Problem& p_;
  const ForwardResult& forward_;
  const std::vector<double>& d_out_;
  Format format_;
  Sums<Real>* sums_;
  std::vector<Score<Real>> scores_;
};

template <typename Real>
Sums<Real> Run(const Problem& p, const ForwardResult& forward, const std::vector<double>& d_out, Format format) {
  Sums<Real> sums;
  sums.dq.resize(p.q.size());
  sums.dk.resize(p.k.size());
  sums.dv.resize(p.v.size());
  sums.dq_rope.resize(p.q_rope.size());
  sums.dk_rope.resize(p.k_rope.size());
  sums.dpse.resize(p.pse.values.size());
  sums.dslopes.resize(p.slopes.size());
  sums.dsink.resize(p.sink.size());
  RowGradient<Real> row(p, forward, d_out, format, &sums);
  for (int64_t b = 0; b < p.batch(); ++b) {
    for (int64_t n = 0; n < p.heads; ++n) {
      for (int64_t i = 0; i < p.lengths.sq[b]; ++i) row.Add(b, n, i);
    }
  }
  return sums;
}

}  // namespace

Gradients Backward(const Problem& problem, const ForwardResult& forward, const std::vector<double>& d_out) {
  Sums<double> s = Run<double>(problem, forward, d_out, Format::kF32);
  return {.dq = std::move(s.dq),
          .dk = std::move(s.dk),
          .dv = std::move(s.dv),
          .dq_rope = std::move(s.dq_rope),
          .dk_rope = std::move(s.dk_rope),
          .dpse = std::move(s.dpse),
          .dslopes = std::move(s.dslopes),
          .dsink = std::move(s.dsink)};
}

Gradients NaiveBackward(const Problem& problem, const ForwardResult& forward, const std::vector<double>& d_out,
                        Format format) {
  const Sums<float> s = Run<float>(problem, forward, d_out, format);
  const auto rounded = [](const std::vector<float>& values, Format to) {
    std::vector<double> result;
    for (const float value : values) result.push_back(RoundTo(to, static_cast<double>(value)));
    return result;
  };
  return {.dq = rounded(s.dq, format),
          .dk = rounded(s.dk, format),
          .dv = rounded(s.dv, format),
          .dq_rope = rounded(s.dq_rope, format),
          .dk_rope = rounded(s.dk_rope, format),
          .dpse = rounded(s.dpse, format),
          .dslopes = rounded(s.dslopes, Format::kF32),
          .dsink = rounded(s.dsink, Format::kF32)};
}

}  // namespace reference
