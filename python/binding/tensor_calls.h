#ifndef FA_PYTHON_BINDING_TENSOR_CALLS_H_
#define FA_PYTHON_BINDING_TENSOR_CALLS_H_

// What the calls of PyTorch's tensors share (attention in tensor_attention.cc, decode in tensor_decode.cc): one call
// from Python, which reads the tensors where they lie, makes the results and runs a plan, kept if the call is small.
// What the functions do not take they answer with None, without effect, and the caller goes the general way.

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

/// Views of tensors that the library reads in place: without data for None.
class Views {
 public:
  TensorView operator()(nanobind::handle object);
  /// Whether all of them were such tensors.
  [[nodiscard]] bool readable() const { return readable_; }

 private:
  bool readable_ = true;
};

// A plan takes microseconds, and memory by the tile: calls of more rows than this take milliseconds.
constexpr int64_t kRowsOfSmallCalls = 4096;

/// Sizes of a call in layout BNSD or BSND.
struct Sizes {
  int64_t batch = 0, rows = 0, heads = 0, dv = 0;

  /// Whether the plan of such a call is to be kept.
  [[nodiscard]] bool small() const { return batch * rows * heads <= kRowsOfSmallCalls; }
  /// The shape of a result in `layout`.
  [[nodiscard]] Dims shape(Layout layout) const {
    return layout == Layout::kBNSD ? Dims{batch, heads, rows, dv} : Dims{batch, rows, heads, dv};
  }
  /// The strides of a result whose memory is [B, S, N, D].
  [[nodiscard]] Dims strides_by_row(Layout layout) const {
    return layout == Layout::kBNSD ? Dims{rows * heads * dv, dv, heads * dv, 1}
                                   : Dims{rows * heads * dv, heads * dv, dv, 1};
  }
};

/// Nothing if there is nothing to compute, or a shape or type does not fit.
[[nodiscard]] std::optional<Sizes> SizesOf(const TensorView& q, const TensorView& k, const TensorView& v,
                                           Layout layout);

/// The memory of a result; of no object, none.
[[nodiscard]] MutableTensorView Output(const nanobind::object& tensor);

/// Never destroyed: the library's own static objects may be gone first.
template <typename Args>
PlanCache<Args>& Plans() {
  static auto* plans = new PlanCache<Args>;
  return *plans;
}

/// Has the context's plans forgotten when Python lets go of it. The default context, null, never ends.
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
