#ifndef FA_TESTS_SUPPORT_TENSOR_H_
#define FA_TESTS_SUPPORT_TENSOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "fa/tensor.h"
#include "reference/half.h"
#include "support/guarded_buffer.h"

namespace fa::test {

[[nodiscard]] reference::Format FormatOf(DType dtype);
/// Returns the nearest number of a floating-point type, as double.
[[nodiscard]] double RoundTo(DType dtype, double value);

/// Where a tensor lies in its buffer.
struct Placement {
  Place place = Place::kInside;
  int64_t misalignment = 0;  ///< distance from a 64-byte boundary, in elements

  bool operator==(const Placement&) const = default;
};

/// A strided tensor in a guarded buffer, which other tensors may share. An element is accessed by its distance from the
/// first element, counted in elements.
class Tensor {
 public:
  Tensor() = default;  ///< makes an absent tensor
  Tensor(DType dtype, Dims shape, Dims stride, Placement placement = {});
  Tensor(DType dtype, Dims shape, Dims stride, std::shared_ptr<GuardedBuffer> buffer, int64_t first_element);

  [[nodiscard]] bool absent() const { return buffer_ == nullptr; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const Dims& shape() const { return shape_; }
  [[nodiscard]] const Dims& stride() const { return stride_; }
  [[nodiscard]] TensorView view() const { return {data(), dtype_, shape_, stride_}; }
  [[nodiscard]] MutableTensorView mutable_view() const { return {data(), dtype_, shape_, stride_}; }
  [[nodiscard]] const std::shared_ptr<GuardedBuffer>& buffer() const { return buffer_; }

  [[nodiscard]] double Get(int64_t offset) const;
  void Set(int64_t offset, double value) const;
  /// AppendTo appends to `values` the `count` elements that begin at `offset`. SetRun sets these elements to the
  /// numbers at `values`, and Fill sets all of them to one number.
  void AppendTo(std::vector<double>& values, int64_t offset, int64_t count) const;
  void SetRun(int64_t offset, const double* values, int64_t count) const;
  void Fill(int64_t offset, int64_t count, double value) const;
  [[nodiscard]] std::byte* Address(int64_t offset) const;

 private:
  [[nodiscard]] void* data() const { return absent() ? nullptr : Address(0); }

  DType dtype_ = DType::kF32;
  Dims shape_, stride_;
  std::shared_ptr<GuardedBuffer> buffer_;
  int64_t first_element_ = 0;
};

/// Returns the number of elements between the lowest and the highest address, both included, or 0 for an empty tensor.
[[nodiscard]] int64_t Extent(const Dims& shape, const Dims& stride);
[[nodiscard]] Dims DenseStride(const Dims& shape);

/// The strides of b, n and s, in elements. The stride of d is 1.
struct HeadStrides {
  int64_t batch = 0, head = 0, row = 0;
};

/// A tensor over (b, n, s, d) in any layout. In TND, b is 0 and s counts packed rows.
struct HeadTensor {
  Tensor tensor;
  HeadStrides stride;

  [[nodiscard]] int64_t Offset(int64_t b, int64_t n, int64_t s) const {
    return b * stride.batch + n * stride.head + s * stride.row;
  }
};

struct HeadSizes {
  int64_t batch = 1, heads = 1, rows = 1, size = 1;
};

/// Numbers of unused elements in memory. In BNSD, `inner` elements follow each row, `middle` elements follow each head,
/// and `outer` elements follow each batch element. Other layouts pad their own dimensions, from the inside outwards.
/// BSH and SBH ignore `inner`, and TND ignores `outer`.
struct Padding {
  int64_t inner = 0, middle = 0, outer = 0;

  bool operator==(const Padding&) const = default;
};

/// Returns the strides of an input tensor of this layout. The output of BNSD_BSND has layout BSND.
[[nodiscard]] HeadStrides StridesOf(Layout layout, HeadSizes sizes, Padding padding = {});
/// ShapeOf returns the shape of a TensorView of these sizes in this layout. StrideDims returns its strides in the same
/// order of dimensions.
[[nodiscard]] Dims ShapeOf(Layout layout, HeadSizes sizes);
[[nodiscard]] Dims StrideDims(Layout layout, const HeadStrides& stride);

[[nodiscard]] HeadTensor MakeHeadTensor(DType dtype, Layout layout, HeadSizes sizes, Padding padding = {},
                                        Placement placement = {});

/// Makes an f32 statistic of query rows, [B, N, S] or packed [T, N]. Several copies are an additional innermost
/// dimension.
[[nodiscard]] HeadTensor MakeStatistic(bool packed, HeadSizes sizes, int64_t copies, Padding padding = {},
                                       Placement placement = {});

/// The bytes of buffers before a call. The call may change only elements of the tensors that Allow names.
class Snapshot {
 public:
  void Add(const Tensor& tensor);
  /// Lets the elements of `tensor` change.
  void Allow(const Tensor& tensor);
  /// Overwrites the bytes that may change with a number that no result has: 3.4e38, a NaN, or an invalid key. So an
  /// element that a call does not write is noticed.
  void Forget() const;
  /// Returns the index of the first byte in its buffer that has changed but must not. Returns -1 if there is none.
  [[nodiscard]] int64_t FirstChange() const;

 private:
  struct Saved {
    std::shared_ptr<GuardedBuffer> buffer;
    std::vector<std::byte> bytes;
    std::vector<std::byte> kept;  ///< 0xff for a byte that must not change, 0 for one that may
  };
  Saved* Find(const Tensor& tensor);
  std::vector<Saved> saved_;
};

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_TENSOR_H_
