#include <cmath>
#include <cstdio>
#include <vector>

#include "fa/fa.h"

// Computes attention of two heads over four tokens, and compares it with the same sums in double.

namespace {

constexpr int kHeads = 2;
constexpr int kTokens = 4;
constexpr int kDim = 3;

size_t At(int head, int token, int d) { return static_cast<size_t>((head * kTokens + token) * kDim + d); }

// Returns causal attention of one query, computed by the definition.
double Expected(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v, int head, int i,
                int d) {
  double sum = 0;
  double weighted = 0;
  for (int j = 0; j <= i; ++j) {
    double score = 0;
    for (int c = 0; c < kDim; ++c) score += static_cast<double>(q[At(head, i, c)]) * k[At(head, j, c)];
    const double p = std::exp(score / std::sqrt(static_cast<double>(kDim)));
    sum += p;
    weighted += p * v[At(head, j, d)];
  }
  return weighted / sum;
}

std::vector<float> Wave(double frequency) {
  std::vector<float> values(kHeads * kTokens * kDim);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(std::sin(frequency * static_cast<double>(i)));
  return values;
}

}  // namespace

int main() {
  const std::vector<float> q = Wave(0.7);
  const std::vector<float> k = Wave(1.1);
  const std::vector<float> v = Wave(1.9);
  std::vector<float> out(q.size(), std::nanf(""));

  const fa::Dims shape = {1, kHeads, kTokens, kDim};
  fa::AttentionArgs args;
  args.q = fa::View(q.data(), shape);
  args.k = fa::View(k.data(), shape);
  args.v = fa::View(v.data(), shape);
  args.out = fa::View(out.data(), shape);
  fa::AttentionOptions options;
  options.mask = fa::Mask::Causal();

  if (const fa::Status status = fa::FlashAttention(args, options); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return 1;
  }

  double worst = 0;
  for (int head = 0; head < kHeads; ++head) {
    for (int i = 0; i < kTokens; ++i) {
      for (int d = 0; d < kDim; ++d) {
        const double error = std::fabs(out[At(head, i, d)] - Expected(q, k, v, head, i, d));
        worst = error > worst || std::isnan(error) ? error : worst;
      }
    }
  }
  std::printf("fa %s, largest error %.2g\n", FA_VERSION_STRING, worst);
  // Values and weights are at most 1, so the bound covers a few dozen roundings of f32.
  return worst < 1e-6 ? 0 : 1;
}
