#include "ops/inference/prompt/prompt_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <ostream>
#include <utility>

#include "support/cases/random_values.h"
#include "support/compare/agrees.h"
#include "support/compare/tolerance.h"

namespace fa::test {
namespace {

constexpr double kDropShare = 0.25;

std::vector<int64_t> InUse(const std::vector<int64_t>& lengths, int64_t batch, int64_t rows) {
  return lengths.empty() ? std::vector<int64_t>(static_cast<size_t>(batch), rows) : lengths;
}

std::vector<int64_t> PrefixSums(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> sums;
  int64_t sum = 0;
  for (const int64_t length : lengths) sums.push_back(sum += length);
  return sums;
}

int64_t Sum(const std::vector<int64_t>& lengths) { return lengths.empty() ? 0 : PrefixSums(lengths).back(); }

int64_t Largest(const std::vector<int64_t>& lengths) {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

/// Returns an input's element: any int8 value for int8 inputs, and otherwise a normally distributed one.
double Draw(const PromptCase& c, Tag tag, std::initializer_list<int64_t> place) {
  if (c.dtype == DType::kI8) return static_cast<double>(RandomBits(c.seed, tag, place) % 256) - 128;
  return RoundTo(c.dtype, RandomNormal(c.seed, tag, place));
}

template <typename T>
Tensor Scalar(DType dtype, T value) {
  Tensor tensor(dtype, {1}, {});
  std::copy_n(reinterpret_cast<const std::byte*>(&value), sizeof value, tensor.Address(0));
  return tensor;
}

Mask MaskOf(const PromptCase& c) {
  if (c.sparse_mode) {
    return *Mask::FromSparseMode(c.mask.mode, c.mask.pre, c.mask.next, {}, c.dense_mask != PromptMask::kNone);
  }
  switch (c.mask.mode) {
    case 0: return c.mask.band ? Mask::BandTopLeft(c.mask.pre, c.mask.next) : Mask::None();
    case 2: return Mask::CausalTopLeft();
    case 3: return Mask::Causal();
    case 4: return Mask::Band(c.mask.pre, c.mask.next);
    default: return Mask::None();
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const PromptCase& c) {
  const auto list = [&](const char* name, const std::vector<int64_t>& lengths) {
    if (!lengths.empty()) out << name;
    for (const int64_t length : lengths) out << ' ' << length;
  };
  out << "seed " << c.seed << " " << Name(c.dtype) << " -> " << Name(c.out_dtype) << " " << Name(c.layout) << " heads "
      << c.heads << "/" << c.heads_kv << " of " << c.d << "," << c.dv << " batch " << c.batch << " " << c.sq << " x "
      << c.sk;
  list(" queries", c.lengths_q);
  list(" keys", c.lengths_kv);
  out << (c.one_length ? " one length" : "") << " mode " << c.mask.mode << (c.sparse_mode ? " sparse" : "")
      << (c.mask.band ? " band" : "") << " pre " << c.mask.pre << " next " << c.mask.next << " mask "
      << static_cast<int>(c.dense_mask) << " wider " << c.wider << " pse " << c.pse << c.pse_broadcast;
  if (c.scale) out << " scale " << *c.scale;
  out << " pse type " << static_cast<int>(c.pse_type) << " rope " << c.d_rope << " sink " << c.sink << " statistics "
      << c.statistics;
  ForEachNumber([&](const char* name, auto, auto number) { out << " " << name << " " << number; }, c);
  return out << " deq1 " << c.deq1 << " quant1 " << c.quant1 << " deq2 " << c.deq2 << " packed " << c.packed_deq
             << " quant2 " << c.quant2 << " offset2 " << c.offset2 << " per column " << c.per_column
             << c.heads_by_columns << " with offset " << c.with_offset << " bf16 scales " << c.bf16_scales
             << " padding " << c.padding.inner << "," << c.padding.middle << "," << c.padding.outer << " place "
             << static_cast<int>(c.placement.place) << "," << c.placement.misalignment;
}

reference::Problem DrawPromptValues(const PromptCase& c) {
  reference::Problem p{.heads = c.heads, .heads_kv = c.heads_kv, .d = c.d, .dv = c.dv};
  p.lengths = {InUse(c.lengths_q, c.batch, c.sq), InUse(c.lengths_kv, c.batch, c.sk)};
  p.d_rope = c.d_rope;
  p.scale =
      static_cast<double>(c.scale.value_or(static_cast<float>(1 / std::sqrt(static_cast<double>(c.d + c.d_rope)))));
  CopyNumbers(c, p);
  p.mask = c.mask;
  const auto draw = [&](Tag tag, const std::vector<int64_t>& rows, int64_t heads, int64_t size,
                        std::vector<double>* to) {
    for (int64_t b = 0; b < p.batch(); ++b) {
      for (int64_t n = 0; n < heads; ++n) {
        for (int64_t s = 0; s < rows[static_cast<size_t>(b)]; ++s) {
          for (int64_t x = 0; x < size; ++x) to->push_back(Draw(c, tag, {b, n, s, x}));
        }
      }
    }
  };
  draw(Tag::kQ, p.lengths.sq, c.heads, c.d, &p.q);
  draw(Tag::kK, p.lengths.sk, c.heads_kv, c.d, &p.k);
  draw(Tag::kV, p.lengths.sk, c.heads_kv, c.dv, &p.v);
  draw(Tag::kQRope, p.lengths.sq, c.heads, c.d_rope, &p.q_rope);
  draw(Tag::kKRope, p.lengths.sk, c.heads_kv, c.d_rope, &p.k_rope);
  for (int64_t n = 0; c.sink && n < c.heads; ++n)
    p.sink.push_back(RoundTo(DType::kF32, RandomNormal(c.seed, Tag::kSink, {n})));
  return p;
}

PromptProblem::PromptProblem(const PromptCase& c, reference::Problem values) : case_(c), values_(std::move(values)) {
  if (c.packed()) {
    cu_q_ = PrefixSums(c.lengths_q);
    cu_kv_ = PrefixSums(c.lengths_kv);
  } else {
    given_q_ = c.lengths_q;
    given_kv_ = c.lengths_kv;
    if (c.one_length && !given_q_.empty()) given_q_.resize(1);
    if (c.one_length && !given_kv_.empty()) given_kv_.resize(1);
  }
  PlaceHeads();
  PlacePairs();
  PlaceScales();
  PlaceStatistics();
}

void PromptProblem::PlaceHeads() {
  const PromptCase& c = case_;
  const int64_t batch = c.packed() ? 1 : c.batch;
  const int64_t rows_q = c.packed() ? Sum(c.lengths_q) : c.sq, rows_k = c.packed() ? Sum(c.lengths_kv) : c.sk;
  const auto make = [&](DType dtype, Layout layout, int64_t heads, int64_t rows, int64_t size) {
    return MakeHeadTensor(dtype, layout, {.batch = batch, .heads = heads, .rows = rows, .size = size}, c.padding,
                          c.placement);
  };
  q_ = make(c.dtype, c.layout, c.heads, rows_q, c.d);
  k_ = make(c.dtype, c.layout, c.heads_kv, rows_k, c.d);
  v_ = make(c.dtype, c.layout, c.heads_kv, rows_k, c.dv);
  out_ = make(c.out_dtype, c.layout == Layout::kBNSD_BSND ? Layout::kBSND : c.layout, c.heads, rows_q, c.dv);
  const auto scatter = [&](const HeadTensor& to, const std::vector<double>& from, const std::vector<int64_t>& rows,
                           int64_t heads, int64_t size) {
    size_t next = 0;
    for (int64_t b = 0; b < values_.batch(); ++b) {
      for (int64_t n = 0; n < heads; ++n) {
        for (int64_t s = 0; s < rows[static_cast<size_t>(b)]; ++s) {
          const int64_t at = c.packed() ? to.Offset(0, n, values_.RowsBefore(rows, b) + s) : to.Offset(b, n, s);
          for (int64_t x = 0; x < size; ++x) to.tensor.Set(at + x, from[next++]);
        }
      }
    }
  };
  scatter(q_, values_.q, values_.lengths.sq, c.heads, c.d);
  scatter(k_, values_.k, values_.lengths.sk, c.heads_kv, c.d);
  scatter(v_, values_.v, values_.lengths.sk, c.heads_kv, c.dv);
  if (c.d_rope == 0) return;
  q_rope_ = make(c.dtype, c.layout, c.heads, rows_q, c.d_rope);
  k_rope_ = make(c.dtype, c.layout, c.heads_kv, rows_k, c.d_rope);
  scatter(q_rope_, values_.q_rope, values_.lengths.sq, c.heads, c.d_rope);
  scatter(k_rope_, values_.k_rope, values_.lengths.sk, c.heads_kv, c.d_rope);
}

void PromptProblem::PlacePairs() {
  const PromptCase& c = case_;
  const int64_t batch = values_.batch();
  const int64_t rows = (c.packed() ? Largest(c.lengths_q) : c.sq) + c.wider;
  const int64_t keys = (c.packed() ? Largest(c.lengths_kv) : c.sk) + c.wider;
  const auto fill = [&](auto* pairs, int64_t batches, int64_t heads, const auto& draw) {
    pairs->values.resize(static_cast<size_t>(batches * heads * rows * keys));
    for (size_t x = 0; x < pairs->values.size(); ++x) pairs->values[x] = draw(static_cast<int64_t>(x));
    for (int64_t b = 0; b < batch; ++b) {
      pairs->offset.push_back(batches == 1 ? 0 : b * heads * rows * keys);
      pairs->head.push_back(heads == 1 ? 0 : rows * keys);
      pairs->row.push_back(keys);
    }
  };
  const auto place = [](const auto& values, const Tensor& to) {
    for (size_t x = 0; x < values.size(); ++x) to.Set(static_cast<int64_t>(x), static_cast<double>(values[x]));
  };
  if (c.dense_mask != PromptMask::kNone) {
    const bool per_batch = c.dense_mask != PromptMask::kPlane && !c.packed();
    const int64_t heads = c.dense_mask == PromptMask::kHeads ? c.heads : 1;
    fill(&values_.dense_mask, per_batch ? batch : 1, heads,
         [&](int64_t x) { return static_cast<uint8_t>(RandomUniform(c.seed, Tag::kDenseMask, {x}) < kDropShare); });
    Dims shape = {rows, keys};
    if (per_batch)
      shape = c.dense_mask == PromptMask::kBatch ? Dims{batch, rows, keys} : Dims{batch, heads, rows, keys};
    dense_mask_ = Tensor(DType::kBool, shape, {}, c.placement);
    place(values_.dense_mask.values, dense_mask_);
  }
  if (c.sink) {
    sink_ = Tensor(DType::kF32, {c.heads}, {}, c.placement);
    place(values_.sink, sink_);
  }
  const int64_t batches = c.pse_broadcast ? 1 : batch;
  if (has_slopes()) {
    values_.pse_type = c.pse_type;
    pse_ = Tensor(DType::kF32, c.pse_broadcast ? Dims{c.heads} : Dims{batch, c.heads}, {}, c.placement);
    for (int64_t x = 0; x < batch * c.heads; ++x) {
      const int64_t at = x % (batches * c.heads);
      values_.slopes.push_back(RoundTo(DType::kF32, RandomUniform(c.seed, Tag::kSlopes, {at})));
      pse_.Set(at, values_.slopes.back());
    }
  }
  if (!c.pse) return;
  const DType dtype = c.dtype == DType::kI8 ? DType::kF16 : c.dtype;
  values_.pse_type = c.pse_type;
  fill(&values_.pse, batches, c.heads, [&](int64_t x) { return RoundTo(dtype, RandomNormal(c.seed, Tag::kPse, {x})); });
  pse_ = Tensor(dtype, {batches, c.heads, rows, keys}, {}, c.placement);
  place(values_.pse.values, pse_);
}

void PromptProblem::PlaceScales() {
  const PromptCase& c = case_;
  if (c.dtype == DType::kI8) {
    // The vendor's tool sets bits in the upper half of the u64, which the library ignores.
    const auto packed = [](float value) { return uint64_t{0x40001234} << 32 | std::bit_cast<uint32_t>(value); };
    deq1_ = c.packed_deq ? Scalar(DType::kU64, packed(c.deq1)) : Scalar(DType::kF32, c.deq1);
    deq2_ = c.packed_deq ? Scalar(DType::kU64, packed(c.deq2)) : Scalar(DType::kF32, c.deq2);
    quant1_ = Scalar(DType::kF32, c.quant1);
  }
  if (c.out_dtype != DType::kI8) return;
  const OutputScaleForm form{.scale = static_cast<double>(c.quant2),
                             .offset = static_cast<double>(c.offset2),
                             .per_column = c.per_column,
                             .heads_by_columns = c.heads_by_columns,
                             .with_offset = c.with_offset,
                             .dtype = c.bf16_scales ? DType::kBF16 : DType::kF32};
  output_scales_ = OutputScales(form, c.seed, c.heads, c.dv, c.placement);
}

void PromptProblem::PlaceStatistics() {
  const PromptCase& c = case_;
  if (!c.statistics) return;
  const HeadSizes sizes{
      .batch = c.packed() ? 1 : c.batch, .heads = c.heads, .rows = c.packed() ? Sum(c.lengths_q) : c.sq};
  for (HeadTensor* statistic : {&max_, &sum_, &lse_}) {
    *statistic = MakeStatistic(c.packed(), sizes, 1, c.padding, c.placement);
  }
}

PromptAttentionArgs PromptProblem::args() const {
  PromptAttentionArgs args;
  args.q = q_.tensor.view();
  args.k = k_.tensor.view();
  args.v = v_.tensor.view();
  args.q_rope = q_rope_.tensor.view();
  args.k_rope = k_rope_.tensor.view();
  args.pse = pse_.view();
  args.dense_mask = dense_mask_.view();
  args.sink = sink_.view();
  args.deq_scale1 = deq1_.view();
  args.quant_scale1 = quant1_.view();
  args.deq_scale2 = deq2_.view();
  args.quant_scale2 = output_scales_.scale().view();
  args.quant_offset2 = output_scales_.offset().view();
  args.lengths_q = given_q_;
  args.lengths_kv = given_kv_;
  args.cu_q = cu_q_;
  args.cu_kv = cu_kv_;
  args.out = out_.tensor.mutable_view();
  args.softmax_max = max_.tensor.mutable_view();
  args.softmax_sum = sum_.tensor.mutable_view();
  args.lse = lse_.tensor.mutable_view();
  return args;
}

PromptAttentionOptions PromptProblem::options() const {
  PromptAttentionOptions options;
  options.layout = case_.layout;
  options.heads = case_.heads;
  options.heads_kv = case_.heads_kv;
  options.scale = case_.scale;
  options.mask = MaskOf(case_);
  options.pse_type = static_cast<PseType>(case_.pse_type);
  CopyNumbers(case_, options);
  return options;
}

std::vector<double> PromptProblem::Outputs() const {
  std::vector<double> values;
  for (int64_t b = 0; b < values_.batch(); ++b) {
    for (int64_t n = 0; n < case_.heads; ++n) {
      for (int64_t s = 0; s < values_.lengths.sq[static_cast<size_t>(b)]; ++s) {
        const int64_t at =
            case_.packed() ? out_.Offset(0, n, values_.RowsBefore(values_.lengths.sq, b) + s) : out_.Offset(b, n, s);
        for (int64_t x = 0; x < case_.dv; ++x) values.push_back(out_.tensor.Get(at + x));
      }
    }
  }
  return values;
}

std::vector<double> PromptProblem::Statistics() const {
  std::vector<double> values;
  if (!case_.statistics) return values;
  for (const HeadTensor* statistic : StatisticTensors()) {
    for (int64_t b = 0; b < values_.batch(); ++b) {
      for (int64_t n = 0; n < case_.heads; ++n) {
        for (int64_t s = 0; s < values_.lengths.sq[static_cast<size_t>(b)]; ++s) {
          const int64_t at = case_.packed() ? statistic->Offset(0, n, values_.RowsBefore(values_.lengths.sq, b) + s)
                                            : statistic->Offset(b, n, s);
          values.push_back(statistic->tensor.Get(at));
        }
      }
    }
  }
  return values;
}

std::vector<double> PromptProblem::UnusedOutputs() const {
  std::vector<double> values;
  if (case_.packed()) return values;
  for (const HeadTensor* statistic : StatisticTensors()) {
    for (int64_t b = 0; case_.statistics && b < case_.batch; ++b) {
      for (int64_t n = 0; n < case_.heads; ++n) {
        for (int64_t s = values_.lengths.sq[static_cast<size_t>(b)]; s < case_.sq; ++s) {
          values.push_back(statistic->tensor.Get(statistic->Offset(b, n, s)));
        }
      }
    }
  }
  for (int64_t b = 0; b < case_.batch; ++b) {
    for (int64_t n = 0; n < case_.heads; ++n) {
      for (int64_t s = values_.lengths.sq[static_cast<size_t>(b)]; s < case_.sq; ++s) {
        for (int64_t x = 0; x < case_.dv; ++x) values.push_back(out_.tensor.Get(out_.Offset(b, n, s) + x));
      }
    }
  }
  return values;
}

PromptProblem::Expected PromptProblem::MakeExpected() const {
  Expected expected;
  if (case_.dtype == DType::kI8) {
    const reference::PromptResult exact = reference::PromptInt8(values_, {.deq1 = static_cast<double>(case_.deq1),
                                                                          .quant1 = static_cast<double>(case_.quant1),
                                                                          .deq2 = static_cast<double>(case_.deq2)});
    expected.out = exact.out;
    expected.tolerance = exact.slack;
  } else {
    const reference::ForwardResult exact = reference::Forward(values_);
    const ForwardTolerance tolerance(values_, exact, case_.dtype);
    expected.out = exact.out;
    for (size_t x = 0; x < exact.out.size(); ++x) {
      const auto element = static_cast<int64_t>(x);
      expected.tolerance.push_back(tolerance.Out(element / case_.dv, element));
    }
    const auto expect = [&](const std::vector<double>& statistic, double (ForwardTolerance::*far)(int64_t) const) {
      for (size_t row = 0; case_.statistics && row < statistic.size(); ++row) {
        // If the sum is NaN, the maximum is NaN too.
        expected.statistics.push_back(std::isnan(exact.sum[row]) ? exact.sum[row] : statistic[row]);
        expected.statistics_tolerance.push_back((tolerance.*far)(static_cast<int64_t>(row)));
      }
    };
    expect(exact.max, &ForwardTolerance::Max);
    expect(exact.sum, &ForwardTolerance::Sum);
    expect(exact.lse, &ForwardTolerance::Lse);
  }
  size_t x = 0;
  for (int64_t b = 0; b < values_.batch(); ++b) {
    for (int64_t n = 0; n < case_.heads; ++n) {
      for (int64_t i = 0; i < values_.lengths.sq[static_cast<size_t>(b)] * case_.dv; ++i, ++x) {
        if (case_.out_dtype == DType::kI8) {
          const double exact = expected.out[x], far = expected.tolerance[x];
          expected.out[x] = output_scales_.Quantized(exact, n, i % case_.dv);
          expected.tolerance[x] = case_.dtype == DType::kI8 ? 1 : output_scales_.Tolerance(exact, far, n, i % case_.dv);
        } else if (case_.dtype == DType::kI8) {  // the f16 output of int8 inputs is rounded
          expected.tolerance[x] += 0x1p-11 * std::fabs(expected.out[x]) + 0x1p-25;
        }
      }
    }
  }
  return expected;
}

Snapshot PromptProblem::TakeSnapshot() const {
  Snapshot snapshot;
  for (const Tensor* tensor :
       {&q_.tensor, &k_.tensor, &v_.tensor, &q_rope_.tensor, &k_rope_.tensor, &pse_, &dense_mask_, &sink_, &deq1_,
        &quant1_, &deq2_, &output_scales_.scale(), &output_scales_.offset()}) {
    snapshot.Add(*tensor);
  }
  snapshot.Allow(out_.tensor);
  for (const HeadTensor* statistic : StatisticTensors()) {
    if (case_.statistics) snapshot.Allow(statistic->tensor);
  }
  return snapshot;
}

::testing::AssertionResult MatchesExpected(const PromptProblem& problem, const PromptProblem::Expected& expected) {
  const PromptCase& c = problem.prompt_case();
  for (const double value : problem.UnusedOutputs()) {
    if (value != 0) return ::testing::AssertionFailure() << "a row that is not in use holds " << value;
  }
  const std::vector<double> got = problem.Outputs();
  if (got.size() != expected.out.size()) return ::testing::AssertionFailure() << "sizes of the test's own differ";
  const std::vector<double> statistics = problem.Statistics();
  if (statistics.size() != expected.statistics.size()) {
    return ::testing::AssertionFailure() << "numbers of statistics differ";
  }
  for (size_t x = 0; x < statistics.size(); ++x) {
    if (Agrees(statistics[x], expected.statistics[x], expected.statistics_tolerance[x])) continue;
    return ::testing::AssertionFailure() << "statistic " << x << " of " << statistics.size() << " is " << statistics[x]
                                         << ", want " << expected.statistics[x] << " +- "
                                         << expected.statistics_tolerance[x];
  }
  size_t unequal = 0;
  for (size_t x = 0; x < got.size(); ++x) {
    const double want = expected.out[x];
    if (!Agrees(got[x], want, expected.tolerance[x])) {
      return ::testing::AssertionFailure()
             << "out[" << x << "]=" << got[x] << ", want " << want << " +- " << expected.tolerance[x];
    }
    if (c.dtype == DType::kI8 && c.out_dtype == DType::kI8 && got[x] != want) ++unequal;
  }
  if (unequal > std::max<size_t>(got.size() / 1000, 1)) {
    return ::testing::AssertionFailure() << unequal << " of " << got.size() << " int8 outputs differ";
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult RunsLikeTheReference(const PromptProblem& problem, Context* context) {
  const Snapshot before = problem.TakeSnapshot();
  if (const Status status = problem.Run(context); !status.ok())
    return ::testing::AssertionFailure() << status.message();
  if (const int64_t byte = before.FirstChange(); byte >= 0) {
    return ::testing::AssertionFailure() << "wrote byte " << byte << " of a buffer, which is no output";
  }
  return MatchesExpected(problem, problem.MakeExpected());
}

::testing::AssertionResult RunsLikeTheReference(const PromptCase& c, Context* context) {
  return RunsLikeTheReference(PromptProblem(c), context);
}

}  // namespace fa::test
