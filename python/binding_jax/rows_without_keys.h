#ifndef FA_PYTHON_BINDING_JAX_ROWS_WITHOUT_KEYS_H_
#define FA_PYTHON_BINDING_JAX_ROWS_WITHOUT_KEYS_H_

#include <cstdint>
#include <functional>

#include "fa/tensor.h"

namespace fa::xla_calls {

/// The number of query rows in use of batch element b.
using RowsInUse = std::function<int64_t(int64_t b)>;

/// jax.nn gives a masked score the lowest finite number, not -inf. So a row without keys has the same probability 1/S
/// for each of its S keys. The library gives such a row the output 0 and no gradients. For the rows in use, these
/// functions change the library's results to those of jax.nn. All tensors are [B, S, N, D]; softmax_max and softmax_sum
/// are the library's, [B, N, T].

/// Writes the mean of all values into each row of `out` without keys.
void WriteMeans(const TensorView& v, const TensorView& softmax_max, const TensorView& softmax_sum,
                const RowsInUse& in_use, const MutableTensorView& out);
/// Adds 1/S of each row of `d_out` without keys to all rows of `dv`.
void AddToValues(const TensorView& d_out, const TensorView& softmax_max, const TensorView& softmax_sum,
                 const RowsInUse& in_use, const MutableTensorView& dv);

}  // namespace fa::xla_calls

#endif  // FA_PYTHON_BINDING_JAX_ROWS_WITHOUT_KEYS_H_
