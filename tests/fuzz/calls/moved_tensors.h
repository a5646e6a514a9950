#ifndef FA_TESTS_FUZZ_MOVED_TENSORS_H_
#define FA_TESTS_FUZZ_MOVED_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "support/cases/call_fields.h"
#include "support/cases/random_token_case.h"
#include "support/tensor.h"

namespace fa::test {

/// Returns the elements of a view in row-major order, without gaps.
[[nodiscard]] std::vector<std::byte> ElementsOf(const TensorView& view);
/// Returns whether the elements have the same bits. Any NaN equals any other.
[[nodiscard]] bool SameElements(DType dtype, const std::vector<std::byte>& a, const std::vector<std::byte>& b);

/// Copies of a call's tensors. Each lies in its own guarded buffer, and the call's arguments point to the copies.
class MovedTensors {
 public:
  /// Moves a tensor to one end of a buffer. The tensor's dimensions get a random order and random gaps.
  void Move(const TensorField& field, RandomChoices* random);
  /// Works like Move, and makes all elements along `dimension` equal to the first one. They become equal by a stride of
  /// 0 or by copies.
  void Broadcast(const TensorField& field, int dimension, bool by_stride, RandomChoices* random);
  /// Poisons the moved outputs. Remembers all bytes outside the outputs' elements, which no call may change.
  void TakeSnapshot();
  [[nodiscard]] int64_t FirstChange() const { return snapshot_.FirstChange(); }
  /// Copies moved outputs back to where they were.
  void CopyOutputsBack() const;

 private:
  struct Moved {
    bool is_output;
    TensorView from;
    Tensor to;
  };
  [[nodiscard]] Tensor Copy(const TensorView& from, const Dims& stride, RandomChoices* random);

  std::vector<Moved> moved_;
  Snapshot snapshot_;
};

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_MOVED_TENSORS_H_
