#include "ops/inference/infer/scaled_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "support/cases/random_values.h"
#include "support/compare/agrees.h"
#include "support/compressed_number.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

constexpr double kEps = 0x1p-24;  // the unit roundoff of f32
constexpr int64_t kSummed = 512;  // f32 adds at most this many numbers, and f64 adds their sums

int64_t SumBefore(const std::vector<int64_t>& lengths, int64_t b) {
  return std::accumulate(lengths.begin(), lengths.begin() + b, int64_t{0});
}
int64_t LongestOf(const std::vector<int64_t>& lengths) { return *std::max_element(lengths.begin(), lengths.end()); }

/// Returns the nearest number of the format that is at least 0; ties go to the even code.
double NearestNumber(DType format, double x) {
  if (format == DType::kI8) return std::min(std::nearbyint(x), 127.0);
  const double unit = std::ldexp(1, std::max(x > 0 ? std::ilogb(x) : -6, -6) - 3);
  return std::min(std::nearbyint(x / unit) * unit, 448.0);
}

/// Returns a random code that is a number. Codes of f8e4m3 stand for numbers below 8.
uint8_t RandomCode(DType format, Tag tag, std::initializer_list<int64_t> place) {
  const uint64_t bits = RandomBits(7, tag, place);
  if (format == DType::kI8) return static_cast<uint8_t>(bits);
  return static_cast<uint8_t>((bits & 0x80) | (bits >> 8) % 0x50);
}

std::string LettersBefore(Layout layout) {
  const std::string name = Name(layout);
  return name.substr(0, name.find('_'));
}
std::string LettersAfter(Layout layout) {
  const std::string name = Name(layout);
  return name.substr(name.find('_') + 1);
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const ScaledCase& c) {
  return out << Name(c.format) << " rope " << Name(c.rope) << " out " << Name(c.out) << (c.per_key ? " per key" : "")
             << (c.per_head ? " per head" : "") << " factor " << c.factor << " scales " << c.q_scale << " " << c.k_scale
             << " " << c.v_scale << " nan " << c.nan_key << " " << c.infer;
}

ScaledProblem::ScaledProblem(const ScaledCase& c) : case_(c) {
  const auto& [sq, sk] = c.infer.dense.lengths;
  for (int64_t b = 0; b < c.infer.dense.batch(); ++b) {
    cu_q_.push_back(SumBefore(sq, b + 1));
    cu_kv_.push_back(SumBefore(sk, b + 1));
  }
  Draw();
  MakeQueries();
  if (IsPaged(c.infer.cache)) {
    int32_t pages = 0;
    const int64_t page_rows = c.infer.page_rows;
    for (const int64_t keys : sk) pages += static_cast<int32_t>((keys + page_rows - 1) / page_rows);
    table_ = Tensor(DType::kI32, {c.infer.dense.batch(), (LongestOf(sk) + page_rows - 1) / page_rows + 1}, {});
    for (int64_t b = 0; b < c.infer.dense.batch(); ++b) {
      std::vector<int32_t>& own = pages_.emplace_back();
      for (int64_t j = 0; j < sk[b]; j += page_rows) {
        own.push_back(pages--);  // page 0 belongs to no sequence
        table_.Set(b * table_.stride()[0] + j / page_rows, own.back());
      }
    }
  }
  const ForwardCase& d = c.infer.dense;
  MakeKeys(&codes_.k, nullptr, c.format, d.d, &k_, &k_views_);
  if (d.d_rope > 0) MakeKeys(nullptr, &codes_.k_rope, c.rope, d.d_rope, &k_rope_, &k_rope_views_);
  MakeKeys(&codes_.v, nullptr, c.format, d.dv, &v_, &v_views_);
  MakeScales();
}

int64_t ScaledProblem::FirstRow(int64_t b) const { return packed() ? SumBefore(case_.infer.dense.lengths.sq, b) : 0; }
int64_t ScaledProblem::Row(int64_t b, int64_t n, int64_t i) const {
  const ForwardCase& d = case_.infer.dense;
  return SumBefore(d.lengths.sq, b) * d.heads + n * d.lengths.sq[b] + i;
}
int64_t ScaledProblem::Key(int64_t b, int64_t n, int64_t j) const {
  const ForwardCase& d = case_.infer.dense;
  return SumBefore(d.lengths.sk, b) * d.heads_kv + n * d.lengths.sk[b] + j;
}

void ScaledProblem::Draw() {
  const ForwardCase& d = case_.infer.dense;
  for (int64_t b = 0; b < d.batch(); ++b) {
    for (int64_t n = 0; n < d.heads; ++n) {
      for (int64_t i = 0; i < d.lengths.sq[b]; ++i) {
        for (int64_t x = 0; x < d.d; ++x) codes_.q.push_back(RandomCode(case_.format, Tag::kQ, {b, n, i, x}));
        for (int64_t x = 0; x < d.d_rope; ++x) {
          codes_.q_rope.push_back(RoundTo(case_.rope, 300 * RandomNormal(7, Tag::kQRope, {b, n, i, x})));
        }
        const double share = RandomUniform(7, Tag::kSlopes, {b, n, i}) * 1.4 - 0.4;
        codes_.q_scale.push_back(RoundTo(DType::kF32, case_.q_scale * share));
      }
    }
    for (int64_t n = 0; n < d.heads_kv; ++n) {
      for (int64_t j = 0; j < d.lengths.sk[b]; ++j) {
        for (int64_t x = 0; x < d.d; ++x) codes_.k.push_back(RandomCode(case_.format, Tag::kK, {b, n, j, x}));
        for (int64_t x = 0; x < d.dv; ++x) {
          const bool nan = b == 0 && j == case_.nan_key;
          const uint8_t code = RandomCode(case_.format, Tag::kV, {b, n, j, x});
          codes_.v.push_back(nan ? 0x7f : case_.positive ? code & 0x7f : code);
        }
        for (int64_t x = 0; x < d.d_rope; ++x) {
          codes_.k_rope.push_back(RoundTo(case_.rope, RandomNormal(7, Tag::kKRope, {b, n, j, x})));
        }
        const double share = case_.per_key ? 0.2 + RandomUniform(7, Tag::kWeights, {b, n, j}) : 1;
        codes_.k_scale.push_back(RoundTo(DType::kF32, case_.k_scale * share));
      }
    }
  }
  for (int64_t n = 0; n < d.heads_kv; ++n) {
    codes_.v_scale.push_back(RoundTo(DType::kF32, case_.v_scale * (case_.per_head ? static_cast<double>(n) - 0.7 : 1)));
  }
}

void ScaledProblem::MakeQueries() {
  const ForwardCase& d = case_.infer.dense;
  const Layout layout = case_.infer.layout;
  const int64_t rows = (packed() ? cu_q_.back() : LongestOf(d.lengths.sq)) + case_.infer.spare_q;
  const auto make = [&](const std::string& letters, DType dtype, int64_t columns) {
    return LetteredTensor(dtype, letters, {d.batch(), d.heads, rows, columns}, 0, {});
  };
  std::string of_scale = LettersBefore(layout);
  of_scale = of_scale == "BSH" ? "BSN" : of_scale.substr(0, of_scale.size() - 1);
  q_ = make(LettersBefore(layout), case_.format, d.d);
  q_scale_ = make(of_scale, DType::kF32, 1);
  if (d.d_rope > 0) q_rope_ = make(LettersBefore(layout), case_.rope, d.d_rope);
  out_ = make(LettersAfter(layout), case_.out, d.dv);
  lse_ = make(packed() ? "TN" : "BNS", DType::kF32, 1);
  for (int64_t b = 0; b < d.batch(); ++b) {
    for (int64_t n = 0; n < d.heads; ++n) {
      for (int64_t i = 0; i < d.lengths.sq[b]; ++i) {
        const int64_t from = Row(b, n, i), batch = packed() ? 0 : b, row = FirstRow(b) + i;
        std::memcpy(q_.tensor().Address(q_.Offset(batch, n, row, 0)), &codes_.q[from * d.d], static_cast<size_t>(d.d));
        for (int64_t x = 0; x < d.d_rope; ++x) {
          q_rope_.tensor().Set(q_rope_.Offset(batch, n, row, x), codes_.q_rope[from * d.d_rope + x]);
        }
        q_scale_.tensor().Set(q_scale_.Offset(batch, n, row, 0), codes_.q_scale[from]);
      }
    }
  }
}

void ScaledProblem::MakeKeys(const std::vector<uint8_t>* codes, const std::vector<double>* numbers, DType dtype,
                             int64_t columns, std::vector<LetteredTensor>* to, std::vector<TensorView>* views) {
  const ForwardCase& d = case_.infer.dense;
  const bool paged = IsPaged(case_.infer.cache), list = case_.infer.cache == Cache::kList;
  static constexpr const char* kPages[] = {"PSH", "PNSD", "PSND", "PNCSD"};
  const std::string letters = paged
                                  ? kPages[static_cast<int>(case_.infer.cache) - static_cast<int>(Cache::kPagesOfRows)]
                                  : LettersBefore(case_.infer.layout);
  for (int64_t i = 0; i < (list ? d.batch() : 1); ++i) {
    LetteredTensor::Sizes sizes{.batch = list ? 1 : d.batch(), .heads = d.heads_kv, .rows = 0, .columns = columns};
    sizes.rows = list ? d.lengths.sk[i] : packed() ? cu_kv_.back() : LongestOf(d.lengths.sk);
    if (paged) {
      sizes.rows = case_.infer.page_rows;
      sizes.batch = 1;
      for (const auto& pages : pages_) sizes.batch += std::ssize(pages);
    }
    to->emplace_back(dtype, letters, sizes, 0, Placement{});
    views->push_back(to->back().tensor().view());
  }
  for (int64_t b = 0; b < d.batch(); ++b) {
    const LetteredTensor& tensor = (*to)[list ? b : 0];
    for (int64_t n = 0; n < d.heads_kv; ++n) {
      for (int64_t j = 0; j < d.lengths.sk[b]; ++j) {
        const int64_t page_rows = case_.infer.page_rows;
        const int64_t batch = paged ? pages_[b][j / page_rows] : packed() || list ? 0 : b;
        const int64_t row = paged ? j % page_rows : packed() ? SumBefore(d.lengths.sk, b) + j : j;
        for (int64_t x = 0; x < columns; ++x) {
          const int64_t at = tensor.Offset(batch, n, row, x), from = Key(b, n, j) * columns + x;
          if (codes != nullptr) {
            *tensor.tensor().Address(at) = std::byte{(*codes)[from]};
          } else {
            tensor.tensor().Set(at, (*numbers)[from]);
          }
        }
      }
    }
  }
}

void ScaledProblem::MakeScales() {
  const ForwardCase& d = case_.infer.dense;
  v_scale_ = Tensor(DType::kF32, {1, case_.per_head ? d.heads_kv : 1, 1, 1}, {});
  for (int64_t n = 0; n < v_scale_.shape()[1]; ++n) v_scale_.Set(n, codes_.v_scale[n]);
  if (case_.factor != 0) {
    factor_ = Tensor(DType::kF32, {1}, {});
    factor_.Set(0, case_.factor);
  }
  if (!case_.per_key) {
    k_scale_ = Tensor(DType::kF32, {1, 1, 1, 1}, {});
    k_scale_.Set(0, RoundTo(DType::kF32, case_.k_scale));
    return;
  }
  const bool paged = IsPaged(case_.infer.cache);
  const int64_t rows = paged ? case_.infer.page_rows : LongestOf(d.lengths.sk);
  k_scale_ = Tensor(DType::kF32, {paged ? k_[0].tensor().shape()[0] : d.batch(), d.heads_kv, rows, 1}, {});
  for (int64_t b = 0; b < d.batch(); ++b) {
    for (int64_t n = 0; n < d.heads_kv; ++n) {
      for (int64_t j = 0; j < d.lengths.sk[b]; ++j) {
        const int64_t batch = paged ? pages_[b][j / rows] : b;
        k_scale_.Set((batch * d.heads_kv + n) * rows + j % rows, codes_.k_scale[Key(b, n, j)]);
      }
    }
  }
}

InferAttentionArgs ScaledProblem::args() const {
  InferAttentionArgs args;
  args.q = q_.tensor().view();
  args.q_rope = q_rope_.tensor().view();
  args.q_scale = q_scale_.tensor().view();
  args.k = k_views_;
  args.v = v_views_;
  args.k_rope = k_rope_views_;
  args.k_scale = k_scale_.view();
  args.v_scale = v_scale_.view();
  args.quant_scale1 = factor_.view();
  args.block_table = table_.view();
  (packed() ? args.cu_q : args.lengths_q) = packed() ? cu_q_ : case_.infer.dense.lengths.sq;
  const bool sums = packed() && !IsPaged(case_.infer.cache);
  (sums ? args.cu_kv : args.lengths_kv) = sums ? cu_kv_ : case_.infer.dense.lengths.sk;
  args.out = out_.tensor().mutable_view();
  args.lse = lse_.tensor().mutable_view();
  return args;
}

InferAttentionOptions ScaledProblem::options() const {
  const ForwardCase& d = case_.infer.dense;
  return {.layout = case_.infer.layout,
          .heads = d.heads,
          .heads_kv = d.heads_kv,
          .scale = d.scale,
          .sparse_mode = d.mask.mode,
          .block_size = IsPaged(case_.infer.cache) ? case_.infer.page_rows : 0,
          .antiquant = case_.says_per_key ? Antiquant::kPerToken : Antiquant::kPerTensorOrChannel,
          .lse_without_keys = std::numeric_limits<float>::infinity()};
}

ScaledReference ScaledProblem::Reference() const {
  const ForwardCase& d = case_.infer.dense;
  const double scale = static_cast<double>(d.scale.value_or(1.0F / std::sqrt(static_cast<float>(d.d + d.d_rope))));
  const double factor = case_.factor != 0 ? case_.factor : case_.format == DType::kI8 ? 127 : case_.per_key ? 1 : 448;
  const bool integers = case_.format == DType::kI8;
  ScaledReference result;
  const auto number = [&](uint8_t code) { return CompressedNumber(case_.format, code); };
  for (int64_t b = 0; b < d.batch(); ++b) {
    const int64_t sk = d.lengths.sk[b], sq = d.lengths.sq[b];
    for (int64_t n = 0; n < d.heads; ++n) {
      const int64_t n_kv = n / (d.heads / d.heads_kv);
      for (int64_t i = 0; i < sq; ++i) {
        const int64_t row = Row(b, n, i);
        const int64_t keys = d.mask.mode == 3 ? std::clamp<int64_t>(sk - sq + i + 1, 0, sk) : sk;
        std::vector<double> s, error;
        for (int64_t j = 0; j < keys; ++j) {
          const int64_t key = Key(b, n_kv, j);
          const double by = codes_.q_scale[row] * codes_.k_scale[key] * scale;
          double dot = 0, terms = 0;
          const auto add = [&](double x) {
            dot += x;
            terms += std::abs(x);
          };
          for (int64_t x = 0; x < d.d; ++x) add(number(codes_.q[row * d.d + x]) * number(codes_.k[key * d.d + x]));
          for (int64_t x = 0; x < d.d_rope; ++x) {
            add(codes_.q_rope[row * d.d_rope + x] * codes_.k_rope[key * d.d_rope + x]);
          }
          s.push_back(dot * by);
          // Sums of int8 are exact. Where each key has a scale, the product with this scale adds a rounding. The
          // scores' own factor has three roundings, and the power of two adds a rounding of its exponent.
          const int64_t sums = (integers ? 0 : d.d) + d.d_rope + (case_.per_key ? 1 : 0);
          error.push_back(kEps * (static_cast<double>(sums) * terms + 6 * std::abs(dot)) * std::abs(by));
        }
        const auto top = std::max_element(s.begin(), s.end());
        const double max = keys > 0 ? *top : 0, max_error = keys > 0 ? error[top - s.begin()] : 0;
        double sum = 0, sum_error = 0;
        std::vector<double> p, one_step;
        for (int64_t j = 0; j < keys; ++j) {
          const double whole = std::exp(s[j] - max);
          // The score and the row's maximum may each be off, so both errors count. The exponential gets 6 more units.
          const double relative = error[j] + max_error + (2 * std::abs(s[j] - max) + 6) * kEps;
          sum += whole;
          sum_error += whole * (relative + static_cast<double>(std::min(keys, kSummed) + 1) * kEps);
          p.push_back(NearestNumber(case_.format, factor * whole));
          one_step.push_back(NearestNumber(case_.format, factor * whole * (1 + relative)) -
                             NearestNumber(case_.format, factor * whole * (1 - relative)));
        }
        result.lse.push_back(keys == 0 ? std::numeric_limits<double>::infinity() : max + std::log(sum));
        result.allowed_lse.push_back(
            keys == 0 ? 0 : max_error + sum_error / sum + 4 * kEps * (std::abs(max) + std::log(sum) + 1));
        for (int64_t x = 0; x < d.dv; ++x) {
          const double sums = static_cast<double>(integers ? 0 : std::min(keys, kSummed));
          double o = 0, terms = 0, steps = 0;
          for (int64_t j = 0; j < keys; ++j) {
            const double v = number(codes_.v[Key(b, n_kv, j) * d.dv + x]) * codes_.v_scale[n_kv];
            o += p[j] * v;
            terms += std::abs(p[j] * v);
            steps += std::abs(one_step[j] * v);
          }
          const double out = keys == 0 ? 0 : o / (factor * sum);
          const double unit = case_.out == DType::kF32 ? kEps : case_.out == DType::kF16 ? 0x1p-11 : 0x1p-8;
          result.out.push_back(out);
          result.allowed_out.push_back(keys == 0 ? 0
                                                 : (steps + sums * kEps * terms) / (factor * sum) +
                                                       std::abs(out) * (sum_error / sum + 6 * kEps + 1.01 * unit) +
                                                       (case_.out == DType::kF16 ? 0x1p-25 : 0));
        }
      }
    }
  }
  return result;
}

ForwardOutputs ScaledProblem::Outputs() const {
  ForwardOutputs outputs;
  const ForwardCase& d = case_.infer.dense;
  for (int64_t b = 0; b < d.batch(); ++b) {
    for (int64_t n = 0; n < d.heads; ++n) {
      for (int64_t i = 0; i < d.lengths.sq[b]; ++i) {
        const int64_t batch = packed() ? 0 : b, row = FirstRow(b) + i;
        outputs.lse.push_back(lse_.tensor().Get(lse_.Offset(batch, n, row, 0)));
        for (int64_t x = 0; x < d.dv; ++x) {
          outputs.out.push_back(out_.tensor().Get(out_.Offset(batch, n, row, x)));
        }
      }
    }
  }
  return outputs;
}

Snapshot ScaledProblem::TakeSnapshot() const {
  Snapshot snapshot;
  for (const Tensor* tensor : {&q_.tensor(), &q_rope_.tensor(), &q_scale_.tensor(), &table_, &k_scale_, &v_scale_}) {
    snapshot.Add(*tensor);
  }
  for (const auto* list : {&k_, &k_rope_, &v_}) {
    for (const LetteredTensor& tensor : *list) snapshot.Add(tensor.tensor());
  }
  snapshot.Allow(out_.tensor());
  snapshot.Allow(lse_.tensor());
  return snapshot;
}

AssertionResult RunsLikeTheFormulas(const ScaledCase& c) {
  const ScaledProblem problem(c);
  const ScaledReference want = problem.Reference();
  for (const Isa isa : IsaLevels()) {
    const Snapshot before = problem.TakeSnapshot();
    before.Forget();
    const Status status = InferAttention(problem.args(), problem.options(), ContextOf(isa));
    if (!status.ok()) return AssertionFailure() << status.message() << "\n " << c << ", " << IsaName(isa);
    if (before.FirstChange() >= 0) return AssertionFailure() << "a buffer was overwritten\n " << c;
    const ForwardOutputs got = problem.Outputs();
    const auto compare = [&](const char* what, const std::vector<double>& is, const std::vector<double>& wanted,
                             const std::vector<double>& allowed) {
      if (is.size() != wanted.size()) return AssertionFailure() << what << " of another size";
      for (size_t x = 0; x < is.size(); ++x) {
        if (Agrees(is[x], wanted[x], allowed[x])) continue;
        return AssertionFailure() << what << "[" << x << "] = " << is[x] << ", want " << wanted[x] << " +- "
                                  << allowed[x] << "\n " << c << ", " << IsaName(isa);
      }
      return AssertionSuccess();
    };
    if (auto result = compare("out", got.out, want.out, want.allowed_out); !result) return result;
    if (auto result = compare("lse", got.lse, want.lse, want.allowed_lse); !result) return result;
  }
  return AssertionSuccess();
}

ForwardOutputs OutputsOf(const ScaledCase& c, Context* context) {
  const ScaledProblem problem(c);
  problem.TakeSnapshot().Forget();
  const Status status = InferAttention(problem.args(), problem.options(), context);
  EXPECT_TRUE(status.ok()) << status.message() << "\n " << c;
  return problem.Outputs();
}

}  // namespace fa::test
