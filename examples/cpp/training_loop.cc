// Training that ends in the same bits on any number of threads.
//
// The model is one layer of causal attention, out = attention(x Wq, x Wk, x Wv). Its task is to repeat the previous
// token, in each of 8 sentences. Forward and backward are planned once and run in every step. The program trains on one
// thread and on three.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fa/fa.h"
#include "matrix.h"

namespace {

constexpr size_t kSentences = 8, kTokens = 48, kRows = kSentences * kTokens, kSize = 32;
constexpr int kSteps = 150;

using Weights = std::vector<Matrix<float>>;  // the matrices Wq, Wk and Wv

/// Returns the tokens. The first half of a token has waves that tell its position in the sentence. The second half is a
/// random word.
Matrix<float> Tokens() {
  Matrix<float> x = RandomMatrix<float>(kRows, kSize, 1, 11);
  for (size_t i = 0; i < kRows; ++i) {
    const auto position = static_cast<double>(i % kTokens);
    for (size_t j = 0; j < kSize / 4; ++j) {
      const double frequency = 0.1 * static_cast<double>(j + 1);
      x(i, j) = static_cast<float>(std::cos(frequency * position));
      x(i, j + kSize / 4) = static_cast<float>(std::sin(frequency * position));
    }
  }
  return x;
}

/// Returns the tokens, each moved to the next place in its sentence.
Matrix<float> Targets(const Matrix<float>& x) {
  Matrix<float> target(kRows, kSize);
  for (size_t i = 0; i < kRows; ++i) {
    if (i % kTokens == 0) continue;
    for (size_t j = kSize / 2; j < kSize; ++j) target(i, j) = x(i - 1, j);
  }
  return target;
}

/// Forward and backward of the layer, planned for one context.
class AttentionLayer {
 public:
  explicit AttentionLayer(fa::Context& context) {
    options_.mask = fa::Mask::Causal();
    fa::AttentionArgs& forward = forward_args_;
    forward.q = View(q_);
    forward.k = View(k_);
    forward.v = View(v_);
    forward.out = View(out_);
    forward.softmax_max = fa::View(max_.data(), {kSentences, 1, kTokens});
    forward.softmax_sum = fa::View(sum_.data(), {kSentences, 1, kTokens});
    fa::AttentionGradArgs& backward = backward_args_;
    backward.q = forward.q;
    backward.k = forward.k;
    backward.v = forward.v;
    backward.out = View(out_);
    backward.d_out = View(d_out_);
    backward.softmax_max = fa::View(max_.data(), {kSentences, 1, kTokens});
    backward.softmax_sum = fa::View(sum_.data(), {kSentences, 1, kTokens});
    backward.dq = View(dq_);
    backward.dk = View(dk_);
    backward.dv = View(dv_);
    auto forward_plan = fa::PlanFlashAttention(forward, options_, &context);
    Require(forward_plan.status());
    forward_.emplace(std::move(*forward_plan));
    auto backward_plan = fa::PlanFlashAttentionGrad(backward, options_, &context);
    Require(backward_plan.status());
    backward_.emplace(std::move(*backward_plan));
    Require(forward_->info().tasks > 1 && backward_->info().tasks > 1, "there is work for several threads");
  }

  /// Makes one step of gradient descent.
  /// @return the mean squared error before the step
  double Train(const Matrix<float>& x, const Matrix<float>& target, Weights& weights, float rate) {
    Fill(q_, Product(x, weights[0]));
    Fill(k_, Product(x, weights[1]));
    Fill(v_, Product(x, weights[2]));
    Require(forward_->Run(forward_args_, workspace_));
    double loss = 0;
    for (size_t i = 0; i < out_.values.size(); ++i) {
      const float error = out_.values[i] - target.values[i];
      loss += static_cast<double>(error) * error / kRows;
      d_out_.values[i] = 2 * error / kRows;
    }
    Require(backward_->Run(backward_args_, workspace_));
    const Matrix<float> transposed = Transposed(x);
    const Matrix<float>* gradients[] = {&dq_, &dk_, &dv_};
    for (size_t w = 0; w < weights.size(); ++w) {
      const Matrix<float> gradient = Product(transposed, *gradients[w]);
      for (size_t i = 0; i < gradient.values.size(); ++i) weights[w].values[i] -= rate * gradient.values[i];
    }
    return loss;
  }

 private:
  /// Copies values into the plans' tensors, which stay at their addresses.
  static void Fill(Matrix<float>& place, const Matrix<float>& from) {
    std::copy(from.values.begin(), from.values.end(), place.values.begin());
  }
  static fa::MutableTensorView View(Matrix<float>& matrix) {
    return fa::View(matrix.data(), {kSentences, 1, kTokens, kSize});
  }

  fa::AttentionOptions options_;
  Matrix<float> q_{kRows, kSize}, k_{kRows, kSize}, v_{kRows, kSize}, out_{kRows, kSize};
  Matrix<float> d_out_{kRows, kSize}, dq_{kRows, kSize}, dk_{kRows, kSize}, dv_{kRows, kSize};
  Matrix<float> max_{1, kRows}, sum_{1, kRows};
  fa::AttentionArgs forward_args_;
  fa::AttentionGradArgs backward_args_;
  std::optional<fa::PlanFor<fa::AttentionArgs>> forward_;
  std::optional<fa::PlanFor<fa::AttentionGradArgs>> backward_;
  fa::Workspace workspace_;
};

struct Trained {
  Weights weights;
  double first_loss = 0, last_loss = 0;
};

Trained Train(int threads) {
  auto context = fa::Context::Create({.threads = threads});
  Require(context.status());
  AttentionLayer layer(**context);
  const Matrix<float> x = Tokens(), target = Targets(x);
  Trained trained;
  for (uint32_t seed = 1; seed <= 3; ++seed) trained.weights.push_back(RandomMatrix<float>(kSize, kSize, 0.3, seed));
  constexpr float kRate = 0.3F;
  for (int step = 0; step < kSteps; ++step) {
    const double loss = layer.Train(x, target, trained.weights, kRate);
    if (step == 0) trained.first_loss = loss;
    trained.last_loss = loss;
  }
  std::printf("%d threads: mean squared error %.4f, after %d steps %.4f\n", threads, trained.first_loss, kSteps,
              trained.last_loss);
  return trained;
}

}  // namespace

int main() {
  const Trained one = Train(1), three = Train(3);
  Require(one.last_loss < one.first_loss / 2, "the error at least halves");
  for (size_t w = 0; w < one.weights.size(); ++w) {
    const std::vector<float>&a = one.weights[w].values, &b = three.weights[w].values;
    Require(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0, "weights do not depend on threads");
  }
  std::printf("the weights are the same bits\n");
  return 0;
}
