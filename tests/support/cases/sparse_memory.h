#ifndef FA_TESTS_SUPPORT_SPARSE_MEMORY_H_
#define FA_TESTS_SUPPORT_SPARSE_MEMORY_H_

#include <cstddef>

#include "fa/tensor.h"

namespace fa::test {

/// Address space in which only the pages that are touched take memory. So a small tensor can be spread over terabytes.
class SparseMemory {
 public:
  explicit SparseMemory(size_t bytes);
  ~SparseMemory();
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  /// Returns false if the system does not map so many bytes.
  [[nodiscard]] bool ok() const { return memory_ != nullptr; }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_;
  size_t bytes_;
};

/// Copies all rows (the innermost dimension) of a view to a view of the same shape and type. Strides may differ.
void CopyRows(const TensorView& from, const MutableTensorView& to);

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_SPARSE_MEMORY_H_
