#ifndef FA_PYTHON_BINDING_TENSORS_H_
#define FA_PYTHON_BINDING_TENSORS_H_

#include <nanobind/nanobind.h>

#include <optional>

#include "fa/tensor.h"

namespace fa::python {

/// Where PyTorch's tensors lie, asked by DLPack's C exchange API: a table of C functions that PyTorch (2.10 and later)
/// hangs on its class. It needs none of PyTorch's headers and is stable across its versions; a capsule, the other way
/// to a tensor's memory, costs ten times as much. Without the table `ReadTensor` knows no tensor.

/// The view of a tensor of exactly PyTorch's class or its Parameter, in the CPU's memory, with what is there as its
/// elements (no wrapper, no negated view, no lazy zeros). Nothing for any other object. The tensor keeps the memory.
[[nodiscard]] std::optional<MutableTensorView> ReadTensor(nanobind::handle object);

/// PyTorch's views of numbers with their signs changed, which DLPack takes for the numbers, as what they stand for; any
/// other object as it is.
[[nodiscard]] nanobind::object WithSigns(nanobind::object object);

/// An uninitialised tensor of the type of `like`, or float32, in memory in the order of `strides`.
[[nodiscard]] nanobind::object NewTensor(nanobind::handle like, const Dims& shape, const Dims& strides);
/// PyTorch's empty_like: the order of dimensions is that of `like`, without its gaps.
[[nodiscard]] nanobind::object NewTensorLike(nanobind::handle like);
[[nodiscard]] nanobind::object NewFloats(const Dims& shape);

/// What this needs of PyTorch is given by Python, with `use_torch`.
void BindTensors(nanobind::module_& module);

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_TENSORS_H_
