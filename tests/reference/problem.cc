#include <algorithm>

#include "reference/attention.h"
#include "reference/philox.h"
#include "reference/scores.h"

namespace reference {

int64_t Problem::RowsBefore(const std::vector<int64_t>& rows, int64_t b) const {
  int64_t sum = 0;
  for (int64_t other = 0; other < b; ++other) sum += rows[other];
  return sum;
}

int64_t Problem::QueryRow(int64_t b, int64_t n, int64_t i, int64_t columns) const {
  return (RowsBefore(lengths.sq, b) * heads + n * lengths.sq[b] + i) * columns;
}

int64_t Problem::SinkIndex(int64_t b, int64_t n, int64_t i) const {
  if (sink_form == SinkForm::kPerHead) return n;
  if (sink_form == SinkForm::kPerRow) return QueryRow(b, n, i, 1);
  return n * *std::max_element(lengths.sq.begin(), lengths.sq.end()) + i;
}

int64_t Problem::KeyRow(int64_t b, int64_t n_kv, int64_t j, int64_t columns) const {
  return (RowsBefore(lengths.sk, b) * heads_kv + n_kv * lengths.sk[b] + j) * columns;
}

bool Keeps(const Problem& problem, int64_t b, int64_t n, int64_t i, int64_t j) {
  if (!RuleKeeps(problem.mask, problem.lengths, b, i, j)) return false;
  return problem.dense_mask.empty() || problem.dense_mask.values[problem.dense_mask.Index(b, n, i, j)] == 0;
}

int64_t PseIndex(const Problem& problem, int64_t b, int64_t n, int64_t i, int64_t j) {
  if (!problem.pse_compressed) return problem.pse.Index(b, n, i, j);
  const int64_t first_stored = problem.lengths.sq[b] - 1024;
  if (i >= first_stored) return problem.pse.Index(b, n, i - first_stored, j);
  const int64_t row = i % 1024;
  return problem.pse.Index(b, n, row, problem.lengths.sk[b] - 1024 + row - (i - j));
}

double DropFactor(const Problem& problem, int64_t b, int64_t n, int64_t i, int64_t j) {
  if (problem.drop_bits.empty() && !problem.seed) return 1;
  int64_t flat = (n * problem.lengths.sq[b] + i) * problem.lengths.sk[b] + j;
  for (int64_t other = 0; other < b; ++other) {
    flat += problem.heads * problem.lengths.sq[other] * problem.lengths.sk[other];
  }
  const bool keeps = problem.seed ? PhiloxKeeps(problem.seed->seed, problem.seed->offset, problem.keep_prob,
                                                static_cast<uint64_t>(flat))
                                  : (problem.drop_bits[flat / 8] >> (flat % 8) & 1) != 0;
  return keeps ? 1 / problem.keep_prob : 0;
}

}  // namespace reference
