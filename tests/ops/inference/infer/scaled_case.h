#ifndef FA_TESTS_OPS_INFER_SCALED_CASE_H_
#define FA_TESTS_OPS_INFER_SCALED_CASE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "ops/inference/infer/infer_case.h"

namespace fa::test {

/// A fused inference whose queries, keys and values have 8 bits and scales.
struct ScaledCase {
  InferCase infer;  ///< sizes, layout, cache and mask mode 0 or 3; its types and biases are not used
  DType format = DType::kI8;
  DType rope = DType::kBF16, out = DType::kF32;
  bool per_key = false;       ///< whether each key and head has a scale, else there is one for all
  bool per_head = false;      ///< whether each head of values has a scale
  bool says_per_key = false;  ///< whether the option says that scales are per key; keys then lie in no pages
  bool positive = false;      ///< whether all values are positive
  double factor = 0;          ///< quant_scale1; 0: absent
  double q_scale = 0.03;      ///< the largest scale of a row; others are smaller, and some have the other sign
  double k_scale = 0.03, v_scale = 0.02;
  int64_t nan_key = -1;  ///< if >= 0, values of this key of element 0 are NaN (f8e4m3)
};
std::ostream& operator<<(std::ostream& out, const ScaledCase& c);

/// The results of the formulas in double. `allowed` bounds the errors of f32: a probability close to the middle of two
/// representable numbers may be rounded to either.
struct ScaledReference {
  std::vector<double> out, lse, allowed_out, allowed_lse;
};

/// The tensors of a case. Elements that no pair reads are NaN, or 99 if they are integers.
class ScaledProblem {
 public:
  explicit ScaledProblem(const ScaledCase& c);
  ScaledProblem(const ScaledProblem&) = delete;
  ScaledProblem& operator=(const ScaledProblem&) = delete;

  [[nodiscard]] InferAttentionArgs args() const;
  [[nodiscard]] InferAttentionOptions options() const;
  [[nodiscard]] ScaledReference Reference() const;
  /// Returns out and lse of the rows in use.
  [[nodiscard]] ForwardOutputs Outputs() const;
  [[nodiscard]] Snapshot TakeSnapshot() const;

 private:
  struct Codes {
    std::vector<uint8_t> q, k, v;
    std::vector<double> q_rope, k_rope, q_scale, k_scale, v_scale;
  };
  [[nodiscard]] bool packed() const { return case_.infer.packed(); }
  [[nodiscard]] int64_t FirstRow(int64_t b) const;
  [[nodiscard]] int64_t Row(int64_t b, int64_t n, int64_t i) const;
  [[nodiscard]] int64_t Key(int64_t b, int64_t n, int64_t j) const;
  void Draw();
  void MakeQueries();
  void MakeKeys(const std::vector<uint8_t>* codes, const std::vector<double>* numbers, DType dtype, int64_t columns,
                std::vector<LetteredTensor>* to, std::vector<TensorView>* views);
  void MakeScales();

  ScaledCase case_;
  Codes codes_;
  std::vector<int64_t> cu_q_, cu_kv_;
  std::vector<std::vector<int32_t>> pages_;
  LetteredTensor q_, q_rope_, q_scale_, out_, lse_;
  std::vector<LetteredTensor> k_, k_rope_, v_;
  std::vector<TensorView> k_views_, k_rope_views_, v_views_;
  Tensor table_, k_scale_, v_scale_, factor_;
};

/// Runs the case on every level of this machine and compares it with the reference. Only the outputs may be written.
[[nodiscard]] ::testing::AssertionResult RunsLikeTheFormulas(const ScaledCase& c);
[[nodiscard]] ForwardOutputs OutputsOf(const ScaledCase& c, Context* context);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_INFER_SCALED_CASE_H_
