#ifndef FA_TESTS_REFERENCE_TOKEN_INDEXER_H_
#define FA_TESTS_REFERENCE_TOKEN_INDEXER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "reference/token/selection.h"

namespace reference {

/// The inputs of a lightning indexer. Tensors are packed: q [tokens, heads, d], k [keys, d], weights [tokens, heads].
struct IndexerProblem {
  int64_t heads = 1, d = 1;
  Selection selection = {};  ///< the lists of selected keys, which the forward does not read
  std::vector<double> q = {}, k = {}, weights = {};
  std::vector<double> k_scale = {};  ///< [keys]: what a key's score is multiplied by; empty: 1

  /// Returns q . k. `token` and `key` are numbers of packed rows. If `magnitude` is not null, it gets the sum of the
  /// terms' magnitudes.
  [[nodiscard]] double Product(int64_t token, int64_t head, int64_t key, double* magnitude = nullptr) const;
  /// Returns the key's scale times the sum of weight * max(0, product) over the heads.
  [[nodiscard]] double Score(int64_t token, int64_t key) const;
};

/// Returns the first `slots` of the keys 0, 1, ... in the operator's order. Larger scores come first, and equal scores
/// are in the order of their keys. -0 equals +0, and NaN comes last. If there are fewer scores than slots, all keys are
/// returned.
[[nodiscard]] std::vector<int64_t> TopKeys(std::span<const double> scores, int64_t slots);

struct IndexerResult {
  std::vector<int64_t> indices;  ///< the selected keys [tokens, slots]; unused entries are -1
  std::vector<double> values;    ///< the scores of the selected keys [tokens, slots]; unused entries are -inf
};

[[nodiscard]] IndexerResult IndexerForward(const IndexerProblem& problem);

/// The maximum and the sum of a softmax over all keys below the limit of each token. Both are 0 for a token without
/// keys, and NaN if a score is NaN.
struct IndexerStatistics {
  std::vector<double> max, sum;  ///< one number per token
};

[[nodiscard]] IndexerStatistics StatisticsOfScores(const IndexerProblem& problem);

struct IndexerGradients {
  std::vector<double> dq, dk, dweights;  ///< the gradients of q, k and weights, in the order of these tensors
};

/// Adds the gradients that follow from d_score, the gradient of the score of (token, key). Token and key are numbers of
/// packed rows.
void AddScoreGradient(const IndexerProblem& problem, int64_t token, int64_t key, double d_score,
                      IndexerGradients* gradients);

/// Computes the gradients of sum(values * d_values) over the lists' entries. d_values is [tokens, slots].
[[nodiscard]] IndexerGradients IndexerBackward(const IndexerProblem& problem, const std::vector<double>& d_values);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_TOKEN_INDEXER_H_
