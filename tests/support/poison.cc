#include "support/poison.h"

#include <algorithm>
#include <cfloat>

namespace fa::test {
namespace {

/// The rows and biases that at least one kept pair reads.
struct Seen {
  std::vector<bool> queries, keys, biases;
};

Seen FindSeen(const reference::Problem& p) {
  Seen seen;
  seen.queries.resize(static_cast<size_t>(p.RowsBefore(p.lengths.sq, p.batch()) * p.heads));
  seen.keys.resize(static_cast<size_t>(p.RowsBefore(p.lengths.sk, p.batch()) * p.heads_kv));
  seen.biases.resize(p.pse.values.size());
  for (int64_t b = 0; b < p.batch(); ++b) {
    for (int64_t n = 0; n < p.heads; ++n) {
      for (int64_t i = 0; i < p.lengths.sq[b]; ++i) {
        for (int64_t j = 0; j < p.lengths.sk[b]; ++j) {
          if (!Keeps(p, b, n, i, j)) continue;
          seen.queries[p.QueryRow(b, n, i, 1)] = true;
          seen.keys[p.KeyRow(b, n / (p.heads / p.heads_kv), j, 1)] = true;
          if (!p.pse.empty()) seen.biases[PseIndex(p, b, n, i, j)] = true;
        }
      }
    }
  }
  return seen;
}

int64_t PoisonRows(double poison, const std::vector<bool>& seen, int64_t size, std::vector<double>* values) {
  int64_t count = 0;
  for (size_t row = 0; row < seen.size(); ++row) {
    if (seen[row]) continue;
    const auto first = values->begin() + static_cast<int64_t>(row) * size;
    std::fill(first, first + size, poison);
    count += size;
  }
  return count;
}

}  // namespace

int64_t PoisonUnseen(double poison, reference::Problem* p) {
  const Seen seen = FindSeen(*p);
  return PoisonRows(poison, seen.queries, p->d, &p->q) + PoisonRows(poison, seen.queries, p->d_rope, &p->q_rope) +
         PoisonRows(poison, seen.keys, p->d, &p->k) + PoisonRows(poison, seen.keys, p->d_rope, &p->k_rope) +
         PoisonRows(poison, seen.keys, p->dv, &p->v) + PoisonRows(poison, seen.biases, 1, &p->pse.values);
}

double LargestFinite(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 65504;
    case DType::kBF16: return 0x1.FEp127;
    default: return static_cast<double>(FLT_MAX);
  }
}

}  // namespace fa::test
