#ifndef FA_PYTHON_BINDING_TENSORS_H_
#define FA_PYTHON_BINDING_TENSORS_H_

#include <nanobind/nanobind.h>

#include <optional>

#include "fa/tensor.h"

namespace fa::python {

/// These functions find the memory of PyTorch's tensors by DLPack's C exchange API, a table of C functions in the class
/// of PyTorch (2.10 and later). This table needs no headers of PyTorch and is stable across versions. A capsule, the
/// other way to a tensor's memory, costs ten times as much. Without the table `ReadTensor` takes no tensor.

/// Returns the view of a tensor in the CPU's memory. The tensor's class must be exactly PyTorch's tensor class or its
/// Parameter. The memory must hold the tensor's elements, so a wrapper, a negated view and a tensor with lazy zeros are
/// not taken. Returns nothing for any other object. The tensor keeps the memory alive.
[[nodiscard]] std::optional<MutableTensorView> ReadTensor(nanobind::handle object);

/// Resolves PyTorch's negated views, because DLPack would take them for the numbers without the sign. Returns any other
/// object as it is.
[[nodiscard]] nanobind::object WithSigns(nanobind::object object);

/// Returns an uninitialised tensor whose memory has the order of `strides`. Its type is the type of `like`.
[[nodiscard]] nanobind::object NewTensor(nanobind::handle like, const Dims& shape, const Dims& strides);
/// Calls PyTorch's empty_like. The dimensions of the result lie in the same order as in `like`, but without the gaps of
/// `like`.
[[nodiscard]] nanobind::object NewTensorLike(nanobind::handle like);
/// Returns an uninitialised dense tensor of float32.
[[nodiscard]] nanobind::object NewFloats(const Dims& shape);

/// Adds `use_torch`, by which Python passes the parts of PyTorch that are used here.
void BindTensors(nanobind::module_& module);

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_TENSORS_H_
