#include <algorithm>
#include <random>
#include <stdexcept>

#include "kernels/benchmarks.h"
#include "kernels/operands.h"
#include "kernels/timing.h"

namespace fa::core::kernels {
namespace {

/// Rows of random int8 numbers without gaps.
struct Bytes {
  Bytes(int64_t rows, int64_t columns, uint32_t seed) : columns(columns), values(static_cast<size_t>(rows * columns)) {
    std::mt19937 random(seed);
    for (int8_t& value : values) value = static_cast<int8_t>(random());
    for (int64_t row = 0; row < rows; ++row) addresses.push_back(values.data() + row * columns);
  }
  [[nodiscard]] int64_t at(int64_t row, int64_t column) const {
    return values[static_cast<size_t>(row * columns + column)];
  }
  [[nodiscard]] RowBlock block() const { return {values.data(), DType::kI8, columns}; }
  [[nodiscard]] LaneRows lanes() const {
    return {addresses.data(), DType::kI8, static_cast<int64_t>(addresses.size())};
  }

  int64_t columns;
  std::vector<int8_t> values;
  std::vector<const void*> addresses;
};

/// The scores are 0, -1, -2 and -3, so that 2^score and kQuant * 2^score are exact.
constexpr float kQuant = 64, kLimit = 127;
float ScoreAt(int64_t key, int64_t lane) { return static_cast<float>(-((key * 5 + lane) % 4)); }
int64_t WordOf(float score) { return static_cast<int64_t>(kQuant) >> static_cast<int64_t>(-score); }

struct ScoreTile {
  explicit ScoreTile(int64_t width)
      : scores(static_cast<size_t>(kKeys * width)), s(scores), max(static_cast<size_t>(width)), sum(max) {
    for (int64_t i = 0; i < kKeys * width; ++i) scores[static_cast<size_t>(i)] = ScoreAt(i / width, i % width);
  }
  /// The softmax overwrites the scores, so each call starts from a copy of them.
  void Softmax(const Int8Kernels& kernels) {
    std::copy(scores.begin(), scores.end(), s.begin());
    kernels.softmax(s.data(), kKeys, 1.0f, kQuant, kLimit, max.data(), sum.data());
  }

  std::vector<float> scores, s, max, sum;
};

void Check(const char* what, int64_t got, int64_t want) {
  if (got != want)
    throw std::runtime_error(std::string(what) + ": " + std::to_string(got) + ", want " + std::to_string(want));
}

void TimeInt8(benchmark::State& state, const Int8Kernels& kernels, int64_t d, const Call& call) {
  TimeProduct(state, kernels.isa, DType::kI8, "GOP/s", 2.0 * static_cast<double>(kKeys * d * kernels.width), call);
}

void Scores(benchmark::State& state, const Int8Table& table, const Int8Kernels& kernels, int64_t d) {
  const Bytes keys(kKeys, d, 1), queries(kernels.width, d, 2);
  const int64_t words = table.Words(d);
  std::vector<uint32_t> k(static_cast<size_t>(kKeys * words)), panel(static_cast<size_t>(words * kernels.width));
  std::vector<int32_t> start(static_cast<size_t>(kKeys));
  std::vector<float> s(static_cast<size_t>(kKeys * kernels.width)), max(static_cast<size_t>(kernels.width));
  kernels.pack_queries(queries.lanes(), d, 1, panel.data());
  table.pack_keys(keys.block(), kKeys, d, 1, k.data(), start.data());
  const Call call = [&] { kernels.scores(k.data(), start.data(), kKeys, words, panel.data(), s.data(), max.data()); };
  call();
  for (int64_t key = 0; key < kKeys; ++key) {
    for (int64_t lane = 0; lane < kernels.width; ++lane) {
      int64_t want = 0;
      for (int64_t c = 0; c < d; ++c) want += keys.at(key, c) * queries.at(lane, c);
      Check("score", static_cast<int64_t>(s[static_cast<size_t>(key * kernels.width + lane)]), want);
    }
  }
  TimeInt8(state, kernels, d, call);
}

void Product(benchmark::State& state, const Int8Table& table, const Int8Kernels& kernels, int64_t d) {
  const Bytes values(kKeys, d, 1);
  const int64_t stride = kKeys / table.group * table.columns;
  std::vector<uint32_t> v(static_cast<size_t>(table.PanelBlocks(d) * stride));
  table.pack_values(values.block(), kKeys, d, stride, v.data());
  ScoreTile tile(kernels.width);
  tile.Softmax(kernels);
  std::vector<int32_t> o(static_cast<size_t>(d * kernels.width));
  const auto* p = reinterpret_cast<const uint32_t*>(tile.s.data());
  const Call call = [&] { kernels.product(v.data(), stride, kKeys, p, d, o.data()); };
  call();
  for (int64_t c = 0; c < d; ++c) {
    for (int64_t lane = 0; lane < kernels.width; ++lane) {
      int64_t want = 0;
      for (int64_t key = 0; key < kKeys; ++key) want += WordOf(ScoreAt(key, lane)) * values.at(key, c);
      Check("output", o[static_cast<size_t>(c * kernels.width + lane)], want);
    }
  }
  TimeInt8(state, kernels, d, call);
}

/// Times the softmax and checks its sums. The benchmark of P V checks the words of P that the softmax writes.
void Softmax(benchmark::State& state, const Int8Kernels& kernels) {
  ScoreTile tile(kernels.width);
  tile.Softmax(kernels);
  for (int64_t lane = 0; lane < kernels.width; ++lane) {
    int64_t want = 0;
    for (int64_t key = 0; key < kKeys; ++key) want += WordOf(ScoreAt(key, lane));
    Check("sum of probabilities", static_cast<int64_t>(kQuant * tile.sum[static_cast<size_t>(lane)]), want);
  }
  TimePass(state, kKeys * kernels.width, [&] { tile.Softmax(kernels); });
}

}  // namespace

void RegisterInt8Line(const Int8Table& table, const Int8Kernels& kernels) {
  for (const int64_t d : kHeadSizes) {
    Register(CaseName("scores", kernels.name, DType::kI8, d),
             [&table, &kernels, d](benchmark::State& state) { Scores(state, table, kernels, d); });
    Register(CaseName("product", kernels.name, DType::kI8, d),
             [&table, &kernels, d](benchmark::State& state) { Product(state, table, kernels, d); });
  }
  Register(std::string("BM_softmax/") + kernels.name, [&kernels](benchmark::State& state) { Softmax(state, kernels); });
}

}  // namespace fa::core::kernels
