// MsaIndexScore against its definition in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fa/half.h"
#include "fa/msa_index_score.h"
#include "fa/view.h"
#include "support/cases/random_values.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr float kNotWritten = 7;
constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

struct ScoreCase {
  DType dtype = DType::kF32;
  bool int8_keys = false;  ///< keys are i8 with scales; otherwise they have the type of queries
  int64_t heads = 4, d = 64;
  SparseMask mask = SparseMask::kRightDownCausal;
  std::vector<int64_t> rows = {70, 1, 3, 9}, keys = {300, 513, 0, 5};
  int64_t behind = 2;  ///< rows of queries that no sequence has
};

/// Returns the inclusive prefix sums of the numbers.
std::vector<int64_t> PrefixSums(std::vector<int64_t> numbers) {
  for (size_t i = 1; i < numbers.size(); ++i) numbers[i] += numbers[i - 1];
  return numbers;
}

class BlockScores {
 public:
  explicit BlockScores(const ScoreCase& c) : c_(c), sums_q_(PrefixSums(c.rows)), sums_k_(PrefixSums(c.keys)) {
    Fill(Tag::kQIndex, tokens() * c.heads * c.d, q_, q_bits_);
    Fill(Tag::kKIndex, sums_k_.back() * c.d, k_, k_bits_);
    scales_.assign(static_cast<size_t>(sums_k_.back()), 1.0F);
    if (!c.int8_keys) return;
    for (float& x : k_) x = std::round(std::clamp(40 * x, -127.0F, 127.0F));
    for (size_t i = 0; i < scales_.size(); ++i) {
      scales_[i] = static_cast<float>(RandomNormal(3, Tag::kWeights, {static_cast<int64_t>(i)}) / 40);
    }
  }

  [[nodiscard]] int64_t tokens() const { return sums_q_.back() + c_.behind; }
  [[nodiscard]] int64_t columns() const { return 16; }
  void SetKey(int64_t key, float value) {
    std::fill_n(k_.begin() + key * c_.d, c_.d, value);
    std::fill_n(k_bits_.begin() + key * c_.d, c_.d, Bits(value));
  }

  /// Returns the scores by their definition, with sums in `Real`.
  template <typename Real>
  [[nodiscard]] std::vector<Real> Expected(const MsaIndexScoreOptions& options = {}) const {
    std::vector<Real> score(static_cast<size_t>(c_.heads * tokens() * columns()), kMinusInf);
    int64_t first = 0, first_key = 0;
    for (size_t b = 0; b < c_.rows.size(); first += c_.rows[b], first_key += c_.keys[b], ++b) {
      for (int64_t t = 0; t < c_.rows[b]; ++t) {
        for (int64_t head = 0; head < c_.heads; ++head) {
          Real* row = score.data() + (head * tokens() + first + t) * columns();
          for (int64_t key = 0; key < c_.keys[b]; ++key) {
            if (c_.mask == SparseMask::kRightDownCausal && key > c_.keys[b] - c_.rows[b] + t) continue;
            const Real product = Product<Real>(first + t, head, first_key + key);
            Real& max = row[key / 128];
            if (product > max || std::isnan(product)) max = product;
          }
          AddConstants(options, b, t, row);
        }
      }
    }
    return score;
  }

  [[nodiscard]] std::vector<float> Run(Context* context, const MsaIndexScoreOptions& options = {}) const {
    std::vector<float> score(static_cast<size_t>(c_.heads * tokens() * columns()), kNotWritten);
    MsaIndexScoreArgs args{.q = Tensor(q_, q_bits_, {tokens(), c_.heads, c_.d}),
                           .k = Keys(k_, k_bits_, {sums_k_.back(), 1, c_.d}),
                           .k_scale = Scales(scales_, {sums_k_.back()}),
                           .lengths_q = sums_q_,
                           .lengths_kv = sums_k_,
                           .start_loc = start_loc,
                           .score = View(score, {c_.heads, tokens(), columns()})};
    MsaIndexScoreOptions all = options;
    all.mask = c_.mask;
    const Status status = MsaIndexScore(args, all, context);
    EXPECT_TRUE(status.ok()) << status.message();
    return score;
  }

  /// Runs with keys in pages of `size` rows, which lie in the opposite order. Rows that no sequence has are NaN.
  [[nodiscard]] std::vector<float> RunPaged(int64_t size, Context* context) const {
    int64_t width = 1, used = 0;
    for (const int64_t keys : c_.keys)
      width = std::max(width, (keys + size - 1) / size), used += (keys + size - 1) / size;
    std::vector<int32_t> table(c_.keys.size() * static_cast<size_t>(width), -1);
    std::vector<float> pages(static_cast<size_t>(used * size * c_.d), std::numeric_limits<float>::quiet_NaN());
    std::vector<uint16_t> bits(pages.size(), Bits(std::numeric_limits<float>::quiet_NaN()));
    std::vector<float> scales(static_cast<size_t>(used * size), std::numeric_limits<float>::quiet_NaN());
    int64_t page = used, first_key = 0;
    for (size_t b = 0; b < c_.keys.size(); first_key += c_.keys[b], ++b) {
      for (int64_t key = 0; key < c_.keys[b]; ++key) {
        if (key % size == 0)
          table[b * static_cast<size_t>(width) + static_cast<size_t>(key / size)] = static_cast<int32_t>(--page);
        const int64_t from = (first_key + key) * c_.d, to = (page * size + key % size) * c_.d;
        std::copy_n(k_.begin() + from, c_.d, pages.begin() + to);
        std::copy_n(k_bits_.begin() + from, c_.d, bits.begin() + to);
        scales[static_cast<size_t>(to / c_.d)] = scales_[static_cast<size_t>(from / c_.d)];
      }
    }
    std::vector<float> score(static_cast<size_t>(c_.heads * tokens() * columns()), kNotWritten);
    MsaIndexScoreArgs args{.q = Tensor(q_, q_bits_, {tokens(), c_.heads, c_.d}),
                           .k = Keys(pages, bits, {used, size, 1, c_.d}),
                           .k_scale = Scales(scales, {used, size, 1}),
                           .block_table = View(table, {std::ssize(c_.keys), width}),
                           .lengths_q = sums_q_,
                           .lengths_kv = c_.keys,
                           .score = View(score, {c_.heads, tokens(), columns()})};
    const Status status = MsaIndexScore(args, {.mask = c_.mask}, context);
    EXPECT_TRUE(status.ok()) << status.message();
    return score;
  }

  std::vector<int64_t> start_loc;

 private:
  [[nodiscard]] uint16_t Bits(float x) const { return c_.dtype == DType::kF16 ? F16FromF32(x) : Bf16FromF32(x); }
  void Fill(Tag tag, int64_t count, std::vector<float>& values, std::vector<uint16_t>& bits) const {
    for (int64_t i = 0; i < count; ++i) {
      const auto x = static_cast<float>(RandomNormal(3, tag, {i}));
      bits.push_back(Bits(x));
      values.push_back(c_.dtype == DType::kF32   ? x
                       : c_.dtype == DType::kF16 ? F32FromF16(bits.back())
                                                 : F32FromBf16(bits.back()));
    }
  }
  [[nodiscard]] TensorView Tensor(const std::vector<float>& values, const std::vector<uint16_t>& bits,
                                  const Dims& shape) const {
    const void* data = c_.dtype == DType::kF32 ? static_cast<const void*>(values.data()) : bits.data();
    return View(data, c_.dtype, shape);
  }
  /// Returns a view of the keys. int8 keys are converted into k_bytes_, which must live until the call ends.
  [[nodiscard]] TensorView Keys(const std::vector<float>& values, const std::vector<uint16_t>& bits,
                                const Dims& shape) const {
    if (!c_.int8_keys) return Tensor(values, bits, shape);
    k_bytes_.clear();
    for (const float x : values) k_bytes_.push_back(std::isnan(x) ? -128 : static_cast<int8_t>(x));
    return View(static_cast<const void*>(k_bytes_.data()), DType::kI8, shape);
  }
  [[nodiscard]] TensorView Scales(const std::vector<float>& scales, const Dims& shape) const {
    return c_.int8_keys ? View(scales, shape) : TensorView();
  }
  template <typename Real>
  [[nodiscard]] Real Product(int64_t token, int64_t head, int64_t key) const {
    Real sum = 0;
    for (int64_t x = 0; x < c_.d; ++x) {
      sum += static_cast<Real>(q_[static_cast<size_t>((token * c_.heads + head) * c_.d + x)]) *
             static_cast<Real>(k_[static_cast<size_t>(key * c_.d + x)]);
    }
    return sum * static_cast<Real>(scales_[static_cast<size_t>(key)]);
  }
  template <typename Real>
  void AddConstants(const MsaIndexScoreOptions& options, size_t b, int64_t t, Real* row) const {
    const int64_t own = (std::max<int64_t>(c_.keys[b] - c_.rows[b], 0) + t) / 128;
    const int64_t loc = start_loc.empty() ? own : start_loc[b];
    for (int64_t block = 0; block * 128 < c_.keys[b]; ++block) {
      if (block < options.init_blocks) row[block] = 1e30F;
      if (block <= loc && block > loc - options.local_blocks) row[block] = 1e29F;
    }
  }

  ScoreCase c_;
  std::vector<int64_t> sums_q_, sums_k_;
  std::vector<float> q_, k_, scales_;
  std::vector<uint16_t> q_bits_, k_bits_;
  mutable std::vector<int8_t> k_bytes_;
};

std::vector<ScoreCase> ScoreCases() {
  std::vector<ScoreCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const SparseMask mask : {SparseMask::kRightDownCausal, SparseMask::kNone}) {
      cases.push_back({.dtype = dtype, .mask = mask});
      cases.push_back({.dtype = dtype, .heads = 1, .d = 24, .mask = mask});
      // More heads than a strip has lanes, and a call whose few tokens make the plan cut their keys.
      cases.push_back({.dtype = dtype, .heads = 70, .d = 16, .mask = mask, .rows = {5, 2}, .keys = {131, 260}});
      cases.push_back({.dtype = dtype, .heads = 2, .mask = mask, .rows = {2}, .keys = {1900}, .behind = 0});
      cases.push_back({.dtype = dtype, .int8_keys = true, .mask = mask});
      cases.push_back({.dtype = dtype,
                       .int8_keys = true,
                       .heads = 70,
                       .d = 24,
                       .mask = mask,
                       .rows = {2, 2},
                       .keys = {131, 1900},
                       .behind = 1});
    }
  }
  return cases;
}

/// Returns the largest difference. Returns infinity if different entries are infinite, and NaN, with which no
/// comparison holds, if any difference is NaN.
template <typename Real>
double LargestGap(const std::vector<Real>& got, const std::vector<double>& want) {
  double largest = got.size() == want.size() ? 0 : std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < got.size() && i < want.size(); ++i) {
    const auto x = static_cast<double>(got[i]);
    if (std::isinf(want[i]) && x == want[i]) continue;
    const double gap = std::fabs(x - want[i]);
    if (std::isnan(gap)) return gap;
    largest = std::max(largest, gap);
  }
  return largest;
}

TEST(MsaIndexScore, IsItsDefinitionOnEveryLevel) {
  for (const ScoreCase& c : ScoreCases()) {
    const BlockScores problem(c);
    const std::vector<double> want = problem.Expected<double>();
    // The usual rule: at most twice the error of a plain computation in f32.
    const double naive = LargestGap(problem.Expected<float>(), want);
    EXPECT_GT(naive, 0);
    for (const Isa isa : IsaLevels()) {
      SCOPED_TRACE(std::string(Name(isa)) + " " + Name(c.dtype) + " heads " + std::to_string(c.heads));
      EXPECT_LE(LargestGap(problem.Run(ContextOf(isa)), want), 2 * naive);
    }
  }
}

TEST(MsaIndexScore, BitsDoNotDependOnThreadsOrPages) {
  for (const ScoreCase& c : ScoreCases()) {
    const BlockScores problem(c);
    const std::vector<float> one = problem.Run(ContextOf(DetectIsa(), 1));
    for (const int threads : {2, 7, 0}) EXPECT_EQ(problem.Run(ContextOf(DetectIsa(), threads)), one) << threads;
    for (const int64_t size : {16, 128, 200}) EXPECT_EQ(problem.RunPaged(size, nullptr), one) << size;
  }
}

/// Draws codes of f8e4m3, and the bf16 numbers for which they stand.
void DrawE4m3(int64_t count, uint64_t seed, std::vector<uint8_t>& codes, std::vector<uint16_t>& bits) {
  for (int64_t i = 0; i < count; ++i) {
    const auto code =
        static_cast<uint8_t>(RandomBits(seed, Tag::kChoice, {i}) % 0x7F | RandomBits(seed, Tag::kK, {i}) % 2 << 7);
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double size = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    codes.push_back(code), bits.push_back(Bf16FromF32(static_cast<float>((code & 0x80) != 0 ? -size : size)));
  }
}

// Keys of i8 with scales may meet queries of any type: the bits are those of the same queries in bf16.
TEST(MsaIndexScore, QueriesOfE4m3MeetKeysOfI8) {
  constexpr int64_t kTokens = 5, kHeads = 3, kD = 40, kKeys = 300;
  std::vector<uint8_t> q_codes;
  std::vector<uint16_t> q_bits;
  DrawE4m3(kTokens * kHeads * kD, 1, q_codes, q_bits);
  std::vector<int8_t> keys;
  std::vector<float> scales;
  for (int64_t i = 0; i < kKeys * kD; ++i) keys.push_back(static_cast<int8_t>(i * 37 % 255 - 127));
  for (int64_t i = 0; i < kKeys; ++i) scales.push_back(0.01F * static_cast<float>(1 + i % 7));
  static constexpr int64_t kRows[] = {kTokens}, kLengths[] = {kKeys};
  const auto scores = [&](const void* q, DType dtype, Context* context) {
    std::vector<float> score(kHeads * kTokens * 3, kNotWritten);
    const Status status = MsaIndexScore({.q = View(q, dtype, {kTokens, kHeads, kD}),
                                         .k = View(static_cast<const void*>(keys.data()), DType::kI8, {kKeys, 1, kD}),
                                         .k_scale = View(scales, {kKeys}),
                                         .lengths_q = kRows,
                                         .lengths_kv = kLengths,
                                         .score = View(score, {kHeads, kTokens, 3})},
                                        {}, context);
    EXPECT_TRUE(status.ok()) << status.message();
    return score;
  };
  for (const Isa isa : IsaLevels()) {
    const std::vector<float> want = scores(q_bits.data(), DType::kBF16, ContextOf(isa));
    EXPECT_EQ(scores(q_codes.data(), DType::kF8E4M3, ContextOf(isa)), want) << Name(isa);
    EXPECT_GT(*std::max_element(want.begin(), want.end()), 0);
  }
}

// Every f8e4m3 number is also a bf16 number, so the bf16 kernels compute calls of f8e4m3.
TEST(MsaIndexScore, QueriesAndKeysOfE4m3HaveTheBitsOfTheSameNumbersInBf16) {
  constexpr int64_t kTokens = 5, kHeads = 3, kD = 40, kKeys = 300;
  std::vector<uint8_t> q_codes, k_codes;
  std::vector<uint16_t> q_bits, k_bits;
  DrawE4m3(kTokens * kHeads * kD, 1, q_codes, q_bits), DrawE4m3(kKeys * kD, 2, k_codes, k_bits);
  static constexpr int64_t kRows[] = {kTokens}, kLengths[] = {kKeys};
  const auto scores = [&](const void* q, const void* k, DType dtype, Context* context) {
    std::vector<float> score(kHeads * kTokens * 3, kNotWritten);
    const Status status = MsaIndexScore({.q = View(q, dtype, {kTokens, kHeads, kD}),
                                         .k = View(k, dtype, {kKeys, 1, kD}),
                                         .lengths_q = kRows,
                                         .lengths_kv = kLengths,
                                         .score = View(score, {kHeads, kTokens, 3})},
                                        {}, context);
    EXPECT_TRUE(status.ok()) << status.message();
    return score;
  };
  for (const Isa isa : IsaLevels()) {
    const std::vector<float> want = scores(q_bits.data(), k_bits.data(), DType::kBF16, ContextOf(isa));
    EXPECT_EQ(scores(q_codes.data(), k_codes.data(), DType::kF8E4M3, ContextOf(isa)), want) << Name(isa);
    EXPECT_GT(*std::max_element(want.begin(), want.end()), 0);
  }
}

TEST(MsaIndexScore, BlocksThatAreAlwaysSelectedHaveTheirConstants) {
  BlockScores problem({});
  for (const int64_t init : {0, 1, 2, 100}) {
    for (const int64_t local : {int64_t{0}, int64_t{1}, int64_t{2}, std::numeric_limits<int64_t>::max()}) {
      for (const std::vector<int64_t>& start_loc : {std::vector<int64_t>{}, std::vector<int64_t>{1, 4, 0, 1 << 20}}) {
        problem.start_loc = start_loc;
        const MsaIndexScoreOptions options{.init_blocks = init, .local_blocks = local};
        const std::vector<double> want = problem.Expected<double>(options);
        const std::vector<float> got = problem.Run(nullptr, options);
        for (size_t i = 0; i < want.size(); ++i) {
          if (std::isinf(want[i]) || want[i] > 1e20) {
            ASSERT_EQ(got[i], static_cast<float>(want[i])) << i;
          } else {
            ASSERT_LT(std::fabs(got[i]), 1e20F) << i;
          }
        }
      }
    }
  }
}

TEST(MsaIndexScore, NanStaysInTheBlocksThatSeeIt) {
  for (const ScoreCase& c : {ScoreCase{}, ScoreCase{.dtype = DType::kBF16, .rows = {2}, .keys = {1900}}}) {
    for (const int64_t key : {128, 133, 140, 255}) {  // the first, the last and two other keys of a block
      BlockScores problem(c);
      problem.SetKey(key, std::numeric_limits<float>::quiet_NaN());
      const std::vector<double> want = problem.Expected<double>();
      EXPECT_TRUE(std::any_of(want.begin(), want.end(), [](double x) { return std::isnan(x); }));
      for (const Isa isa : IsaLevels()) {
        const std::vector<float> got = problem.Run(ContextOf(isa));
        for (size_t i = 0; i < want.size(); ++i) {
          ASSERT_EQ(std::isnan(got[i]), std::isnan(want[i])) << Name(isa) << " key " << key << " at " << i;
        }
      }
    }
  }
}

TEST(MsaIndexScore, ErrorsNameTheArgument) {
  std::vector<float> q(2 * 3 * 8), k(300 * 8), score(3 * 2 * 4, kNotWritten);
  static constexpr int64_t kTwo[] = {2}, kKeys[] = {300}, kMinus[] = {-1}, kPair[] = {0, 0};
  const auto refused = [&](const std::string& text, const auto& change) {
    MsaIndexScoreArgs args{.q = View(q, {2, 3, 8}),
                           .k = View(k, {300, 1, 8}),
                           .lengths_q = kTwo,
                           .lengths_kv = kKeys,
                           .score = View(score, {3, 2, 4})};
    MsaIndexScoreOptions options;
    change(args, options);
    EXPECT_EQ(MsaIndexScore(args, options).message(), "invalid argument: " + text);
  };
  using Args = MsaIndexScoreArgs;
  using Options = MsaIndexScoreOptions;
  refused("score.shape[2]=2, want at least 3 (blocks of 128 keys)", [&](Args& a, Options&) {
    a.score = View(score, {3, 2, 2});
  });
  refused("score.shape[0]=2, want 3 (q.shape[1])", [&](Args& a, Options&) { a.score = View(score, {2, 2, 4}); });
  refused("score.shape[1]=1, want 2 (q.shape[0])", [&](Args& a, Options&) { a.score = View(score, {3, 1, 4}); });
  refused("score: missing", [](Args& a, Options&) { a.score = {}; });
  refused("init_blocks=-1, want at least 0", [](Args&, Options& o) { o.init_blocks = -1; });
  refused("local_blocks=-1, want at least 0", [](Args&, Options& o) { o.local_blocks = -1; });
  refused("start_loc[0]=-1, want 0..2^60", [](Args& a, Options&) { a.start_loc = kMinus; });
  refused("start_loc has 2 entries, want 1 (one per sequence)", [](Args& a, Options&) { a.start_loc = kPair; });
  refused("k.shape[2]=4, want 8 (q.shape[2])", [&](Args& a, Options&) { a.k = View(k, {300, 1, 4}); });
  refused("k_scale: given, want none without k.dtype=i8", [&](Args& a, Options&) { a.k_scale = View(k, {300}); });
  refused("k_scale: missing, want it with k.dtype=i8", [](Args& a, Options&) { a.k.dtype = DType::kI8; });
  refused("k_scale.shape[0]=299, want 300 (k.shape[0])",
          [&](Args& a, Options&) { a.k.dtype = DType::kI8, a.k_scale = View(k, {299}); });
  refused("q.dtype=i8, want f32, f16 or bf16", [](Args& a, Options&) { a.q.dtype = DType::kI8; });
  refused("k.dtype=f32, want f8e4m3 (q.dtype)", [](Args& a, Options&) { a.q.dtype = DType::kF8E4M3; });
  EXPECT_EQ(score, std::vector<float>(score.size(), kNotWritten));
}

}  // namespace
}  // namespace fa::test
