#ifndef FA_PYTHON_BINDING_JAX_SAMPLES_H_
#define FA_PYTHON_BINDING_JAX_SAMPLES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fa/tensor.h"

namespace fa::xla_calls {

/// A dense array of XLA. Its first dimensions are the axes of vmap and the batch, each of full size or 1. A dimension
/// of size 1 repeats. The later dimensions are the array's own.
struct Array {
  std::byte* data = nullptr;  ///< null: absent
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

/// Splits the arrays of one call from XLA into the tensors of one or more calls of the library. As many of the axes of
/// vmap as possible join the batch. The other axes cannot join, because the strides of some array do not allow it. The
/// library is called once for each index of these axes.
class Samples {
 public:
  /// @param axes  the number of axes of vmap
  /// @param batch  the size of the batch
  Samples(size_t axes, int64_t batch);

  /// Adds an array, and returns its number. A null array may be added.
  /// Its first `full` dimensions may not repeat.
  size_t Add(const Array& array, size_t full = 0);
  /// Returns whether every array has, for each axis of vmap and for the batch, the full size, or 1 where it may repeat.
  /// Join() requires this.
  [[nodiscard]] bool Agree() const;
  /// Joins axes of vmap with the batch. Every array must have been added before.
  void Join();

  /// Returns the size of the batch of each call.
  [[nodiscard]] int64_t batch() const { return batch_; }
  /// Moves to the first call, then to the next one. Returns false if there is none.
  bool Next();

  /// Returns an array as a tensor of the current call: [batch, own dimensions].
  [[nodiscard]] MutableTensorView View(size_t number) const;
  /// Works like View, but the batch has size 1 if all its elements are the same memory.
  [[nodiscard]] MutableTensorView ViewOfOne(size_t number) const;

 private:
  struct Placed {
    Array array;
    size_t full;                  ///< how many of the first dimensions do not repeat
    std::vector<int64_t> stride;  ///< strides of the axes of vmap, then of the batch
    int64_t batch_stride = 0;     ///< stride of the batch after axes have joined it
    int64_t offset = 0;           ///< where the current call begins, in elements
  };

  size_t axes_;
  std::vector<int64_t> size_;  ///< sizes of the axes of vmap, then of the batch
  size_t looped_ = 0;          ///< how many of the axes have not joined the batch
  int64_t batch_;
  bool started_ = false;
  std::vector<int64_t> index_;  ///< the current call's index in the axes that have not joined
  std::vector<Placed> placed_;
};

}  // namespace fa::xla_calls

#endif  // FA_PYTHON_BINDING_JAX_SAMPLES_H_
