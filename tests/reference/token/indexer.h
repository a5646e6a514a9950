#ifndef FA_TESTS_REFERENCE_TOKEN_INDEXER_H_
#define FA_TESTS_REFERENCE_TOKEN_INDEXER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "reference/token/selection.h"

namespace reference {

/// A lightning indexer. Tensors are packed: q [tokens, heads, d], k [keys, d], weights [tokens, heads].
struct IndexerProblem {
  int64_t heads = 1, d = 1;
  Selection selection = {};  ///< the forward does not read its lists
  std::vector<double> q = {}, k = {}, weights = {};

  /// Returns q . k of packed rows. `magnitude`, if not null, gets the sum of the terms' magnitudes.
  [[nodiscard]] double Product(int64_t token, int64_t head, int64_t key, double* magnitude = nullptr) const;
  /// Returns the sum over the heads of weight * max(0, product).
  [[nodiscard]] double Score(int64_t token, int64_t key) const;
};

/// Returns the first `slots` of the keys 0, 1, ... in the order of the operator. Scores descend, equal scores are
/// ordered by ascending key, -0 equals +0, and NaN comes last. Fewer scores than slots give fewer keys.
[[nodiscard]] std::vector<int64_t> TopKeys(std::span<const double> scores, int64_t slots);

struct IndexerResult {
  std::vector<int64_t> indices;  ///< [tokens, slots], -1 where unused
  std::vector<double> values;    ///< [tokens, slots], -inf where unused
};

[[nodiscard]] IndexerResult IndexerForward(const IndexerProblem& problem);

/// The maximum and the sum of a softmax over every key below the limit. Both are 0 for a row without keys, and NaN if a
/// score is NaN.
struct IndexerStatistics {
  std::vector<double> max, sum;  ///< [tokens]
};

[[nodiscard]] IndexerStatistics StatisticsOfScores(const IndexerProblem& problem);

struct IndexerGradients {
  std::vector<double> dq, dk, dweights;  ///< like q, k, weights
};

/// Adds the gradients that d_score causes. d_score is the gradient of the score of one token with one key, both packed.
void AddScoreGradient(const IndexerProblem& problem, int64_t token, int64_t key, double d_score,
                      IndexerGradients* gradients);

/// Computes the gradients of sum(values * d_values) over the entries of the selection. d_values is [tokens, slots].
[[nodiscard]] IndexerGradients IndexerBackward(const IndexerProblem& problem, const std::vector<double>& d_values);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_TOKEN_INDEXER_H_
