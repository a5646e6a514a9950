// Writes rows of floats as codes of 8 bits. A row is read twice if its own largest number gives the scale: once for
// that number and once for the codes. The pieces of a row that are converted at a time lie in the first-level cache.
#include "ops/cache/quantize_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "core/saturating.h"
#include "fa/half.h"
#include "layout/bind_layout.h"
#include "layout/overlap.h"
#include "ops/bind/argument_error.h"

namespace fa::ops {
namespace {

// The columns that are converted at a time: a head of the usual sizes is one piece.
constexpr int64_t kPieceColumns = 256;

// The largest numbers of the two formats.
constexpr float kLargestI8 = 127.0f, kLargestE4M3 = 448.0f;

constexpr uint32_t kMagnitude = 0x7FFFFFFFu, kInfinity = 0x7F800000u;

template <DType kFrom>
float LoadFloat(const std::byte* at) {
  if constexpr (kFrom == DType::kF32) {
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  } else {
    uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof bits);
    return kFrom == DType::kBF16 ? F32FromBf16(bits) : F32FromF16(bits);
  }
}

/// Returns the code of saturate(rint(value)), and 0 for NaN.
std::byte CodeOfI8(float value) {
  // Between -128 and 127, the addition rounds to an integer, ties to even, because a unit of the sum's last place is 1.
  constexpr float kRounder = 0x1.8p23f;
  const float bounded = value > -128.0f ? std::min(value, kLargestI8) : value <= -128.0f ? -128.0f : 0.0f;
  return static_cast<std::byte>(static_cast<int8_t>((bounded + kRounder) - kRounder));
}

/// Returns the nearest code of e4m3, which saturates at 448 and keeps NaN.
std::byte CodeOfE4M3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & kMagnitude;
  if (magnitude > kInfinity) return static_cast<std::byte>(sign | 0x7Fu);
  const float bounded = std::min(std::bit_cast<float>(magnitude), kLargestE4M3);
  if (bounded < 0x1p-6f) {  // subnormal: a multiple of 2^-9, which is the unit of the sum's last place
    constexpr float kRounder = 0x1.8p14f;
    return static_cast<std::byte>(sign | static_cast<uint32_t>(((bounded + kRounder) - kRounder) * 512.0f));
  }
  // The code keeps 3 of the 23 bits of fraction, and its exponent has a bias of 7 instead of 127.
  const uint32_t whole = std::bit_cast<uint32_t>(bounded);
  return static_cast<std::byte>(sign | (((whole + 0x7FFFFu + ((whole >> 20) & 1u)) >> 20) - (120u << 3)));
}

/// Calls visit(from, to, count) for each piece of a head: offsets in bytes and the number of columns.
template <typename Visit>
void ForEachPieceOfHead(const RowQuantizer& by, const Visit& visit) {
  const auto& [heads, chunks, columns] = by.dims;
  for (int64_t chunk = 0; chunk < chunks.size; ++chunk) {
    for (int64_t column = 0; column < columns.size; column += kPieceColumns) {
      visit(chunk * chunks.from + column * columns.from, chunk * chunks.to + column * columns.to,
            std::min(kPieceColumns, columns.size - column));
    }
  }
}

template <DType kFrom>
void Load(const std::byte* from, int64_t step, int64_t count, float* numbers) {
  constexpr auto kBytes = static_cast<int64_t>(SizeOf(kFrom));
  if (step == kBytes) {  // a constant step, for which the compiler emits faster code
    for (int64_t i = 0; i < count; ++i) numbers[i] = LoadFloat<kFrom>(from + i * kBytes);
  } else {
    for (int64_t i = 0; i < count; ++i) numbers[i] = LoadFloat<kFrom>(from + i * step);
  }
}

/// Returns the magnitude of the largest number of a head, as bits. The bits of infinity and NaN are at least kInfinity.
template <DType kFrom>
uint32_t LargestOfHead(const RowQuantizer& by, const std::byte* from) {
  float numbers[kPieceColumns];
  uint32_t largest = 0;
  ForEachPieceOfHead(by, [&](int64_t piece, int64_t /*to*/, int64_t count) {
    Load<kFrom>(from + piece, by.dims[2].from, count, numbers);
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(numbers[i]) & kMagnitude);
  });
  return largest;
}

/// Writes the codes of a head's numbers divided by `scale`, or zeros if `scale` is 0 or NaN.
template <DType kFrom, DType kTo>
void WriteHead(const RowQuantizer& by, const std::byte* from, std::byte* to, float scale) {
  float numbers[kPieceColumns];
  const bool zeros = !(scale > 0);
  ForEachPieceOfHead(by, [&](int64_t piece, int64_t to_piece, int64_t count) {
    if (!zeros) Load<kFrom>(from + piece, by.dims[2].from, count, numbers);
    for (int64_t i = 0; i < count; ++i) {
      std::byte code{0};
      if (!zeros) code = kTo == DType::kI8 ? CodeOfI8(numbers[i] / scale) : CodeOfE4M3(numbers[i] / scale);
      to[to_piece + i * by.dims[2].to] = code;
    }
  });
}

template <DType kFrom, DType kTo>
void QuantizeRowOf(const RowQuantizer& by, const QuantizedRow& row) {
  constexpr float kLargest = kTo == DType::kI8 ? kLargestI8 : kLargestE4M3;
  for (int64_t head = 0; head < by.dims[0].size; ++head) {
    const std::byte* from = row.from + head * by.dims[0].from;
    float scale = 0;
    if (by.given) {
      std::memcpy(&scale, row.given + head * by.given_head, sizeof scale);
    } else {
      const uint32_t largest = LargestOfHead<kFrom>(by, from);
      scale = largest < kInfinity ? std::bit_cast<float>(largest) / kLargest : std::numeric_limits<float>::quiet_NaN();
      std::memcpy(row.own + head * by.scale_head, &scale, sizeof scale);
    }
    WriteHead<kFrom, kTo>(by, from, row.to + head * by.dims[0].to, scale);
  }
}

template <DType kFrom>
void QuantizeRowFrom(const RowQuantizer& by, const QuantizedRow& row) {
  return by.to == DType::kI8 ? QuantizeRowOf<kFrom, DType::kI8>(by, row)
                             : QuantizeRowOf<kFrom, DType::kF8E4M3>(by, row);
}

/// Converts a stride of f32 to bytes. A stride that overflows belongs to a dimension of one index, so it is never used.
int64_t InBytes(int64_t stride) { return core::SaturatedProduct(static_cast<int64_t>(sizeof(float)), stride); }

/// Returns whether an optional tensor is given. A given tensor without elements may have null data.
bool HasTensor(const TensorView& tensor) {
  return tensor.data != nullptr || std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
}

Status CheckF32(const NamedTensor& named) {
  if (named.tensor.dtype != DType::kF32) return WrongType(named.name, named.tensor.dtype, "f32");
  return CheckView(named.name, named.tensor, /*any_innermost=*/true);
}

Status BindGivenScale(const NamedTensor& scale, int64_t heads, RowQuantizer* by) {
  FA_RETURN_IF_ERROR(CheckF32(scale));
  const Dims& shape = scale.tensor.shape;
  if (shape != Dims{1} && shape != Dims{heads}) {
    return Status::InvalidArgument(Arg(scale.name, ".shape").Is(Text(shape)) + ", want [1] or [" +
                                   std::to_string(heads) + "] (heads)");
  }
  by->given = true;
  by->given_head = shape[0] == 1 ? 0 : InBytes(layout::FilledStride(shape, scale.tensor.stride)[0]);
  return Status::Ok();
}

Status BindScaleCache(const NamedTensor& scale, const BoundPages& pages, int64_t heads, RowQuantizer* by) {
  FA_RETURN_IF_ERROR(CheckF32(scale));
  const Dims want{pages.pages, heads, pages.page_rows, 1};
  if (scale.tensor.shape != want) {
    return Status::InvalidArgument(Arg(scale.name, ".shape").Is(Text(scale.tensor.shape)) + ", want " + Text(want) +
                                   " (pages, heads, page size, 1)");
  }
  const Dims stride = layout::FilledStride(want, scale.tensor.stride);
  if (layout::OverlapsItself({scale.tensor.data, scale.tensor.dtype, want, stride})) {
    return Status::InvalidArgument(Arg(scale.name, ".stride").Is(Text(scale.tensor.stride)) +
                                   ", want strides that keep its elements apart");
  }
  by->scale_page = InBytes(stride[0]);
  by->scale_head = InBytes(stride[1]);
  by->scale_row = InBytes(stride[2]);
  return Status::Ok();
}

}  // namespace

bool Quantizes(DType rows, DType cache) {
  return rows <= DType::kBF16 && (cache == DType::kI8 || cache == DType::kF8E4M3);
}

Result<RowQuantizer> BindQuantizer(const QuantizedTensors& tensors, const BoundPages& pages) {
  const bool given = HasTensor(tensors.scale.tensor), own = HasTensor(tensors.scale_cache.tensor);
  RowQuantizer by{.from = tensors.rows.tensor.dtype, .to = tensors.cache.tensor.dtype, .dims = pages.dims};
  if (!given && !own) {
    return WrongType(tensors.cache.name, by.to, TypeOf(tensors.rows.name, by.from) + ", or scales of its codes");
  }
  if (given && own) {
    return Status::InvalidArgument(Arg(tensors.scale.name).Says("given, want none (") + Arg(tensors.scale_cache.name) +
                                   " is given)");
  }
  const int64_t heads = pages.dims[0].size;
  FA_RETURN_IF_ERROR(given ? BindGivenScale(tensors.scale, heads, &by)
                           : BindScaleCache(tensors.scale_cache, pages, heads, &by));
  return by;
}

Status CheckNoScales(const QuantizedTensors& tensors) {
  for (const NamedTensor* named : {&tensors.scale, &tensors.scale_cache}) {
    if (!HasTensor(named->tensor)) continue;
    const bool absent = !HasTensor(tensors.cache.tensor);
    const ErrorText why = absent ? Arg(tensors.cache.name).Says("missing")
                                 : Arg(tensors.cache.name, ".dtype") + " is " + Name(tensors.cache.tensor.dtype);
    return Status::InvalidArgument(Arg(named->name).Says("given, want none (") + why + ")");
  }
  return Status::Ok();
}

Status CheckGivenScale(const NamedTensor& scale) {
  if (scale.tensor.data == nullptr) return Status::Ok();
  const int64_t step = InBytes(layout::FilledStride(scale.tensor.shape, scale.tensor.stride)[0]);
  const auto* data = static_cast<const std::byte*>(scale.tensor.data);
  for (int64_t head = 0; head < scale.tensor.shape[0]; ++head) {
    float value = 0;
    std::memcpy(&value, data + head * step, sizeof value);
    if (value > 0 && std::isfinite(value)) continue;
    return Status::InvalidArgument(Arg(scale.name, {}, At(head)).Is(Text(value)) + ", want a positive finite number");
  }
  return Status::Ok();
}

void QuantizeRow(const RowQuantizer& by, const QuantizedRow& row) {
  switch (by.from) {
    case DType::kF16: return QuantizeRowFrom<DType::kF16>(by, row);
    case DType::kBF16: return QuantizeRowFrom<DType::kBF16>(by, row);
    default: return QuantizeRowFrom<DType::kF32>(by, row);
  }
}

}  // namespace fa::ops
