#ifndef FA_PYTHON_BINDING_TENSOR_CALLS_H_
#define FA_PYTHON_BINDING_TENSOR_CALLS_H_

// Whole operators on PyTorch's tensors in one call from Python: attention in tensor_attention.cc, decode in
// tensor_decode.cc. Each function reads the tensors in place, allocates the results and runs a plan. The plan of a
// small call is kept. A function that cannot take a call returns None without effect. The caller then uses the general
// functions of the module.

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "bindings.h"
#include "fa/context.h"
#include "fa/plan.h"
#include "fa/tensor.h"
#include "plan_cache.h"

namespace fa::python {

/// Makes views of tensors that the library can read in place. The view of None has no data.
class Views {
 public:
  /// @param any_innermost  whether the library reads the tensor with any innermost stride
  TensorView operator()(nanobind::handle object, bool any_innermost = false);
  /// Returns whether each object so far was None or a tensor that the library can read in place.
  [[nodiscard]] bool readable() const { return readable_; }

 private:
  bool readable_ = true;
};

// Plans are kept for calls of at most this many rows over all heads and batch elements. Making a plan takes
// microseconds. Calls of more rows take milliseconds, and their plans take more memory.
constexpr int64_t kRowsOfSmallCalls = 4096;

/// The sizes of a call in layout BNSD or BSND.
struct Sizes {
  int64_t batch = 0, rows = 0, heads = 0, dv = 0;

  /// Returns whether a call of these sizes is small enough that its plan is kept.
  [[nodiscard]] bool small() const { return batch * rows * heads <= kRowsOfSmallCalls; }
  /// Returns the shape of an output in `layout`.
  [[nodiscard]] Dims shape(Layout layout) const {
    return layout == Layout::kBNSD ? Dims{batch, heads, rows, dv} : Dims{batch, rows, heads, dv};
  }
  /// Returns the strides of an output in `layout` that lies in memory as [B, S, N, Dv].
  [[nodiscard]] Dims strides_by_row(Layout layout) const {
    return layout == Layout::kBNSD ? Dims{rows * heads * dv, dv, heads * dv, 1}
                                   : Dims{rows * heads * dv, heads * dv, dv, 1};
  }
};

/// Returns the sizes of a call. Returns nothing if a size is 0, or if a shape or type does not fit.
[[nodiscard]] std::optional<Sizes> SizesOf(const TensorView& q, const TensorView& k, const TensorView& v,
                                           Layout layout);

/// Returns a view of a result's memory. Without a tensor the view has no data.
[[nodiscard]] MutableTensorView Output(const nanobind::object& tensor);

/// Returns the kept plans of calls with `Args`. The cache is never destroyed, because the library's static objects may
/// be destroyed earlier.
template <typename Args>
PlanCache<Args>& Plans() {
  static auto* plans = new PlanCache<Args>;
  return *plans;
}

/// Drops the context's plans when Python destroys the context. Null means the default context, which is never
/// destroyed.
void ForgetPlansWith(const Context* context);

/// Runs the call with the kept plan of its signature, or makes the plan and keeps it. Without a signature, the plan
/// serves this call alone.
template <auto plan, typename Args, typename Options>
void RunPlanned(const std::optional<Signature>& signature, const Args& args, const Options& options, Context* context) {
  std::optional<PlanFor<Args>> planned;
  if (signature) planned = Plans<Args>().Find(*signature);
  const bool known = planned.has_value();
  RunUnlocked([&] {
    if (!known) {
      auto made = plan(args, options, context);
      if (!made.ok()) return made.status();
      planned = *std::move(made);
    }
    return planned->Run(args);
  });
  if (!signature || known) return;
  ForgetPlansWith(context);
  Plans<Args>().Keep(*signature, *planned);
}

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_TENSOR_CALLS_H_
