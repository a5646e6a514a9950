#ifndef FA_PYTHON_BINDING_TENSORS_H_
#define FA_PYTHON_BINDING_TENSORS_H_

#include <nanobind/nanobind.h>

#include <optional>

#include "fa/tensor.h"

namespace fa::python {

/// Finds the memory of PyTorch's tensors by DLPack's C exchange API, a table of C functions in the class of PyTorch
/// (2.10 and later). It needs no headers of PyTorch and is stable across versions. A capsule, the other way to a
/// tensor's memory, costs ten times as much. Without the table `ReadTensor` takes no tensor.

/// The view of a tensor in the CPU's memory, whose class must be exactly PyTorch's tensor class or its Parameter. Its
/// memory must hold its elements, so it is no wrapper, no negated view and has no lazy zeros. Returns nothing for any
/// other object. The tensor keeps the memory alive.
[[nodiscard]] std::optional<MutableTensorView> ReadTensor(nanobind::handle object);

/// Resolves PyTorch's negated views, because DLPack would take them for the numbers without the sign. Returns any other
/// object as it is.
[[nodiscard]] nanobind::object WithSigns(nanobind::object object);

/// An uninitialised tensor of the type of `like`, or of float32, whose memory has the order of `strides`.
[[nodiscard]] nanobind::object NewTensor(nanobind::handle like, const Dims& shape, const Dims& strides);
/// PyTorch's empty_like: the dimensions lie in the same order as in `like`, without its gaps.
[[nodiscard]] nanobind::object NewTensorLike(nanobind::handle like);
[[nodiscard]] nanobind::object NewFloats(const Dims& shape);

/// Adds `use_torch`, by which Python passes the parts of PyTorch that are used here.
void BindTensors(nanobind::module_& module);

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_TENSORS_H_
