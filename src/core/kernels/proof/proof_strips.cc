// Attention of a few rows over two blocks of keys, by every strip of a level: packing, scores, softmax, product,
// output.

#include <algorithm>
#include <span>
#include <utility>

#include "core/integer.h"
#include "core/kernels/proof/proof.h"
#include "core/kernels/proof/proof_values.h"

namespace fa::core::kernels {
namespace proof {
namespace {

// More than a block of the tile unit (32) in every dimension, and odd: a tail whatever the vectors, and half a pair.
constexpr int64_t kD = 45, kDv = 35;
constexpr int64_t kBlocks[] = {65, 6};  // keys
constexpr int64_t kKeys = kBlocks[0] + kBlocks[1], kMostRows = 64;
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
  words = FloatsOf(table.rows->PairedFloats(keys, kDv));
  table.rows->pair_rows(tensors.v.Block(key, DType::kBF16), keys, kDv, words.data(), kDv);
  return table.rows->Paired(words.data(), kDv);
}

/// A block of keys on its way from scores to the product.
struct Block {
  Block(const StripKernels& kernels, int64_t keys)
      : s(FloatsOf(RoundUp(keys, 2) * kernels.width)),
        block_max(FloatsOf(kernels.width, kMaskedScore)),
        alpha(FloatsOf(kernels.width)) {}
  Floats s, block_max, alpha, words;
  ScoreArgs scores;
  SoftmaxArgs softmax;
  ProductArgs product;
};

class Attention {
 public:
  Attention(const KernelTable& table, const StripKernels& kernels, int64_t first, int64_t count)
      : table_(table),
        kernels_(kernels),
        dtype_(kernels.operands == Operands::kBF16Pairs ? DType::kBF16 : DType::kF32),
        first_(first),
        count_(count),
        panel_(FloatsOf(std::max(kernels.PanelRows(kD), kD) * 2 * std::max(kernels.width, kernels.rows))),
        row_max_(FloatsOf(kernels.width, kMaskedScore)),
        row_sum_(FloatsOf(kernels.width)),
        state_(FloatsOf(kDv * std::max(kernels.width, kernels.rows))) {}

  /// @param overlap  in one loop, for kernels that have one
  Rows Compute(bool overlap) {
    std::vector<const void*> lanes;
    for (int64_t i = 0; i < count_; ++i) lanes.push_back(tensors_.q.Row(first_ + i, dtype_));
    kernels_.pack_queries({lanes.data(), dtype_, count_}, kD, 1, panel_.data());
    Block first(kernels_, kBlocks[0]), second(kernels_, kBlocks[1]);
    Bind(first, 0, kBlocks[0]);
    Bind(second, kBlocks[0], kBlocks[1]);
    overlap ? Overlap(first, second) : OneByOne(first, second);
    return Finish();
  }

 private:
  void Bind(Block& block, int64_t key, int64_t keys) {
    block.scores = {.k = tensors_.k.Block(key, dtype_),
                    .keys = keys,
                    .panel = panel_.data(),
                    .d = kD,
                    .s = block.s.data(),
                    .row_max = block.block_max.data()};
    block.softmax = {.s = block.s.data(),
                     .keys = keys,
                     .factor = kFactor,
                     .block_max = block.block_max.data(),
                     .row_max = row_max_.data(),
                     .row_sum = row_sum_.data(),
                     .alpha = block.alpha.data()};
    block.product = {.v = ValuesOf(table_, kernels_, tensors_, key, keys, block.words),
                     .keys = keys,
                     .p = block.s.data(),
                     .dv = kDv,
                     .alpha = key == 0 ? nullptr : block.alpha.data(),
                     .o = state_.data()};
  }
  void KeepScores(const Block& block) {
    const int64_t key = block.product.alpha == nullptr ? 0 : kBlocks[0];
    for (int64_t i = 0; i < count_; ++i) {
      for (int64_t j = 0; j < block.scores.keys; ++j) {
        rows_.scores[static_cast<size_t>(i * kKeys + key + j)] = block.s[static_cast<size_t>(j * kernels_.width + i)];
      }
    }
  }
  void OneByOne(Block& first, Block& second) {
    for (Block* block : {&first, &second}) {
      const ScoreArgs& x = block->scores;
      kernels_.scores(x.k, x.keys, x.panel, x.d, false, x.s, x.row_max);
      KeepScores(*block);
      const SoftmaxArgs& y = block->softmax;
      kernels_.softmax(y.s, y.keys, y.factor, y.block_max, y.row_max, y.row_sum, y.alpha);
      const ProductArgs& z = block->product;
      kernels_.product(z.v, z.keys, z.p, z.dv, z.alpha, z.o);
    }
  }
  void Overlap(Block& first, Block& second) {
    kernels_.overlapped(nullptr, nullptr, &first.scores);
    KeepScores(first);
    kernels_.overlapped(nullptr, &first.softmax, &second.scores);
    KeepScores(second);
    kernels_.overlapped(&first.product, &second.softmax, nullptr);
    kernels_.overlapped(&second.product, nullptr, nullptr);
  }
  Rows Finish() {
    Floats multiplier = FloatsOf(kernels_.width);
    std::vector<int32_t> zero(static_cast<size_t>(kernels_.width));
    std::vector<void*> outputs;
    for (int64_t i = 0; i < count_; ++i) {
      multiplier[static_cast<size_t>(i)] = 1 / row_sum_[static_cast<size_t>(i)];
      rows_.statistics.push_back(row_max_[static_cast<size_t>(i)]);
      rows_.statistics.push_back(row_sum_[static_cast<size_t>(i)]);
      outputs.push_back(&rows_.output[static_cast<size_t>(i * kDv)]);
    }
    kernels_.write_output(state_.data(), kDv, multiplier.data(), zero.data(), outputs.data(), DType::kF32, count_);
    return std::move(rows_);
  }

  const KernelTable& table_;
  const StripKernels& kernels_;
  DType dtype_;
  int64_t first_, count_;
  const Tensors tensors_;
  Floats panel_, row_max_, row_sum_, state_;
  Rows rows_{.scores = FloatsOf(count_ * kKeys), .output = FloatsOf(count_ * kDv), .statistics = {}};
};

std::string DisproofOf(const KernelTable& level, const StripKernels& kernels, const KernelTable& below) {
  const int64_t rows = std::min(kernels.rows, kMostRows), share = below.widest().width;
  Rows want;
  for (int64_t first = 0; first < rows; first += share) {
    const Rows some = Attention(below, below.widest(), first, std::min(share, rows - first)).Compute(false);
    want.scores.insert(want.scores.end(), some.scores.begin(), some.scores.end());
    want.output.insert(want.output.end(), some.output.begin(), some.output.end());
    want.statistics.insert(want.statistics.end(), some.statistics.begin(), some.statistics.end());
  }
  const double pairs = kernels.operands == Operands::kBF16Pairs ? kPairError : 0;
  for (const bool overlap : {false, true}) {
    if (overlap && kernels.overlapped == nullptr) continue;
    const Rows got = Attention(level, kernels, 0, rows).Compute(overlap);
    const std::string of = (overlap ? " in one loop of " : " of ") + std::string(kernels.name);
    if (Differ(got.scores, want.scores, 0)) return "scores" + of;
    if (Differ(got.statistics, want.statistics, kOutputError)) return "softmax" + of;
    if (Differ(got.output, want.output, kOutputError + pairs)) return "product" + of;
  }
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
