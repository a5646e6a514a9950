#ifndef FA_PYTHON_BINDING_BINDINGS_H_
#define FA_PYTHON_BINDING_BINDINGS_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "fa/context.h"
#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "fa/options.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::python {

using Lengths = std::vector<int64_t>;

/// A Python number as the library takes it: rounded to nearest, denormals kept, whatever the thread's settings are.
float NearestFloat(double number);
std::optional<float> NearestFloat(std::optional<double> number);

/// The layout of that name. ValueError for another.
Layout LayoutOf(const std::string& name);

/// The type of that number, 0 to 3. ValueError for another.
PseType PseTypeOf(int64_t number);

/// The arguments of the dense forward and backward, from arrays by the names of their members. The lengths are not
/// copied.
AttentionArgs ForwardArgs(CallArrays& arrays, const AttentionOptions& options, const Lengths& cu_q,
                          const Lengths& cu_kv);
AttentionGradArgs BackwardArgs(CallArrays& arrays, const AttentionOptions& options, const Lengths& cu_q,
                               const Lengths& cu_kv);

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

/// Runs a call on `arrays`. Where an input has to be copied, or an output has no memory, the call is checked first.
/// @param make_args  the arguments from `arrays`
/// @param check      the library's plan or check of them, which does not look into memory
template <typename MakeArgs, typename Check, typename Call>
void RunChecked(CallArrays& arrays, const MakeArgs& make_args, const Check& check, const Call& call) {
  auto args = make_args();
  if (arrays.incomplete()) {
    RunUnlocked([&] {
      if (Status status = check(args); !status.ok()) return status;
      return arrays.Complete();
    });
    args = make_args();
  }
  RunUnlocked([&] { return call(args); });
}

/// Adds to the module: decode / Mask / AttentionOptions and the dense operators / plans / prompt attention /
/// calls over ranks / sparse attention, indexer and losses / attention / and decode of PyTorch's tensors.
void BindDecode(nanobind::module_& module);
void BindMask(nanobind::module_& module);
void BindAttention(nanobind::module_& module);
void BindPlan(nanobind::module_& module);
void BindPrompt(nanobind::module_& module);
void BindRanks(nanobind::module_& module);
void BindSparse(nanobind::module_& module);
void BindTensorAttention(nanobind::module_& module);
void BindTensorDecode(nanobind::module_& module);

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_BINDINGS_H_
