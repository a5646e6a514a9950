#ifndef FA_PYTHON_BINDING_BINDINGS_H_
#define FA_PYTHON_BINDING_BINDINGS_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "arrays.h"
#include "fa/context.h"
#include "fa/operators.h"
#include "fa/options.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::python {

using Lengths = std::vector<int64_t>;

/// Converts a Python number to the library's float. It rounds to nearest and keeps denormals, whatever floating-point
/// settings the thread has.
float NearestFloat(double number);
std::optional<float> NearestFloat(std::optional<double> number);

/// The type in which Python passes a number whose type in fa/options.h is `Number`. Taken converts it to `Number`.
template <typename Number>
using FromPython = std::conditional_t<std::is_same_v<Number, float>, double, Number>;
inline float Taken(double number) { return NearestFloat(number); }
inline int64_t Taken(int64_t number) { return number; }
// These macros make the constructor of an options class from the numbers that fa/options.h lists: its parameters, their
// keywords with defaults, and the assignments.
#define FA_PARAMETER(type, name, text) FromPython<type> name,
#define FA_KEYWORD(type, name, text) nb::arg(#name) = Options().name,
#define FA_TAKE(type, name, text) options.name = Taken(name);

/// Returns the layout of this name. Throws ValueError for any other name.
Layout LayoutOf(const std::string& name);

/// Returns the mask of the sparse operators with this number, 0 or 3. Throws ValueError for any other number.
SparseMask SparseMaskOf(int64_t sparse_mode);

/// Returns the pse type with this number, 0 to 3. Throws ValueError for any other number.
PseType PseTypeOf(int64_t number);

/// ForwardArgs and BackwardArgs make the arguments of the dense forward and backward. Each member is the array of the
/// same name in `arrays`. The arguments refer to cu_q and cu_kv without a copy.
AttentionArgs ForwardArgs(CallArrays& arrays, const AttentionOptions& options, const Lengths& cu_q,
                          const Lengths& cu_kv);
AttentionGradArgs BackwardArgs(CallArrays& arrays, const AttentionOptions& options, const Lengths& cu_q,
                               const Lengths& cu_kv);

/// The lists to which the spans of a decode's arguments point. The spans stay valid when an object is moved.
struct DecodeLists {
  std::vector<TensorView> keys, values, rope_keys;
};
/// Sets the tensors of a decode, or of fused inference, from the arrays of the same names.
void TakeDecodeArrays(CallArrays& arrays, DecodeLists* lists, DecodeAttentionArgs* args);

/// Makes the call without the interpreter's lock, and raises an exception if its status is an error.
template <typename Call>
void RunUnlocked(const Call& call) {
  Status status;
  {
    const nanobind::gil_scoped_release release;
    status = call();
  }
  Raise(status);
}

/// Runs a call on `arrays`. If an input must be copied or an output has no memory, `check` runs first.
/// @param make_args  makes the arguments from `arrays`
/// @param check  plans or checks the call in the library, without reading the arrays' memory
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

/// Declares, for each operator of FA_OPERATORS, a function that adds the operator and its options to the module.
#define FA_DECLARE(name, function, args, options, text) void Bind##name(nanobind::module_& module);
FA_OPERATORS(FA_DECLARE)
#undef FA_DECLARE

/// Each function adds one part to the module, such as Mask, PairMask, plans, calls over ranks, or attention of
/// PyTorch's tensors.
void BindMask(nanobind::module_& module);
void BindPairMask(nanobind::module_& module);
void BindPlan(nanobind::module_& module);
void BindRanks(nanobind::module_& module);
void BindTensorAttention(nanobind::module_& module);
void BindTensorDecode(nanobind::module_& module);

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_BINDINGS_H_
