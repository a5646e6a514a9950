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

/// The products and scores of a token in double, and how far a correct f32 computation may be from them.
struct IndexerRow {
  std::vector<double> score, score_bound;      ///< of the keys, in their order
  std::vector<double> product, product_bound;  ///< q_g k_j at [g * keys + j]
};

/// score_j = sum_g w_g max(0, q_g k_j) by plain loops. The bound, with u = 2^-24: a product is D multiply-adds,
/// (D + 2) u sum_d |q_d k_d|; the score N more of values no larger than |w_g| times that sum, (N + 2) u of it.
[[nodiscard]] IndexerRow ComputeIndexerRow(const IndexerToken& token);

/// The gradient of the scores of a token's keys, and how far a correct one may be from it.
struct ScoreGradient {
  std::vector<double> value, error;
};

/// d_weights_g = sum_j dI_j max(0, S_gj) of the token.
/// The bound: dI_j is off by its error, S_gj by its own, the sum of K terms by (K + 4) u of their magnitudes, the last
/// rounding by u_t of the result.
[[nodiscard]] GradientRow ComputeWeightGradient(const IndexerToken& token, const IndexerRow& row,
                                                const ScoreGradient& gradient, DType result);
/// d_q_g = sum_j E_j k_j of head g, with E_j = w_g dI_j where S_gj > 0, else 0. As above; E_j may be rounded to the
/// inputs' type, u_t, and where S_gj is not certainly of one sign it may or may not count.
[[nodiscard]] GradientRow ComputeIndexQueryGradient(const IndexerToken& token, const IndexerRow& row,
                                                    const ScoreGradient& gradient, int64_t head);

/// The attention whose probabilities the indexer learns, for one query token. Each row of `q` is a head.
struct TargetToken {
  HeadRows q, k;
  std::span<const float> max, sum;  ///< one per head
  double scale = 1;
};

/// dI = y - p of the KL loss on a token's keys: p the mean over the heads of exp(scale q_g k_j - max_g) / sum_g, y the
/// softmax of the scores. p is off as P is in ComputeQueryGradient, y by the scores' errors twice and one exp2.
[[nodiscard]] ScoreGradient ComputeLossGradient(const IndexerToken& token, const IndexerRow& row,
                                                const TargetToken& target);

}  // namespace fa::check

#endif  // FA_CHECK_INDEXER_ROW_H_
