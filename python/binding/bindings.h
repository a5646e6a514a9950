#ifndef FA_PYTHON_BINDING_BINDINGS_H_
#define FA_PYTHON_BINDING_BINDINGS_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

#include "arrays.h"
#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"

namespace fa::python {

using Lengths = std::vector<int64_t>;

/// The tensors of a call from `arrays`, whose keys are the members' names with q, k, v as query, key, value.
/// `cu_q` and `cu_kv` outlive the result.
AttentionArgs ForwardArgs(CallArrays& arrays, const Lengths& cu_q, const Lengths& cu_kv);
AttentionGradArgs BackwardArgs(CallArrays& arrays, const Lengths& cu_q, const Lengths& cu_kv);

/// The layout of that name. ValueError for another.
Layout LayoutOf(const std::string& name);

/// Calls the library without the interpreter's lock, and raises what its status says.
template <typename Call>
void RunUnlocked(const Call& call) {
  Status status;
  {
    const nanobind::gil_scoped_release release;
    status = call();
  }
  Raise(status);
}

/// Adds to the module: Mask, AttentionOptions, the operators / plans / prompt attention /
/// sparse attention, indexer and losses.
void BindAttention(nanobind::module_& module);
void BindPlan(nanobind::module_& module);
void BindPrompt(nanobind::module_& module);
void BindSparse(nanobind::module_& module);

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_BINDINGS_H_
