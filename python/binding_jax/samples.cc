#include "samples.h"

#include <algorithm>

namespace fa::xla_calls {

Samples::Samples(size_t axes, int64_t batch) : axes_(axes), size_(axes, 1), batch_(batch) { size_.push_back(batch); }

size_t Samples::Add(const Array& array, size_t full) {
  Placed placed{.array = array, .full = full, .stride = std::vector<int64_t>(axes_ + 1, 0)};
  if (array.data != nullptr) {
    int64_t stride = 1;
    for (size_t dim = array.shape.size(); dim-- > 0;) {
      if (dim < axes_ && array.shape[dim] != 1) size_[dim] = array.shape[dim];
      if (dim <= axes_ && array.shape[dim] > 1) placed.stride[dim] = stride;
      stride *= array.shape[dim];
    }
  }
  placed_.push_back(std::move(placed));
  return placed_.size() - 1;
}

bool Samples::Agree() const {
  return std::all_of(placed_.begin(), placed_.end(), [&](const Placed& placed) {
    if (placed.array.data == nullptr) return true;
    for (size_t dim = 0; dim <= axes_; ++dim) {
      const int64_t size = placed.array.shape[dim];
      if (size != size_[dim] && (size != 1 || dim < placed.full)) return false;
    }
    return true;
  });
}

void Samples::Join() {
  for (Placed& placed : placed_) placed.batch_stride = placed.stride[axes_];
  for (looped_ = axes_; looped_ > 0; --looped_) {
    const size_t axis = looped_ - 1;
    const auto joins = [&](const Placed& placed) {
      return batch_ == 1 || size_[axis] == 1 || placed.stride[axis] == placed.batch_stride * batch_;
    };
    if (!std::all_of(placed_.begin(), placed_.end(), joins)) break;
    for (Placed& placed : placed_) {
      if (batch_ == 1) placed.batch_stride = placed.stride[axis];
    }
    batch_ *= size_[axis];
  }
}

bool Samples::Next() {
  if (!started_) {
    started_ = true;
    index_.assign(looped_, 0);
    return std::find(size_.begin(), size_.end(), 0) == size_.end();
  }
  size_t axis = looped_;
  while (axis-- > 0) {
    const bool wraps = ++index_[axis] == size_[axis];
    if (wraps) index_[axis] = 0;
    for (Placed& placed : placed_) placed.offset += placed.stride[axis] * (wraps ? 1 - size_[axis] : 1);
    if (!wraps) return true;
  }
  return false;
}

MutableTensorView Samples::View(size_t number) const {
  const Placed& placed = placed_[number];
  const Array& array = placed.array;
  if (array.data == nullptr) return {};
  MutableTensorView view{array.data + placed.offset * static_cast<int64_t>(SizeOf(array.dtype)), array.dtype, {}, {}};
  view.shape.push_back(batch_);
  view.stride.push_back(placed.batch_stride);
  int64_t dense = 1;
  for (size_t dim = axes_ + 1; dim < array.shape.size(); ++dim) dense *= array.shape[dim];
  for (size_t dim = axes_ + 1; dim < array.shape.size(); ++dim) {
    dense /= std::max<int64_t>(array.shape[dim], 1);
    view.shape.push_back(array.shape[dim]);
    view.stride.push_back(dense);
  }
  return view;
}

MutableTensorView Samples::ViewOfOne(size_t number) const {
  MutableTensorView view = View(number);
  if (view.data != nullptr && view.stride[0] == 0) view.shape[0] = 1;
  return view;
}

}  // namespace fa::xla_calls
