// Finds the codes of NaN in rows of e4m3, for the levels with AVX2. These codes are 0x7f and 0xff.

#pragma once

/// The largest codes of each column. NaN has the code 0x7f, the largest signed number, or 0xff, the largest unsigned
/// number.
struct LargestE4M3Codes {
  __m256i of_signed = _mm256_setzero_si256(), of_unsigned = _mm256_setzero_si256();

  __attribute__((always_inline)) void Add(const char* codes) {
    __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
    asm("" : "+x"(x));  // otherwise g++ 12 loads the codes twice, and loads are the limit
    of_signed = _mm256_max_epi8(of_signed, x);
    of_unsigned = _mm256_max_epu8(of_unsigned, x);
  }
  [[nodiscard]] __attribute__((always_inline)) __m256i Nan() const {
    return _mm256_or_si256(_mm256_cmpeq_epi8(of_signed, _mm256_set1_epi8(0x7f)),
                           _mm256_cmpeq_epi8(of_unsigned, _mm256_set1_epi8(-1)));
  }
};

/// Returns whether one of the rows row(0), .., row(rows - 1) has a NaN. The number of columns is a multiple of 32.
template <typename RowAt>
FA_INLINE bool HasE4M3Nan(int64_t rows, int64_t columns, const RowAt& row) {
  LargestE4M3Codes a, b, c, d;  // four, because each Add waits for the Add before it on the same object
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    const char *of_a = row(i), *of_b = row(i + 1), *of_c = row(i + 2), *of_d = row(i + 3);
    for (int64_t column = 0; column < columns; column += 32) {
      a.Add(of_a + column);
      b.Add(of_b + column);
      c.Add(of_c + column);
      d.Add(of_d + column);
    }
  }
  for (; i < rows; ++i) {
    for (int64_t column = 0; column < columns; column += 32) a.Add(row(i) + column);
  }
  const __m256i nan = _mm256_or_si256(_mm256_or_si256(a.Nan(), b.Nan()), _mm256_or_si256(c.Nan(), d.Nan()));
  return _mm256_movemask_epi8(nan) != 0;
}
