#ifndef FA_BENCHMARKS_PEERS_NAIVE_ATTENTION_H_
#define FA_BENCHMARKS_PEERS_NAIVE_ATTENTION_H_

#include <cstdint>
#include <vector>

namespace fa::peers {

struct NaiveSizes {
  int64_t batch = 0, heads = 0, heads_kv = 0, sq = 0, sk = 0, d = 0;
  bool causal = false;  ///< bottom-right
};

/// Attention as a page of code computes it: whole matrices of scores by OpenBLAS' sgemm, softmax row by row, the second
/// product. It takes f32 in dense BNSD and O(Sq Sk) memory per thread; masked pairs are computed and thrown away. The
/// heads that share a key head are one product; such groups go to OpenMP threads, and OpenBLAS runs with one thread.
class NaiveAttention {
 public:
  NaiveAttention(const NaiveSizes& sizes, int threads);

  /// @param lse  [B, N, Sq], natural log of the sum of exponentials; written
  void Forward(const float* q, const float* k, const float* v, float* out, float* lse);

  struct Gradients {
    const float *q, *k, *v, *out, *lse, *d_out;
    float *dq, *dk, *dv;
  };
  /// Recomputes the scores: five products.
  void Backward(const Gradients& tensors);

 private:
  struct Group;
  void ForwardGroup(const Group& group, const float* v, float* out, float* lse, float* scores) const;
  void BackwardGroup(const Group& group, const Gradients& tensors, float* p, float* ds) const;
  void Scores(const Group& group, float* s) const;
  [[nodiscard]] Group GroupAt(const float* q, const float* k, int64_t index) const;
  /// The number of keys that row r of a group's product keeps.
  [[nodiscard]] int64_t Kept(int64_t row) const;

  NaiveSizes sizes_;
  int64_t rows_;  ///< rows of a group's product
  int threads_;
  std::vector<std::vector<float>> scratch_;  ///< two matrices per thread
};

}  // namespace fa::peers

#endif  // FA_BENCHMARKS_PEERS_NAIVE_ATTENTION_H_
