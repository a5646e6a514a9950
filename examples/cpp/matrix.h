#ifndef FA_EXAMPLES_CPP_MATRIX_H_
#define FA_EXAMPLES_CPP_MATRIX_H_

// Matrices by plain loops, for the parts of a model around its attention.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "fa/status.h"

/// A row-major matrix.
template <typename T>
struct Matrix {
  Matrix(size_t rows_in, size_t columns_in) : rows(rows_in), columns(columns_in), values(rows_in * columns_in) {}
  T& operator()(size_t row, size_t column) { return values[row * columns + column]; }
  const T& operator()(size_t row, size_t column) const { return values[row * columns + column]; }
  T* data() { return values.data(); }
  const T* data() const { return values.data(); }

  size_t rows, columns;
  std::vector<T> values;
};

/// Returns the product a b. Sums run in ascending order, so that the bits are always the same.
template <typename T>
Matrix<T> Product(const Matrix<T>& a, const Matrix<T>& b) {
  Matrix<T> c(a.rows, b.columns);
  for (size_t i = 0; i < a.rows; ++i) {
    for (size_t k = 0; k < a.columns; ++k) {
      for (size_t j = 0; j < b.columns; ++j) c(i, j) += a(i, k) * b(k, j);
    }
  }
  return c;
}

template <typename T>
Matrix<T> Transposed(const Matrix<T>& a) {
  Matrix<T> b(a.columns, a.rows);
  for (size_t i = 0; i < a.rows; ++i) {
    for (size_t j = 0; j < a.columns; ++j) b(j, i) = a(i, j);
  }
  return b;
}

template <typename T>
Matrix<T> Sum(Matrix<T> a, const Matrix<T>& b) {
  for (size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

/// Returns a matrix of numbers in [-scale, scale). The numbers are the same in every run and with every standard
/// library, and are exact in float.
template <typename T>
Matrix<T> RandomMatrix(size_t rows, size_t columns, double scale, uint32_t seed) {
  Matrix<T> a(rows, columns);
  std::mt19937 random(seed);
  for (T& value : a.values) value = static_cast<float>(((random() >> 16) / 32768.0 - 1) * scale);
  return a;
}

/// Ends the program with the status' message unless the status is ok.
inline void Require(const fa::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

/// Ends the program unless `holds`.
inline void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "wrong: %s\n", what);
  std::exit(1);
}

#endif  // FA_EXAMPLES_CPP_MATRIX_H_
