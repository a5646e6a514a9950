// Attention of a few rows over two blocks of keys, by every strip of a level: packing, scores, softmax, product,
// output.

#include <algorithm>
#include <span>

#include "core/kernels/proof.h"
#include "core/kernels/proof_values.h"

namespace fa::core::kernels {
namespace proof {
namespace {

constexpr int64_t kD = 13, kDv = 11;   // odd: a tail whatever the vectors, and half a pair
constexpr int64_t kBlocks[] = {9, 6};  // keys
constexpr int64_t kKeys = 15, kMostRows = 64;
constexpr float kFactor = 0.75f;  // exact products with scores, which are multiples of 1/64
constexpr double kLn2 = 0.6931471805599453;

// |score| <= kD. A power is off by 2 ulp and by the rounding of its argument, which two operations make.
constexpr double kPowerError = (4 + kLn2 * 2 * 2 * kFactor * kD) * kRounding;
// The output is sum(alpha p v) / sum(alpha p) with |v| <= 1: numerator and denominator are off by those of alpha and p
// and by an operation per key. Two levels are compared.
constexpr double kOutputError = 2 * 2 * (2 * kPowerError + (kKeys + 4) * kRounding);
// P in bf16 is off by half an ulp.
constexpr double kPairError = 2 * 0x1p-9;

struct Tensors {
  Values q{1, kMostRows, kD}, k{2, kKeys, kD}, v{3, kKeys, kDv};
};

/// What some rows come to, row after row.
struct Rows {
  Floats scores, output, statistics;
};

/// Rows of V as the strip's products take them; `words` holds pairs.
RowBlock ValuesOf(const KernelTable& table, const StripKernels& kernels, const Tensors& tensors, int64_t key,
                  int64_t keys, Floats& words) {
  if (kernels.operands != Operands::kBF16Pairs) return tensors.v.Block(key, DType::kF32);
  words = FloatsOf((keys + 1) / 2 * kDv);
  table.rows->pair_rows(tensors.v.Block(key, DType::kBF16), keys, kDv, words.data(), kDv);
  return {.data = words.data(), .dtype = DType::kBF16, .stride = kDv, .paired = true};
}

Rows Compute(const KernelTable& table, const StripKernels& kernels, int64_t first, int64_t count) {
  const Tensors tensors;
  const DType dtype = kernels.operands == Operands::kBF16Pairs ? DType::kBF16 : DType::kF32;
  const int64_t width = kernels.width;
  std::vector<const void*> lanes;
  for (int64_t i = 0; i < count; ++i) lanes.push_back(tensors.q.Row(first + i, dtype));
  Floats panel = FloatsOf(std::max(kernels.PanelRows(kD), kD) * 2 * std::max(width, kernels.rows));
  kernels.pack_queries({lanes.data(), dtype, count}, kD, 1, panel.data());

  Floats row_max = FloatsOf(width, kMaskedScore), row_sum = FloatsOf(width), alpha = FloatsOf(width);
  Floats state = FloatsOf(kDv * std::max(width, kernels.rows)), words;
  Rows rows{.scores = FloatsOf(count * kKeys), .output = FloatsOf(count * kDv), .statistics = {}};
  int64_t key = 0;
  for (const int64_t keys : kBlocks) {
    Floats s = FloatsOf((keys + 1) / 2 * 2 * width), block_max = FloatsOf(width, kMaskedScore);
    kernels.scores(tensors.k.Block(key, dtype), keys, panel.data(), kD, false, s.data(), block_max.data());
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < keys; ++j) {
        rows.scores[static_cast<size_t>(i * kKeys + key + j)] = s[static_cast<size_t>(j * width + i)];
      }
    }
    const auto softmax = kernels.softmax_pairs != nullptr ? kernels.softmax_pairs : kernels.softmax;
    softmax(s.data(), keys, kFactor, block_max.data(), row_max.data(), row_sum.data(), alpha.data());
    const RowBlock v = ValuesOf(table, kernels, tensors, key, keys, words);
    kernels.product(v, keys, s.data(), kDv, key == 0 ? nullptr : alpha.data(), state.data());
    key += keys;
  }
  Floats multiplier = FloatsOf(width);
  std::vector<int32_t> zero(static_cast<size_t>(width));
  std::vector<void*> outputs;
  for (int64_t i = 0; i < count; ++i) {
    multiplier[static_cast<size_t>(i)] = 1 / row_sum[static_cast<size_t>(i)];
    rows.statistics.push_back(row_max[static_cast<size_t>(i)]);
    rows.statistics.push_back(row_sum[static_cast<size_t>(i)]);
    outputs.push_back(&rows.output[static_cast<size_t>(i * kDv)]);
  }
  kernels.write_output(state.data(), kDv, multiplier.data(), zero.data(), outputs.data(), DType::kF32, count);
  return rows;
}

std::string DisproofOf(const KernelTable& level, const StripKernels& kernels, const KernelTable& below) {
  const int64_t rows = std::min(kernels.rows, kMostRows), share = below.widest().width;
  const Rows got = Compute(level, kernels, 0, rows);
  Rows want;
  for (int64_t first = 0; first < rows; first += share) {
    const Rows some = Compute(below, below.widest(), first, std::min(share, rows - first));
    want.scores.insert(want.scores.end(), some.scores.begin(), some.scores.end());
    want.output.insert(want.output.end(), some.output.begin(), some.output.end());
    want.statistics.insert(want.statistics.end(), some.statistics.begin(), some.statistics.end());
  }
  const double pairs = kernels.operands == Operands::kBF16Pairs ? kPairError : 0;
  if (Differ(got.scores, want.scores, 0)) return "scores of " + std::string(kernels.name);
  if (Differ(got.statistics, want.statistics, kOutputError)) return "softmax of " + std::string(kernels.name);
  if (Differ(got.output, want.output, kOutputError + pairs)) return "product of " + std::string(kernels.name);
  return {};
}

}  // namespace

std::string StripDisproof(const KernelTable& level, const KernelTable& below) {
  const std::span<const StripKernels> all[] = {
      {level.strips, static_cast<size_t>(level.strip_count)},
      {level.row_state, level.row_state != nullptr ? static_cast<size_t>(level.strip_count) : 0},
      {level.few, static_cast<size_t>(level.few_count)}};
  for (const std::span<const StripKernels> some : all) {
    for (const StripKernels& kernels : some) {
      if (std::string wrong = DisproofOf(level, kernels, below); !wrong.empty()) return wrong;
    }
  }
  return {};
}

}  // namespace proof

std::string Disproof(const KernelTable& level, const KernelTable& below) {
  for (const auto disproof : {proof::RowDisproof, proof::StripDisproof, proof::PassDisproof}) {
    if (std::string wrong = disproof(level, below); !wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace fa::core::kernels
