#include "fuzz/calls/moved_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "reference/half.h"
#include "support/cases/sparse_memory.h"

namespace fa::test {
namespace {

TensorView WithStrides(TensorView view) {
  if (view.stride.empty()) view.stride = DenseStride(view.shape);
  return view;
}

/// Returns strides whose outer dimensions are nested in a random order, with gaps after some of them.
Dims RandomStrides(const Dims& shape, RandomChoices* random) {
  Dims stride = shape;
  const int inner = shape.rank() - 1;
  stride[inner] = 1;
  std::vector<int> order;
  for (int x = 0; x < inner; ++x) {
    order.insert(order.begin() + random->Pick(0, x), x);
  }
  int64_t step = shape[inner];
  for (const int x : order) {
    step += random->OneOf<int64_t>({0, 0, 1, 3, 16});
    stride[x] = std::max<int64_t>(step, 1);
    step = stride[x] * std::max<int64_t>(shape[x], 1);
  }
  return stride;
}

bool IsNan(DType dtype, const std::byte* at) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return std::isnan(value);
  }
  if (dtype != DType::kF16 && dtype != DType::kBF16) return false;
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return std::isnan(reference::Decode16(FormatOf(dtype), bits));
}

}  // namespace

std::vector<std::byte> ElementsOf(const TensorView& view) {
  const TensorView from = WithStrides(view);
  const Dims dense = DenseStride(from.shape);
  std::vector<std::byte> elements(static_cast<size_t>(Extent(from.shape, dense)) * SizeOf(from.dtype));
  CopyRows(from, {elements.data(), from.dtype, from.shape, dense});
  return elements;
}

bool SameElements(DType dtype, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  if (a == b) return true;
  if (a.size() != b.size()) return false;
  const size_t size = SizeOf(dtype);
  for (size_t x = 0; x < a.size(); x += size) {
    if (std::equal(&a[x], &a[x] + size, &b[x])) continue;
    if (!IsNan(dtype, &a[x]) || !IsNan(dtype, &b[x])) return false;
  }
  return true;
}

Tensor MovedTensors::Copy(const TensorView& from, const Dims& stride, RandomChoices* random) {
  Placement placement{.place = random->OneOf({Place::kAtEnd, Place::kAtEnd, Place::kAtStart, Place::kInside})};
  if (placement.place == Place::kInside) placement.misalignment = random->Pick(0, 17);
  Tensor to(from.dtype, from.shape, stride, placement);
  CopyRows(from, to.mutable_view());
  return to;
}

void MovedTensors::Move(const TensorField& field, RandomChoices* random) {
  const TensorView from = WithStrides(field.view());
  const Tensor to = Copy(from, RandomStrides(from.shape, random), random);
  moved_.push_back({field.is_output(), from, to});
  field.Set(to.mutable_view());
}

void MovedTensors::Broadcast(const TensorField& field, int dimension, bool by_stride, RandomChoices* random) {
  TensorView from = WithStrides(field.view());
  from.stride[dimension] = 0;
  Dims stride = RandomStrides(from.shape, random);
  if (by_stride) stride[dimension] = 0;
  const Tensor to = Copy(from, stride, random);
  moved_.push_back({false, from, to});
  field.Set(to.mutable_view());
}

void MovedTensors::TakeSnapshot() {
  for (const Moved& moved : moved_) moved.is_output ? snapshot_.Allow(moved.to) : snapshot_.Add(moved.to);
  snapshot_.Forget();
}

void MovedTensors::CopyOutputsBack() const {
  for (const Moved& moved : moved_) {
    if (!moved.is_output) continue;
    CopyRows(moved.to.view(),
             {const_cast<void*>(moved.from.data), moved.from.dtype, moved.from.shape, moved.from.stride});
  }
}

}  // namespace fa::test
