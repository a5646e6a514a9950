// A layer of a transformer encoder over sentences of different lengths, without padding.
//
// The sentences lie one after another in one matrix of tokens (layout TND); cu_q and cu_kv hold the ends of the
// sentences. The program compares the layer with one in double precision. The error may be at most twice as large as
// the error of plain loops in float. The output for a sentence in the batch must have the same
// bits as the output for the sentence alone.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "fa/fa.h"
#include "matrix.h"

namespace {

constexpr size_t kHeads = 4, kHeadSize = 16, kModel = kHeads * kHeadSize, kHidden = 2 * kModel;

using Lengths = std::vector<int64_t>;  // inclusive prefix sums of the numbers of tokens of the sentences

template <typename T>
struct Layer {
  // Weights of this scale keep the results of a product around 1.
  static constexpr double kScale = 0.2;
  Matrix<T> query = RandomMatrix<T>(kModel, kModel, kScale, 1), key = RandomMatrix<T>(kModel, kModel, kScale, 2);
  Matrix<T> value = RandomMatrix<T>(kModel, kModel, kScale, 3), out = RandomMatrix<T>(kModel, kModel, kScale, 4);
  Matrix<T> up = RandomMatrix<T>(kModel, kHidden, kScale, 5), down = RandomMatrix<T>(kHidden, kModel, kScale, 6);
};

template <typename T>
Matrix<T> Normalised(Matrix<T> rows) {
  for (size_t i = 0; i < rows.rows; ++i) {
    T mean = 0, square = 0;
    for (size_t j = 0; j < rows.columns; ++j) mean += rows(i, j) / static_cast<T>(rows.columns);
    for (size_t j = 0; j < rows.columns; ++j) {
      square += (rows(i, j) - mean) * (rows(i, j) - mean) / static_cast<T>(rows.columns);
    }
    for (size_t j = 0; j < rows.columns; ++j) rows(i, j) = (rows(i, j) - mean) / std::sqrt(square + T(1e-5));
  }
  return rows;
}

template <typename T>
Matrix<T> Gelu(Matrix<T> rows) {
  for (T& x : rows.values) x = x / 2 * (1 + std::erf(x / std::sqrt(T(2))));
  return rows;
}

/// Computes attention of each sentence to itself with libfa.
Matrix<float> FusedAttention(const Matrix<float>& q, const Matrix<float>& k, const Matrix<float>& v,
                             const Lengths& ends) {
  const fa::Dims shape = {static_cast<int64_t>(q.rows), static_cast<int64_t>(kHeads), static_cast<int64_t>(kHeadSize)};
  Matrix<float> out(q.rows, q.columns);
  fa::AttentionArgs args;
  args.q = fa::View(q.data(), shape);
  args.k = fa::View(k.data(), shape);
  args.v = fa::View(v.data(), shape);
  args.out = fa::View(out.data(), shape);
  args.cu_q = args.cu_kv = ends;
  fa::AttentionOptions options;
  options.layout = fa::Layout::kTND;
  Require(fa::FlashAttention(args, options));
  return out;
}

/// Computes attention of each sentence to itself with plain loops.
template <typename T>
Matrix<T> PlainAttention(const Matrix<T>& q, const Matrix<T>& k, const Matrix<T>& v, const Lengths& ends) {
  Matrix<T> out(q.rows, q.columns);
  size_t begin = 0;
  for (const int64_t last : ends) {
    const auto end = static_cast<size_t>(last);
    for (size_t i = begin; i < end; ++i) {
      for (size_t first = 0; first < kModel; first += kHeadSize) {
        T sum = 0;
        for (size_t j = begin; j < end; ++j) {
          T score = 0;
          for (size_t d = first; d < first + kHeadSize; ++d) score += q(i, d) * k(j, d);
          const T weight = std::exp(score / std::sqrt(static_cast<T>(kHeadSize)));
          sum += weight;
          for (size_t d = first; d < first + kHeadSize; ++d) out(i, d) += weight * v(j, d);
        }
        for (size_t d = first; d < first + kHeadSize; ++d) out(i, d) /= sum;
      }
    }
    begin = end;
  }
  return out;
}

template <typename T, typename Attention>
Matrix<T> Run(const Layer<T>& layer, const Matrix<T>& tokens, const Lengths& ends, const Attention& attention) {
  const Matrix<T> normal = Normalised(tokens);
  const Matrix<T> seen =
      attention(Product(normal, layer.query), Product(normal, layer.key), Product(normal, layer.value), ends);
  const Matrix<T> mixed = Sum(Product(seen, layer.out), tokens);
  return Sum(Product(Gelu(Product(Normalised(mixed), layer.up)), layer.down), mixed);
}

/// Returns the largest difference, or NaN if one difference is NaN.
double Distance(const Matrix<float>& got, const Matrix<double>& want) {
  double worst = 0;
  for (size_t i = 0; i < got.values.size(); ++i) {
    const double error = std::fabs(got.values[i] - want.values[i]);
    if (!(error <= worst)) worst = error;
    if (std::isnan(worst)) break;
  }
  return worst;
}

}  // namespace

int main() {
  const Lengths ends = {5, 16, 17};  // three sentences of 5, 11 and 1 tokens
  constexpr size_t kTokens = 17, kFirst = 5;
  const Matrix<float> tokens = RandomMatrix<float>(kTokens, kModel, 1, 7);
  const Matrix<float> got = Run(Layer<float>(), tokens, ends, FusedAttention);
  const Matrix<float> plain = Run(Layer<float>(), tokens, ends, PlainAttention<float>);
  const Matrix<double> want =
      Run(Layer<double>(), RandomMatrix<double>(kTokens, kModel, 1, 7), ends, PlainAttention<double>);
  const double error = Distance(got, want), plain_error = Distance(plain, want);
  std::printf("largest error %.2g, of plain loops in float %.2g\n", error, plain_error);
  Require(error <= 2 * plain_error, "the layer differs from double precision");

  Matrix<float> sentence(kFirst, kModel);
  std::copy_n(tokens.values.begin(), sentence.values.size(), sentence.values.begin());
  const Matrix<float> alone = Run(Layer<float>(), sentence, {kFirst}, FusedAttention);
  Require(std::equal(alone.values.begin(), alone.values.end(), got.values.begin()),
          "a sentence alone has the bits of the sentence in the batch");
  std::printf("a sentence alone has the bits of the sentence in the batch\n");
  return 0;
}
