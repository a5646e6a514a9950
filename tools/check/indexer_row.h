#ifndef FA_CHECK_INDEXER_ROW_H_
#define FA_CHECK_INDEXER_ROW_H_

#include <cstdint>
#include <span>
#include <vector>

#include "check/forward_row.h"
#include "check/gradients.h"

namespace fa::check {

/// One query token of the lightning indexer. Each row of `q` is a head, each row of `k` a key.
struct IndexerToken {
  HeadRows q, k;
  std::vector<double> weights;  ///< one per head
  std::vector<int64_t> keys;    ///< the keys that the token sees
};

/// The products and scores of a token in double. The bounds say how far a correct f32 computation may be from these
/// values.
struct IndexerRow {
  std::vector<double> score, score_bound;      ///< one per key, in the order of the token's keys
  std::vector<double> product, product_bound;  ///< q_g k_j at [g * keys + j]
};

/// Computes score_j = sum_g w_g max(0, q_g k_j) by plain loops. In the bound, u = 2^-24. A product of D multiply-adds
/// is off by (D + 2) u sum_d |q_d k_d|. A score is a sum of N terms, each up to |w_g| sum_d |q_d k_d|. This sum adds an
/// error of (N + 2) u times the terms.
[[nodiscard]] IndexerRow ComputeIndexerRow(const IndexerToken& token);

/// The gradient of the scores of a token's keys, and how far a correct gradient may be from this one.
struct ScoreGradient {
  std::vector<double> value, error;
};

/// Computes d_weights_g = sum_j dI_j max(0, S_gj) of the token, where S_gj is the product q_g k_j. In the bound, dI_j
/// and S_gj have their own errors. The sum of K terms adds (K + 4) u times the sum of their magnitudes. The last
/// rounding adds u_t times the result.
[[nodiscard]] GradientRow ComputeWeightGradient(const IndexerToken& token, const IndexerRow& row,
                                                const ScoreGradient& gradient, DType result);
/// Computes d_q_g = sum_j E_j k_j of head g, with E_j = w_g dI_j where S_gj > 0, otherwise 0. The bound is made like
/// the bound of ComputeWeightGradient. Rounding E_j to the inputs' type may add u_t. If the sign of S_gj is not
/// certain, the bound allows both values of E_j.
[[nodiscard]] GradientRow ComputeIndexQueryGradient(const IndexerToken& token, const IndexerRow& row,
                                                    const ScoreGradient& gradient, int64_t head);

/// For one query token, the attention whose probabilities the indexer learns. Each row of `q` is a head.
struct TargetToken {
  HeadRows q, k;
  std::span<const float> max, sum;  ///< one per head
  double scale = 1;
};

/// Computes dI = y - p of the KL loss on a token's keys. Here p is the mean over the heads of exp(scale q_g k_j -
/// max_g) / sum_g, and y is the softmax of the scores. The error of p is the error of P in ComputeQueryGradient. The
/// error of y is twice the scores' error plus the error of one exp2.
[[nodiscard]] ScoreGradient ComputeLossGradient(const IndexerToken& token, const IndexerRow& row,
                                                const TargetToken& target);

}  // namespace fa::check

#endif  // FA_CHECK_INDEXER_ROW_H_
