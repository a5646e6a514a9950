#ifndef FA_CHECK_GRADIENTS_H_
#define FA_CHECK_GRADIENTS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "check/forward_row.h"

namespace fa::check {

/// The numbers of one query row that the backward takes from the forward, with the errors that a correct f32
/// computation may have.
struct RowFacts {
  double max = 0, log_sum = 0;  ///< max + log_sum is the row's log-sum-exp
  double lse_error = 0;
  double delta = 0;  ///< the sum over columns d of dO_d O_d
  double delta_error = 0;
};

/// Computes RowFacts from the statistics and the output that the backward gets. delta then has the error of an f32
/// inner product.
[[nodiscard]] RowFacts FactsFromInputs(const HeadRows& out, const HeadRows& d_out, int64_t row, double max, double sum);
/// Computes RowFacts from a forward in double. The errors include the errors of an f32 forward.
[[nodiscard]] RowFacts FactsFromForward(const ForwardRow& forward, const HeadRows& d_out, int64_t row);

/// One query head with the keys that it sees. `keeps` and `facts` are called only for rows and keys that a gradient
/// needs.
struct BackwardHead {
  HeadRows q, k, v, d_out;
  int64_t sq = 0, sk = 0;
  double scale = 1;
  std::function<bool(int64_t row, int64_t key)> keeps;
  std::function<RowFacts(int64_t row)> facts;
};

/// A row of a gradient in double. `bound` has one entry per column: how far a correct f32 computation may be from the
/// column's value.
struct GradientRow {
  std::vector<double> value;
  std::vector<double> bound;
};

struct KeyGradients {
  GradientRow dk, dv;
};

/// Computes dq_i = scale sum_j dS_ij k_j by plain loops. Here P_ij = exp(scale q_i k_j - lse_i), dP_ij = dO_i v_j and
/// dS_ij = P_ij (dP_ij - delta_i).
///
/// In the bound, u = 2^-24, and u_t is the unit roundoff of the inputs' type. For the pair (i, j), A = |scale| sum_d
/// |q_d k_d| and B = sum_d |dO_d v_d|.
/// - A score is D multiply-adds and a handful of scalings and subtractions, with values up to A, |max| and |log_sum|.
/// - So P_ij has the relative error r = (D + 8) u (A + |max| + |log_sum|) + lse_error + e, where e is the error of exp2
///   as in ComputeForwardRow. If P_ij is flushed to 0, it is off by 2^-126.
/// - dP_ij is off by Dv u B. So dS_ij is off by P (r |dP - delta| + Dv u B + delta_error + 3 u (|dP| + |delta|)).
/// - Rounding dS to a 16-bit type adds u_t |dS|, and in f16 also 2^-25.
/// - A sum of n terms is off by (n + 8) u times the sum of their magnitudes. Rounding the result adds u_t times the
///   result, and in f16 also 2^-25.
[[nodiscard]] GradientRow ComputeQueryGradient(const BackwardHead& head, int64_t row);

/// Computes dk_j = scale sum_i dS_ij q_i and dv_j = sum_i P_ij dO_i over the query heads of a group. The bounds are the
/// sums of the same errors as in ComputeQueryGradient.
[[nodiscard]] KeyGradients ComputeKeyGradients(std::span<const BackwardHead> group, int64_t key);

}  // namespace fa::check

#endif  // FA_CHECK_GRADIENTS_H_
