#ifndef FA_BENCHMARKS_PEERS_NAIVE_ATTENTION_H_
#define FA_BENCHMARKS_PEERS_NAIVE_ATTENTION_H_

#include <cstdint>
#include <vector>

namespace fa::peers {

struct NaiveSizes {
  int64_t batch = 0, heads = 0, heads_kv = 0, sq = 0, sk = 0, d = 0;
  bool causal = false;  ///< whether the mask is causal, aligned bottom-right
};

/// Attention as simple code computes it: a whole matrix of scores by OpenBLAS' sgemm, the softmax row by row, and a
/// second product. It takes f32 in dense BNSD, and O(Sq Sk) memory per thread. Masked pairs are computed too. The
/// query heads that share a key head form one group, and a matrix product computes all rows of a group. OpenMP threads
/// compute the groups, and OpenBLAS has one thread.
class NaiveAttention {
 public:
  NaiveAttention(const NaiveSizes& sizes, int threads);

  /// @param lse  output [B, N, Sq]: the natural logarithm of the sum of exponentials
  void Forward(const float* q, const float* k, const float* v, float* out, float* lse);

  struct Gradients {
    const float *q, *k, *v, *out, *lse, *d_out;
    float *dq, *dk, *dv;
  };
  /// Computes the gradients by five products, the first of which computes the scores again.
  void Backward(const Gradients& tensors);

 private:
  struct Group;
  void ForwardGroup(const Group& group, const float* v, float* out, float* lse, float* scores) const;
  void BackwardGroup(const Group& group, const Gradients& tensors, float* p, float* ds) const;
  void Scores(const Group& group, float* s) const;
  [[nodiscard]] Group GroupAt(const float* q, const float* k, int64_t index) const;
  /// Returns how many keys the mask keeps for a row of a group.
  [[nodiscard]] int64_t Kept(int64_t row) const;

  NaiveSizes sizes_;
  int64_t rows_;  ///< the number of rows of a group, over all its heads
  int threads_;
  std::vector<std::vector<float>> scratch_;  ///< per thread: memory for two matrices [rows_, sk]
};

}  // namespace fa::peers

#endif  // FA_BENCHMARKS_PEERS_NAIVE_ATTENTION_H_
