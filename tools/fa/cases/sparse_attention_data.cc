#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "cases/case_tensors.h"
#include "cases/sparse_data.h"
#include "check/element.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

/// Returns a tensor of joined rows: each row of `a`, followed by the same row of `b`.
Tensor Beside(const Tensor& a, const Tensor& b, int64_t a_columns, int64_t b_columns) {
  const size_t element = fa::SizeOf(a.dtype);
  const int64_t rows = a_columns == 0 ? 0 : a.array.size() / a_columns;
  Tensor both = NewTensor(a.dtype, {rows, a_columns + b_columns});
  const size_t a_bytes = static_cast<size_t>(a_columns) * element, b_bytes = static_cast<size_t>(b_columns) * element;
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    std::byte* to = both.array.bytes() + row * (a_bytes + b_bytes);
    std::memcpy(to, a.array.bytes() + row * a_bytes, a_bytes);
    if (b_bytes > 0) std::memcpy(to + a_bytes, b.array.bytes() + row * b_bytes, b_bytes);
  }
  return both;
}

/// Returns the address at which the call reads keys. This is the data of `pages` if keys lie in pages, and otherwise of
/// `keys`.
const std::byte* DataOf(const Tensor& keys, const Tensor& pages, const SparseCase& sparse) {
  return (sparse.paged() ? pages : keys).array.bytes();
}

Tensor NewIf(bool wanted, const TensorView& view) { return wanted ? NewLike(view) : Tensor{}; }

check::GradientRow Columns(const check::GradientRow& row, int64_t begin, int64_t end) {
  return {{row.value.begin() + begin, row.value.begin() + end}, {row.bound.begin() + begin, row.bound.begin() + end}};
}

}  // namespace

Tensor RandomLists(const SparseCase& sparse) {
  Tensor lists = NewTensor(DType::kI32, {sparse.batch * sparse.s1, sparse.k});
  std::mt19937_64 random(6);
  std::vector<int32_t> keys(static_cast<size_t>(sparse.s2));
  std::iota(keys.begin(), keys.end(), 0);
  int32_t* list = lists.array.as<int32_t>().data();
  for (int64_t token = 0; token < sparse.batch * sparse.s1; ++token, list += sparse.k) {
    const int64_t limit = sparse.Limit(token % sparse.s1);
    // The keys below the limit are shuffled among themselves, so the first `limit` entries of `keys` are always these
    // keys. At the start of each sequence, `keys` is put in order again.
    if (token % sparse.s1 == 0) std::iota(keys.begin(), keys.end(), 0);
    for (int64_t i = 0; i < sparse.k; ++i) {
      if (i >= limit) {
        list[i] = -1;
        continue;
      }
      const auto other = static_cast<size_t>(i + static_cast<int64_t>(random() % static_cast<uint64_t>(limit - i)));
      std::swap(keys[static_cast<size_t>(i)], keys[other]);
      list[i] = keys[static_cast<size_t>(i)];
    }
  }
  return lists;
}

Tensor InPages(const SparseCase& sparse, const Tensor& keys, int64_t columns, const Tensor& table) {
  Tensor pages = NewTensor(keys.dtype, {sparse.batch * sparse.pages_of_one(), sparse.block_size, columns});
  std::memset(pages.array.bytes(), 0, pages.array.size_bytes());
  const int32_t* page = table.array.as<int32_t>().data();
  const size_t row_bytes = static_cast<size_t>(columns) * fa::SizeOf(keys.dtype);
  const std::byte* from = keys.array.bytes();
  for (int64_t b = 0; b < sparse.batch; ++b, page += sparse.pages_of_one()) {
    for (int64_t j = 0; j < sparse.s2; ++j, from += row_bytes) {
      const int64_t row = page[j / sparse.block_size] * sparse.block_size + j % sparse.block_size;
      std::memcpy(pages.array.bytes() + static_cast<size_t>(row) * row_bytes, from, row_bytes);
    }
  }
  return pages;
}

SparseAttentionData::SparseAttentionData(const SparseCase& sparse)
    : case_(sparse),
      lists_(RandomLists(sparse)),
      selected_(static_cast<size_t>(sparse.batch * sparse.s1 * sparse.s2)),
      q_(NewLike(sparse.Queries(sparse.d))),
      k_(NewLike(sparse.Keys(sparse.d))),
      v_(NewIf(sparse.separate_value, sparse.Keys(sparse.d))),
      q_rope_(NewIf(sparse.d_rope > 0, sparse.Queries(sparse.d_rope))),
      k_rope_(NewIf(sparse.d_rope > 0, sparse.Keys(sparse.d_rope))),
      out_(NewLike(sparse.ForwardArgs().out)),
      max_(NewLike(sparse.ForwardArgs().softmax_max)),
      sum_(NewLike(sparse.ForwardArgs().softmax_sum)) {
  uint64_t seed = 0;
  for (Tensor* tensor : {&q_, &k_, &v_, &q_rope_, &k_rope_}) FillRandom(*tensor, ++seed);
  if (case_.rows) MakeQuantizedRows();
  whole_q_ = Beside(q_, q_rope_, case_.d, case_.d_rope);
  whole_k_ = Beside(k_, k_rope_, case_.d, case_.d_rope);
  if (case_.paged()) {
    table_ = RandomPages(case_.ForwardArgs().block_table);
    k_pages_ = case_.rows ? InPages(case_, rows_, case_.RowFormat().Bytes(case_.dtype), table_)
                          : InPages(case_, k_, case_.d, table_);
    if (case_.separate_value) v_pages_ = InPages(case_, v_, case_.d, table_);
    if (case_.d_rope > 0) k_rope_pages_ = InPages(case_, k_rope_, case_.d_rope, table_);
  }
  for (int64_t token = 0; token < case_.batch * case_.s1; ++token) {
    for (const int64_t key : KeysOf(token)) selected_[static_cast<size_t>(token * case_.s2 + key)] = true;
  }
}

void FillQuantized(DType type, float scale, uint64_t seed, Tensor& numbers, Tensor& codes) {
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < numbers.array.size(); ++i) {
    const uint64_t bits = random();
    auto code = static_cast<uint8_t>(bits % 256);
    double number = static_cast<int8_t>(code);
    if (type == DType::kF8E4M3) {  // numbers of magnitude 1/8 to 2, without subnormal ones and NaN
      code = static_cast<uint8_t>((code & 0x80) | (4 + (code >> 3) % 4) << 3 | (code & 7));
      number = std::ldexp(1 + (code & 7) / 8.0, ((code & 0x7f) >> 3) - 7) * (code >= 128 ? -1 : 1);
    }
    codes.array.bytes()[i] = std::byte{code};
    check::StoreElement(numbers.array.bytes(), numbers.dtype, i, static_cast<float>(number) * scale);
  }
}

// Fills rows_ with the rows of quantised keys: codes, rope columns and scales. Fills k_ with the numbers that the codes
// stand for. All scales are the same power of 2, so every type holds these numbers exactly.
void SparseAttentionData::MakeQuantizedRows() {
  const KeyRowFormat format = case_.RowFormat();
  const int64_t bytes = format.Bytes(case_.dtype), count = case_.batch * case_.s2;
  const float scale = *case_.rows == DType::kI8 ? 1.0F / 64 : 0.5F;
  Tensor codes = NewTensor(*case_.rows, {count, case_.d});
  FillQuantized(*case_.rows, scale, 8, k_, codes);
  rows_ = NewTensor(*case_.rows, {count, bytes});
  const auto d = static_cast<size_t>(case_.d);
  const size_t rope_bytes = static_cast<size_t>(case_.d_rope) * fa::SizeOf(case_.dtype);
  for (size_t row = 0; row < static_cast<size_t>(count); ++row) {
    std::byte* to = rows_.array.bytes() + row * static_cast<size_t>(bytes);
    std::memcpy(to, codes.array.bytes() + row * d, d);
    if (rope_bytes > 0) std::memcpy(to + d, k_rope_.array.bytes() + row * rope_bytes, rope_bytes);
    for (size_t at = d + rope_bytes; at < static_cast<size_t>(bytes); at += sizeof scale) {
      std::memcpy(to + at, &scale, sizeof scale);
    }
  }
}

std::vector<int64_t> SparseAttentionData::KeysOf(int64_t token) const {
  const int32_t* list = lists_.array.as<int32_t>().data() + token * case_.k;
  return {list, std::find(list, list + case_.k, -1)};
}

double SparseAttentionData::scale() const { return 1 / std::sqrt(static_cast<double>(case_.d + case_.d_rope)); }

SparseAttentionArgs SparseAttentionData::ForwardArgs() {
  SparseAttentionArgs args = case_.ForwardArgs();
  args.q.data = (case_.rows ? whole_q_ : q_).array.bytes();
  args.k.data = DataOf(case_.rows ? rows_ : k_, k_pages_, case_);
  if (case_.separate_value) args.v.data = DataOf(v_, v_pages_, case_);
  if (case_.d_rope > 0 && !case_.rows) {
    args.q_rope.data = q_rope_.array.bytes();
    args.k_rope.data = DataOf(k_rope_, k_rope_pages_, case_);
  }
  if (case_.paged()) args.block_table.data = table_.array.bytes();
  args.sparse_indices.data = lists_.array.bytes();
  args.out.data = out_.array.bytes();
  args.softmax_max.data = max_.array.bytes();
  args.softmax_sum.data = sum_.array.bytes();
  return args;
}

void SparseAttentionData::RunForward(Context& context) {
  ThrowUnlessOkFromShape(SparseFlashAttention(ForwardArgs(), case_.AttentionOptions(), &context));
}

SparseAttentionGradArgs SparseAttentionData::BackwardArgs(Context& context) {
  RunForward(context);
  SparseAttentionGradArgs args = case_.BackwardArgs();
  d_out_ = NewLike(args.d_out);
  FillRandom(d_out_, 7);
  dq_ = NewLike(args.dq);
  dk_ = NewLike(args.dk);
  dv_ = NewIf(case_.separate_value, args.dv);
  dq_rope_ = NewIf(case_.d_rope > 0, args.dq_rope);
  dk_rope_ = NewIf(case_.d_rope > 0, args.dk_rope);
  const SparseAttentionArgs forward = ForwardArgs();
  args.q = forward.q;
  args.k = forward.k;
  args.v = forward.v;
  args.q_rope = forward.q_rope;
  args.k_rope = forward.k_rope;
  args.sparse_indices = forward.sparse_indices;
  args.out = forward.out;
  args.softmax_max = forward.softmax_max;
  args.softmax_sum = forward.softmax_sum;
  args.d_out.data = d_out_.array.bytes();
  args.dq.data = dq_.array.bytes();
  args.dk.data = dk_.array.bytes();
  if (case_.separate_value) args.dv.data = dv_.array.bytes();
  if (case_.d_rope > 0) {
    args.dq_rope.data = dq_rope_.array.bytes();
    args.dk_rope.data = dk_rope_.array.bytes();
  }
  return args;
}

void SparseAttentionData::SetLossArgs(Context& context, SparseIndexerLossArgs& args) {
  RunForward(context);
  const SparseAttentionArgs forward = ForwardArgs();
  args.q = forward.q;
  args.k = forward.k;
  args.q_rope = forward.q_rope;
  args.k_rope = forward.k_rope;
  args.sparse_indices = forward.sparse_indices;
  args.softmax_max = forward.softmax_max;
  args.softmax_sum = forward.softmax_sum;
}

double SparseAttentionData::gathered_bytes() const {
  const auto pairs = static_cast<double>(std::count(selected_.begin(), selected_.end(), true));
  if (case_.rows) return pairs * static_cast<double>(case_.RowFormat().Bytes(case_.dtype));
  const int64_t columns = case_.d + case_.d_rope + (case_.separate_value ? case_.d : 0);
  return pairs * static_cast<double>(columns) * static_cast<double>(fa::SizeOf(case_.dtype));
}

check::HeadRows SparseAttentionData::Head(const Tensor& tensor, int64_t batch, int64_t head, int64_t rows,
                                          int64_t heads, int64_t columns) const {
  return RowsOf(tensor, Layout::kBSND, {.batch = case_.batch, .seq = rows, .heads = heads, .d = columns}, batch, head);
}

void SparseAttentionData::CheckOutRow(int64_t batch, int64_t head, int64_t row) const {
  const int64_t whole = case_.d + case_.d_rope;
  const check::HeadRows k = Head(whole_k_, batch, 0, case_.s2, 1, whole);
  check::HeadRows v = k;
  v.columns = case_.d;
  if (case_.separate_value) v = Head(v_, batch, 0, case_.s2, 1, case_.d);
  const check::ForwardRow want =
      check::ComputeForwardRow({.q = Head(whole_q_, batch, head, case_.s1, case_.heads, whole),
                                .k = k,
                                .v = v,
                                .row = row,
                                .sk = case_.s2,
                                .scale = scale(),
                                .keeps = [&](int64_t key) { return Selects(batch * case_.s1 + row, key); }});
  CheckRow(
      Head(out_, batch, head, case_.s1, case_.heads, case_.d), row,
      {.name = fmt::format("out[batch {}, row {}, head {}", batch, row, head), .value = want.out, .bound = want.bound});
}

check::BackwardHead SparseAttentionData::BackwardHead(int64_t batch, int64_t head) const {
  const int64_t whole = case_.d + case_.d_rope;
  const check::HeadRows out = Head(out_, batch, head, case_.s1, case_.heads, case_.d);
  const check::HeadRows d_out = Head(d_out_, batch, head, case_.s1, case_.heads, case_.d);
  const check::HeadRows k = Head(whole_k_, batch, 0, case_.s2, 1, whole);
  check::HeadRows v = k;
  v.columns = case_.d;
  if (case_.separate_value) v = Head(v_, batch, 0, case_.s2, 1, case_.d);
  const float *max = max_.array.as<float>().data(), *sum = sum_.array.as<float>().data();
  return {.q = Head(whole_q_, batch, head, case_.s1, case_.heads, whole),
          .k = k,
          .v = v,
          .d_out = d_out,
          .sq = case_.s1,
          .sk = case_.s2,
          .scale = scale(),
          .keeps = [this, batch](int64_t row, int64_t key) { return Selects(batch * case_.s1 + row, key); },
          .facts =
              [=, this](int64_t row) {
                const int64_t at = (batch * case_.s1 + row) * case_.heads + head;
                return check::FactsFromInputs(out, d_out, row, static_cast<double>(max[at]),
                                              static_cast<double>(sum[at]));
              }};
}

void SparseAttentionData::CheckQueryRow(int64_t batch, int64_t head, int64_t row) const {
  const check::GradientRow dq = check::ComputeQueryGradient(BackwardHead(batch, head), row);
  const std::string place = fmt::format("[batch {}, row {}, head {}", batch, row, head);
  const check::GradientRow main = Columns(dq, 0, case_.d), rope = Columns(dq, case_.d, case_.d + case_.d_rope);
  CheckRow(Head(dq_, batch, head, case_.s1, case_.heads, case_.d), row,
           {.name = "dq" + place, .value = main.value, .bound = main.bound});
  if (case_.d_rope == 0) return;
  CheckRow(Head(dq_rope_, batch, head, case_.s1, case_.heads, case_.d_rope), row,
           {.name = "dq_rope" + place, .value = rope.value, .bound = rope.bound});
}

void SparseAttentionData::CheckKeyRow(int64_t batch, int64_t key) const {
  std::vector<check::BackwardHead> group;
  for (int64_t head = 0; head < case_.heads; ++head) group.push_back(BackwardHead(batch, head));
  const check::KeyGradients want = check::ComputeKeyGradients(group, key);
  const std::string place = fmt::format("[batch {}, key {}", batch, key);
  check::GradientRow main = Columns(want.dk, 0, case_.d);
  const check::GradientRow rope = Columns(want.dk, case_.d, case_.d + case_.d_rope);
  if (case_.separate_value) {
    CheckRow(Head(dv_, batch, 0, case_.s2, 1, case_.d), key,
             {.name = "dv" + place, .value = want.dv.value, .bound = want.dv.bound});
  } else {
    for (size_t c = 0; c < main.value.size(); ++c) {
      main.value[c] += want.dv.value[c];
      main.bound[c] += want.dv.bound[c];
    }
  }
  CheckRow(Head(dk_, batch, 0, case_.s2, 1, case_.d), key,
           {.name = "dk" + place, .value = main.value, .bound = main.bound});
  if (case_.d_rope == 0) return;
  CheckRow(Head(dk_rope_, batch, 0, case_.s2, 1, case_.d_rope), key,
           {.name = "dk_rope" + place, .value = rope.value, .bound = rope.bound});
}

// Checks the first, the middle and the last token. The first token may see the fewest keys, and the last token the
// most.
void SparseAttentionData::CheckForward() const {
  if (out_.array.size() == 0) return;
  for (const int64_t i : {0, 1, 2}) {
    CheckOutRow(i * (case_.batch - 1) / 2, i * (case_.heads - 1) / 2, i * (case_.s1 - 1) / 2);
  }
}

void SparseAttentionData::CheckBackward() const {
  if (dq_.array.size() == 0 || dk_.array.size() == 0) return;
  for (const int64_t i : {0, 1, 2}) {
    CheckQueryRow(i * (case_.batch - 1) / 2, i * (case_.heads - 1) / 2, i * (case_.s1 - 1) / 2);
    CheckKeyRow(i * (case_.batch - 1) / 2, i * (case_.s2 - 1) / 2);
  }
}

check::TargetToken SparseAttentionData::Target(int64_t token) const {
  const int64_t whole = case_.d + case_.d_rope;
  const auto heads = static_cast<size_t>(case_.heads), first = static_cast<size_t>(token * case_.heads);
  return {.q = {.data = whole_q_.array.bytes(),
                .dtype = whole_q_.dtype,
                .offset = token * case_.heads * whole,
                .row_stride = whole,
                .columns = whole},
          .k = Head(whole_k_, token / case_.s1, 0, case_.s2, 1, whole),
          .max = max_.array.as<float>().subspan(first, heads),
          .sum = sum_.array.as<float>().subspan(first, heads),
          .scale = scale()};
}

}  // namespace fa::tool
