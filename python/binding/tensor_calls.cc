#include "tensor_calls.h"

#include <unordered_set>

#include "arrays.h"
#include "fa/decode_attention.h"
#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "tensors.h"

namespace nb = nanobind;

namespace fa::python {
namespace {

bool IsFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

}  // namespace

TensorView Views::operator()(nb::handle object, bool any_innermost) {
  if (object.is_none()) return {};
  const auto view = ReadTensor(object);
  readable_ = readable_ && view && !WantsCopy(*view, any_innermost);
  return readable_ ? TensorView(*view) : TensorView{};
}

std::optional<Sizes> SizesOf(const TensorView& q, const TensorView& k, const TensorView& v, Layout layout) {
  if (layout != Layout::kBNSD && layout != Layout::kBSND) return {};
  if (q.shape.rank() != 4 || k.shape.rank() != 4 || v.shape.rank() != 4) return {};
  if (!IsFloat(q.dtype) || k.dtype != q.dtype || v.dtype != q.dtype) return {};
  const int heads = layout == Layout::kBNSD ? 1 : 2, rows = 3 - heads;
  for (const TensorView* tensor : {&q, &k, &v}) {
    for (const int64_t size : tensor->shape) {
      if (size == 0) return {};
    }
  }
  if (k.shape[heads] != v.shape[heads] || q.shape[heads] % k.shape[heads] != 0) return {};
  if (k.shape[0] != v.shape[0] || k.shape[rows] != v.shape[rows] || k.shape[3] != q.shape[3]) return {};
  return Sizes{q.shape[0], q.shape[rows], q.shape[heads], v.shape[3]};
}

MutableTensorView Output(const nb::object& tensor) {
  return tensor.is_valid() ? *ReadTensor(tensor) : MutableTensorView{};
}

void ForgetPlansWith(const Context* context) {
  static auto* watched = new std::unordered_set<const Context*>;
  if (context == nullptr || !watched->insert(context).second) return;
  const auto forget = [context](nb::handle reference) {
    watched->erase(context);
    Plans<AttentionArgs>().Forget(context);
    Plans<AttentionGradArgs>().Forget(context);
    Plans<DecodeAttentionArgs>().Forget(context);
    reference.dec_ref();
  };
  nb::weakref(nb::find(*context), nb::cpp_function(forget)).release();
}

}  // namespace fa::python
