#ifndef FA_CHECK_GRADIENTS_H_
#define FA_CHECK_GRADIENTS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "check/forward_row.h"

namespace fa::check {

/// What the backward takes from the forward for one query row, and how far a correct computation may be from it.
struct RowFacts {
  double max = 0, log_sum = 0;  ///< the row's log-sum-exp is their sum
  double lse_error = 0;
  double delta = 0;  ///< sum_d dO_d O_d
  double delta_error = 0;
};

/// Facts from the statistics and the output that the backward is given: the error is that of an f32 inner product.
[[nodiscard]] RowFacts FactsFromInputs(const HeadRows& out, const HeadRows& d_out, int64_t row, double max, double sum);
/// Facts from a forward in double: the error is that of an f32 forward as well.
[[nodiscard]] RowFacts FactsFromForward(const ForwardRow& forward, const HeadRows& d_out, int64_t row);

/// One query head with the keys that it sees. `keeps` and `facts` are called only for what a gradient needs.
struct BackwardHead {
  HeadRows q, k, v, d_out;
  int64_t sq = 0, sk = 0;
  double scale = 1;
  std::function<bool(int64_t row, int64_t key)> keeps;
  std::function<RowFacts(int64_t row)> facts;
};

/// A row of a gradient in double and, column by column, how far a correct f32 computation may be from it.
struct GradientRow {
  std::vector<double> value;
  std::vector<double> bound;
};

struct KeyGradients {
  GradientRow dk, dv;
};

/// dq_i = scale sum_j dS_ij k_j by plain loops, with P_ij = exp(scale q_i k_j - lse_i), dP_ij = dO_i v_j and
/// dS_ij = P_ij (dP_ij - delta_i).
///
/// The bound, with u = 2^-24, u_t the unit roundoff of the inputs' type, A = |scale| sum_d |q_d k_d| of the pair and
/// B = sum_d |dO_d v_d|: a score is D multiply-adds and a handful of scalings and subtractions, of values no larger
/// than A, |max| and |log_sum|, so P_ij is off by r = (D + 8) u (A + |max| + |log_sum|) + lse_error + e, relatively,
/// with e for exp2 as in ComputeForwardRow, and by 2^-126 where it is flushed to 0. dP_ij is off by Dv u B, so dS_ij by
/// P (r |dP - delta| + Dv u B + delta_error + 3 u (|dP| + |delta|)), plus u_t |dS| (f16: and 2^-25) where it is rounded
/// to a 16-bit type. A sum of n terms adds (n + 8) u of their magnitudes, the last rounding u_t of the result.
[[nodiscard]] GradientRow ComputeQueryGradient(const BackwardHead& head, int64_t row);

/// dk_j = scale sum_i dS_ij q_i and dv_j = sum_i P_ij dO_i over the query heads of a group; bounds as above.
[[nodiscard]] KeyGradients ComputeKeyGradients(std::span<const BackwardHead> group, int64_t key);

}  // namespace fa::check

#endif  // FA_CHECK_GRADIENTS_H_
