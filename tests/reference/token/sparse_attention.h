#ifndef FA_TESTS_REFERENCE_TOKEN_SPARSE_ATTENTION_H_
#define FA_TESTS_REFERENCE_TOKEN_SPARSE_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "reference/token/selection.h"

namespace reference {

/// Attention in which every token sees the keys of its list. Tensors are packed: [tokens, heads, size] and [keys,
/// heads_kv, size]. Values are double for every tested type.
struct SparseProblem {
  int64_t heads = 1, d = 1, d_rope = 0, dv = 1;
  int64_t heads_kv = 1;  ///< more than one only in the attention of a dense indexer loss
  Selection selection = {};
  double scale = 1;
  bool merged = false;  ///< there is no v; the first dv columns of k are the values
  std::vector<double> q = {}, k = {}, v = {}, q_rope = {}, k_rope = {};
  std::vector<double> sink = {};  ///< [heads] or empty: the score of one more key per head, whose value is 0

  /// Returns scale * (q . k + q_rope . k_rope). `token` and `key` are numbers of packed rows. If `magnitude` is not
  /// null, it gets |scale| times the sum of the terms' magnitudes.
  [[nodiscard]] double Score(int64_t token, int64_t head, int64_t key, double* magnitude = nullptr) const;
  [[nodiscard]] const double* Value(int64_t key) const { return merged ? &k[key * d] : &v[key * dv]; }
};

struct SparseResult {
  std::vector<double> out;          ///< the output [tokens, heads, dv]
  std::vector<double> max, sum;     ///< the softmax statistics [tokens, heads]
  std::vector<double> p_head_mean;  ///< the mean of the heads' probabilities [tokens, slots], only with block size 1
};

[[nodiscard]] SparseResult SparseForward(const SparseProblem& problem);

struct SparseGradients {
  std::vector<double> dq, dk, dv, dq_rope,
      // The gradients have the shapes of q, k, v, q_rope and k_rope. If merged, dk contains dv, and dv is empty.
      dk_rope;
  std::vector<double> dsink;  ///< the gradients of the sinks [heads]
};

/// Computes the gradients of sum(out * d_out). `forward` gives out, max and sum.
[[nodiscard]] SparseGradients SparseBackward(const SparseProblem& problem, const SparseResult& forward,
                                             const std::vector<double>& d_out);

}  // namespace reference

#endif  // FA_TESTS_REFERENCE_TOKEN_SPARSE_ATTENTION_H_
