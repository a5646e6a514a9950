#include "cases/case_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "check/element.h"
#include "flags/failure.h"

namespace fa::tool {

Tensor NewLike(const TensorView& view) { return NewTensor(view.dtype, {view.shape.begin(), view.shape.end()}); }

void FillRandom(Tensor& tensor, uint64_t seed) {
  // An element is a scaled sum of four uniform 16-bit numbers. One random 64-bit word gives all four.
  std::mt19937_64 random(seed);
  const double deviation = 65536 * std::sqrt(4.0 / 12.0);
  for (int64_t i = 0; i < tensor.array.size(); ++i) {
    const uint64_t word = random();
    const auto sum =
        static_cast<double>((word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48));
    check::StoreElement(tensor.array.bytes(), tensor.dtype, i, static_cast<float>((sum - 2 * 65535.0) / deviation));
  }
}

Tensor RandomPages(const TensorView& table) {
  Tensor pages = NewLike(table);
  const auto entries = pages.array.as<int32_t>();
  std::iota(entries.begin(), entries.end(), 0);
  std::shuffle(entries.begin(), entries.end(), std::mt19937_64(5));
  return pages;
}

check::HeadRows RowsOf(const Tensor& tensor, Layout layout, const TensorSizes& sizes, int64_t batch, int64_t head) {
  const TensorStrides strides = StridesOf(layout, sizes);
  return {.data = tensor.array.bytes(),
          .dtype = tensor.dtype,
          .offset = batch * strides.batch + head * strides.head,
          .row_stride = strides.seq,
          .columns = sizes.d};
}

double CheckRow(const check::HeadRows& got, int64_t row, const ExpectedRow& want) {
  double worst = 0;
  for (size_t column = 0; column < want.value.size(); ++column) {
    const int64_t index = got.offset + row * got.row_stride + static_cast<int64_t>(column);
    const double value = check::LoadElement(got.data, got.dtype, index);
    const double error = std::fabs(value - want.value[column]);
    if (!(error <= want.bound[column])) {
      throw Failure(fmt::format("wrong result, not timed: {}, column {}] = {}, want {} +- {}", want.name, column, value,
                                want.value[column], want.bound[column]));
    }
    if (error > 0) worst = std::max(worst, error / want.bound[column]);
  }
  return worst;
}

}  // namespace fa::tool
