// Packing, scores, products, sums of states and outputs of every strip and of few rows, over numbers whose sums are
// exact: two levels have the same bits, however operands are given.

#include <algorithm>
#include <array>
#include <utility>

#include "core/integer.h"
#include "core/kernels/proof/proof_values.h"

namespace fa::core::kernels::proof {
namespace {

struct Sizes {
  int64_t keys, d, dv;
};
// Whole blocks and tails of all kernels: of the tile unit (32 in every dimension), of half a pair and half a group, and
// of the keys that a product takes at a time (32).
constexpr Sizes kLarge = {65, 45, 35};
// What goes element by element, products that skip masked pairs and states: whole vectors and tails.
constexpr Sizes kByElement = {37, 1, 19};
// Heads that kernels in place multiply by vectors, in two parts too, with a tail of keys.
constexpr Sizes kLongHeads = {7, 256, 3};
// And up to this every size: each tail of a register block is a kernel of its own.
constexpr int64_t kMostTail = 17;

/// How kernels are asked. Every branch that depends on their arguments is in some line.
struct Way {
  const char* name = "";
  bool all_sizes = false;                           ///< else the large ones
  DType queries = DType::kF32, rows = DType::kF32;  ///< where kernels take any
  bool by_address = false, in_parts = false, listed = false, skips = false, beside = false;
  int64_t fetch_ahead = 0;
  int64_t idle = 0;      ///< lanes out of use
  float multiplier = 1;  ///< of queries
};

const Way kWays[] = {
    {.all_sizes = true},
    {.name = ", of fewer queries", .idle = 1, .multiplier = -1},
    {.name = ", with a scale of 0", .multiplier = 0},
    {.name = ", in two parts of the depth", .in_parts = true},
    {.name = ", fetching ahead", .fetch_ahead = 5},
    {.name = ", fetching from a list", .listed = true},
    {.name = ", from inside a group", .all_sizes = true, .skips = true},
    {.name = ", by address", .by_address = true, .fetch_ahead = 32},
    {.name = ", of f16", .all_sizes = true, .queries = DType::kF16, .rows = DType::kF16},
    {.name = ", of bf16", .all_sizes = true, .queries = DType::kBF16, .rows = DType::kBF16},
    {.name = ", of bf16 in two parts", .queries = DType::kBF16, .rows = DType::kBF16, .in_parts = true},
    {.name = ", of bf16 queries and f32", .queries = DType::kBF16},
    {.name = ", of f16 by address",
     .all_sizes = true,
     .queries = DType::kF16,
     .rows = DType::kF16,
     .by_address = true,
     .fetch_ahead = 5},
    {.name = ", of bf16 by address",
     .all_sizes = true,
     .queries = DType::kBF16,
     .rows = DType::kBF16,
     .by_address = true,
     .fetch_ahead = 5},
    {.name = ", in one loop", .all_sizes = true, .beside = true},
    {.name = ", of f16 in one loop", .queries = DType::kF16, .rows = DType::kF16, .beside = true},
    {.name = ", of bf16 in one loop",
     .queries = DType::kBF16,
     .rows = DType::kBF16,
     .by_address = true,
     .beside = true},
};

[[nodiscard]] bool Applies(const Way& way, const QueryKernels& query) {
  const StripKernels& kernels = query.kernels;
  if (way.beside && kernels.scores_beside == nullptr) return false;
  if (way.skips) return query.pairs() && !kernels.in_place && query.table.rows->pair_group > 2;
  if (way.listed) return !kernels.any_dtype;
  if (way.by_address && kernels.in_place) return true;
  if (way.by_address && kernels.scores_by_address && way.queries == DType::kF32) return true;
  return kernels.any_dtype || (!way.by_address && way.queries == DType::kF32);
}

/// Whether a row does not see a key. Two rows of three see none of the keys whose V is no number.
bool Masked(int64_t key, int64_t row) { return (key + row) % 4 == 0 || (key % 5 == 2 && row % 3 != 0); }

/// Numbers of all rows, [i][row].
using ByRow = Floats;

struct Operands {
  explicit Operands(const Sizes& of)
      : sizes(of),
        q(1, kMostRows, of.d),
        minus_q(1, kMostRows, of.d, 0, -1),
        k(2, of.keys, of.d),
        v(3, of.keys, of.dv, kMostPairGroup),
        v_no_numbers(v),
        p(ValuesOf(4, of.keys * kMostRows)),
        marked(p),
        state(ValuesOf(5, of.dv * kMostRows)),
        other_state(ValuesOf(6, of.dv * kMostRows)) {
    for (int64_t key = 0; key < of.keys; ++key) {
      for (int64_t row = 0; row < kMostRows; ++row) {
        if (Masked(key, row)) marked[static_cast<size_t>(key * kMostRows + row)] = kMaskedProbability;
      }
      if (key % 5 == 2) v_no_numbers.Set(key, key % of.dv, key % 2 == 0 ? kNoNumber : __builtin_inff());
    }
  }
  Sizes sizes;
  Values q, minus_q, k, v, v_no_numbers;
  ByRow p, marked, state, other_state;
};

/// What some rows come to, of each thing row after row.
enum Thing { kScores, kProduct, kExactProduct, kExactSum, kState, kOutput, kOutputF16, kOutputBF16, kThings };
constexpr const char* kNames[kThings] = {
    "scores",        "product", "product of masked pairs", "product of masked pairs",
    "sum of states", "output",  "output in f16",           "output in bf16"};
using Rows = std::array<Floats, kThings>;

/// Rows of K or V as kernels take them.
struct Source {
  RowBlock block;
  std::vector<const void*> addresses = {};
  Floats words = {};
};

class Multiplication {
 public:
  Multiplication(const QueryKernels& query, const Operands& operands, const Way& way, int64_t first, int64_t rows)
      : query_(query),
        kernels_(query.kernels),
        operands_(operands),
        sizes_(operands.sizes),
        way_(way),
        first_(first),
        rows_(rows),
        in_use_(rows - way.idle),
        s_(FloatsOf(sizes_.keys * width())),
        row_max_(FloatsOf(width(), kMaskedScore)),
        runs_{{Lines(), Lines() + 100}, {Lines() + 200, Lines() + 900}} {}

  Rows Multiply() {
    if (!way_.beside) Scores();
    Products();
    return std::move(results_);
  }
  Rows ByElement() {
    if (way_.all_sizes) ExactProducts();
    SumOfStates();
    Output();
    return std::move(results_);
  }

 private:
  [[nodiscard]] int64_t width() const { return kernels_.width; }
  /// Of an output state, [row][dv] or [dv][width].
  [[nodiscard]] size_t At(int64_t row, int64_t column) const {
    return static_cast<size_t>(query_.by_row() ? row * sizes_.dv + column : column * width() + row);
  }
  [[nodiscard]] Floats State(const ByRow& all) const {
    Floats state = FloatsOf(sizes_.dv * width());
    for (int64_t c = 0; c < sizes_.dv; ++c) {
      for (int64_t row = 0; row < rows_; ++row) {
        state[At(row, c)] = all[static_cast<size_t>(c * kMostRows + first_ + row)];
      }
    }
    return state;
  }
  void Keep(Thing thing, const Floats& state) {
    results_[thing].reserve(static_cast<size_t>(rows_ * sizes_.dv));
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t c = 0; c < sizes_.dv; ++c) results_[thing].push_back(state[At(row, c)]);
    }
  }
  /// A number of every lane, of sequence `of`.
  [[nodiscard]] Floats ByLane(uint32_t of) const {
    Floats lanes = FloatsOf(width());
    for (int64_t row = 0; row < rows_; ++row) lanes[static_cast<size_t>(row)] = Value(of, first_ + row);
    return lanes;
  }

  [[nodiscard]] Source RowsOf(const Values& values, int64_t column = 0) const {
    const DType dtype = query_.TypeFor(way_.rows);
    Source source{.block = values.Block(0, dtype, column)};
    if (way_.by_address || kernels_.in_place) {
      for (int64_t i = 0; i < sizes_.keys + way_.fetch_ahead; ++i) {
        source.addresses.push_back(values.Row(std::min(i, sizes_.keys - 1), dtype, column));
      }
      source.block = {.dtype = dtype, .rows = source.addresses.data()};
    }
    source.block.fetch_ahead = way_.fetch_ahead;
    return source;
  }
  /// Rows of V: those of a level with pairs laid by pair_rows, whose first rows may be another's.
  [[nodiscard]] Source ValuesOfKeys(const Values& v) const {
    const RowKernels& rows = *query_.table.rows;
    if (!query_.pairs() || kernels_.in_place) return RowsOf(v);
    const int64_t skip = way_.skips ? rows.pair_group - 2 : 0, stride = sizes_.dv + 2;
    Source source{.block = {}, .words = FloatsOf(rows.PairedFloats(skip + sizes_.keys, stride), kNoNumber)};
    const Source listed = way_.by_address ? RowsOf(v) : Source{};
    const RowBlock block = way_.by_address ? listed.block : v.Block(-skip, DType::kBF16);
    rows.pair_rows(block, skip + sizes_.keys, sizes_.dv, source.words.data(), stride);
    source.block = rows.Paired(source.words.data(), stride, way_.fetch_ahead);
    source.block.skip = skip;
    return source;
  }
  [[nodiscard]] Floats Panel(int64_t column, int64_t columns) const {
    const DType dtype = query_.TypeFor(way_.queries);
    const Values& q = way_.multiplier < 0 ? operands_.minus_q : operands_.q;
    std::vector<const void*> lanes;
    for (int64_t row = 0; row < in_use_; ++row) lanes.push_back(q.Row(first_ + row, dtype, column));
    Floats panel = FloatsOf((columns + 1) * width());
    kernels_.pack_queries({lanes.data(), dtype, in_use_}, columns, way_.multiplier, panel.data());
    return panel;
  }

  void Scores() {
    const int64_t group = kernels_.panel_group, half = way_.in_parts ? sizes_.d / 2 / group * group : 0;
    for (const auto& [column, end] : {std::pair(int64_t{0}, half), std::pair(half, sizes_.d)}) {
      if (column == end) continue;
      const Source k = RowsOf(operands_.k, column);
      FetchList list = List();
      kernels_.scores(Fetching(k.block, list), sizes_.keys, Panel(column, end - column).data(), end - column,
                      column > 0, s_.data(), end == sizes_.d ? row_max_.data() : nullptr);
    }
    KeepScores();
  }
  void KeepScores() {
    results_[kScores].reserve(static_cast<size_t>(rows_ * (sizes_.keys + 1)));
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t key = 0; key < sizes_.keys; ++key) {
        results_[kScores].push_back(s_[static_cast<size_t>(key * width() + row)]);
      }
      results_[kScores].push_back(row_max_[static_cast<size_t>(row)]);
    }
  }
  [[nodiscard]] const char* Lines() const { return static_cast<const char*>(operands_.k.Row(0, DType::kF32)); }
  [[nodiscard]] FetchList List() const { return {.run = std::begin(runs_), .end = std::end(runs_)}; }
  [[nodiscard]] RowBlock Fetching(RowBlock block, FetchList& list) const {
    if (way_.listed) {
      block.fetch = &list;
      block.fetch_lines = 20;
    }
    return block;
  }

  /// A tile of probabilities.
  [[nodiscard]] Floats TileOf(const ByRow& all) const {
    Floats tile = FloatsOf(RoundUp(sizes_.keys, 2) * width());
    for (int64_t key = 0; key < sizes_.keys; ++key) {
      std::copy_n(all.begin() + key * kMostRows + first_, rows_, tile.begin() + key * width());
    }
    return tile;
  }

  /// From nothing, from a state, and from one whose maxima rise.
  void Products() {
    Floats p = TileOf(operands_.p);
    if (query_.pairs()) kernels_.pair_keys(p.data(), sizes_.keys, p.data());
    const Source v = ValuesOfKeys(operands_.v);
    const Floats ones = FloatsOf(width(), 1), alphas = ByLane(7);
    Floats state = FloatsOf(sizes_.dv * width());
    for (const float* alpha : {static_cast<const float*>(nullptr), ones.data(), alphas.data()}) {
      FetchList list = List();
      const ProductArgs args{Fetching(v.block, list), sizes_.keys, p.data(), sizes_.dv, alpha, state.data()};
      if (!way_.beside) {
        kernels_.product(args.v, args.keys, args.p, args.dv, args.alpha, args.o);
        continue;
      }
      kernels_.scores_beside(RowsOf(operands_.k).block, sizes_.keys, Panel(0, sizes_.d).data(), sizes_.d, s_.data(),
                             row_max_.data(), args);
    }
    if (way_.beside) KeepScores();
    Keep(kProduct, state);
  }

  void ExactProducts() {
    const Floats p = TileOf(operands_.marked), alphas = ByLane(8);
    const Source v = ValuesOfKeys(operands_.v_no_numbers);
    Floats state = FloatsOf(sizes_.dv * width());
    kernels_.product_exact(v.block, sizes_.keys, p.data(), sizes_.dv, nullptr, state.data());
    Keep(kExactProduct, state);
    kernels_.product_exact(v.block, sizes_.keys, p.data(), sizes_.dv, alphas.data(), state.data());
    Keep(kExactSum, state);
  }

  void SumOfStates() {
    const Floats from = State(operands_.other_state);
    Floats state = State(operands_.state);
    kernels_.add_state(from.data(), ByLane(9).data(), ByLane(10).data(), sizes_.dv, state.data());
    Keep(kState, state);
  }

  void Output() {
    Floats multiplier = ByLane(11), state = State(operands_.state);
    std::vector<int32_t> zero(static_cast<size_t>(width()));
    for (int64_t row = 0; row < rows_; ++row) {
      multiplier[static_cast<size_t>(row)] *= 1.2345678f;
      if ((first_ + row) % 4 != 1) continue;
      zero[static_cast<size_t>(row)] = 1;
      for (int64_t c = 0; c < sizes_.dv; ++c) state[At(row, c)] = kNoNumber;
    }
    constexpr std::pair<Thing, DType> kTypes[] = {
        {kOutput, DType::kF32}, {kOutputF16, DType::kF16}, {kOutputBF16, DType::kBF16}};
    for (const auto& [thing, dtype] : kTypes) {
      const int64_t stride = sizes_.dv + 1;  // nothing is written behind a row
      Floats memory = FloatsOf(rows_ * stride, 7);
      std::vector<void*> to;
      for (int64_t row = 0; row < rows_; ++row) {
        to.push_back(reinterpret_cast<char*>(memory.data()) + row * stride * static_cast<int64_t>(SizeOf(dtype)));
      }
      kernels_.write_output(state.data(), sizes_.dv, multiplier.data(), zero.data(), to.data(), dtype, in_use_);
      results_[thing].reserve(static_cast<size_t>(rows_ * stride));
      for (const void* row : to) {
        for (int64_t c = 0; c < stride; ++c) results_[thing].push_back(Element(row, dtype, c));
      }
    }
  }

  const QueryKernels& query_;
  const StripKernels& kernels_;
  const Operands& operands_;
  const Sizes& sizes_;
  const Way& way_;
  int64_t first_, rows_, in_use_;
  Floats s_, row_max_;
  const FetchList::Run runs_[2];
  Rows results_;
};

/// What is wrong with some kernels of the level.
/// @param of  what is computed: Multiply or ByElement
std::string DisproofOf(const QueryKernels& query, const Operands& operands, const Way& way,
                       Rows (Multiplication::*of)(), const Rows& want) {
  const int64_t rows = std::min(query.kernels.rows, kMostRows), in_use = rows - way.idle;
  const Rows got = (Multiplication(query, operands, way, 0, rows).*of)();
  for (int thing = 0; thing < kThings; ++thing) {
    if (got[thing].empty()) continue;
    // A query of zeros has scores of 0, and a row out of use no output.
    int64_t compared = rows;
    if (thing == kScores) compared = way.multiplier == 0 ? 0 : in_use;
    if (thing >= kOutput) compared = in_use;
    const size_t same = got[thing].size() / static_cast<size_t>(rows) * static_cast<size_t>(compared);
    const auto others = std::span(got[thing]).subspan(same);
    const bool zeros = std::all_of(others.begin(), others.end(), [](float x) { return x == 0; });
    if (Differ(std::span(got[thing]).first(same), std::span(want[thing]).first(same), 0) ||
        (thing == kScores && !zeros)) {
      return kNames[thing] + (" of " + std::string(query.kernels.name)) + way.name;
    }
  }
  return {};
}

}  // namespace

std::string ProductDisproof(const KernelTable& level, const KernelTable& below) {
  const std::vector<QueryKernels> own = OwnKernels(level, below);
  const QueryKernels other{below, below.widest()};
  const int64_t most_rows = MostRows(own);
  const auto disproof = [&](const Sizes& sizes, Rows (Multiplication::*of)(), bool every_way,
                            bool in_place_alone = false) -> std::string {
    const Operands operands(sizes);
    Rows want;
    for (int64_t first = 0; first < most_rows; first += other.kernels.width) {
      const int64_t rows = std::min(other.kernels.width, most_rows - first);
      const Rows some = (Multiplication(other, operands, kWays[0], first, rows).*of)();
      for (int thing = 0; thing < kThings; ++thing) {
        want[thing].insert(want[thing].end(), some[thing].begin(), some[thing].end());
      }
    }
    for (const QueryKernels& query : own) {
      if (in_place_alone && !query.kernels.in_place) continue;
      for (const Way& way : kWays) {
        if (!(every_way || way.all_sizes) || !Applies(way, query)) continue;
        if (std::string wrong = DisproofOf(query, operands, way, of, want); !wrong.empty()) return wrong;
      }
    }
    return {};
  };
  std::string wrong = disproof(kLarge, &Multiplication::Multiply, true);
  if (wrong.empty() && level.heads_in_place != nullptr) {
    wrong = disproof(kLongHeads, &Multiplication::Multiply, true, true);
  }
  if (wrong.empty()) wrong = disproof(kByElement, &Multiplication::ByElement, true);
  for (int64_t n = 1; n <= kMostTail && wrong.empty(); ++n) {
    wrong = disproof({n, n, n}, &Multiplication::Multiply, false);
  }
  return wrong;
}

}  // namespace fa::core::kernels::proof
