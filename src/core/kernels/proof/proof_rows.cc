// Kernels that no strip owns: conversions, the exponential, inner and outer products.

#include <iterator>
#include <utility>

#include "core/integer.h"
#include "core/kernels/proof/proof_values.h"

namespace fa::core::kernels::proof {
namespace {

constexpr int64_t kCount = 27;
constexpr float kInfinity = __builtin_inff();

/// 2^x near every edge: halves, whole numbers, subnormal results, none.
const float kExponents[] = {0,      0.5f, -0.5f,   1,        -1,   3.25f, -7.75f,    0.49f,      -0.51f,   126.9f,
                            127.5f, -126, -126.5f, -140.25f, -149, -160,  kInfinity, -kInfinity, kNoNumber};

Floats Powers(const RowKernels& rows) {
  Floats powers = FloatsOf(std::size(kExponents));
  rows.exp2(kExponents, std::size(kExponents), powers.data());
  return powers;
}

/// Floats that 16 bits round: ties, both signs, subnormal and too large numbers; two rows.
Floats RoundedFloats() {
  Floats floats = {1.00390625f, 1.01171875f, -1.00048828125f, 1.00146484375f, 65519, 65520, 1e-7f, -6e-8f, 3.3e38f};
  for (int64_t i = static_cast<int64_t>(floats.size()); i < 2 * kCount; ++i) {
    floats.push_back(Value(21, i) * 1.2345678f);
  }
  return floats;
}

/// To a type and back, rows apart.
Floats Converted(const RowKernels& rows, DType dtype) {
  constexpr int64_t kApart = kCount + 2;
  Floats converted;
  for (const float multiplier : {1.0f, -0.7f}) {
    std::vector<char> narrow(static_cast<size_t>(2 * kApart) * SizeOf(dtype));
    Floats back = FloatsOf(2 * kApart);
    rows.narrow(RoundedFloats().data(), kCount, 2, kCount, multiplier, {narrow.data(), dtype, kApart});
    rows.widen({.data = narrow.data(), .dtype = dtype, .stride = kApart}, 2, kCount, back.data(), kApart);
    converted.insert(converted.end(), back.begin(), back.end());
  }
  return converted;
}

/// Two rows of int8 with a scale and an offset per row, or per column.
Floats Dequantized(const RowKernels& rows, bool by_row) {
  constexpr int64_t kApart = kCount + 2;
  std::vector<int8_t> integers(static_cast<size_t>(2 * kApart));
  for (size_t i = 0; i < integers.size(); ++i) integers[i] = static_cast<int8_t>(i * 19 - 128);
  const Floats scale = ValuesOf(24, kCount), offset = ValuesOf(25, kCount);
  Floats numbers = FloatsOf(2 * kApart);
  rows.dequantize({.data = integers.data(), .dtype = DType::kI8, .stride = kApart, .fetch_ahead = 1}, 2, kCount,
                  {.scale = scale.data(), .offset = offset.data(), .row_step = by_row ? 1 : 0}, numbers.data(), kApart);
  return numbers;
}

/// Sums and scans of every length up to a few vectors.
Floats Scans(const RowKernels& rows) {
  constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
  Floats facts;
  for (int64_t n = 1; n <= 67; n += n < 20 ? 1 : 47) {
    const Values a(22, 1, n), b(23, 1, n);
    Values not_finite = a;
    not_finite.Set(0, n - 1, n % 2 == 0 ? kNoNumber : -kInfinity);
    for (const DType type : kTypes) {
      for (const DType other : kTypes) facts.push_back(rows.dot(a.Row(0, type), type, b.Row(0, other), other, n));
      facts.push_back(rows.all_finite(a.Row(0, type), type, n) ? 1 : 0);
      facts.push_back(rows.all_finite(not_finite.Row(0, type), type, n) ? 1 : 0);
    }
  }
  return facts;
}

struct OuterSizes {
  int64_t rows, keys, columns;
};

/// How an outer product is asked.
struct OuterWay {
  bool accumulate = true, exact = false, by_address = false, inside = false;
  DType rows = DType::kF32;  ///< of what is packed; pairs are of bf16
};
constexpr OuterWay kOuterWays[] = {{},
                                   {.accumulate = false},
                                   {.by_address = true},
                                   {.inside = true},
                                   {.exact = true},
                                   {.rows = DType::kF16},
                                   {.rows = DType::kBF16},
                                   {.accumulate = false, .exact = true, .by_address = true, .inside = true}};

/// Operands of a sum over rows as the backward makes it, exact.
class OuterOperands {
 public:
  OuterOperands(const KernelTable& table, const StripKernels& kernels, const OuterSizes& sizes, const OuterWay& way,
                uint32_t of)
      : sizes_(sizes),
        width_(kernels.width),
        strip_stride_(sizes.keys * width_),
        first_(way.inside ? width_ : 0),
        tiles_(FloatsOf(CeilDiv(sizes.rows, width_) * strip_stride_)) {
    for (int64_t row = 0; row < sizes.rows; ++row) {
      for (int64_t key = 0; key < sizes.keys; ++key) {
        const int64_t at = row / width_ * strip_stride_ + key * width_ + row % width_;
        // Masked for two keys of three where b is no number.
        const bool masked = way.exact && ((row + key) % 5 == 0 || (row % 7 == 3 && key % 3 != 0));
        tiles_[static_cast<size_t>(at)] = masked ? kMaskedProbability : Value(of, row * sizes.keys + key);
      }
    }
    if (table.pairs()) Round(kernels);
    Values b(of + 1, sizes.rows, sizes.columns, first_);
    if (way.exact) {
      for (int64_t row = 3; row < sizes.rows; row += 7) b.Set(row, row % sizes.columns, kNoNumber);
    }
    panel_ = FloatsOf((first_ + sizes.rows + 1) * table.rows->panel_columns(sizes.columns));
    table.rows->pack_rows(b.Block(-first_, table.pairs() ? DType::kBF16 : way.rows), first_ + sizes.rows, sizes.columns,
                          panel_.data());
  }
  [[nodiscard]] OuterArgs Into(Floats& sums, const OuterWay& way) {
    for (int64_t key = 0; key < sizes_.keys; ++key) rows_.push_back(&sums[static_cast<size_t>(key * sizes_.columns)]);
    return {.a = tiles_.data(),
            .strip_stride = strip_stride_,
            .width = width_,
            .rows = sizes_.rows,
            .b = panel_.data(),
            .b_rows = first_ + sizes_.rows,
            .b_first = first_,
            .keys = sizes_.keys,
            .columns = sizes_.columns,
            .c = way.by_address ? nullptr : sums.data(),
            .c_stride = sizes_.columns,
            .accumulate = way.accumulate,
            .c_rows = way.by_address ? rows_.data() : nullptr};
  }

 private:
  void Round(const StripKernels& kernels) {
    const int64_t from_stride = std::exchange(strip_stride_, sizes_.keys * kernels.OuterWidth());
    Floats rounded = tiles_;
    for (int64_t strip = 0; strip < CeilDiv(sizes_.rows, width_); ++strip) {
      kernels.pair_lanes(tiles_.data() + strip * from_stride, sizes_.keys, rounded.data() + strip * strip_stride_);
    }
    tiles_ = std::move(rounded);
  }

  OuterSizes sizes_;
  int64_t width_, strip_stride_, first_;
  Floats tiles_, panel_;
  std::vector<float*> rows_;
};

Floats OuterProduct(const KernelTable& table, const StripKernels& kernels, const OuterSizes& sizes,
                    const OuterWay& way) {
  Floats sums = FloatsOf(sizes.keys * sizes.columns + 1, 2);  // nothing is written behind
  OuterOperands operands(table, kernels, sizes, way, 24);
  (way.exact ? table.rows->outer_exact : table.rows->outer)(operands.Into(sums, way));
  return sums;
}

/// @param at_once  by the kernel for two
Floats TwoOuterProducts(const KernelTable& table, const StripKernels& kernels, const OuterSizes& sizes,
                        const OuterWay& way, bool at_once) {
  Floats sums = FloatsOf(sizes.keys * sizes.columns + 1, 2);
  OuterOperands first(table, kernels, sizes, way, 24), second(table, kernels, sizes, way, 26);
  const OuterArgs args = first.Into(sums, way), then = second.Into(sums, way);
  if (at_once) {
    table.rows->outer_both(args, then);
  } else {
    table.rows->outer(args);
    table.rows->outer(then);
  }
  return sums;
}

// More than a block of the tile unit (32) in every dimension, and a tail; fewer keys where they are taken one by one.
constexpr OuterSizes kLargeOuter = {69, 37, 43}, kExactOuter = {53, 7, 43};
// More keys than the tile unit takes at a time (256).
constexpr OuterSizes kManyKeys = {5, 261, 4};

/// What is wrong with outer products; empty: nothing.
std::string OuterDisproof(const KernelTable& level, const KernelTable& below) {
  const auto disproof = [&](const OuterSizes& sizes, const OuterWay& way, const StripKernels& kernels) -> std::string {
    if (Differ(OuterProduct(level, kernels, sizes, way), OuterProduct(below, below.narrowest(), sizes, way), 0)) {
      return way.exact ? "outer products of masked pairs" : "outer products";
    }
    if (level.rows->outer_both == nullptr || !way.accumulate || way.exact) return {};
    const Floats both = TwoOuterProducts(level, kernels, sizes, way, true);
    return Differ(both, TwoOuterProducts(level, kernels, sizes, way, false), 0) ? "two outer products at once" : "";
  };
  std::string wrong;
  for (const OuterWay& way : kOuterWays) {
    for (const StripKernels* kernels : {&level.widest(), &level.narrowest()}) {
      if (level.pairs() && way.rows != DType::kF32) continue;
      if (wrong.empty()) wrong = disproof(way.exact ? kExactOuter : kLargeOuter, way, *kernels);
    }
  }
  if (wrong.empty()) wrong = disproof(kManyKeys, {}, level.widest());
  // Each tail of a register block of keys by each number of vectors is a kernel of its own.
  for (const int64_t columns : {3, 8, 11, 27, 59}) {
    for (int64_t keys = 1; keys <= 8 && wrong.empty(); ++keys) {
      wrong = disproof({21 + keys % 4, keys, columns}, {}, level.widest());
    }
  }
  return wrong;
}

}  // namespace

std::string RowDisproof(const KernelTable& level, const KernelTable& below) {
  const std::string of = std::string(" of ") + Name(level.isa);
  const auto& [rows, others] = std::pair(*level.rows, *below.rows);
  constexpr double kPowerError = 2 * 4 * kRounding;  // 2 ulp each
  if (Differ(Powers(rows), Powers(others), kPowerError)) return "exponentials" + of;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (Differ(Converted(rows, dtype), Converted(others, dtype), 0)) return "conversions" + of;
  }
  for (const bool by_row : {false, true}) {
    if (Differ(Dequantized(rows, by_row), Dequantized(others, by_row), 0)) return "numbers of int8" + of;
  }
  if (Differ(Scans(rows), Scans(others), 0)) return "row kernels" + of;
  const std::string wrong = OuterDisproof(level, below);
  return wrong.empty() ? wrong : wrong + of;
}

}  // namespace fa::core::kernels::proof
