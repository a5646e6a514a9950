#include "check/indexer_row.h"

#include <algorithm>
#include <cmath>

#include "check/element.h"

namespace fa::check {
namespace {

constexpr double kU = 0x1p-24;

std::vector<double> RowOf(const HeadRows& rows, int64_t row) {
  std::vector<double> values(static_cast<size_t>(rows.columns));
  for (size_t c = 0; c < values.size(); ++c) values[c] = At(rows, row, static_cast<int64_t>(c));
  return values;
}

struct Product {
  double value = 0, magnitude = 0;
};

Product Multiply(const std::vector<double>& a, const std::vector<double>& b) {
  Product product;
  for (size_t c = 0; c < a.size(); ++c) {
    product.value += a[c] * b[c];
    product.magnitude += std::fabs(a[c] * b[c]);
  }
  return product;
}

// Returns the error of rounding a result to `dtype`.
double LastRounding(DType dtype, double value) {
  return UnitRoundoff(dtype) * std::fabs(value) + (dtype == DType::kF16 ? 0x1p-25 : 0);
}

// Returns the error of the kernels' exp2: 2 ulp for f32, 4e-6 for 16-bit types.
double ExponentialError(DType dtype) { return dtype == DType::kF32 ? 4 * kU : 4e-6; }

}  // namespace

IndexerRow ComputeIndexerRow(const IndexerToken& token) {
  const size_t heads = token.weights.size(), keys = token.keys.size();
  IndexerRow row;
  row.score.resize(keys);
  row.score_bound.resize(keys);
  row.product.resize(heads * keys);
  row.product_bound.resize(heads * keys);
  std::vector<std::vector<double>> q;
  for (size_t g = 0; g < heads; ++g) q.push_back(RowOf(token.q, static_cast<int64_t>(g)));
  const auto size = static_cast<double>(token.q.columns), count = static_cast<double>(heads);
  for (size_t j = 0; j < keys; ++j) {
    const std::vector<double> k = RowOf(token.k, token.keys[j]);
    for (size_t g = 0; g < heads; ++g) {
      const Product product = Multiply(q[g], k);
      row.product[g * keys + j] = product.value;
      row.product_bound[g * keys + j] = (size + 2) * kU * product.magnitude;
      row.score[j] += token.weights[g] * std::max(product.value, 0.0);
      row.score_bound[j] += (size + count + 4) * kU * std::fabs(token.weights[g]) * product.magnitude;
    }
  }
  return row;
}

GradientRow ComputeWeightGradient(const IndexerToken& token, const IndexerRow& row, const ScoreGradient& gradient,
                                  DType result) {
  const size_t heads = token.weights.size(), keys = token.keys.size();
  GradientRow weights = {std::vector<double>(heads), std::vector<double>(heads)};
  for (size_t g = 0; g < heads; ++g) {
    double error = 0, magnitude = 0;
    for (size_t j = 0; j < keys; ++j) {
      const double product = std::max(row.product[g * keys + j], 0.0);
      weights.value[g] += gradient.value[j] * product;
      magnitude += std::fabs(gradient.value[j]) * product;
      error += std::fabs(gradient.value[j]) * row.product_bound[g * keys + j] + gradient.error[j] * product;
    }
    weights.bound[g] =
        error + (static_cast<double>(keys) + 4) * kU * magnitude + LastRounding(result, weights.value[g]);
  }
  return weights;
}

GradientRow ComputeIndexQueryGradient(const IndexerToken& token, const IndexerRow& row, const ScoreGradient& gradient,
                                      int64_t head) {
  const auto g = static_cast<size_t>(head);
  const auto columns = static_cast<size_t>(token.k.columns);
  const size_t keys = token.keys.size();
  GradientRow dq = {std::vector<double>(columns), std::vector<double>(columns)};
  const double weight = token.weights[g];
  const double rounding = UnitRoundoff(token.k.dtype) + (static_cast<double>(keys) + 6) * kU;
  for (size_t j = 0; j < keys; ++j) {
    const double product = row.product[g * keys + j];
    const bool doubtful = std::fabs(product) <= row.product_bound[g * keys + j];
    const double whole = weight * gradient.value[j], e = product > 0 ? whole : 0;
    if (e == 0 && !doubtful) continue;
    const double error =
        std::fabs(weight) * gradient.error[j] + rounding * std::fabs(e) + (doubtful ? std::fabs(whole) : 0);
    for (size_t c = 0; c < columns; ++c) {
      const double k = At(token.k, token.keys[j], static_cast<int64_t>(c));
      dq.value[c] += e * k;
      dq.bound[c] += error * std::fabs(k);
    }
  }
  for (size_t c = 0; c < columns; ++c) dq.bound[c] += LastRounding(token.k.dtype, dq.value[c]);
  return dq;
}

ScoreGradient ComputeLossGradient(const IndexerToken& token, const IndexerRow& row, const TargetToken& target) {
  const size_t keys = token.keys.size(), heads = target.max.size();
  const double e = ExponentialError(target.k.dtype);
  const auto size = static_cast<double>(target.k.columns), count = static_cast<double>(heads);
  std::vector<std::vector<double>> q;
  for (size_t h = 0; h < heads; ++h) q.push_back(RowOf(target.q, static_cast<int64_t>(h)));

  const double max = keys == 0 ? 0 : *std::max_element(row.score.begin(), row.score.end());
  const double worst = keys == 0 ? 0 : *std::max_element(row.score_bound.begin(), row.score_bound.end());
  double sum = 0;
  for (const double score : row.score) sum += std::exp(score - max);

  ScoreGradient gradient = {std::vector<double>(keys), std::vector<double>(keys)};
  for (size_t j = 0; j < keys; ++j) {
    const std::vector<double> k = RowOf(target.k, token.keys[j]);
    double p = 0, p_error = 0;
    for (size_t h = 0; h < heads; ++h) {
      const Product product = Multiply(q[h], k);
      const double row_max = static_cast<double>(target.max[h]);
      const double one = std::exp(target.scale * product.value - row_max) / static_cast<double>(target.sum[h]) / count;
      p += one;
      p_error += one * ((size + 8) * kU * (std::fabs(target.scale) * product.magnitude + std::fabs(row_max)) + e);
    }
    const double y = std::exp(row.score[j] - max) / sum;
    const double y_error = y * (row.score_bound[j] + worst + 2 * e + (static_cast<double>(keys) + 8) * kU);
    gradient.value[j] = y - p;
    gradient.error[j] = p_error + y_error + (count + 4) * kU * p + 2 * kU * (y + p);
  }
  return gradient;
}

}  // namespace fa::check
