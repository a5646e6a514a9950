// The int8 kernels: every level has the same bits.

#include <algorithm>
#include <span>

#include "core/integer.h"
#include "core/kernels/proof/proof.h"
#include "core/kernels/proof/proof_values.h"

namespace fa::core::kernels {
namespace proof {
namespace {

struct Int8Sizes {
  int64_t keys, d, dv;
  int sign;  ///< of the scores
};
// More than a block of the tile unit in every dimension, and a tail, by every sign.
constexpr Int8Sizes kInt8Sizes[] = {{75, 83, 37, -1}, {75, 83, 37, 1}, {43, 128, 64, 1}, {9, 20, 5, 0}};
constexpr int64_t kMostTail = 13;  ///< and every tail of a register block

std::vector<int8_t> Bytes(uint32_t of, int64_t count) {
  std::vector<int8_t> bytes;
  for (int64_t i = 0; i < count; ++i) bytes.push_back(static_cast<int8_t>(Value(of, i) * 127));
  bytes.front() = -128;
  return bytes;
}

/// Rows of Q, K and V.
struct Int8Tensors {
  explicit Int8Tensors(const Int8Sizes& of)
      : sizes(of), q(Bytes(31, kMostRows * of.d)), k(Bytes(32, of.keys * of.d)), v(Bytes(33, of.keys * of.dv)) {}
  Int8Sizes sizes;
  std::vector<int8_t> q, k, v;
};

/// Scores, sums and outputs of rows [first, first + count), row after row.
Floats Compute(const Int8Table& table, const Int8Kernels& kernels, const Int8Tensors& tensors, int64_t first,
               int64_t count) {
  const auto& [keys, d, dv, sign] = tensors.sizes;
  const int64_t width = kernels.width, words = table.Words(d), padded = RoundUp(keys, 8);
  std::vector<const void*> lanes;
  for (int64_t i = 0; i < count; ++i) lanes.push_back(&tensors.q[static_cast<size_t>((first + i) * d)]);
  std::vector<uint32_t> panel(static_cast<size_t>(words * width)), packed(static_cast<size_t>(words * padded));
  std::vector<int32_t> start(static_cast<size_t>(padded));
  Floats s = FloatsOf(padded * width), row_max = FloatsOf(width, kMaskedScore), unseen = FloatsOf(padded * width);
  kernels.pack_queries({lanes.data(), DType::kI8, count}, d, sign, panel.data());
  // The first eight rows apart from the others.
  for (int64_t key = 0; key < keys; key = key == 0 ? 8 : keys) {
    const RowBlock rows{.data = &tensors.k[static_cast<size_t>(key * d)], .dtype = DType::kI8, .stride = d};
    const int64_t rows_left = key == 0 ? std::min<int64_t>(keys, 8) : keys - key;
    table.pack_keys(rows, rows_left, d, sign, &packed[static_cast<size_t>(key * words)],
                    &start[static_cast<size_t>(key)]);
  }
  kernels.scores(packed.data(), start.data(), keys, words, panel.data(), unseen.data(), nullptr);
  kernels.scores(packed.data(), start.data(), keys, words, panel.data(), s.data(), row_max.data());
  const Floats scores = s, maxima = row_max;
  for (int64_t i = 0; i < count; ++i) {  // as if a row saw no key
    if ((first + i) % 8 != 7) continue;
    row_max[static_cast<size_t>(i)] = kMaskedScore;
    for (int64_t j = 0; j < keys; ++j) s[static_cast<size_t>(j * width + i)] = kMaskedScore;
  }
  const int64_t stride = padded / table.group * table.columns;
  std::vector<uint32_t> values(static_cast<size_t>(table.PanelBlocks(dv) * stride));
  table.pack_values({.data = tensors.v.data(), .dtype = DType::kI8, .stride = dv}, keys, dv, stride, values.data());
  struct Outcome {
    float quant, limit;
    Floats p, row_sum;
    std::vector<int32_t> sums;
  };
  Outcome outcomes[] = {{128, 128, s, FloatsOf(width), std::vector<int32_t>(static_cast<size_t>(dv * width))},
                        {200, 127, s, FloatsOf(width), std::vector<int32_t>(static_cast<size_t>(dv * width))}};
  for (Outcome& x : outcomes) {
    kernels.softmax(x.p.data(), keys, 1e-4f, x.quant, x.limit, row_max.data(), x.row_sum.data());
    kernels.product(values.data(), stride, keys, reinterpret_cast<const uint32_t*>(x.p.data()), dv, x.sums.data());
  }
  Floats results;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < keys; ++j) {
      results.push_back(scores[static_cast<size_t>(j * width + i)]);
      results.push_back(unseen[static_cast<size_t>(j * width + i)]);
    }
    results.push_back(maxima[static_cast<size_t>(i)]);
    for (const Outcome& x : outcomes) {
      results.push_back(x.row_sum[static_cast<size_t>(i)]);
      for (int64_t c = 0; c < dv; ++c) {
        results.push_back(static_cast<float>(x.sums[static_cast<size_t>(c * width + i)]));
      }
    }
  }
  return results;
}

/// Floats of n columns as bytes, by every kind of scale and offset.
std::vector<int8_t> Quantized(const Int8Table& table, int64_t n) {
  Floats x = {0.5f, 1.5f, -2.5f, 1e9f, -1e9f, kNoNumber};
  for (int64_t i = 0; i < n; ++i) x.push_back(Value(34, i) * 150);
  x.resize(static_cast<size_t>(n));
  const Values scales(40, 1, n), offsets(41, 1, n);
  std::vector<int8_t> all;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const bool per_column : {false, true}) {
      for (const bool has_offset : {false, true}) {
        std::vector<int8_t> y(static_cast<size_t>(n + 1), 77);  // nothing is written behind
        table.quantize(x.data(), n,
                       {.scale = scales.Row(0, dtype),
                        .offset = has_offset ? offsets.Row(0, dtype) : nullptr,
                        .dtype = dtype,
                        .per_column = per_column},
                       y.data());
        all.insert(all.end(), y.begin(), y.end());
      }
    }
  }
  return all;
}

/// What is wrong for some sizes; empty: nothing.
std::string DisproofOf(const Int8Table& level, const Int8Table& below, const Int8Sizes& sizes) {
  const Int8Tensors tensors(sizes);
  const Int8Kernels& other = below.strips[0];
  const int64_t most_rows = level.strips[0].width;
  Floats want;
  for (int64_t first = 0; first < most_rows; first += other.width) {
    const Floats some = Compute(below, other, tensors, first, std::min(other.width, most_rows - first));
    want.insert(want.end(), some.begin(), some.end());
  }
  for (const Int8Kernels& kernels : std::span(level.strips, static_cast<size_t>(level.strip_count))) {
    for (const int64_t rows : {kernels.width, kernels.width - 1}) {
      if (rows < kernels.width && sizes.keys <= kMostTail) continue;
      const Floats got = Compute(level, kernels, tensors, 0, rows);
      if (Differ(got, std::span(want).first(got.size()), 0)) return "integers of " + std::string(kernels.name);
    }
  }
  return {};
}

}  // namespace
}  // namespace proof

std::string Disproof(const Int8Table& level, const Int8Table& below) {
  std::string wrong;
  for (const proof::Int8Sizes& sizes : proof::kInt8Sizes) {
    if (wrong.empty()) wrong = proof::DisproofOf(level, below, sizes);
  }
  for (int64_t n = 1; n <= proof::kMostTail && wrong.empty(); ++n) {
    wrong = proof::DisproofOf(level, below, {n, n, n, n % 2 == 0 ? 1 : -1});
  }
  if (!wrong.empty()) return wrong;
  for (const int64_t n : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{19}, int64_t{67}}) {
    if (proof::Quantized(level, n) != proof::Quantized(below, n)) {
      return "quantized outputs of " + std::string(Name(level.isa));
    }
  }
  return {};
}

}  // namespace fa::core::kernels
