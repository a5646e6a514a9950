#ifndef FA_PYTHON_BINDING_JAX_CALLS_H_
#define FA_PYTHON_BINDING_JAX_CALLS_H_

#include <cstdint>

#include "xla/ffi/api/c_api.h"

namespace fa::xla_calls {

/// The meaning of a call's operands, results and attributes. Exported programs contain such calls, so every change of
/// the meaning needs a new number.
constexpr int64_t kCallVersion = 1;

/// Return the handlers of jax.nn.dot_product_attention and of its gradients.
///
/// Operands: query, key, value; then bias, mask, query_seq_lengths and key_value_seq_lengths, each if its attribute of
/// the same name is true. The mask is true where a pair is dropped. The last dimension of bias and mask is S, the other
/// three are 1 or full. The backward then has: out, its gradient, and the two statistics of the forward.
/// Results: out and two statistics [B, N, T]; or the gradients of query, key, value and, if it is wanted, of bias, with
/// one bias per query head.
/// Attributes: version, written_by, scale, left and right (the window; a causal call has right <= 0), bias, mask,
/// query_seq_lengths and key_value_seq_lengths.
/// Axes of vmap come first in every operand and result. Their size is 1 in an operand that is not mapped.
XLA_FFI_Handler* ForwardHandler();
XLA_FFI_Handler* BackwardHandler();

}  // namespace fa::xla_calls

#endif  // FA_PYTHON_BINDING_JAX_CALLS_H_
