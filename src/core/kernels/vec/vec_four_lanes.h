// Operations on compressed rows that vocabularies of four lanes share. F is a vector type of the compiler, so its lanes
// can be indexed.

#pragma once

// The next functions take vectors of 4 / R keys by R rows, where R is 1, 2 or 4.

/// Lane i of the result is lane i % R of x.
template <int R>
FA_INLINE F RepeatLanes(F x) {
  static_assert(R == 1 || R == 2 || R == 4);
  return F{x[0], x[1 % R], x[2 % R], x[3 % R]};
}
/// Lane i of the result combines all lanes of x that belong to row i % R. `join` combines two operands.
template <int R, typename Join>
FA_INLINE F JoinGroups(F x, const Join& join) {
  static_assert(R == 1 || R == 2 || R == 4);
  if constexpr (R <= 2) x = join(x, F{x[2], x[3], x[0], x[1]});
  if constexpr (R == 1) x = join(x, F{x[1], x[0], x[3], x[2]});
  return x;
}
/// Lane i of the result is p[i / R], for n <= 4 / R numbers in p. Further lanes are 0.
template <int R>
FA_INLINE F SpreadKeys(const float* p, int64_t n) {
  static_assert(R == 1 || R == 2 || R == 4);
  const F x = LoadN(p, n);
  return F{x[0], x[1 / R], x[2 / R], x[3 / R]};
}

/// LoadFiniteE4M3 of these vocabularies loads NaN as NaN, so no search for codes of NaN is needed.
template <typename RowAt>
FA_INLINE bool HasE4M3Nan(int64_t /*rows*/, int64_t /*columns*/, const RowAt& /*row*/) {
  return false;
}
