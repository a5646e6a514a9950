#ifndef FA_ACLNN_OPERANDS_H_
#define FA_ACLNN_OPERANDS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::aclnn {

/// The addresses of a call's tensors and of its workspace. While only shapes are known, as in planning, functions get
/// null instead of a CallMemory.
struct CallMemory {
  std::span<void* const> addresses;  ///< addresses of the operands, as aclCreateTensor got them
  std::byte* workspace = nullptr;    ///< 64-byte aligned
};

/// The tensors of one call, copied from their descriptors, in the order of the operator's parameters.
///
/// The library wants an innermost stride of 1. An input with another innermost stride is copied to the workspace before
/// the call. An output with another innermost stride is copied from the workspace after the call. All other tensors are
/// used in place.
class Operands {
 public:
  /// The index of an operand. kAbsent is the slot of a null tensor, or of an optional tensor without elements.
  using Slot = int;
  static constexpr Slot kAbsent = -1;

  enum class Form : uint8_t {
    kRows,       ///< the innermost stride must be 1
    kAnyStride,  ///< the innermost stride may be any number
    kPages,      ///< like kRows, but the type may also be ACL_FLOAT8_E4M3FN, and with five dimensions the format may be
                 ///< ACL_FORMAT_FRACTAL_NZ
    kFlat,       ///< the tensor must have one dimension
    kDense,      ///< elements must have no gaps between them
    kBytes,      ///< any innermost stride and any type of 1, 2, 4 or 8 bytes, whose elements are only copied
    kChunks,     ///< like kBytes, but the format may also be ACL_FORMAT_FRACTAL_NZ
  };

  /// Adds a tensor that is read. status() returns the error of the first tensor that cannot be used.
  Slot Input(const char* name, const aclTensor* tensor, Form form = Form::kRows);
  Slot Output(const char* name, const aclTensor* tensor, Form form = Form::kRows);
  /// Adds an output that may lie exactly where the input `replaces` lies.
  Slot OutputInPlace(const char* name, const aclTensor* tensor, Form form, Slot replaces);
  /// OptionalInput and OptionalOutput work like Input and Output, but count a tensor without elements as absent.
  Slot OptionalInput(const char* name, const aclTensor* tensor, Form form = Form::kRows);
  Slot OptionalOutput(const char* name, const aclTensor* tensor, Form form = Form::kRows);
  /// Adds an input, or an output, that is ignored.
  void Ignored(const char* name, const aclTensor* tensor, bool output = false);
  [[nodiscard]] const Status& status() const { return status_; }

  /// Returns the view that the library gets, or a view without data for kAbsent.
  [[nodiscard]] TensorView In(Slot slot, const CallMemory* memory) const;
  [[nodiscard]] MutableTensorView Out(Slot slot, const CallMemory* memory) const;
  [[nodiscard]] bool IsEmpty(Slot slot) const;

  /// Starts a run: checks that no output overlaps, then packs the inputs. Returns kInvalidArgument if an output shares
  /// memory with another tensor of the call or with the workspace. This holds even for tensors of which the library
  /// gets a packed copy.
  [[nodiscard]] Status PackInputs(const CallMemory& memory) const;
  void ScatterOutputs(const CallMemory& memory) const;

  /// Reserves `bytes` of the workspace and returns their offset. A sum of more than kMostBytes becomes kMostBytes.
  size_t Book(size_t bytes);
  /// Returns a dense tensor at offset `at` of the workspace.
  [[nodiscard]] static MutableTensorView Booked(DType dtype, const Dims& shape, size_t at, const CallMemory* memory);
  [[nodiscard]] size_t booked_bytes() const { return booked_bytes_; }

  /// Returns the addresses of all given tensors, including ignored ones, in order.
  [[nodiscard]] std::vector<void*> TakeAddresses() { return std::move(addresses_); }
  /// Returns the indices of all outputs, or of all inputs, including ignored ones, in order.
  [[nodiscard]] std::vector<size_t> IndicesOf(bool outputs) const;
  /// Returns the name of the first tensor that is used and has elements but no address, or null.
  [[nodiscard]] const char* FirstWithoutMemory(std::span<void* const> addresses) const;

 private:
  struct Operand {
    const char* name = "";
    bool used = false, output = false;
    DType dtype = DType::kF32;
    Dims shape, stride;            ///< shape and stride of the caller's tensor
    int64_t offset_bytes = 0;      ///< bytes from the caller's address to the first element
    Dims seen_shape, seen_stride;  ///< shape and stride that the library gets
    bool packed = false;           ///< whether the library's tensor lies in the workspace
    size_t packed_at = 0;
    Slot replaces = kAbsent;  ///< the input on which this output may lie
  };
  struct Role {
    bool used, output, optional;
  };

  Slot Add(const char* name, const aclTensor* tensor, Form form, Role role);
  Status Describe(const aclTensor& tensor, Form form, Operand* operand);
  Status BookPacked(int64_t elements, Operand* operand);
  [[nodiscard]] Status CheckApart(const CallMemory& memory) const;
  [[nodiscard]] bool MayShare(size_t output, size_t other, const CallMemory& memory) const;
  [[nodiscard]] MutableTensorView Caller(size_t i, const CallMemory& memory) const;
  [[nodiscard]] MutableTensorView Seen(Slot slot, const CallMemory* memory) const;

  std::vector<Operand> operands_;
  std::vector<void*> addresses_;
  size_t booked_bytes_ = 0;
  Status status_;
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_OPERANDS_H_
