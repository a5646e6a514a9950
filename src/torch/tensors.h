#ifndef FA_TORCH_TENSORS_H_
#define FA_TORCH_TENSORS_H_

// PyTorch's tensors as the library's views, by PyTorch's stable C interface, and the errors of the kernels. An error is
// a std::runtime_error, which PyTorch passes on as it passes on errors of its own kernels.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "fa/context.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::torch_kernels {

using Tensor = ::torch::stable::Tensor;
using OptionalTensor = std::optional<Tensor>;
using ScalarType = ::torch::headeronly::ScalarType;

/// Throws an error about an argument: "OPERATOR: invalid argument: ARGUMENT=GOT, want WANT".
[[noreturn]] void Refuse(const char* op, std::string_view argument, std::string_view got, std::string_view want);
/// Throws an error, with the operator's argument names, unless the status is ok.
void Check(const char* op, const Status& status);

/// Throws an error unless dropout_p is 0.
void CheckNoDropout(const char* op, double dropout_p);
/// Resets the optional if it holds an undefined tensor, which PyTorch's autograd passes in place of None.
void DropUndefined(OptionalTensor& tensor);

/// Returns whether fa computes this type: f32, bf16 or f16.
[[nodiscard]] bool IsServed(ScalarType type);
/// Returns PyTorch's name of a type, "torch.float32".
[[nodiscard]] std::string NameOf(ScalarType type);
/// Throws an error unless the tensor has the type `want`.
void CheckType(const char* op, std::string_view name, const Tensor& tensor, ScalarType want, std::string_view source);
/// Throws an error unless the tensor has the size `want` along `axis`.
void CheckSize(const char* op, std::string_view name, const Tensor& tensor, int64_t axis, int64_t want,
               std::string_view source);
/// Throws an error unless the tensor has this number of dimensions.
void CheckRank(const char* op, std::string_view name, const Tensor& tensor, int64_t rank, std::string_view shape);
[[nodiscard]] std::string Text(const Dims& dims);

[[nodiscard]] Dims ShapeOf(const Tensor& tensor);
/// Returns the tensor, or a contiguous copy if the library cannot read it in place.
[[nodiscard]] Tensor Readable(const Tensor& tensor);
/// Returns a view of a tensor of a known type.
[[nodiscard]] MutableTensorView ViewOf(const Tensor& tensor);
/// Returns an uninitialised tensor.
[[nodiscard]] Tensor NewTensor(const Dims& shape, const Dims& stride, ScalarType type);

/// An output with the strides that PyTorch expects. If the innermost stride is not 1, the library writes another
/// tensor, which Finished() copies.
class Output {
 public:
  explicit Output(Tensor tensor);
  /// Returns the tensor that the library writes.
  [[nodiscard]] const Tensor& written() const { return written_; }
  /// Returns the tensor with the wanted strides. Call it after the library has written.
  Tensor Finished();

 private:
  Tensor tensor_, written_;
};

/// Replaces each -inf, which is the library's lse of a row without keys, by `with`.
void ReplaceEmptyRows(const Tensor& lse, float with);

/// Returns a context with as many threads as PyTorch uses in the calling thread.
[[nodiscard]] Context* ContextOfThread();

// The operators, with the names that they have in PyTorch.
inline constexpr const char* kForward = "_scaled_dot_product_flash_attention_for_cpu";
inline constexpr const char* kBackward = "_scaled_dot_product_flash_attention_for_cpu_backward";
inline constexpr const char* kPackedForward = "_flash_attention_forward";
inline constexpr const char* kPackedForwardInto = "_flash_attention_forward_no_dropout_inplace";
inline constexpr const char* kPackedBackward = "_flash_attention_backward";
/// Adds one to the number of calls of an operator.
void Count(const char* op);

/// AddDense and AddPacked add kernels to a library for PyTorch's dispatch key CPU.
void AddDense(::torch::stable::detail::StableLibrary& library);
void AddPacked(::torch::stable::detail::StableLibrary& library);

}  // namespace fa::torch_kernels

#endif  // FA_TORCH_TENSORS_H_
