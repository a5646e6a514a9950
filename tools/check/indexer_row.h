#ifndef FA_CHECK_INDEXER_ROW_H_
#define FA_CHECK_INDEXER_ROW_H_

#include <cstdint>
#include <span>
#include <vector>

#include "check/forward_row.h"
#include "check/gradients.h"

namespace fa::check {

/// The inputs of the lightning indexer for one query token. Each row of `q` is a head, and each row of `k` is a key.
struct IndexerToken {
  HeadRows q, k;
  std::vector<double> weights;  ///< one weight per head
  std::vector<int64_t> keys;    ///< the keys that the token sees
};

/// The products and scores of a token in double, and how far a correct f32 computation may be from each.
struct IndexerRow {
  std::vector<double> score, score_bound;      ///< one per key, in the order of the token's keys
  std::vector<double> product, product_bound;  ///< q_g k_j at [g * keys + j]
};

/// Computes score_j = sum_g w_g max(0, q_g k_j) by plain loops. In the bound, u = 2^-24. A product has D multiply-adds
/// and is off by (D + 2) u sum_d |q_d k_d|. A score is a sum of N terms, each of at most |w_g| sum_d |q_d k_d|. With
/// the errors of the products, the score is off by (D + N + 4) u times the sum of these limits.
[[nodiscard]] IndexerRow ComputeIndexerRow(const IndexerToken& token);

/// The gradient of each score of a token, and how far a correct gradient may be from it.
struct ScoreGradient {
  std::vector<double> value, error;
};

/// Computes d_weights_g = sum_j dI_j max(0, S_gj), where dI is `gradient` and S_gj is the product q_g k_j. The bound
/// includes the errors of dI_j and S_gj. The sum of K terms is off by (K + 4) u times the sum of their magnitudes.
/// Rounding the result adds u_t times the result, and in f16 also 2^-25. u_t is the unit roundoff of `result`.
[[nodiscard]] GradientRow ComputeWeightGradient(const IndexerToken& token, const IndexerRow& row,
                                                const ScoreGradient& gradient, DType result);
/// Computes d_q_g = sum_j E_j k_j of head g, where E_j = w_g dI_j if S_gj > 0, and otherwise 0. The bound is the sum of
/// the same errors as in ComputeWeightGradient. For 16-bit inputs the bound includes rounding E_j to their type. If the
/// error of S_gj leaves its sign unknown, the bound allows both values of E_j.
[[nodiscard]] GradientRow ComputeIndexQueryGradient(const IndexerToken& token, const IndexerRow& row,
                                                    const ScoreGradient& gradient, int64_t head);

/// The attention whose probabilities the indexer learns, for one query token. Each row of `q` is a head.
struct TargetToken {
  HeadRows q, k;
  std::span<const float> max, sum;  ///< the softmax statistics of the token's row, one per head
  double scale = 1;
};

/// Computes dI = y - p of the KL loss for each key of a token. p is the mean over the heads of exp(scale q_g k_j -
/// max_g) / sum_g, and y is the softmax of the scores. p has the error of P in ComputeQueryGradient. y has twice the
/// scores' error, twice the error of exp2, and the error (K + 8) u of a sum over K keys.
[[nodiscard]] ScoreGradient ComputeLossGradient(const IndexerToken& token, const IndexerRow& row,
                                                const TargetToken& target);

}  // namespace fa::check

#endif  // FA_CHECK_INDEXER_ROW_H_
