#include "reference/token/sparse_attention.h"

#include <algorithm>
#include <cmath>

#include "reference/exponential.h"
#include "reference/products.h"

namespace reference {
double SparseProblem::Score(int64_t token, int64_t head, int64_t key, double* magnitude) const {
  if (magnitude != nullptr) *magnitude = 0;
  const int64_t query_row = token * heads + head, key_row = key * heads_kv + head / (heads / heads_kv);
  double sum = SumOfProducts(&q[query_row * d], &k[key_row * d], d, magnitude);
  if (d_rope > 0) sum += SumOfProducts(&q_rope[query_row * d_rope], &k_rope[key_row * d_rope], d_rope, magnitude);
  if (magnitude != nullptr) *magnitude *= std::fabs(scale);
  return scale * sum;
}

SparseResult SparseForward(const SparseProblem& p) {
  const Selection& s = p.selection;
  SparseResult result;
  const auto rows = static_cast<size_t>(s.tokens() * p.heads);
  result.out.assign(rows * static_cast<size_t>(p.dv), 0);
  result.max.assign(rows, 0);
  result.sum.assign(rows, 0);
  result.p_head_mean.assign(static_cast<size_t>(s.tokens() * s.slots), 0);
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      const std::vector<SelectedKey> keys = s.KeysOf(b, t);
      // A row whose sequence has no keys sees nothing, not even its sink.
      if (s.lengths.sk[b] == 0 || (keys.empty() && p.sink.empty())) continue;
      const int64_t token = s.FirstToken(b) + t;
      for (int64_t n = 0; n < p.heads; ++n) {
        const int64_t row = token * p.heads + n;
        std::vector<double> scores;
        for (const SelectedKey& at : keys) scores.push_back(p.Score(token, n, s.FirstKey(b) + at.key));
        const double top = scores.empty() ? p.sink[n] : *std::max_element(scores.begin(), scores.end());
        const double max = p.sink.empty() ? top : std::max(top, p.sink[n]);
        double sum = p.sink.empty() ? 0 : ExpBelow(p.sink[n], max);
        for (const double score : scores) sum += std::exp(score - max);
        for (size_t i = 0; i < keys.size(); ++i) {
          const double* value = p.Value(s.FirstKey(b) + keys[i].key);
          const double probability = std::exp(scores[i] - max) / sum;
          for (int64_t x = 0; x < p.dv; ++x) result.out[row * p.dv + x] += probability * value[x];
          result.p_head_mean[token * s.slots + keys[i].slot] += probability / static_cast<double>(p.heads);
        }
        result.max[row] = max;
        result.sum[row] = sum;
      }
    }
  }
  return result;
}

SparseGradients SparseBackward(const SparseProblem& p, const SparseResult& forward, const std::vector<double>& d_out) {
  const Selection& s = p.selection;
  SparseGradients g;
  g.dq.assign(p.q.size(), 0);
  g.dk.assign(p.k.size(), 0);
  g.dv.assign(p.merged ? 0 : p.v.size(), 0);
  g.dq_rope.assign(p.q_rope.size(), 0);
  g.dk_rope.assign(p.k_rope.size(), 0);
  g.dsink.assign(p.sink.size(), 0);
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      for (int64_t n = 0; n < p.heads; ++n) {
        const int64_t token = s.FirstToken(b) + t, row = token * p.heads + n;
        if (forward.sum[row] == 0) continue;
        const double* d_o = &d_out[row * p.dv];
        const double delta = SumOfProducts(d_o, &forward.out[row * p.dv], p.dv);
        if (!p.sink.empty()) g.dsink[n] -= ExpBelow(p.sink[n], forward.max[row]) / forward.sum[row] * delta;
        for (const SelectedKey& at : s.KeysOf(b, t)) {
          const int64_t key = s.FirstKey(b) + at.key;
          const double probability = std::exp(p.Score(token, n, key) - forward.max[row]) / forward.sum[row];
          const double ds = probability * (SumOfProducts(d_o, p.Value(key), p.dv) - delta);
          double* dv = p.merged ? &g.dk[key * p.d] : &g.dv[key * p.dv];
          for (int64_t x = 0; x < p.dv; ++x) dv[x] += probability * d_o[x];
          for (int64_t x = 0; x < p.d; ++x) {
            g.dq[row * p.d + x] += p.scale * ds * p.k[key * p.d + x];
            g.dk[key * p.d + x] += p.scale * ds * p.q[row * p.d + x];
          }
          for (int64_t x = 0; x < p.d_rope; ++x) {
            g.dq_rope[row * p.d_rope + x] += p.scale * ds * p.k_rope[key * p.d_rope + x];
            g.dk_rope[key * p.d_rope + x] += p.scale * ds * p.q_rope[row * p.d_rope + x];
          }
        }
      }
    }
  }
  return g;
}

}  // namespace reference
