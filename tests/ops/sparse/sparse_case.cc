#include "ops/sparse/sparse_case.h"

#include <cmath>
#include <cstring>
#include <span>

#include "ops/sparse/sparse_expectation.h"
#include "reference/half.h"
#include "support/compressed_number.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

double ScaleOf(const SparseCase& c) {
  const auto usual = static_cast<float>(1 / std::sqrt(static_cast<double>(c.d + c.d_rope)));
  return static_cast<double>(c.scale.value_or(usual));
}

/// Returns an f32 tensor [N] for the sinks, filled with NaN. Without sinks, returns an absent tensor.
Tensor MakeHeadValues(const SparseCase& c) {
  return c.sink ? Tensor(DType::kF32, {c.heads}, {}, c.tokens.placement) : Tensor();
}

Tensor MakeSink(const SparseCase& c, const reference::SparseProblem& values) {
  Tensor sink = MakeHeadValues(c);
  for (int64_t n = 0; n < std::ssize(values.sink); ++n) sink.Set(n, values.sink[n]);
  return sink;
}

/// Appends the bytes of a number.
template <typename T>
void AppendBytes(T number, std::vector<std::byte>* to) {
  const auto bytes = std::as_bytes(std::span(&number, 1));
  to->insert(to->end(), bytes.begin(), bytes.end());
}

/// Returns a scale that brings drawn numbers to a size of about 1. If the case's rows are exact, it is a power of 2.
float DrawScale(const SparseCase& c, double uniform) {
  const double usual = *c.rows == DType::kI8 ? 1.0 / 64 : 0.5;
  if (c.exact_rows) return static_cast<float>(usual * std::exp2(std::floor(3 * uniform) - 1));
  return static_cast<float>(usual * (uniform < 0.5 ? 0.5 + uniform : -uniform));
}

/// Makes a tensor of rows, filled with the bytes of quantised rows if the case has them, and else with `values`.
RowTensor MakeKeyRows(const SparseCase& c, const TokenTensors& tensors, Tag tag, const std::vector<double>& values,
                      int64_t columns) {
  const SparseAttentionOptions options = OptionsOf(c);
  RowTensor made = c.rows ? tensors.MakeKeySide(*c.rows, 1, options.row_format.Bytes(c.tokens.dtype))
                          : tensors.MakeKeySide(c.tokens.dtype, 1, columns);
  tensors.FillKeys(c.rows ? DrawQuantizedKeys(c, tag).bytes : values, made);
  return made;
}

bool WantsHeadMean(const SparseCase& c) { return c.head_mean && c.tokens.block_size == 1; }

/// Runs a call on every level. Call is SparseCall or SparseGradCall.
template <typename Call>
AssertionResult MatchesOnEveryLevel(const Call& call, const std::vector<ExpectedOutput>& expected, int threads) {
  for (const Isa isa : IsaLevels()) {
    const Snapshot before = call.TakeSnapshot();
    before.Forget();
    const Status status = call.Run(ContextOf(isa, threads));
    AssertionResult matches =
        status.ok() ? MatchesExpected(call.Outputs(), expected) : AssertionFailure() << status.message();
    if (matches && before.FirstChange() >= 0) {
      matches = AssertionFailure() << "byte " << before.FirstChange() << " of a buffer was overwritten";
    }
    if (!matches) return matches << "\n " << IsaName(isa) << " " << call.sparse_case();
  }
  return AssertionSuccess();
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const SparseCase& c) {
  out << c.tokens << " heads " << c.heads << " of " << c.d << "+" << c.d_rope << "," << c.dv;
  if (c.merged) out << " merged";
  if (c.scale) out << " scale " << *c.scale;
  if (!c.check_indices) out << " unchecked";
  if (c.sink) out << " sink";
  if (c.rows) out << " rows of " << Name(*c.rows) << " rope " << c.rope_columns << " tile " << c.tile;
  if (c.exact_rows) out << " exact";
  return out;
}

SparseAttentionOptions OptionsOf(const SparseCase& c) {
  SparseAttentionOptions options;
  options.layout = c.tokens.layout;
  options.scale = c.scale;
  options.block_size = c.tokens.block_size;
  options.mask = c.tokens.mask();
  options.check_indices = c.check_indices;
  if (c.rows) options.row_format = {.columns = c.d - c.rope_columns, .rope = c.rope_columns, .tile = c.tile};
  return options;
}

QuantizedKeys DrawQuantizedKeys(const SparseCase& c, Tag tag) {
  const TokenCase& t = c.tokens;
  const int64_t columns = c.d - c.rope_columns;
  const double spread = *c.rows == DType::kI8 ? 40 : 1.5;
  QuantizedKeys drawn;
  for (int64_t b = 0; b < t.batch(); ++b) {
    for (int64_t key = 0; key < t.lengths.sk[b]; ++key) {
      const RandomLine line(t.seed, tag, {t.first_sequence + b, 0, key});
      std::vector<std::byte> bytes;
      std::vector<float> scales;
      for (int64_t x = 0; x < columns; x += c.tile) scales.push_back(DrawScale(c, line.Uniform(c.d + x)));
      for (int64_t x = 0; x < columns; ++x) {
        const uint8_t code = NearestCode(*c.rows, static_cast<float>(spread * line.Normal(x)));
        bytes.push_back(std::byte{code});
        drawn.numbers.push_back(CompressedNumber(*c.rows, code) * static_cast<double>(scales[x / c.tile]));
      }
      for (int64_t x = columns; x < c.d; ++x) {
        drawn.numbers.push_back(RoundTo(t.dtype, line.Normal(x)));
        if (t.dtype == DType::kF32) {
          AppendBytes(static_cast<float>(drawn.numbers.back()), &bytes);
        } else {
          AppendBytes(reference::Encode16(FormatOf(t.dtype), drawn.numbers.back()), &bytes);
        }
      }
      for (const float scale : scales) AppendBytes(scale, &bytes);
      for (const std::byte byte : bytes) {
        const auto unsigned_byte = static_cast<uint8_t>(byte);
        drawn.bytes.push_back(*c.rows == DType::kI8 ? static_cast<int8_t>(unsigned_byte) : unsigned_byte);
      }
    }
  }
  return drawn;
}

reference::SparseProblem MakeReferenceProblem(const SparseCase& c) {
  const TokenCase& t = c.tokens;
  reference::SparseProblem p{.heads = c.heads, .d = c.d, .d_rope = c.d_rope, .dv = c.dv};
  p.selection = MakeSelection(t);
  p.scale = ScaleOf(c);
  p.merged = c.merged;
  p.q = DrawRows(t, t.lengths.sq, c.heads, c.d, Tag::kQ, t.dtype);
  p.k = DrawRows(t, t.lengths.sk, 1, c.d, Tag::kK, t.dtype);
  if (!c.merged) p.v = DrawRows(t, t.lengths.sk, 1, c.dv, Tag::kV, t.dtype);
  p.q_rope = DrawRows(t, t.lengths.sq, c.heads, c.d_rope, Tag::kQRope, t.dtype);
  p.k_rope = DrawRows(t, t.lengths.sk, 1, c.d_rope, Tag::kKRope, t.dtype);
  for (int64_t n = 0; c.sink && n < c.heads; ++n) {
    // A sink weighs about as much as a few keys.
    p.sink.push_back(RoundTo(DType::kF32, 1 + RandomNormal(t.seed, Tag::kSink, {n})));
  }
  if (!c.rows) return p;
  p.k = DrawQuantizedKeys(c, Tag::kK).numbers;
  if (c.merged) return p;
  const std::vector<double> v = DrawQuantizedKeys(c, Tag::kV).numbers;
  p.v.clear();
  for (size_t row = 0; row < v.size(); row += c.d) p.v.insert(p.v.end(), v.begin() + row, v.begin() + row + c.dv);
  return p;
}

SparseCall::SparseCall(const SparseCase& c, reference::SparseProblem values)
    : case_(c), values_(std::move(values)), tensors_(c.tokens) {
  const DType dtype = c.tokens.dtype;
  q_ = tensors_.MakeQuerySide(dtype, c.heads, c.d);
  tensors_.FillQueries(values_.q, q_);
  k_ = MakeKeyRows(c, tensors_, Tag::kK, values_.k, c.d);
  if (!c.merged) v_ = MakeKeyRows(c, tensors_, Tag::kV, values_.v, c.dv);
  if (c.d_rope > 0) {
    q_rope_ = tensors_.MakeQuerySide(dtype, c.heads, c.d_rope);
    tensors_.FillQueries(values_.q_rope, q_rope_);
    k_rope_ = tensors_.MakeKeySide(dtype, 1, c.d_rope);
    tensors_.FillKeys(values_.k_rope, k_rope_);
  }
  lists_ = tensors_.MakeLists(values_.selection.indices);
  out_ = tensors_.MakeQuerySide(dtype, c.heads, c.dv);
  if (c.statistics) {
    max_ = tensors_.MakeStatistic(1, c.heads);
    sum_ = tensors_.MakeStatistic(1, c.heads);
  }
  sink_ = MakeSink(c, values_);
  if (WantsHeadMean(c)) head_mean_ = tensors_.MakeFlatQuerySide(DType::kF32, c.tokens.slots);
}

SparseAttentionArgs SparseCall::args() const {
  SparseAttentionArgs args;
  args.q = q_.tensor.view();
  args.k = k_.tensor.view();
  args.v = v_.tensor.view();
  args.q_rope = q_rope_.tensor.view();
  args.k_rope = k_rope_.tensor.view();
  args.sparse_indices = lists_.tensor.view();
  args.sink = sink_.view();
  args.block_table = tensors_.block_table().view();
  args.lengths_q = tensors_.lengths_q();
  args.lengths_kv = tensors_.lengths_kv();
  args.out = out_.tensor.mutable_view();
  args.softmax_max = max_.tensor.mutable_view();
  args.softmax_sum = sum_.tensor.mutable_view();
  args.p_head_mean = head_mean_.tensor.mutable_view();
  return args;
}

TokenOutputs SparseCall::Outputs() const {
  TokenOutputs outputs = {{"out", tensors_.Queries(out_)}};
  if (case_.statistics) {
    outputs.push_back({"max", tensors_.Queries(max_)});
    outputs.push_back({"sum", tensors_.Queries(sum_)});
  }
  if (WantsHeadMean(case_)) outputs.push_back({"p_head_mean", tensors_.Queries(head_mean_)});
  return outputs;
}

Snapshot SparseCall::TakeSnapshot(bool outputs_may_change) const {
  Snapshot snapshot;
  for (const RowTensor* input : {&q_, &k_, &v_, &q_rope_, &k_rope_, &lists_}) snapshot.Add(input->tensor);
  snapshot.Add(tensors_.block_table());
  snapshot.Add(sink_);
  for (const RowTensor* output : {&out_, &max_, &sum_, &head_mean_}) {
    snapshot.Add(output->tensor);
    if (outputs_may_change) snapshot.Allow(output->tensor);
  }
  return snapshot;
}

SparseGradCall::SparseGradCall(const SparseCase& c, reference::SparseProblem values)
    : case_(c), values_(std::move(values)), forward_(reference::SparseForward(values_)), tensors_(c.tokens) {
  const DType dtype = c.tokens.dtype;
  for (double& value : forward_.out) value = RoundTo(dtype, value);
  for (size_t row = 0; c.lse && row < forward_.sum.size(); ++row) {
    if (forward_.sum[row] == 0) continue;
    forward_.max[row] += std::log(forward_.sum[row]);
    forward_.sum[row] = 1;
  }
  for (auto* statistic : {&forward_.max, &forward_.sum}) {
    for (double& value : *statistic) value = RoundTo(DType::kF32, value);
  }
  d_out_values_ = DrawRows(c.tokens, c.tokens.lengths.sq, c.heads, c.dv, Tag::kDOut, dtype);
  q_ = tensors_.MakeQuerySide(dtype, c.heads, c.d);
  dq_ = tensors_.MakeQuerySide(dtype, c.heads, c.d);
  tensors_.FillQueries(values_.q, q_);
  k_ = tensors_.MakeKeySide(dtype, 1, c.d);
  dk_ = tensors_.MakeKeySide(dtype, 1, c.d);
  tensors_.FillKeys(values_.k, k_);
  if (!c.merged) {
    v_ = tensors_.MakeKeySide(dtype, 1, c.dv);
    dv_ = tensors_.MakeKeySide(dtype, 1, c.dv);
    tensors_.FillKeys(values_.v, v_);
  }
  if (c.d_rope > 0) {
    q_rope_ = tensors_.MakeQuerySide(dtype, c.heads, c.d_rope);
    dq_rope_ = tensors_.MakeQuerySide(dtype, c.heads, c.d_rope);
    tensors_.FillQueries(values_.q_rope, q_rope_);
    k_rope_ = tensors_.MakeKeySide(dtype, 1, c.d_rope);
    dk_rope_ = tensors_.MakeKeySide(dtype, 1, c.d_rope);
    tensors_.FillKeys(values_.k_rope, k_rope_);
  }
  lists_ = tensors_.MakeLists(values_.selection.indices);
  out_ = tensors_.MakeQuerySide(dtype, c.heads, c.dv);
  tensors_.FillQueries(forward_.out, out_);
  d_out_ = tensors_.MakeQuerySide(dtype, c.heads, c.dv);
  tensors_.FillQueries(d_out_values_, d_out_);
  max_ = tensors_.MakeStatistic(1, c.heads);
  tensors_.FillQueries(forward_.max, max_);
  sum_ = tensors_.MakeStatistic(1, c.heads);
  tensors_.FillQueries(forward_.sum, sum_);
  sink_ = MakeSink(c, values_);
  dsink_ = MakeHeadValues(c);
}

SparseAttentionGradArgs SparseGradCall::args() const {
  SparseAttentionGradArgs args;
  args.q = q_.tensor.view();
  args.k = k_.tensor.view();
  args.v = v_.tensor.view();
  args.q_rope = q_rope_.tensor.view();
  args.k_rope = k_rope_.tensor.view();
  args.sparse_indices = lists_.tensor.view();
  args.lengths_q = tensors_.lengths_q();
  args.lengths_kv = tensors_.lengths_kv();
  args.out = out_.tensor.view();
  args.d_out = d_out_.tensor.view();
  args.softmax_max = max_.tensor.view();
  args.softmax_sum = sum_.tensor.view();
  args.sink = sink_.view();
  args.dsink = dsink_.mutable_view();
  args.dq = dq_.tensor.mutable_view();
  args.dk = dk_.tensor.mutable_view();
  args.dv = dv_.tensor.mutable_view();
  args.dq_rope = dq_rope_.tensor.mutable_view();
  args.dk_rope = dk_rope_.tensor.mutable_view();
  return args;
}

TokenOutputs SparseGradCall::Outputs() const {
  TokenOutputs outputs = {{"dq", tensors_.Queries(dq_)}, {"dk", tensors_.Keys(dk_)}};
  if (!case_.merged) outputs.push_back({"dv", tensors_.Keys(dv_)});
  if (case_.d_rope > 0) {
    outputs.push_back({"dq_rope", tensors_.Queries(dq_rope_)});
    outputs.push_back({"dk_rope", tensors_.Keys(dk_rope_)});
  }
  if (case_.sink) {
    RowValues dsink;
    for (int64_t n = 0; n < case_.heads; ++n) dsink.values.push_back(dsink_.Get(n));
    outputs.push_back({"dsink", std::move(dsink)});
  }
  return outputs;
}

Snapshot SparseGradCall::TakeSnapshot(bool outputs_may_change) const {
  Snapshot snapshot;
  for (const RowTensor* input : {&q_, &k_, &v_, &q_rope_, &k_rope_, &lists_, &out_, &d_out_, &max_, &sum_}) {
    snapshot.Add(input->tensor);
  }
  snapshot.Add(sink_);
  snapshot.Add(dsink_);
  if (outputs_may_change) snapshot.Allow(dsink_);
  for (const RowTensor* output : {&dq_, &dk_, &dv_, &dq_rope_, &dk_rope_}) {
    snapshot.Add(output->tensor);
    if (outputs_may_change) snapshot.Allow(output->tensor);
  }
  return snapshot;
}

AssertionResult ForwardIsTheReference(const SparseCall& call, int threads) {
  return MatchesOnEveryLevel(call, ExpectForward(call), threads);
}

AssertionResult ForwardIsTheReference(const SparseCase& c, int threads) {
  return ForwardIsTheReference(SparseCall(c), threads);
}

AssertionResult BackwardIsTheReference(const SparseGradCall& call, int threads) {
  return MatchesOnEveryLevel(call, ExpectBackward(call), threads);
}

AssertionResult BackwardIsTheReference(const SparseCase& c, int threads) {
  return BackwardIsTheReference(SparseGradCall(c), threads);
}

TokenOutputs ForwardOf(const SparseCase& c, Context* context) {
  const SparseCall call(c);
  const Status status = call.Run(context);
  EXPECT_TRUE(status.ok()) << status.message() << "\n " << c;
  return call.Outputs();
}

TokenOutputs BackwardOf(const SparseCase& c, Context* context) {
  const SparseGradCall call(c);
  const Status status = call.Run(context);
  EXPECT_TRUE(status.ok()) << status.message() << "\n " << c;
  return call.Outputs();
}

}  // namespace fa::test
