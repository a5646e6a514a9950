#ifndef FA_PYTHON_BINDING_TENSORS_H_
#define FA_PYTHON_BINDING_TENSORS_H_

#include <nanobind/nanobind.h>

#include <optional>

#include "fa/tensor.h"

namespace fa::python {

/// These functions find the memory of PyTorch's tensors by DLPack's C exchange API. The API is a table of C functions,
/// which the tensor class of PyTorch 2.10 and later holds. Using the table needs no headers of PyTorch. Reading a
/// tensor through a DLPack capsule takes ten times as long. Without the table, `ReadTensor` takes no tensor.

/// Returns a view of a tensor in the CPU's memory. The object's class must be exactly torch.Tensor or
/// torch.nn.Parameter. Wrappers, negated views and tensors with lazy zeros are not taken, because their memory does not
/// hold their elements. Returns nothing for any other object. The caller must keep the tensor alive.
[[nodiscard]] std::optional<MutableTensorView> ReadTensor(nanobind::handle object);

/// Copies a negated view of PyTorch, because DLPack would drop its signs. Returns any other object as it is.
[[nodiscard]] nanobind::object WithSigns(nanobind::object object);

/// Returns an uninitialised tensor with the type of `like`. Its dimensions lie in memory in the order of `strides`.
[[nodiscard]] nanobind::object NewTensor(nanobind::handle like, const Dims& shape, const Dims& strides);
/// Calls torch.empty_like: the result's dimensions have the same order in memory as the dimensions of `like`, but no
/// gaps.
[[nodiscard]] nanobind::object NewTensorLike(nanobind::handle like);
/// Returns an uninitialised tensor of float32, dense or with the given strides.
[[nodiscard]] nanobind::object NewFloats(const Dims& shape);
[[nodiscard]] nanobind::object NewFloats(const Dims& shape, const Dims& strides);

/// Adds the function `use_torch`, with which fa passes the parts of PyTorch that these functions use.
void BindTensors(nanobind::module_& module);

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_TENSORS_H_
