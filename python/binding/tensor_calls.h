#ifndef FA_PYTHON_BINDING_TENSOR_CALLS_H_
#define FA_PYTHON_BINDING_TENSOR_CALLS_H_

// Calls of PyTorch's tensors: attention is in tensor_attention.cc, decode in tensor_decode.cc. Each function there does
// a whole operator in one call from Python. Such a function reads the tensors in place, makes the results and runs a
// plan, which is kept if the call is small. For a call that a function does not take, it returns None without effect,
// and the caller uses the general functions of the module.

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

/// Views of tensors that the library reads in place. The view of None has no data.
class Views {
 public:
  TensorView operator()(nanobind::handle object);
  /// Returns whether every object so far was None or a tensor that the library reads in place.
  [[nodiscard]] bool readable() const { return readable_; }

 private:
  bool readable_ = true;
};

// Plans are kept for calls of at most this many rows. Making a plan takes microseconds, and keeping a plan takes memory
// per tile. Calls of more rows take milliseconds, so they gain little from a kept plan.
constexpr int64_t kRowsOfSmallCalls = 4096;

/// The sizes of a call in layout BNSD or BSND.
struct Sizes {
  int64_t batch = 0, rows = 0, heads = 0, dv = 0;

  /// Returns whether the plan of a call of these sizes is to be kept.
  [[nodiscard]] bool small() const { return batch * rows * heads <= kRowsOfSmallCalls; }
  /// Returns the shape of a result in `layout`.
  [[nodiscard]] Dims shape(Layout layout) const {
    return layout == Layout::kBNSD ? Dims{batch, heads, rows, dv} : Dims{batch, rows, heads, dv};
  }
  /// Returns the strides of a result whose memory is [B, S, N, D].
  [[nodiscard]] Dims strides_by_row(Layout layout) const {
    return layout == Layout::kBNSD ? Dims{rows * heads * dv, dv, heads * dv, 1}
                                   : Dims{rows * heads * dv, heads * dv, dv, 1};
  }
};

/// Returns the sizes. Returns nothing if there is nothing to compute, or if a shape or type does not fit.
[[nodiscard]] std::optional<Sizes> SizesOf(const TensorView& q, const TensorView& k, const TensorView& v,
                                           Layout layout);

/// Returns the memory of a result. If there is no object, the view has no data.
[[nodiscard]] MutableTensorView Output(const nanobind::object& tensor);

/// Returns the plans that are kept. They are never destroyed, because the library's own static objects may be gone
/// first.
template <typename Args>
PlanCache<Args>& Plans() {
  static auto* plans = new PlanCache<Args>;
  return *plans;
}

/// Makes sure that the context's plans are dropped when Python destroys the context. Null is the default context, which
/// never ends.
void ForgetPlansWith(const Context* context);

/// Runs the call with the plan of its signature. Without a signature the plan is made for this call alone.
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
