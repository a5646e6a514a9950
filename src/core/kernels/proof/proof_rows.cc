// Kernels that no strip owns: conversions, the exponential, inner and outer products.

#include <iterator>
#include <utility>

#include "core/integer.h"
#include "core/kernels/proof/proof_values.h"

namespace fa::core::kernels::proof {
namespace {

constexpr int64_t kCount = 27;
// Sizes of outer products: more than a block of the tile unit (32) in every dimension, and a tail.
constexpr int64_t kRows = 69, kColumns = 43, kKeys = 37;
constexpr float kInfinity = __builtin_inff();

/// 2^x near every edge: halves, whole numbers, subnormal results, none.
const float kExponents[] = {0,      0.5f,   -0.5f, 1,       -1,       3.25f, -7.75f, 0.49f,     -0.51f,
                            126.9f, 127.5f, -126,  -126.5f, -140.25f, -149,  -160,   kInfinity, -kInfinity};

Floats Powers(const RowKernels& rows) {
  Floats powers = FloatsOf(std::size(kExponents));
  rows.exp2(kExponents, std::size(kExponents), powers.data());
  return powers;
}

/// Floats that 16 bits round: ties, both signs, subnormal and too large numbers.
Floats RoundedFloats() {
  Floats floats = {1.00390625f, 1.01171875f, -1.00048828125f, 1.00146484375f, 65519, 65520, 1e-7f, -6e-8f, 3.3e38f};
  for (int64_t i = static_cast<int64_t>(floats.size()); i < kCount; ++i) floats.push_back(Value(21, i) * 1.2345678f);
  return floats;
}

/// To 16 bits and back.
Floats Converted(const RowKernels& rows, DType dtype) {
  const Floats from = RoundedFloats();
  std::vector<uint16_t> narrow(static_cast<size_t>(kCount));
  Floats back = FloatsOf(kCount);
  rows.narrow(from.data(), kCount, 1, kCount, 1, {narrow.data(), dtype, kCount});
  rows.widen({.data = narrow.data(), .dtype = dtype, .stride = kCount}, 1, kCount, back.data(), kCount);
  return back;
}

Floats Facts(const RowKernels& rows) {
  const Values a(22, 1, kCount), b(23, 1, kCount);
  Floats with_nan = FloatsOf(kCount, 1);
  with_nan.back() = kInfinity - kInfinity;
  std::vector<int8_t> integers(static_cast<size_t>(kCount));
  for (size_t i = 0; i < integers.size(); ++i) integers[i] = static_cast<int8_t>(i * 19 - 128);
  const float scale = 0.25f, offset = 3;
  Floats facts = FloatsOf(kCount);
  rows.dequantize({.data = integers.data(), .dtype = DType::kI8, .stride = kCount}, 1, kCount,
                  {.scale = &scale, .offset = &offset, .row_step = 1}, facts.data(), kCount);
  facts.push_back(rows.dot(a.Row(0, DType::kF32), DType::kF32, b.Row(0, DType::kBF16), DType::kBF16, kCount));
  facts.push_back(static_cast<float>(rows.all_finite(a.Row(0, DType::kBF16), DType::kBF16, kCount)));
  facts.push_back(static_cast<float>(rows.all_finite(with_nan.data(), DType::kF32, kCount)));
  return facts;
}

/// Operands of a sum over rows as the backward makes it, exact.
class OuterOperands {
 public:
  OuterOperands(const KernelTable& table, const StripKernels& kernels, uint32_t of)
      : width_(kernels.width), tiles_(FloatsOf(CeilDiv(kRows, width_) * kKeys * width_)) {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t key = 0; key < kKeys; ++key) {
        const int64_t at = row / width_ * strip_stride_ + key * width_ + row % width_;
        tiles_[static_cast<size_t>(at)] = Value(of, row * kKeys + key);
      }
    }
    if (table.pairs()) Round(kernels);
    panel_ = FloatsOf((kRows + 1) * table.rows->panel_columns(kColumns));
    const Values b(of + 1, kRows, kColumns);
    table.rows->pack_rows(b.Block(0, table.pairs() ? DType::kBF16 : DType::kF32), kRows, kColumns, panel_.data());
  }
  [[nodiscard]] OuterArgs Into(Floats& sums) const {
    return {.a = tiles_.data(),
            .strip_stride = strip_stride_,
            .width = width_,
            .rows = kRows,
            .b = panel_.data(),
            .b_rows = kRows,
            .keys = kKeys,
            .columns = kColumns,
            .c = sums.data(),
            .c_stride = kColumns,
            .accumulate = true};
  }

 private:
  void Round(const StripKernels& kernels) {
    const int64_t from_stride = std::exchange(strip_stride_, kKeys * kernels.OuterWidth());
    Floats rounded = tiles_;
    for (int64_t strip = 0; strip < CeilDiv(kRows, width_); ++strip) {
      kernels.pair_lanes(tiles_.data() + strip * from_stride, kKeys, rounded.data() + strip * strip_stride_);
    }
    tiles_ = std::move(rounded);
  }

  int64_t width_, strip_stride_ = kKeys * width_;
  Floats tiles_, panel_;
};

Floats OuterProduct(const KernelTable& table, const StripKernels& kernels) {
  Floats sums = FloatsOf(kKeys * kColumns, 2);
  table.rows->outer(OuterOperands(table, kernels, 24).Into(sums));
  return sums;
}

/// @param at_once  by the kernel for two
Floats TwoOuterProducts(const KernelTable& table, const StripKernels& kernels, bool at_once) {
  Floats sums = FloatsOf(kKeys * kColumns, 2);
  const OuterOperands first(table, kernels, 24), second(table, kernels, 26);
  const OuterArgs args = first.Into(sums), then = second.Into(sums);
  if (at_once) {
    table.rows->outer_both(args, then);
  } else {
    table.rows->outer(args);
    table.rows->outer(then);
  }
  return sums;
}

}  // namespace

std::string RowDisproof(const KernelTable& level, const KernelTable& below) {
  const std::string of = std::string(" of ") + Name(level.isa);
  const auto& [rows, others] = std::pair(*level.rows, *below.rows);
  constexpr double kPowerError = 2 * 4 * kRounding;  // 2 ulp each
  if (Differ(Powers(rows), Powers(others), kPowerError)) return "exponentials" + of;
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    if (Differ(Converted(rows, dtype), Converted(others, dtype), 0)) return "conversions" + of;
  }
  if (Differ(Facts(rows), Facts(others), 0)) return "row kernels" + of;
  const Floats sums = OuterProduct(below, below.narrowest());
  for (const StripKernels* kernels : {&level.widest(), &level.narrowest()}) {
    if (Differ(OuterProduct(level, *kernels), sums, 0)) return "outer products" + of;
    if (rows.outer_both == nullptr) continue;
    if (Differ(TwoOuterProducts(level, *kernels, true), TwoOuterProducts(level, *kernels, false), 0)) {
      return "two outer products at once" + of;
    }
  }
  return "";
}

}  // namespace fa::core::kernels::proof
