#include "support/tensor.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>

namespace fa::test {

reference::Format FormatOf(DType dtype) {
  if (dtype == DType::kF16) return reference::Format::kF16;
  return dtype == DType::kBF16 ? reference::Format::kBF16 : reference::Format::kF32;
}

double RoundTo(DType dtype, double value) { return reference::RoundTo(FormatOf(dtype), value); }

int64_t Extent(const Dims& shape, const Dims& stride) {
  int64_t last = 0;
  for (int x = 0; x < shape.rank(); ++x) {
    if (shape[x] == 0) return 0;
    last += (shape[x] - 1) * stride[x];
  }
  return last + 1;
}

Dims DenseStride(const Dims& shape) {
  Dims stride = shape;
  int64_t step = 1;
  for (int x = shape.rank() - 1; x >= 0; --x) {
    stride[x] = step;
    step *= shape[x];
  }
  return stride;
}

Tensor::Tensor(DType dtype, Dims shape, Dims stride, Placement placement)
    : dtype_(dtype), shape_(shape), stride_(stride.empty() ? DenseStride(shape) : stride) {
  buffer_ =
      std::make_shared<GuardedBuffer>(static_cast<size_t>(Extent(shape_, stride_)) * SizeOf(dtype), placement.place,
                                      static_cast<size_t>(placement.misalignment) * SizeOf(dtype));
}

Tensor::Tensor(DType dtype, Dims shape, Dims stride, std::shared_ptr<GuardedBuffer> buffer, int64_t first_element)
    : dtype_(dtype), shape_(shape), stride_(stride), buffer_(std::move(buffer)), first_element_(first_element) {}

std::byte* Tensor::Address(int64_t offset) const {
  return buffer_->data() + (first_element_ + offset) * static_cast<int64_t>(SizeOf(dtype_));
}

namespace {

/// A 16-bit element of format f16 or bf16.
template <reference::Format kFormat>
struct Half {
  uint16_t bits;
  [[nodiscard]] static Half Of(double value) { return {reference::Encode16(kFormat, value)}; }
  [[nodiscard]] double value() const { return reference::Decode16(kFormat, bits); }
};

/// An element whose C++ type is a number.
template <typename T>
struct Number {
  T number;
  [[nodiscard]] static Number Of(double value) { return {static_cast<T>(value)}; }
  [[nodiscard]] double value() const { return static_cast<double>(number); }
};

/// Returns eight bytes as one word.
uint64_t WordAt(const std::byte* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

/// Calls visit.operator()<Element>() with the element class of `dtype`.
template <typename Visit>
void WithElement(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::kF16: return visit.template operator()<Half<reference::Format::kF16>>();
    case DType::kBF16: return visit.template operator()<Half<reference::Format::kBF16>>();
    case DType::kF32: return visit.template operator()<Number<float>>();
    case DType::kI8: return visit.template operator()<Number<int8_t>>();
    case DType::kI32: return visit.template operator()<Number<int32_t>>();
    case DType::kI64: return visit.template operator()<Number<int64_t>>();
    default: return visit.template operator()<Number<uint8_t>>();
  }
}

}  // namespace

double Tensor::Get(int64_t offset) const {
  double value = 0;
  const std::byte* at = Address(offset);
  WithElement(dtype_, [&]<typename Element>() {
    Element element;
    std::memcpy(&element, at, sizeof element);
    value = element.value();
  });
  return value;
}

void Tensor::AppendTo(std::vector<double>& values, int64_t offset, int64_t count) const {
  const std::byte* from = Address(offset);
  const size_t before = values.size();
  values.resize(before + static_cast<size_t>(count));
  double* to = values.data() + before;
  WithElement(dtype_, [&]<typename Element>() {
    for (int64_t x = 0; x < count; ++x) {
      Element element;
      std::memcpy(&element, from + x * static_cast<int64_t>(sizeof element), sizeof element);
      to[x] = element.value();
    }
  });
}

void Tensor::Set(int64_t offset, double value) const { SetRun(offset, &value, 1); }

void Tensor::SetRun(int64_t offset, const double* values, int64_t count) const {
  std::byte* to = Address(offset);
  WithElement(dtype_, [&]<typename Element>() {
    for (int64_t x = 0; x < count; ++x) {
      const Element element = Element::Of(values[x]);
      std::memcpy(to + x * static_cast<int64_t>(sizeof element), &element, sizeof element);
    }
  });
}

void Tensor::Fill(int64_t offset, int64_t count, double value) const {
  std::byte* to = Address(offset);
  WithElement(dtype_, [&]<typename Element>() {
    const Element element = Element::Of(value);
    for (int64_t x = 0; x < count; ++x) {
      std::memcpy(to + x * static_cast<int64_t>(sizeof element), &element, sizeof element);
    }
  });
}

HeadStrides StridesOf(Layout layout, HeadSizes sizes, Padding padding) {
  HeadStrides s;
  switch (layout) {
    case Layout::kBNSD:
    case Layout::kBNSD_BSND:
      s.row = sizes.size + padding.inner;
      s.head = sizes.rows * s.row + padding.middle;
      s.batch = sizes.heads * s.head + padding.outer;
      break;
    case Layout::kBSND:
      s.head = sizes.size + padding.inner;
      s.row = sizes.heads * s.head + padding.middle;
      s.batch = sizes.rows * s.row + padding.outer;
      break;
    case Layout::kBSH:
      s.head = sizes.size;
      s.row = sizes.heads * s.head + padding.middle;
      s.batch = sizes.rows * s.row + padding.outer;
      break;
    case Layout::kSBH:
      s.head = sizes.size;
      s.batch = sizes.heads * s.head + padding.middle;
      s.row = sizes.batch * s.batch + padding.outer;
      break;
    case Layout::kTND:
      s.head = sizes.size + padding.inner;
      s.row = sizes.heads * s.head + padding.middle;
      break;
    default: throw std::invalid_argument(Name(layout));  // only fused inference has other layouts (LetteredTensor)
  }
  return s;
}

Dims ShapeOf(Layout layout, HeadSizes z) {
  switch (layout) {
    case Layout::kBNSD:
    case Layout::kBNSD_BSND: return {z.batch, z.heads, z.rows, z.size};
    case Layout::kBSND: return {z.batch, z.rows, z.heads, z.size};
    case Layout::kBSH: return {z.batch, z.rows, z.heads * z.size};
    case Layout::kSBH: return {z.rows, z.batch, z.heads * z.size};
    case Layout::kTND: return {z.rows, z.heads, z.size};
    default: throw std::invalid_argument(Name(layout));
  }
}

Dims StrideDims(Layout layout, const HeadStrides& s) {
  switch (layout) {
    case Layout::kBNSD:
    case Layout::kBNSD_BSND: return {s.batch, s.head, s.row, 1};
    case Layout::kBSND: return {s.batch, s.row, s.head, 1};
    case Layout::kBSH: return {s.batch, s.row, 1};
    case Layout::kSBH: return {s.row, s.batch, 1};
    case Layout::kTND: return {s.row, s.head, 1};
    default: throw std::invalid_argument(Name(layout));
  }
}

HeadTensor MakeHeadTensor(DType dtype, Layout layout, HeadSizes sizes, Padding padding, Placement placement) {
  const HeadStrides stride = StridesOf(layout, sizes, padding);
  return {Tensor(dtype, ShapeOf(layout, sizes), StrideDims(layout, stride), placement), stride};
}

HeadTensor MakeStatistic(bool packed, HeadSizes sizes, int64_t copies, Padding padding, Placement placement) {
  // A statistic lies in memory as a tensor whose rows have one column per copy.
  const Layout order = packed ? Layout::kTND : Layout::kBNSD;
  sizes.size = copies;
  const HeadStrides stride = StridesOf(order, sizes, {.middle = padding.middle, .outer = padding.outer});
  Dims shape = ShapeOf(order, sizes), strides = StrideDims(order, stride);
  if (copies == 1) {
    shape = Dims(std::span(shape.begin(), static_cast<size_t>(shape.rank() - 1)));
    strides = Dims(std::span(strides.begin(), static_cast<size_t>(strides.rank() - 1)));
  }
  return {Tensor(DType::kF32, shape, strides, placement), stride};
}

Snapshot::Saved* Snapshot::Find(const Tensor& tensor) {
  const auto found =
      std::find_if(saved_.begin(), saved_.end(), [&](const Saved& saved) { return saved.buffer == tensor.buffer(); });
  return found == saved_.end() ? nullptr : &*found;
}

void Snapshot::Add(const Tensor& tensor) {
  if (tensor.absent() || Find(tensor) != nullptr) return;
  const auto whole = tensor.buffer()->whole();
  saved_.push_back(
      {tensor.buffer(), {whole.begin(), whole.end()}, std::vector<std::byte>(whole.size(), std::byte{0xff})});
}

void Snapshot::Allow(const Tensor& tensor) {
  if (tensor.absent() || Extent(tensor.shape(), tensor.stride()) == 0) return;
  Add(tensor);
  Saved* saved = Find(tensor);
  const Dims& shape = tensor.shape();
  // If the last axis has a stride of 1, its elements form one run of bytes.
  const int last = shape.rank() - 1;
  const bool run = last >= 0 && tensor.stride()[last] == 1;
  const size_t bytes = SizeOf(tensor.dtype()) * (run ? static_cast<size_t>(shape[last]) : 1);
  Dims index = shape;
  for (int x = 0; x < index.rank(); ++x) index[x] = 0;
  for (;;) {
    int64_t offset = 0;
    for (int x = 0; x < index.rank(); ++x) offset += index[x] * tensor.stride()[x];
    const int64_t first = tensor.Address(offset) - saved->buffer->whole().data();
    std::memset(saved->kept.data() + first, 0, bytes);
    int x = run ? last - 1 : last;
    while (x >= 0 && ++index[x] == shape[x]) index[x--] = 0;
    if (x < 0) return;
  }
}

void Snapshot::Forget() const {
  constexpr uint64_t kForgotten = 0x7f7f7f7f7f7f7f7f;
  for (const Saved& saved : saved_) {
    const auto now = saved.buffer->whole();
    size_t byte = 0;
    for (; byte + 8 <= now.size(); byte += 8) {
      const uint64_t kept = WordAt(&saved.kept[byte]);
      if (kept == ~uint64_t{0}) continue;
      const uint64_t word = (WordAt(&now[byte]) & kept) | (kForgotten & ~kept);
      std::memcpy(&now[byte], &word, sizeof word);
    }
    for (; byte < now.size(); ++byte) {
      if (saved.kept[byte] == std::byte{0}) now[byte] = std::byte{0x7f};
    }
  }
}

int64_t Snapshot::FirstChange() const {
  for (const Saved& saved : saved_) {
    const auto now = saved.buffer->whole();
    for (size_t byte = 0; byte < now.size(); ++byte) {
      while (byte + 8 <= now.size() &&
             ((WordAt(&now[byte]) ^ WordAt(&saved.bytes[byte])) & WordAt(&saved.kept[byte])) == 0) {
        byte += 8;
      }
      if (byte == now.size()) break;
      if (((now[byte] ^ saved.bytes[byte]) & saved.kept[byte]) != std::byte{0}) return static_cast<int64_t>(byte);
    }
  }
  return -1;
}

}  // namespace fa::test
