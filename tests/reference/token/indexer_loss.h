#ifndef FA_TESTS_REFERENCE_TOKEN_INDEXER_LOSS_H_
#define FA_TESTS_REFERENCE_TOKEN_INDEXER_LOSS_H_

#include <cstdint>
#include <vector>

#include "reference/token/indexer.h"
#include "reference/token/sparse_attention.h"

namespace reference {

/// The KL loss between the probabilities of an attention and the scores of an indexer. A sparse loss sums over the
/// entries of attention.selection. A dense loss sums over every key below the limit.
struct LossProblem {
  SparseProblem attention = {};  ///< the attention, whose v is not read
  IndexerProblem indexer = {};   ///< the indexer, whose lists are not read
  bool dense = false;
  bool l1 = false;                         ///< p is divided by its sum over the row
  bool mean = false;                       ///< loss and gradients are divided by the number of tokens
  std::vector<double> max = {}, sum = {};  ///< the statistics of the attention [tokens, heads]
  std::vector<double> p_head_mean = {};    ///< [tokens, slots]; if empty, computed from q, k and the statistics
  /// statistics of the indexer's scores, [tokens], for the dense loss only
  std::vector<double> max_index = {}, sum_index = {};

  [[nodiscard]] std::vector<SelectedKey> KeysOf(int64_t b, int64_t t) const {
    return dense ? attention.selection.EveryKey(b, t) : attention.selection.KeysOf(b, t);
  }
};

struct LossResult {
  double loss = 0;
  IndexerGradients gradients = {};
};

/// One row of the loss: for each of its keys, the target p, the indexer's distribution y and the indexer's score.
struct LossRow {
  std::vector<double> p, y, score;
  double p_sum = 0;  ///< sum of p over the row; with LossProblem::l1, before p is divided by this sum
  double share = 1;  ///< factor of the sum of the heads' probabilities in p; 1 if p_head_mean is given
};

[[nodiscard]] LossRow RowOfLoss(const LossProblem& problem, int64_t b, int64_t t);
[[nodiscard]] LossResult IndexerLoss(const LossProblem& problem);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_TOKEN_INDEXER_LOSS_H_
