#ifndef FA_TESTS_REFERENCE_TOKEN_INDEXER_LOSS_H_
#define FA_TESTS_REFERENCE_TOKEN_INDEXER_LOSS_H_

#include <cstdint>
#include <vector>

#include "reference/token/indexer.h"
#include "reference/token/sparse_attention.h"

namespace reference {

/// The KL loss between an attention's probabilities and an indexer's scores. Sparse: over the entries of
/// attention.selection; dense: over every key below the limit.
struct LossProblem {
  SparseProblem attention = {};  ///< v is not read
  IndexerProblem indexer = {};   ///< its lists are not read
  bool dense = false;
  bool l1 = false;                                     ///< p is divided by its sum over the row
  bool mean = false;                                   ///< everything is divided by the number of tokens
  std::vector<double> max = {}, sum = {};              ///< of the attention, [tokens, heads]
  std::vector<double> p_head_mean = {};                ///< [tokens, slots], or empty: from q, k and the statistics
  std::vector<double> max_index = {}, sum_index = {};  ///< of the scores, [tokens]; dense only

  [[nodiscard]] std::vector<SelectedKey> KeysOf(int64_t b, int64_t t) const {
    return dense ? attention.selection.EveryKey(b, t) : attention.selection.KeysOf(b, t);
  }
};

struct LossResult {
  double loss = 0;
  IndexerGradients gradients = {};
};

/// One row of the loss: target, indexer's distribution and scores of each of its keys.
struct LossRow {
  std::vector<double> p, y, score;
  double p_sum = 0;  ///< sum of the head means, by which the L1 target is divided
};

[[nodiscard]] LossRow RowOfLoss(const LossProblem& problem, int64_t b, int64_t t);
[[nodiscard]] LossResult IndexerLoss(const LossProblem& problem);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_TOKEN_INDEXER_LOSS_H_
