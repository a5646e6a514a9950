#ifndef FA_TENSOR_H_
#define FA_TENSOR_H_

/// @file
/// Tensors, which are views of the caller's memory with a type, a shape and strides.
/// @code{.cpp}
/// // bf16 is passed as its 16 bits. The heads of q, k and v alternate in one tensor [B, S, 3, N, D].
/// std::vector<uint16_t> qkv(2 * 128 * 3 * 8 * 64);
/// const fa::Dims shape = {2, 128, 8, 64}, stride = {128 * 3 * 8 * 64, 3 * 8 * 64, 64, 1};
/// const fa::TensorView q = {qkv.data(), fa::DType::kBF16, shape, stride};
/// const fa::TensorView k = {qkv.data() + 8 * 64, fa::DType::kBF16, shape, stride};
/// const fa::TensorView v = {qkv.data() + 2 * 8 * 64, fa::DType::kBF16, shape, stride};
/// @endcode

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "fa/export.h"
#include "fa/version.h"

namespace fa {

/// Element types. f16 and bf16 are passed as their 16 bits; bool and u8 as one byte. kF8E4M3 (without infinities, as
/// torch.float8_e4m3fn) and kF8E5M2 are passed as one byte. An element of kI4x8 is an int32 with eight numbers of 4
/// bits in two's complement, the first in the lowest bits. Only keys and values in caches have the types kF8E5M2 and
/// kI4x8. Some operators also take queries of the type kF8E4M3.
enum class DType : uint8_t { kF32, kF16, kBF16, kI8, kU8, kBool, kI32, kI64, kU64, kF8E4M3, kF8E5M2, kI4x8 };

/// Returns the bytes of one element.
[[nodiscard]] constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
    case DType::kI4x8: return 4;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
    case DType::kF8E4M3:
    case DType::kF8E5M2: return 1;
    case DType::kI64:
    case DType::kU64: return 8;
  }
  return 0;
}

/// Returns "f32", "f16", "bf16", "i8", "u8", "bool", "i32", "i64", "u64", "f8e4m3", "f8e5m2" or "i4x8".
[[nodiscard]] FA_API const char* Name(DType dtype);

/// The order of the dimensions batch (B), sequence (S), heads (N) and head size (D) in a tensor. The shape of a
/// TensorView has this order: BSH [B,S,N*D] · SBH [S,B,N*D] · BSND [B,S,N,D] · BNSD [B,N,S,D] · TND [T,N,D] (packed
/// sequences) · BNSD_BSND: inputs BNSD, output BSND.
///
/// Only InferAttention takes the layouts from kNTD on: NTD [N,T,D] (packed) · NSD [N,S,D] (B = 1) · X_Y: inputs X,
/// output Y, where NBSD is [N,B,S,D].
enum class Layout : uint8_t {
  kBNSD,
  kBSND,
  kBSH,
  kSBH,
  kTND,
  kBNSD_BSND,
  kNTD,
  kNSD,
  kBSH_BNSD,
  kBSND_BNSD,
  kBSH_NBSD,
  kBSND_NBSD,
  kBNSD_NBSD,
  kTND_NTD,
  kNTD_TND,
};

/// Returns the layout's name, such as "BNSD" or "BNSD_BSND".
[[nodiscard]] FA_API const char* Name(Layout layout);

/// Up to 8 sizes or strides, outermost first.
class Dims {
 public:
  static constexpr int kMaxRank = 8;

  constexpr Dims() = default;
  constexpr Dims(std::initializer_list<int64_t> values) {
    for (int64_t value : values) push_back(value);
  }
  explicit constexpr Dims(std::span<const int64_t> values) {
    for (int64_t value : values) push_back(value);
  }

  /// push_back drops a ninth value; rank() then is 9, and every operator refuses the tensor by name.
  constexpr void push_back(int64_t value) {
    if (rank_ < kMaxRank) values_[static_cast<size_t>(rank_)] = value;
    if (rank_ <= kMaxRank) ++rank_;
  }
  [[nodiscard]] constexpr int rank() const { return rank_; }
  [[nodiscard]] constexpr bool empty() const { return rank_ == 0; }
  constexpr int64_t operator[](int i) const { return values_[static_cast<size_t>(i)]; }
  constexpr int64_t& operator[](int i) { return values_[static_cast<size_t>(i)]; }
  [[nodiscard]] constexpr const int64_t* begin() const { return values_.data(); }
  [[nodiscard]] constexpr const int64_t* end() const { return values_.data() + (rank_ < kMaxRank ? rank_ : kMaxRank); }
  friend constexpr bool operator==(const Dims& a, const Dims& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_ && i < kMaxRank; ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }

 private:
  std::array<int64_t, kMaxRank> values_{};
  int rank_ = 0;
};

/// A read-only strided view of the caller's memory. Null data means that the tensor is absent. Strides count elements;
/// an empty stride means dense, row-major. The innermost stride is 1. The others are >= 0; a stride of 0 repeats
/// (broadcasts) the same elements.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  Dims shape;
  Dims stride;
};

/// A writable strided view. It is like TensorView, but no two of its elements may share memory: no dimension longer
/// than 1 has stride 0.
struct MutableTensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Dims shape;
  Dims stride;

  operator TensorView() const { return {data, dtype, shape, stride}; }  // NOLINT(google-explicit-constructor)
};

}  // namespace fa

#endif  // FA_TENSOR_H_
