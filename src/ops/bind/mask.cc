#include "fa/mask.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "core/run/guarded_call.h"
#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"

namespace fa {
namespace {

constinit const std::vector<int64_t> kNoRows;

constexpr int64_t kSide = 2048;  // number of rows and columns of the compressed triangle
// In mode 6, the mask has this many rows below the triangle. The left half of these rows is kept, and the right half is
// dropped.
constexpr int64_t kPrefixRows = 1024;

// A row of 2048 kept columns and then 2048 dropped ones. Every row of a compressed mask is a part of this row.
constexpr auto kRamp = [] {
  std::array<uint8_t, 2 * kSide> ramp{};
  for (size_t i = kSide; i < ramp.size(); ++i) ramp[i] = 1;
  return ramp;
}();

const uint8_t* ExpectedRow(int64_t row) { return kRamp.data() + (row < kSide ? kSide - 1 - row : kSide / 2); }

// Returns the first column in which `row` differs from `expected`, or kSide if there is none. Any non-zero byte counts
// as 1.
int64_t FirstWrong(const uint8_t* row, int64_t column_stride, const uint8_t* expected) {
  if (column_stride == 1 && std::memcmp(row, expected, static_cast<size_t>(kSide)) == 0) return kSide;
  for (int64_t j = 0; j < kSide; ++j) {
    if ((row[j * column_stride] != 0) != (expected[j] != 0)) return j;
  }
  return kSide;
}

Status Verify(const TensorView& mask, int64_t sparse_mode) {
  if (sparse_mode < 2 || sparse_mode > 8 || sparse_mode == 5) {
    return Status::InvalidArgument(ops::Arg("sparse_mode").Is(std::to_string(sparse_mode)) +
                                   ", want 2, 3, 4, 6, 7 or 8 (those with a compressed mask)");
  }
  if (mask.data == nullptr) return Status::InvalidArgument(ops::Arg("dense_mask").Says("null data"));
  if (mask.dtype != DType::kU8 && mask.dtype != DType::kBool && mask.dtype != DType::kI8) {
    return ops::WrongType("dense_mask", mask.dtype, "u8, bool or i8");
  }
  FA_RETURN_IF_ERROR(ops::CheckView("dense_mask", mask, /*any_innermost=*/true));
  const int rank = mask.shape.rank();
  const int64_t rows = sparse_mode == 6 ? kSide + kPrefixRows : kSide;
  bool right = rank >= 2 && mask.shape[rank - 2] == rows && mask.shape[rank - 1] == kSide;
  for (int i = 0; i < rank - 2; ++i) right = right && mask.shape[i] == 1;
  if (!right) {
    return Status::InvalidArgument(ops::Arg("dense_mask", ".shape").Is(ops::Text(mask.shape)) + ", want [" +
                                   std::to_string(rows) + ",2048] (" + ops::Arg("sparse_mode") + " " +
                                   std::to_string(sparse_mode) + ")");
  }
  const Dims stride = layout::FilledStride(mask.shape, mask.stride);
  const auto* data = static_cast<const uint8_t*>(mask.data);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t j = FirstWrong(data + i * stride[rank - 2], stride[rank - 1], ExpectedRow(i));
    if (j == kSide) continue;
    return Status::InvalidArgument(
        ops::Arg("dense_mask", {}, ops::At(i) + ops::At(j)).Is(ExpectedRow(i)[j] != 0 ? "0, want 1" : "1, want 0") +
        " (compressed mask of " + ops::Arg("sparse_mode") + " " + std::to_string(sparse_mode) + ")");
  }
  return Status::Ok();
}

}  // namespace

struct Mask::RowKeys {
  std::vector<int64_t> begin, end;
};

Mask Mask::None() { return {}; }

Mask Mask::Causal() {
  Mask mask;
  mask.kind_ = Kind::kCausal;
  return mask;
}

Mask Mask::CausalTopLeft() {
  Mask mask;
  mask.kind_ = Kind::kCausalTopLeft;
  return mask;
}

Mask Mask::Band(int64_t pre, int64_t next) {
  Mask mask;
  mask.kind_ = Kind::kBand;
  mask.pre_ = pre;
  mask.next_ = next;
  return mask;
}

Mask Mask::BandTopLeft(int64_t pre, int64_t next) {
  Mask mask = Band(pre, next);
  mask.kind_ = Kind::kBandTopLeft;
  return mask;
}

Mask Mask::Prefix(std::vector<int64_t> prefix) {
  Mask mask;
  mask.kind_ = Kind::kPrefix;
  mask.prefix_ = std::move(prefix);
  return mask;
}

Mask Mask::Rows(std::vector<int64_t> row_begin, std::vector<int64_t> row_end) {
  Mask mask;
  mask.kind_ = Kind::kRows;
  mask.rows_ = std::make_shared<const RowKeys>(RowKeys{std::move(row_begin), std::move(row_end)});
  return mask;
}

const std::vector<int64_t>& Mask::row_begin() const { return rows_ != nullptr ? rows_->begin : kNoRows; }

const std::vector<int64_t>& Mask::row_end() const { return rows_ != nullptr ? rows_->end : kNoRows; }

Result<Mask> Mask::FromSparseMode(int64_t sparse_mode, int64_t pre, int64_t next, std::vector<int64_t> prefix,
                                  bool dense_mask_given) {
  Mask mask;
  switch (sparse_mode) {
    case 0:
      if (dense_mask_given) mask = BandTopLeft(pre, next);
      break;
    case 1: break;
    case 2: mask = CausalTopLeft(); break;
    case 3: mask = Causal(); break;
    case 4: mask = Band(pre, next); break;
    case 5:
    case 6: mask = Prefix(std::move(prefix)); break;
    case 7:
    case 8:
      mask = Band(pre, next);
      mask.kind_ = sparse_mode == 7 ? Kind::kCausalBandLast : Kind::kCausalBandFirst;
      break;
    default: return Status::InvalidArgument(ops::Arg("sparse_mode").Is(std::to_string(sparse_mode)) + ", want 0..8");
  }
  mask.sparse_mode_ = sparse_mode;
  return mask;
}

Status VerifyCompressedMask(const TensorView& mask, int64_t sparse_mode) {
  return core::GuardedCall("check of a mask", [&] { return Verify(mask, sparse_mode); });
}

}  // namespace fa
