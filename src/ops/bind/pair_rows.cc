#include "ops/bind/pair_rows.h"

#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"

namespace fa::ops {

Result<PairSourceView> BindPairSource(const char* name, const TensorView& tensor, std::initializer_list<DType> dtypes,
                                      const char* types, const char* last) {
  if (std::find(dtypes.begin(), dtypes.end(), tensor.dtype) == dtypes.end()) {
    return WrongType(name, tensor.dtype, types);
  }
  FA_RETURN_IF_ERROR(CheckView(name, tensor, /*any_innermost=*/true));
  const int rank = tensor.shape.rank();
  if (rank != 2 && rank != 4) {
    return Status::InvalidArgument(Arg(name, ".shape").Is(Text(tensor.shape)) + ", want [" + last +
                                   "] or [B|1,N|Nkv|1," + last + "]");
  }
  PairSourceView view{static_cast<const std::byte*>(tensor.data), tensor.dtype, tensor.shape,
                      layout::FilledStride(tensor.shape, tensor.stride)};
  if (rank == 2) {
    view.shape = {1, 1, view.shape[0], view.shape[1]};
    view.stride = {0, 0, view.stride[0], view.stride[1]};
  }
  const bool any = std::find(view.shape.begin(), view.shape.end(), 0) == view.shape.end();
  if (any && tensor.data == nullptr) return Status::InvalidArgument(Arg(name).Says("null data"));
  return view;
}

Result<PairSourceView> BindPairBytes(const TensorView& mask) {
  return BindPairSource("mask", mask, {DType::kU8, DType::kBool, DType::kI8}, "u8, bool or i8", "Sq,Sk");
}

uint64_t DroppedByBytes::operator()(const std::byte* from, int64_t apart, int64_t count) const {
  uint8_t together[PairTileLayout::kWordBits];
  const auto* bytes = reinterpret_cast<const uint8_t*>(from);
  if (apart != 1) {
    for (int64_t j = 0; j < count; ++j) together[j] = bytes[j * apart];
    bytes = together;
  }
  const uint64_t word = WordOfBytes(bytes, count);
  return drops ? word : ~word & LowBits(count);
}

}  // namespace fa::ops
