#include "cases/shared_kv_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <span>

#include "cases/case_tensors.h"
#include "flags/failure.h"
#include "flags/flag_values.h"
#include "npy/npy_array.h"

namespace fa::tool {
namespace {

void CheckTensorOf(const std::string& text, const std::vector<int64_t>& sizes) {
  if (!npy::BytesOf(sizes, npy::ElementType::kF32)) {
    throw UsageError(fmt::format("--shape: {}, want sizes of at least 0 and tensors below 2^63 bytes", text));
  }
}

MutableTensorView Given(DType dtype, std::initializer_list<int64_t> shape) {
  static char present;  // planning only asks whether a tensor is given, so any address will do
  return {&present, dtype, Dims(std::span(shape.begin(), shape.size())), {}};
}

}  // namespace

void AddSharedKvCaseFlags(CLI::App& command, int64_t rows, SharedKvCaseFlags& flags) {
  flags.shape = fmt::format("1,64,{},8192,512,512", rows);
  command.add_option("--shape", flags.shape, fmt::format("B,N,S1,S2,D,K, default {}", flags.shape))
      ->type_name("B,N,S1,S2,D,K");
  command.add_option("--dtype", flags.dtype, "Default: bf16")->type_name("bf16|f16|f32");
  command.add_option("--cmp-ratio", flags.ratio, "Tokens per compressed key, default 4")->type_name("N");
  command.add_option("--window", flags.window, "Original keys per token, default 128")->type_name("N");
}

SharedKvCase::SharedKvCase(const SharedKvCaseFlags& flags)
    : ratio(flags.ratio),
      window(flags.window),
      dtype(ParseFloatType(flags.dtype)),
      shape(ParseIntegers("--shape", flags.shape)) {
  if (shape.size() != 6) throw UsageError(fmt::format("--shape: {} sizes, want B,N,S1,S2,D,K", shape.size()));
  if (ratio < 1) throw UsageError(fmt::format("--cmp-ratio: {}, want at least 1", ratio));
  if (window < 1) throw UsageError(fmt::format("--window: {}, want at least 1", window));
  batch = shape[0], heads = shape[1], s1 = shape[2], s2 = shape[3], d = shape[4], k = shape[5];
  if (heads < 1) throw UsageError(fmt::format("--shape: N={}, want at least 1", heads));
  CheckHeadSize("--shape", "D", d);
  CheckTensorOf(flags.shape, {batch, s1, heads, d});
  CheckTensorOf(flags.shape, {batch, s2, d});
  CheckTensorOf(flags.shape, {batch, s1, k});
}

int64_t SharedKvCase::Limit(int64_t token) const {
  return std::clamp<int64_t>(Position(token) / ratio, 0, compressed());
}

std::string SharedKvCase::MaskText() const { return fmt::format("window {}, 1 of {} tokens", window, ratio); }

SharedKvArgs SharedKvCase::ForwardArgs() const {
  SharedKvArgs args;
  args.q = args.out = Given(dtype, {batch, s1, heads, d});
  args.ori_kv = Given(dtype, {batch, s2, 1, d});
  args.cmp_kv = Given(dtype, {batch, compressed(), 1, d});
  if (k > 0) args.cmp_indices = Given(DType::kI32, {batch, s1, 1, k});
  args.lse = Given(DType::kF32, {batch, 1, s1, heads});
  return args;
}

SharedKvGradArgs SharedKvCase::BackwardArgs() const {
  const SharedKvArgs forward = ForwardArgs();
  SharedKvGradArgs args;
  args.q = forward.q;
  args.ori_kv = forward.ori_kv;
  args.cmp_kv = forward.cmp_kv;
  args.cmp_indices = forward.cmp_indices;
  args.out = args.d_out = forward.out;
  args.lse = forward.lse;
  args.dq = Given(dtype, {batch, s1, heads, d});
  args.d_ori_kv = Given(dtype, {batch, s2, 1, d});
  args.d_cmp_kv = Given(dtype, {batch, compressed(), 1, d});
  return args;
}

SharedKvData::SharedKvData(const SharedKvCase& shared)
    : case_(shared),
      q_(NewLike(shared.ForwardArgs().q)),
      ori_(NewLike(shared.ForwardArgs().ori_kv)),
      cmp_(NewLike(shared.ForwardArgs().cmp_kv)),
      lists_(NewTensor(DType::kI32, {shared.batch * shared.s1, shared.k})),
      out_(NewLike(shared.ForwardArgs().out)),
      lse_(NewLike(shared.ForwardArgs().lse)),
      all_keys_(NewTensor(shared.dtype, {shared.batch, shared.s2 + shared.compressed(), shared.d})) {
  uint64_t seed = 0;
  for (Tensor* tensor : {&q_, &ori_, &cmp_}) FillRandom(*tensor, ++seed);
  const size_t row_bytes = static_cast<size_t>(case_.d) * fa::SizeOf(case_.dtype);
  const size_t ori_bytes = static_cast<size_t>(case_.s2) * row_bytes;
  const size_t cmp_bytes = static_cast<size_t>(case_.compressed()) * row_bytes;
  for (size_t b = 0; b < static_cast<size_t>(case_.batch); ++b) {
    std::byte* to = all_keys_.array.bytes() + b * (ori_bytes + cmp_bytes);
    if (ori_bytes > 0) std::memcpy(to, ori_.array.bytes() + b * ori_bytes, ori_bytes);
    if (cmp_bytes > 0) std::memcpy(to + ori_bytes, cmp_.array.bytes() + b * cmp_bytes, cmp_bytes);
  }
  std::mt19937_64 random(6);
  int32_t* list = lists_.array.as<int32_t>().data();
  for (int64_t row = 0; row < case_.batch * case_.s1; ++row, list += case_.k) {
    std::vector<int32_t> below(static_cast<size_t>(case_.Limit(row % case_.s1)));
    std::iota(below.begin(), below.end(), 0);
    std::shuffle(below.begin(), below.end(), random);
    std::fill_n(list, case_.k, -1);
    std::copy_n(below.begin(), std::min(std::ssize(below), case_.k), list);
  }
}

double SharedKvData::scale() const { return 1 / std::sqrt(static_cast<double>(case_.d)); }

bool SharedKvData::Has(int64_t batch, int64_t token, int64_t key) const {
  const int64_t position = case_.Position(token);
  if (key < case_.s2) return key >= position - case_.window && key < position;
  const int64_t compressed = key - case_.s2;
  if (compressed >= case_.Limit(token)) return false;
  const int32_t* list = lists_.array.as<int32_t>().data() + (batch * case_.s1 + token) * case_.k;
  return case_.k == 0 || std::find(list, list + case_.k, compressed) != list + case_.k;
}

SharedKvArgs SharedKvData::ForwardArgs() {
  SharedKvArgs args = case_.ForwardArgs();
  args.q.data = q_.array.bytes();
  args.ori_kv.data = ori_.array.bytes();
  args.cmp_kv.data = cmp_.array.bytes();
  if (case_.k > 0) args.cmp_indices.data = lists_.array.bytes();
  args.out.data = out_.array.bytes();
  args.lse.data = lse_.array.bytes();
  return args;
}

SharedKvGradArgs SharedKvData::BackwardArgs(Context& context) {
  ThrowUnlessOkFromShape(SharedKvAttention(ForwardArgs(), case_.Options(), &context));
  SharedKvGradArgs args = case_.BackwardArgs();
  d_out_ = NewLike(args.d_out);
  FillRandom(d_out_, 7);
  dq_ = NewLike(args.dq);
  d_ori_ = NewLike(args.d_ori_kv);
  d_cmp_ = NewLike(args.d_cmp_kv);
  const SharedKvArgs forward = ForwardArgs();
  args.q = forward.q;
  args.ori_kv = forward.ori_kv;
  args.cmp_kv = forward.cmp_kv;
  args.cmp_indices = forward.cmp_indices;
  args.out = forward.out;
  args.lse = forward.lse;
  args.d_out.data = d_out_.array.bytes();
  args.dq.data = dq_.array.bytes();
  args.d_ori_kv.data = d_ori_.array.bytes();
  args.d_cmp_kv.data = d_cmp_.array.bytes();
  return args;
}

SharedKvGradArgs SharedKvData::NormArgs(Context& context) {
  const SharedKvArgs forward = ForwardArgs();
  ThrowUnlessOkFromShape(SharedKvAttention(forward, case_.Options(), &context));
  norm_ = NewTensor(DType::kF32, {case_.batch, case_.s1, 1, case_.k > 0 ? case_.k : case_.compressed()});
  residual_.assign(static_cast<size_t>(case_.batch), case_.s2 % case_.ratio);
  SharedKvGradArgs args;
  args.q = forward.q;
  args.cmp_kv = forward.cmp_kv;
  args.cmp_indices = forward.cmp_indices;
  args.lse = forward.lse;
  args.cmp_residual = residual_;
  args.cmp_l1_norm = norm_.MutableView();
  return args;
}

double SharedKvData::gathered_bytes(bool originals) const {
  double rows = 0;
  for (int64_t token = 0; token < case_.s1; ++token) {
    const int64_t limit = case_.Limit(token), position = case_.Position(token);
    rows += static_cast<double>((originals ? std::clamp<int64_t>(position, 0, case_.window) : 0) +
                                (case_.k > 0 ? std::min(case_.k, limit) : limit));
  }
  return rows * static_cast<double>(case_.batch * case_.d) * static_cast<double>(fa::SizeOf(case_.dtype));
}

int64_t SharedKvData::KeyOf(int64_t batch, int64_t token, int64_t entry) const {
  if (case_.k == 0) return entry < case_.Limit(token) ? entry : -1;
  return lists_.array.as<int32_t>()[static_cast<size_t>((batch * case_.s1 + token) * case_.k + entry)];
}

check::HeadRows SharedKvData::Head(const Tensor& tensor, int64_t batch, int64_t head, int64_t rows,
                                   int64_t heads) const {
  return RowsOf(tensor, Layout::kBSND, {.batch = case_.batch, .seq = rows, .heads = heads, .d = case_.d}, batch, head);
}

check::BackwardHead SharedKvData::BackwardHead(int64_t batch, int64_t head) const {
  const check::HeadRows out = Head(out_, batch, head, case_.s1, case_.heads);
  const check::HeadRows d_out = Head(d_out_, batch, head, case_.s1, case_.heads);
  const check::HeadRows k = Head(all_keys_, batch, 0, keys(), 1);
  const float* lse = lse_.array.as<float>().data();
  return {.q = Head(q_, batch, head, case_.s1, case_.heads),
          .k = k,
          .v = k,
          .d_out = d_out,
          .sq = case_.s1,
          .sk = keys(),
          .scale = scale(),
          .keeps = [this, batch](int64_t row, int64_t key) { return Has(batch, row, key); },
          .facts =
              [=, this](int64_t row) {
                const int64_t at = (batch * case_.s1 + row) * case_.heads + head;
                return check::FactsFromInputs(out, d_out, row, static_cast<double>(lse[at]), 1);
              }};
}

// Checks the first, the middle and the last token. The first token may see the fewest keys, and the last token the
// most.
void SharedKvData::CheckForward() const {
  if (out_.array.size() == 0) return;
  for (const int64_t i : {0, 1, 2}) {
    const int64_t batch = i * (case_.batch - 1) / 2, head = i * (case_.heads - 1) / 2, row = i * (case_.s1 - 1) / 2;
    const check::HeadRows k = Head(all_keys_, batch, 0, keys(), 1);
    const check::ForwardRow want =
        check::ComputeForwardRow({.q = Head(q_, batch, head, case_.s1, case_.heads),
                                  .k = k,
                                  .v = k,
                                  .row = row,
                                  .sk = keys(),
                                  .scale = scale(),
                                  .keeps = [&](int64_t key) { return Has(batch, row, key); }});
    CheckRow(Head(out_, batch, head, case_.s1, case_.heads), row,
             {.name = fmt::format("out[batch {}, row {}, head {}", batch, row, head),
              .value = want.out,
              .bound = want.bound});
  }
}

void SharedKvData::CheckNorm() const {
  if (norm_.array.size() == 0) return;
  constexpr double kUnit = 0x1p-24;
  const auto heads = static_cast<double>(case_.heads);
  const int64_t entries = norm_.array.shape()[3];
  for (const int64_t i : {0, 1, 2}) {
    const int64_t batch = i * (case_.batch - 1) / 2, row = i * (case_.s1 - 1) / 2;
    const check::HeadRows k = Head(cmp_, batch, 0, case_.compressed(), 1);
    std::vector<double> value(static_cast<size_t>(entries)), bound(value.size(), static_cast<double>(FLT_MIN));
    for (int64_t x = 0; x < entries * case_.heads; ++x) {
      const int64_t head = x / entries, key = KeyOf(batch, row, x % entries);
      if (key < 0) continue;
      const check::HeadRows q = Head(q_, batch, head, case_.s1, case_.heads);
      double sum = 0, size = 0;
      for (int64_t c = 0; c < case_.d; ++c) {
        const double term = scale() * check::At(q, row, c) * check::At(k, key, c);
        sum += term;
        size += std::fabs(term);
      }
      const int64_t lse_at = (batch * case_.s1 + row) * case_.heads + head;
      const double exponent = sum - static_cast<double>(lse_.array.as<float>()[static_cast<size_t>(lse_at)]);
      // A score adds d products, each rounding at most once. exp and its argument, the sum over the heads and the
      // quotient round too.
      const double error = (static_cast<double>(case_.d + 2) * size + 4 * std::fabs(exponent) + 4 + heads) * kUnit;
      const auto at = static_cast<size_t>(x % entries);
      value[at] += std::exp(exponent) / heads;
      bound[at] += std::exp(exponent) / heads * std::expm1(error) + static_cast<double>(FLT_MIN);
    }
    const check::HeadRows got{norm_.array.bytes(), DType::kF32, batch * case_.s1 * entries, entries, entries};
    CheckRow(got, row, {.name = fmt::format("l1_norm[batch {}, row {}", batch, row), .value = value, .bound = bound});
  }
}

void SharedKvData::CheckBackward() const {
  if (dq_.array.size() == 0 || keys() == 0) return;
  for (const int64_t i : {0, 1, 2}) {
    const int64_t batch = i * (case_.batch - 1) / 2, head = i * (case_.heads - 1) / 2, row = i * (case_.s1 - 1) / 2;
    const check::GradientRow dq = check::ComputeQueryGradient(BackwardHead(batch, head), row);
    CheckRow(
        Head(dq_, batch, head, case_.s1, case_.heads), row,
        {.name = fmt::format("dq[batch {}, row {}, head {}", batch, row, head), .value = dq.value, .bound = dq.bound});
    // Tests the last two original keys, which lie in windows, and the last compressed key.
    const int64_t key = i == 2 ? keys() - 1 : std::max<int64_t>(case_.s2 - 1 - i, 0);
    std::vector<check::BackwardHead> group;
    for (int64_t n = 0; n < case_.heads; ++n) group.push_back(BackwardHead(batch, n));
    check::KeyGradients want = check::ComputeKeyGradients(group, key);
    for (size_t c = 0; c < want.dk.value.size(); ++c) {
      want.dk.value[c] += want.dv.value[c];
      want.dk.bound[c] += want.dv.bound[c];
    }
    const bool first = key < case_.s2;
    CheckRow(Head(first ? d_ori_ : d_cmp_, batch, 0, first ? case_.s2 : case_.compressed(), 1),
             first ? key : key - case_.s2,
             {.name = fmt::format("{}[batch {}, key {}", first ? "d_ori_kv" : "d_cmp_kv", batch, key),
              .value = want.dk.value,
              .bound = want.dk.bound});
  }
}

}  // namespace fa::tool
