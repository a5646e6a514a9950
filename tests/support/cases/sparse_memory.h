#ifndef FA_TESTS_SUPPORT_SPARSE_MEMORY_H_
#define FA_TESTS_SUPPORT_SPARSE_MEMORY_H_

#include <cstddef>

#include "fa/tensor.h"

namespace fa::test {

/// Address space in which memory exists only for the touched pages. So a small tensor can be spread over terabytes.
class SparseMemory {
 public:
  explicit SparseMemory(size_t bytes);
  ~SparseMemory();
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  /// Returns false if the system does not map as many bytes as were asked for.
  [[nodiscard]] bool ok() const { return memory_ != nullptr; }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_;
  size_t bytes_;
};

/// Copies rows (the innermost dimension) between two views of the same shape and type, with any strides.
void CopyRows(const TensorView& from, const MutableTensorView& to);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_SPARSE_MEMORY_H_
