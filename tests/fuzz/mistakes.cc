#include "fuzz/mistakes.h"

#include <cstring>
#include <limits>

namespace fa::test {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kI8,     DType::kU8,     DType::kBool,
                            DType::kI32, DType::kI64, DType::kU64,  DType::kF8E4M3, DType::kF8E5M2, DType::kI4x8};
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

bool IsIndex(const TensorField& field) {
  const TensorView view = field.view();
  return !field.is_output() && (view.dtype == DType::kI32 || view.dtype == DType::kI64) &&
         Extent(view.shape, view.stride) > 0;
}

template <typename T>
T OneOf(const std::vector<T>& values, RandomChoices* random) {
  return values[static_cast<size_t>(random->Pick(0, std::ssize(values) - 1))];
}

std::string At(const char* member, int x) { return std::string(member) + "[" + std::to_string(x) + "]="; }

}  // namespace

Mistake::Mistake(FuzzCall* call, RandomChoices* random) : call_(call) {
  std::vector<TensorField> present, indices;
  for (const TensorField& field : call->Tensors()) {
    if (field.absent()) continue;
    present.push_back(field);
    if (IsIndex(field)) indices.push_back(field);
  }
  std::vector<LengthsField> lengths;
  for (const LengthsField& field : call->Lengths()) {
    if (!field.values->empty()) lengths.push_back(field);
  }
  const int64_t kind = random->Pick(0, 7);
  if (kind == 0 && !lengths.empty()) {
    OfLengths(OneOf(lengths, random), random);
  } else if (kind == 1 && !indices.empty()) {
    OfAnEntry(OneOf(indices, random), random);
  } else {
    OfATensor(OneOf(present, random), present, random);
  }
}

Mistake::~Mistake() {
  if (undo_) undo_();
  call_->Restore();
}

void Mistake::OfATensor(const TensorField& field, const std::vector<TensorField>& all, RandomChoices* random) {
  const TensorView was = field.view();
  MutableTensorView now{const_cast<void*>(was.data), was.dtype, was.shape, was.stride};
  const auto x = static_cast<int>(random->Pick(0, was.shape.rank() - 1));
  const int inner = was.shape.rank() - 1;
  what_ = field.name() + ".";
  switch (random->Pick(0, 9)) {
    case 0:
      now.data = nullptr;
      what_ += "data=null";
      break;
    case 1:
      now.shape[x] = was.shape[x] - 1;
      what_ += At("shape", x) + std::to_string(now.shape[x]);
      break;
    case 2:
      now.shape[x] = random->OneOf<int64_t>({0, -1, std::numeric_limits<int64_t>::min()});
      what_ += At("shape", x) + std::to_string(now.shape[x]);
      break;
    case 3:
      now.stride[x] = random->OneOf<int64_t>({-1, -was.stride[x], std::numeric_limits<int64_t>::min()});
      what_ += At("stride", x) + std::to_string(now.stride[x]);
      break;
    case 4:
      now.stride[inner] = 0;
      what_ += At("stride", inner) + "0";
      break;
    case 5:
      now.dtype = kTypes[random->Pick(0, std::ssize(kTypes) - 1)];
      if (SizeOf(now.dtype) > SizeOf(was.dtype)) now.dtype = DType::kI8;
      // Rows keep their addresses. So if the operator takes the new type too, it writes into rows and not between them.
      for (int y = 0; y < inner; ++y)
        now.stride[y] *= static_cast<int64_t>(SizeOf(was.dtype)) / static_cast<int64_t>(SizeOf(now.dtype));
      what_ += std::string("dtype=") + Name(now.dtype);
      break;
    case 6:
      now.shape = Dims(std::span(was.shape.begin(), static_cast<size_t>(inner)));
      now.stride = Dims(std::span(was.stride.begin(), static_cast<size_t>(inner)));
      what_ += "shape without its last";
      break;
    case 7:
      now.shape.push_back(1);
      now.stride.push_back(1);
      what_ += "shape with one more";
      break;
    case 8:
      now.stride[x] = 0;
      what_ += At("stride", x) + "0";
      break;
    default: {
      const TensorField other = OneOf(all, random);
      // This output may be larger than the other tensor's memory. That is safe, because a call whose tensors share
      // elements is refused.
      const bool shares =
          field.is_output() && Extent(other.view().shape, other.view().stride) > 0 && !call_->may_share(field, other);
      if (shares) now.data = const_cast<void*>(other.view().data);
      what_ += "data=" + other.name() + ".data";
    }
  }
  field.Set(now);
}

void Mistake::OfLengths(const LengthsField& field, RandomChoices* random) {
  lengths_.assign(field.values->begin(), field.values->end());
  const int64_t x = random->Pick(0, std::ssize(lengths_) - 1);
  switch (random->Pick(0, 3)) {
    case 0: lengths_[x] = random->OneOf<int64_t>({-1, kLargest, std::numeric_limits<int64_t>::min(), 1 << 30}); break;
    case 1: lengths_[x] += random->OneOf<int64_t>({-1, 1}); break;
    case 2: lengths_.pop_back(); break;
    default: lengths_.push_back(lengths_.back());
  }
  what_ = field.name + " =";
  for (const int64_t length : lengths_) what_ += " " + std::to_string(length);
  *field.values = lengths_;
}

void Mistake::OfAnEntry(const TensorField& field, RandomChoices* random) {
  const TensorView view = field.view();
  int64_t offset = 0;
  for (int x = 0; x < view.shape.rank(); ++x) offset += random->Pick(0, view.shape[x] - 1) * view.stride[x];
  auto* at = const_cast<std::byte*>(static_cast<const std::byte*>(view.data)) +
             offset * static_cast<int64_t>(SizeOf(view.dtype));
  int64_t value = random->OneOf<int64_t>({-1, -2, 1 << 20, INT32_MAX, INT32_MIN});
  if (view.dtype == DType::kI64) value = random->OneOf<int64_t>({value, kLargest, -kLargest - 1, int64_t{1} << 32});
  const size_t size = SizeOf(view.dtype);
  const std::vector<std::byte> was(at, at + size);
  std::memcpy(at, &value, size);  // on a little-endian CPU the low bytes come first
  what_ = field.name() + " entry at " + std::to_string(offset) + " = " + std::to_string(value);
  undo_ = [at, was] { std::memcpy(at, was.data(), was.size()); };
}

}  // namespace fa::test
