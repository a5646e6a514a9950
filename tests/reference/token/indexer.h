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

  /// q . k of packed rows; `magnitude`, if not null, gets the sum of the terms' magnitudes.
  [[nodiscard]] double Product(int64_t token, int64_t head, int64_t key, double* magnitude = nullptr) const;
  /// sum over the heads of weight * max(0, product).
  [[nodiscard]] double Score(int64_t token, int64_t key) const;
};

/// The first `slots` of the keys 0, 1, ... by their scores, in the order of the operator: descending scores, equal
/// scores by ascending key, -0 equal to +0, NaN last. Fewer scores than slots give fewer keys.
[[nodiscard]] std::vector<int64_t> TopKeys(std::span<const double> scores, int64_t slots);

struct IndexerResult {
  std::vector<int64_t> indices;  ///< [tokens, slots], -1 where unused
  std::vector<double> values;    ///< [tokens, slots], -inf where unused
};

[[nodiscard]] IndexerResult IndexerForward(const IndexerProblem& problem);

/// Maximum and sum of a softmax over every key below the limit, or 0 and 0 for a row without keys. If a score is NaN,
/// both are NaN.
struct IndexerStatistics {
  std::vector<double> max, sum;  ///< [tokens]
};

[[nodiscard]] IndexerStatistics StatisticsOfScores(const IndexerProblem& problem);

struct IndexerGradients {
  std::vector<double> dq, dk, dweights;  ///< like q, k, weights
};

/// Adds the gradients that d_score causes, which is the gradient of the score of one token with one key, both packed.
void AddScoreGradient(const IndexerProblem& problem, int64_t token, int64_t key, double d_score,
                      IndexerGradients* gradients);

/// Gradients of sum(values * d_values) over the entries of the selection. d_values is [tokens, slots].
[[nodiscard]] IndexerGradients IndexerBackward(const IndexerProblem& problem, const std::vector<double>& d_values);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_TOKEN_INDEXER_H_
