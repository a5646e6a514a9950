#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/benchmarks.h"
#include "kernels/operands.h"
#include "kernels/timing.h"

namespace fa::core::kernels {
namespace {

// Checks of passes and products look at every third column and key. No vector's length is a multiple of 3, so all lanes
// are checked.
constexpr int64_t kCheckedStep = 3;
// Relative errors of 2^x: in f32 strips, and in strips of bf16 pairs, which round probabilities to bf16.
constexpr double kExp2Error = 4e-6, kRoundedError = 0x1p-8;

bool MultipliesPairs(const StripKernels& kernels) { return kernels.operands == Operands::kBF16Pairs; }
DType OperandType(const StripKernels& kernels) { return MultipliesPairs(kernels) ? DType::kBF16 : DType::kF32; }
double ProductFlops(int64_t d, int64_t rows) { return 2.0 * static_cast<double>(kKeys * d * rows); }

void ReportBytes(benchmark::State& state, double bytes, double seconds) {
  state.counters["GB/s"] = bytes / seconds * 1e-9;
}

void Scores(benchmark::State& state, const KernelTable&, const StripKernels& kernels, DType dtype, int64_t d) {
  const RandomRows keys(dtype, kKeys, d, 1), queries(dtype, kernels.rows, d, 2);
  const RowBlock k = kernels.in_place ? keys.in_place() : keys.block();
  std::vector<float> panel(static_cast<size_t>(d * kernels.width));
  std::vector<float> s(static_cast<size_t>(kKeys * kernels.width)), max(static_cast<size_t>(kernels.width));
  kernels.pack_queries(queries.lanes(), d, 1, panel.data());
  const Call call = [&] { kernels.scores(k, kKeys, panel.data(), d, false, s.data(), max.data()); };
  call();
  for (int64_t key = 0; key < kKeys; key += kCheckedStep) {
    for (int64_t lane = 0; lane < kernels.rows; ++lane) {
      WantedSum want;
      for (int64_t c = 0; c < d; ++c) want.Add(keys.at(key, c) * queries.at(lane, c));
      want.Check("score", s[static_cast<size_t>(key * kernels.width + lane)]);
    }
  }
  const double seconds =
      TimeProduct(state, kernels.isa, OperandType(kernels), "GFLOP/s", ProductFlops(d, kernels.rows), call);
  ReportBytes(state, keys.bytes(), seconds);
}

void Product(benchmark::State& state, const KernelTable& table, const StripKernels& kernels, DType dtype, int64_t d) {
  const bool pairs = MultipliesPairs(kernels), by_row = kernels.state_by_row || kernels.any_dtype;
  const RandomRows values(dtype, kKeys, d, 1);
  std::vector<float> words;
  RowBlock v = kernels.in_place ? values.in_place() : values.block();
  if (pairs && !kernels.in_place) {
    words.resize(static_cast<size_t>(table.rows->PairedFloats(kKeys, d)));
    table.rows->pair_rows(values.block(), kKeys, d, words.data(), d);
    v = table.rows->Paired(words.data(), d);
  }
  const std::vector<float> p = RandomFloats(kKeys * kernels.width, 2, 0, 1, pairs);
  std::vector<float> laid(p);
  if (pairs) kernels.pairs.pair_keys(p.data(), kKeys, laid.data());
  constexpr float kAlpha = 0.5f;  // with this factor, repeated calls keep the state finite
  const std::vector<float> alpha(static_cast<size_t>(kernels.width), kAlpha);
  std::vector<float> o = RandomFloats(d * kernels.width, 3, -1, 1);
  const std::vector<float> before(o);
  const Call call = [&] { kernels.product(v, kKeys, laid.data(), d, alpha.data(), o.data()); };
  call();
  for (int64_t c = 0; c < d; c += kCheckedStep) {
    for (int64_t lane = 0; lane < kernels.rows; ++lane) {
      const auto at = static_cast<size_t>(by_row ? lane * d + c : c * kernels.width + lane);
      WantedSum want;
      want.Add(double{kAlpha} * double{before[at]});
      for (int64_t key = 0; key < kKeys; ++key) {
        want.Add(values.at(key, c) * double{p[static_cast<size_t>(key * kernels.width + lane)]});
      }
      want.Check("output", o[at]);
    }
  }
  const double seconds =
      TimeProduct(state, kernels.isa, OperandType(kernels), "GFLOP/s", ProductFlops(d, kernels.rows), call);
  ReportBytes(state, values.bytes(), seconds);
}

/// One operand of an outer product over the rows of a strip, in the order in which the kernels read it.
struct OuterOperands {
  OuterOperands(const RowKernels& rows, const StripKernels& kernels, int64_t d, uint32_t seed)
      : width(kernels.width),
        tile(RandomFloats(kKeys * width, seed, -1, 1, MultipliesPairs(kernels))),
        laid(tile),
        b(OperandType(kernels), width, d, seed + 1),
        panel(static_cast<size_t>(width * rows.PanelColumns(d))) {
    if (MultipliesPairs(kernels)) kernels.pairs.pair_lanes(tile.data(), kKeys, laid.data());
    rows.pack_rows(b.block(), width, d, panel.data());
  }
  void AddTo(WantedSum& want, int64_t key, int64_t column) const {
    for (int64_t row = 0; row < width; ++row) {
      want.Add(double{tile[static_cast<size_t>(key * width + row)]} * b.at(row, column));
    }
  }

  int64_t width;
  std::vector<float> tile, laid;
  RandomRows b;
  std::vector<float> panel;
};

/// Times kCount outer products that add to the same sums. kCount is 1 or 2.
template <int kCount>
void Outer(benchmark::State& state, const KernelTable& table, const StripKernels& kernels, DType, int64_t d) {
  const RowKernels& rows = *table.rows;
  const OuterOperands one(rows, kernels, d, 1), other(rows, kernels, d, 3);
  std::vector<float> c = RandomFloats(kKeys * d, 5, -1, 1);
  const std::vector<float> before(c);
  const OuterArgs args{.a = one.laid.data(),
                       .strip_stride = kKeys * kernels.OuterWidth(),
                       .width = kernels.width,
                       .rows = kernels.width,
                       .b = one.panel.data(),
                       .b_rows = kernels.width,
                       .keys = kKeys,
                       .columns = d,
                       .c = c.data(),
                       .c_stride = d,
                       .accumulate = true};
  OuterArgs then = args;
  then.a = other.laid.data();
  then.b = other.panel.data();
  const Call call = [&] { kCount == 1 ? rows.outer(args) : rows.outer_both(args, then); };
  call();
  for (int64_t key = 0; key < kKeys; key += kCheckedStep) {
    for (int64_t column = 0; column < d; column += kCheckedStep) {
      const auto at = static_cast<size_t>(key * d + column);
      WantedSum want;
      want.Add(before[at]);
      one.AddTo(want, key, column);
      if (kCount == 2) other.AddTo(want, key, column);
      want.Check("sum", c[at]);
    }
  }
  const double seconds =
      TimeProduct(state, kernels.isa, OperandType(kernels), "GFLOP/s", kCount * ProductFlops(d, kernels.width), call);
  ReportBytes(state, static_cast<double>(c.size() * sizeof(float)), seconds);
}

/// Scores from 0 to 1. A softmax replaces scores by numbers from 1/2 to 1, which are the scores of the next run.
struct ScoreTile {
  explicit ScoreTile(const StripKernels& kernels)
      : s(RandomFloats(kKeys * kernels.width, 1, 0, 1)), before(s), one(static_cast<size_t>(kernels.width), 1.0f) {}

  std::vector<float> s, before;
  const std::vector<float> one;
};

void Softmax(benchmark::State& state, const StripKernels& kernels) {
  ScoreTile tile(kernels);
  std::vector<float> max(tile.one), sum(tile.one.size()), alpha(tile.one.size());
  const Call call = [&] {
    kernels.softmax(tile.s.data(), kKeys, 1.0f, tile.one.data(), max.data(), sum.data(), alpha.data());
  };
  call();
  std::vector<float> p(tile.s);
  if (MultipliesPairs(kernels)) kernels.pairs.unpair_keys(p.data(), kKeys);
  for (int64_t lane = 0; lane < kernels.width; ++lane) {
    double want_sum = 0;
    for (int64_t key = 0; key < kKeys; ++key) {
      const auto at = static_cast<size_t>(key * kernels.width + lane);
      const double want = std::exp2(double{tile.before[at]} - 1);
      CheckNear("probability", p[at], want, MultipliesPairs(kernels) ? kRoundedError : kExp2Error);
      want_sum += want;
    }
    CheckNear("sum of probabilities", sum[static_cast<size_t>(lane)], want_sum,
              MultipliesPairs(kernels) ? kRoundedError : kExp2Error);
  }
  TimePass(state, kKeys * kernels.width, call);
}

void BackwardSoftmax(benchmark::State& state, const StripKernels& kernels) {
  ScoreTile tile(kernels);
  std::vector<float> dp = RandomFloats(kKeys * kernels.width, 2, 2, 3);
  const std::vector<float> before(dp);
  const Call call = [&] {
    kernels.backward_softmax(tile.s.data(), dp.data(), kKeys, 1.0f, tile.one.data(), tile.one.data());
  };
  call();
  for (size_t i = 0; i < dp.size(); ++i) {
    const double p = std::exp2(double{tile.before[i]} - 1);
    CheckNear("probability", tile.s[i], p, kExp2Error);
    CheckNear("gradient of a score", dp[i], p * (double{before[i]} - 1), kExp2Error);
  }
  TimePass(state, kKeys * kernels.width, call);
}

void MaskInterval(benchmark::State& state, const StripKernels& kernels) {
  ScoreTile tile(kernels);
  std::vector<int32_t> begin(static_cast<size_t>(kernels.width)), end(begin);
  for (size_t lane = 0; lane < end.size(); ++lane) end[lane] = static_cast<int32_t>(kKeys / 2 + lane);
  const Call call = [&] { kernels.passes.mask_interval(tile.s.data(), kKeys, begin.data(), end.data(), kMaskedScore); };
  call();
  for (int64_t key = 0; key < kKeys; ++key) {
    for (int64_t lane = 0; lane < kernels.width; ++lane) {
      const auto at = static_cast<size_t>(key * kernels.width + lane);
      const float want = key < end[static_cast<size_t>(lane)] ? tile.before[at] : kMaskedScore;
      if (tile.s[at] != want) CheckNear("score", tile.s[at], want, 0);
    }
  }
  TimePass(state, kKeys * kernels.width, call);
}

}  // namespace

void RegisterLine(const KernelTable& table, const StripKernels& kernels) {
  using Run = void (*)(benchmark::State&, const KernelTable&, const StripKernels&, DType, int64_t);
  std::vector<std::pair<const char*, Run>> products = {{"product", Product}};
  if (!kernels.state_by_row || kernels.in_place) products.emplace_back("scores", Scores);
  if (!kernels.any_dtype && !kernels.state_by_row) {
    products.emplace_back("outer", Outer<1>);
    if (table.rows->outer_both != nullptr) products.emplace_back("outer_both", Outer<2>);
  }
  for (const auto& [name, run] : products) {
    for (const DType dtype : kDTypes) {
      if (!kernels.any_dtype && dtype != OperandType(kernels)) continue;
      for (const int64_t d : kHeadSizes) {
        Register(
            CaseName(name, kernels.name, dtype, d),
            [run = run, &table, &kernels, dtype, d](benchmark::State& state) { run(state, table, kernels, dtype, d); });
      }
    }
  }
  if (kernels.any_dtype || kernels.state_by_row) return;
  const std::string set = kernels.name;
  Register("BM_softmax/" + set, [&kernels](benchmark::State& state) { Softmax(state, kernels); });
  Register("BM_backward_softmax/" + set, [&kernels](benchmark::State& state) { BackwardSoftmax(state, kernels); });
  Register("BM_mask_interval/" + set, [&kernels](benchmark::State& state) { MaskInterval(state, kernels); });
}

}  // namespace fa::core::kernels
