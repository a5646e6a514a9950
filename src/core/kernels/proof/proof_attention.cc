// Attention of a few rows over blocks of keys, by every strip of a level: scores, softmax and product, one after the
// other, in one loop, with dropout, and by the kernels that attend. Outputs are off by rounding.

#include <algorithm>
#include <utility>

#include "core/integer.h"
#include "core/kernels/proof/proof_values.h"

namespace fa::core::kernels::proof {
namespace {

// More than a block of the tile unit (32) in every dimension, and odd: a tail whatever the vectors, and half a pair.
// Three blocks, so that one loop has a product, a softmax and scores at the same time.
constexpr int64_t kBlocks[] = {65, 33, 6};  // keys
constexpr int64_t kKeys = kBlocks[0] + kBlocks[1] + kBlocks[2], kKeepWords = CeilDiv(kBlocks[0], kKeepBits);
constexpr float kFactor = 0.75f;  // exact products with scores, which are multiples of 1/64
constexpr float kDropoutMultiplier = 2;
constexpr double kLn2 = 0.6931471805599453;

// |score| <= d. A power is off by 2 ulp and by the rounding of its argument, which two operations make.
constexpr double PowerError(int64_t d) { return (4 + kLn2 * 2 * 2 * kFactor * static_cast<double>(d)) * kRounding; }
// The output is sum(alpha p v) / sum(alpha p) with |v| <= 1: numerator and denominator are off by those of alpha and p
// and by an operation per key. Two levels are compared.
constexpr double OutputError(int64_t d) { return 2 * 2 * (2 * PowerError(d) + (kKeys + 4) * kRounding); }
// P in bf16 is off by half an ulp.
constexpr double kPairError = 2 * 0x1p-9;

enum class Form { kOneByOne, kOneLoop, kDropout, kAttend };
struct Way {
  const char* name;
  Form form;
  DType dtype = DType::kF32;  ///< of kernels that attend
  bool by_address = false;
  bool masks = true;  ///< kernels that attend see every key
};
const Way kWays[] = {
    {" of ", Form::kOneByOne}, {" in one loop of ", Form::kOneLoop}, {" with dropout of ", Form::kDropout}};
const Way kAttendingWays[] = {{" of attending ", Form::kAttend},
                              {" in f16 of attending ", Form::kAttend, DType::kF16},
                              {" in bf16 of attending ", Form::kAttend, DType::kBF16},
                              {" by address of attending ", Form::kAttend, DType::kF32, true},
                              {" in bf16 by address of attending ", Form::kAttend, DType::kBF16, true}};

/// Heads of kernels that attend: those with loops of their own, and others, whose V is longer or shorter.
struct Heads {
  int64_t d, dv;
};
constexpr Heads kAttendedHeads[] = {{64, 64}, {128, 128}, {256, 256}, {96, 160}, {64, 32}};

struct Tensors {
  Tensors(int64_t columns, int64_t v_columns)
      : d(columns), dv(v_columns), q(1, kMostRows, d), k(2, kKeys, d), v(3, kKeys, dv) {}
  int64_t d, dv;  ///< the first columns
  Values q, k, v;
};

/// What some rows come to, row after row.
struct Rows {
  Floats scores, output, statistics;
};

/// A block of keys on its way from scores to the product.
struct Block {
  Block(const StripKernels& kernels, int64_t first, int64_t count)
      : first_key(first),
        keys(count),
        s(FloatsOf(RoundUp(keys, 2) * kernels.width)),
        block_max(FloatsOf(kernels.width, kMaskedScore)),
        alpha(FloatsOf(kernels.width)) {}
  int64_t first_key, keys;
  Floats s, block_max, alpha, words;
  std::vector<const void*> k_rows, v_rows;
  ScoreArgs scores;
  SoftmaxArgs softmax;
  ProductArgs product;
};

class Attention {
 public:
  Attention(const QueryKernels& query, const Tensors& tensors, const Way& way, int64_t first, int64_t count)
      : query_(query),
        kernels_(query.kernels),
        tensors_(tensors),
        way_(way),
        dtype_(way.form == Form::kAttend ? way.dtype : query.TypeFor(DType::kF32)),
        first_(first),
        count_(count),
        panel_(FloatsOf((tensors.d + 1) * kernels_.width)),
        row_max_(FloatsOf(kernels_.width, kMaskedScore)),
        row_sum_(FloatsOf(kernels_.width)),
        state_(FloatsOf(tensors.dv * kernels_.width)),
        rows_{.scores = FloatsOf(count * kKeys), .output = FloatsOf(count * tensors.dv), .statistics = {}} {
    for (int64_t i = 0; i < kKeepWords * kernels_.width; ++i) {
      const int64_t row = first + i % kernels_.width;
      keep_.push_back(static_cast<uint32_t>(row * 40503 + i / kernels_.width * 30011) * 2654435761u);
    }
  }

  Rows Compute() {
    std::vector<const void*> lanes;
    for (int64_t i = 0; i < count_; ++i) lanes.push_back(tensors_.q.Row(first_ + i, dtype_));
    kernels_.pack_queries({lanes.data(), dtype_, count_}, tensors_.d, 1, panel_.data());
    std::vector<Block> blocks;
    int64_t key = 0;
    for (const int64_t keys : kBlocks) {
      blocks.emplace_back(kernels_, key, keys);
      key += keys;
    }
    for (Block& block : blocks) Bind(block);
    if (way_.form == Form::kOneLoop) {
      OneLoop(blocks);
    } else {
      for (Block& block : blocks) way_.form == Form::kAttend ? Attend(block) : OneByOne(block);
    }
    return Finish();
  }

 private:
  RowBlock RowsOf(const Values& values, const Block& block, std::vector<const void*>& addresses) const {
    RowBlock rows = values.Block(block.first_key, dtype_);
    if (!way_.by_address && !kernels_.in_place) return rows;
    constexpr int64_t kAhead = AttendArgs::kMostStep;
    for (int64_t i = 0; i < block.keys + kAhead; ++i) {
      addresses.push_back(values.Row(block.first_key + std::min(i, block.keys - 1), dtype_));
    }
    return {.dtype = dtype_, .fetch_ahead = kAhead, .rows = addresses.data()};
  }
  /// Rows of V as the products take them.
  RowBlock ValuesOf(Block& block) const {
    if (!query_.pairs() || kernels_.in_place || way_.form == Form::kAttend) {
      return RowsOf(tensors_.v, block, block.v_rows);
    }
    const RowKernels& rows = *query_.table.rows;
    block.words = FloatsOf(rows.PairedFloats(block.keys, tensors_.dv));
    rows.pair_rows(tensors_.v.Block(block.first_key, dtype_), block.keys, tensors_.dv, block.words.data(), tensors_.dv);
    return rows.Paired(block.words.data(), tensors_.dv);
  }
  void Bind(Block& block) {
    block.scores = {.k = RowsOf(tensors_.k, block, block.k_rows),
                    .keys = block.keys,
                    .panel = panel_.data(),
                    .d = tensors_.d,
                    .s = block.s.data(),
                    .row_max = block.block_max.data()};
    block.softmax = {.s = block.s.data(),
                     .keys = block.keys,
                     .factor = kFactor,
                     .block_max = block.block_max.data(),
                     .row_max = row_max_.data(),
                     .row_sum = row_sum_.data(),
                     .alpha = block.alpha.data()};
    block.product = {.v = ValuesOf(block),
                     .keys = block.keys,
                     .p = block.s.data(),
                     .dv = tensors_.dv,
                     .alpha = block.first_key == 0 ? nullptr : block.alpha.data(),
                     .o = state_.data()};
  }
  /// Some rows see no key of the first block, and others not all.
  void KeepAndMaskScores(Block& block) {
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t row = first_ + i;
      const bool none = way_.masks && row % 5 == 4 && block.first_key == 0;
      if (none) block.block_max[static_cast<size_t>(i)] = kMaskedScore;
      for (int64_t j = 0; j < block.keys; ++j) {
        float& score = block.s[static_cast<size_t>(j * kernels_.width + i)];
        rows_.scores[static_cast<size_t>(i * kKeys + block.first_key + j)] = score;
        if (way_.masks && (none || (row + j) % 7 == 0)) score = kMaskedScore;
      }
    }
  }
  void OneByOne(Block& block) {
    const ScoreArgs& x = block.scores;
    kernels_.scores(x.k, x.keys, x.panel, x.d, false, x.s, x.row_max);
    KeepAndMaskScores(block);
    const SoftmaxArgs& y = block.softmax;
    if (way_.form == Form::kDropout) {
      kernels_.softmax_dropout(y, {keep_.data(), kDropoutMultiplier});
    } else {
      kernels_.softmax(y.s, y.keys, y.factor, y.block_max, y.row_max, y.row_sum, y.alpha);
    }
    const ProductArgs& z = block.product;
    kernels_.product(z.v, z.keys, z.p, z.dv, z.alpha, z.o);
  }
  void OneLoop(std::vector<Block>& blocks) {
    const auto at = [&](size_t i) { return i < blocks.size() ? &blocks[i] : nullptr; };
    for (size_t i = 0; i < blocks.size() + 2; ++i) {
      Block *next = at(i), *now = at(i - 1), *last = at(i - 2);
      kernels_.overlapped(last != nullptr ? &last->product : nullptr, now != nullptr ? &now->softmax : nullptr,
                          next != nullptr ? &next->scores : nullptr);
      if (next != nullptr) KeepAndMaskScores(*next);
    }
  }
  void Attend(const Block& block) {
    kernels_.attend({.k = block.scores.k,
                     .v = block.product.v,
                     .keys = block.keys,
                     .panel = panel_.data(),
                     .d = tensors_.d,
                     .dv = tensors_.dv,
                     .factor = kFactor,
                     .row_max = row_max_.data(),
                     .row_sum = row_sum_.data(),
                     .o = state_.data(),
                     .started = block.first_key > 0,
                     .brings = way_.by_address});
  }
  Rows Finish() {
    Floats multiplier = FloatsOf(kernels_.width);
    const std::vector<int32_t> zero(static_cast<size_t>(kernels_.width));
    std::vector<void*> outputs;
    for (int64_t i = 0; i < count_; ++i) {
      multiplier[static_cast<size_t>(i)] = 1 / row_sum_[static_cast<size_t>(i)];
      rows_.statistics.push_back(row_max_[static_cast<size_t>(i)]);
      rows_.statistics.push_back(row_sum_[static_cast<size_t>(i)]);
      outputs.push_back(&rows_.output[static_cast<size_t>(i * tensors_.dv)]);
    }
    kernels_.write_output(state_.data(), tensors_.dv, multiplier.data(), zero.data(), outputs.data(), DType::kF32,
                          count_);
    return std::move(rows_);
  }

  const QueryKernels& query_;
  const StripKernels& kernels_;
  const Tensors& tensors_;
  const Way& way_;
  DType dtype_;
  int64_t first_, count_;
  Floats panel_, row_max_, row_sum_, state_;
  std::vector<uint32_t> keep_;
  Rows rows_;
};

/// What the first rows come to by the widest strip of the level below.
Rows Wanted(const KernelTable& below, int64_t rows, const Tensors& tensors, const Way& way) {
  const QueryKernels query{below, below.widest()};
  Rows all;
  for (int64_t first = 0; first < rows; first += query.kernels.width) {
    const Rows some = Attention(query, tensors, way, first, std::min(query.kernels.width, rows - first)).Compute();
    all.scores.insert(all.scores.end(), some.scores.begin(), some.scores.end());
    all.output.insert(all.output.end(), some.output.begin(), some.output.end());
    all.statistics.insert(all.statistics.end(), some.statistics.begin(), some.statistics.end());
  }
  return all;
}

/// @param rounds  whether probabilities are rounded to bf16
std::string DisproofOf(const QueryKernels& query, const Tensors& tensors, const Way& way, const Rows& want,
                       bool rounds) {
  const int64_t rows = std::min(query.kernels.rows, kMostRows);
  const Rows got = Attention(query, tensors, way, 0, rows).Compute();
  const auto differ = [](const Floats& of, const Floats& all, double tolerance) {
    return Differ(of, std::span(all).first(of.size()), tolerance);
  };
  const double multiplier = way.form == Form::kDropout ? kDropoutMultiplier : 1;
  const double tolerance = multiplier * (OutputError(tensors.d) + (rounds ? kPairError : 0));
  const std::string of = way.name + std::string(query.kernels.name);
  if (way.form != Form::kAttend && differ(got.scores, want.scores, 0)) return "scores" + of;
  if (differ(got.statistics, want.statistics, OutputError(tensors.d))) return "softmax" + of;
  if (differ(got.output, want.output, tolerance)) return "product" + of;
  return {};
}

}  // namespace

std::string AttentionDisproof(const KernelTable& level, const KernelTable& below) {
  const std::vector<QueryKernels> own = OwnKernels(level, below);
  const auto disproof = [&](const Tensors& tensors, const Way& way, const Rows& want, auto rounds) -> std::string {
    for (const QueryKernels& query : own) {
      if (way.form == Form::kOneLoop && query.kernels.overlapped == nullptr) continue;
      if (way.form == Form::kAttend && !query.kernels.AttendsTo(way.dtype, tensors.d, tensors.dv)) continue;
      if (std::string wrong = DisproofOf(query, tensors, way, want, rounds(query)); !wrong.empty()) return wrong;
    }
    return {};
  };
  const Tensors tensors(45, 35);
  const int64_t rows = MostRows(own);
  const Rows plain = Wanted(below, rows, tensors, {"", Form::kOneByOne}),
             dropped = Wanted(below, rows, tensors, {"", Form::kDropout});
  for (const Way& way : kWays) {
    std::string wrong = disproof(tensors, way, way.form == Form::kDropout ? dropped : plain,
                                 [](const QueryKernels& query) { return query.pairs(); });
    if (!wrong.empty()) return wrong;
  }
  int64_t attending = 0;  // rows
  for (const QueryKernels& query : own) {
    if (query.kernels.attend != nullptr) attending = std::max(attending, query.kernels.rows);
  }
  if (attending == 0) return {};
  Tensors whole(AttendArgs::kMostColumns, AttendArgs::kMostColumns);
  for (const Heads& heads : kAttendedHeads) {
    whole.d = heads.d;
    whole.dv = heads.dv;
    const Rows seen = Wanted(below, attending, whole, {.name = "", .form = Form::kOneByOne, .masks = false});
    for (const Way& way : kAttendingWays) {
      std::string wrong =
          disproof(whole, way, seen, [](const QueryKernels& query) { return query.kernels.attended.pairs; });
      if (!wrong.empty()) return wrong;
    }
  }
  return {};
}

}  // namespace fa::core::kernels::proof
