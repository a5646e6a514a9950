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
/// Returns whether the bits are the same. Any NaN equals any other.
[[nodiscard]] bool SameElements(DType dtype, const std::vector<std::byte>& a, const std::vector<std::byte>& b);

/// Copies of a call's tensors in guarded buffers of their own. The arguments of the call point to the copies.
class MovedTensors {
 public:
  /// Moves a tensor to one end of a buffer, with random gaps and a random order of its dimensions.
  void Move(const TensorField& field, RandomChoices* random);
  /// Works like Move, but all elements along `dimension` equal the first one, by a stride of 0 or by copies.
  void Broadcast(const TensorField& field, int dimension, bool by_stride, RandomChoices* random);
  /// Poisons the moved outputs, which may change, and remembers all other bytes, which must stay as they are.
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
