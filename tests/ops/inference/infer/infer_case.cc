#include "ops/inference/infer/infer_case.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "support/cases/random_values.h"

namespace fa::test {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// The letters before and after the underscore of a layout's name.
std::string LettersOfInputs(Layout layout) {
  const std::string name = Name(layout);
  return name.substr(0, name.find('_'));
}
std::string LettersOfOutput(Layout layout) {
  const std::string name = Name(layout);
  return name.substr(name.find('_') + 1);
}

std::string LettersOfPages(Cache cache) {
  switch (cache) {
    case Cache::kPagesOfRows: return "PSH";
    case Cache::kPagesOfHeads: return "PNSD";
    case Cache::kPagesOfRowsOfHeads: return "PSND";
    default: return "PNCSD";
  }
}

int64_t Before(const std::vector<int64_t>& lengths, int64_t b) {
  return std::accumulate(lengths.begin(), lengths.begin() + b, int64_t{0});
}
int64_t Longest(const std::vector<int64_t>& lengths) {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

/// Lets all batch elements have the keys of element 0 as prefix.
void SharePrefix(const InferCase& c, reference::Problem& values) {
  const ForwardCase& d = c.dense;
  for (int64_t b = 1; b < d.batch(); ++b) {
    for (int64_t n = 0; n < d.heads_kv; ++n) {
      const auto copy = [&](std::vector<double>& of, int64_t columns) {
        std::copy_n(of.begin() + values.KeyRow(0, n, 0, columns), c.prefix_rows * columns,
                    of.begin() + values.KeyRow(b, n, 0, columns));
      };
      copy(values.k, d.d);
      copy(values.v, d.dv);
    }
  }
}

/// Keeps every pair whose key comes before the last Sq keys.
void KeepTrunk(const InferCase& c, reference::Problem& values) {
  const ForwardCase& d = c.dense;
  for (int64_t b = 0; b < d.batch(); ++b) {
    for (int64_t i = 0; i < d.lengths.sq[b]; ++i) {
      for (int64_t j = 0; j < d.lengths.sk[b] - d.lengths.sq[b]; ++j) {
        values.dense_mask.values[values.dense_mask.Index(b, 0, i, j)] = 0;
      }
    }
  }
}

}  // namespace

const char* Name(Cache cache) {
  constexpr const char* kNames[] = {"one tensor", "list", "PSH", "PNSD", "PSND", "NZ"};
  return kNames[static_cast<int>(cache)];
}

bool InferCase::packed() const { return LettersOfInputs(layout).find('T') != std::string::npos; }

InferCase MakeInferCase(int64_t heads, int64_t heads_kv, std::vector<int64_t> sq, std::vector<int64_t> sk,
                        DType dtype) {
  InferCase c;
  c.dense.dtype = dtype;
  c.dense.heads = heads;
  c.dense.heads_kv = heads_kv;
  c.dense.d = c.dense.dv = 32;
  c.dense.lengths = {std::move(sq), std::move(sk)};
  return c;
}

std::ostream& operator<<(std::ostream& out, const InferCase& c) {
  return out << Name(c.layout) << " " << Name(c.cache) << " page_rows " << c.page_rows << " order " << c.page_order
             << " spare " << c.spare_q << "," << c.spare_k << " padding " << c.padding_q << "," << c.padding_kv
             << " prefix " << c.prefix_rows << "+" << c.spare_prefix << (c.tree ? " tree" : "")
             << (c.full_mask ? " triangle" : "") << " sink " << Name(c.sink_dtype) << " lse " << c.lse_without_keys
             << " " << c.dense;
}

LetteredTensor::LetteredTensor(DType dtype, const std::string& letters, Sizes sizes, int64_t gap, Placement placement) {
  piece_columns_ = letters.find('C') == std::string::npos ? sizes.columns : 32 / static_cast<int64_t>(SizeOf(dtype));
  std::vector<int64_t> shape;
  for (const char letter : letters) {
    shape.push_back(letter == 'B' || letter == 'P'   ? sizes.batch
                    : letter == 'S' || letter == 'T' ? sizes.rows
                    : letter == 'N'                  ? sizes.heads
                    : letter == 'C'                  ? sizes.columns / piece_columns_
                    : letter == 'H'                  ? sizes.heads * sizes.columns
                                                     : piece_columns_);
  }
  std::vector<int64_t> stride(shape.size(), 1);
  for (size_t i = shape.size() - 1; i > 0; --i) stride[i - 1] = stride[i] * std::max<int64_t>(shape[i], 1) + gap;
  head_ = sizes.columns;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (letters[i] == 'B' || letters[i] == 'P') batch_ = stride[i];
    if (letters[i] == 'S' || letters[i] == 'T') row_ = stride[i];
    if (letters[i] == 'N') head_ = stride[i];
    if (letters[i] == 'C') piece_ = stride[i];
  }
  tensor_ = Tensor(dtype, Dims(shape), Dims(stride), placement);
}

int64_t LetteredTensor::Offset(int64_t b, int64_t n, int64_t s, int64_t x) const {
  return b * batch_ + n * head_ + s * row_ + x / piece_columns_ * piece_ + x % piece_columns_;
}

reference::Problem ValuesOf(const InferCase& c) {
  reference::Problem values = MakeReferenceProblem(c.dense);
  if (c.prefix_rows > 0) SharePrefix(c, values);
  if (c.tree) KeepTrunk(c, values);
  for (double& sink : values.sink) sink = RoundTo(c.sink_dtype, sink);
  return values;
}

InferProblem::InferProblem(const InferCase& c, reference::Problem values) : case_(c), values_(std::move(values)) {
  const ForwardCase& d = c.dense;
  for (int64_t b = 0; b < d.batch(); ++b) {
    own_keys_.push_back(OwnKeys(b));
    cu_q_.push_back(Before(d.lengths.sq, b + 1));
    cu_kv_.push_back(Before(own_keys_, b + 1));
  }
  if (c.prefix_rows > 0) prefix_length_ = {c.prefix_rows};
  padding_q_ = c.padding_q;
  padding_kv_ = c.padding_kv;
  if (IsPaged(c.cache)) MakeTable();
  for (const Part part : {Part::kKey, Part::kRope, Part::kValue}) {
    if (part != Part::kRope || d.d_rope > 0) MakeKeys(part);
  }
  MakeQueries();
  PlacePairs();
  if (!d.sink) return;
  sink_ = Tensor(c.sink_dtype, {d.heads}, {3}, d.placement);
  for (int64_t n = 0; n < d.heads; ++n) sink_.Set(3 * n, values_.sink[n]);
}

int64_t InferProblem::RowsOfQ() const {
  const std::vector<int64_t>& sq = case_.dense.lengths.sq;
  return (case_.packed() ? Before(sq, std::ssize(sq)) : Longest(sq)) + case_.spare_q;
}
int64_t InferProblem::RowsOfK() const {
  return (case_.packed() ? Before(own_keys_, std::ssize(own_keys_)) : Longest(own_keys_)) + case_.spare_k;
}
int64_t InferProblem::FirstRow(int64_t b) const {
  if (case_.packed()) return Before(case_.dense.lengths.sq, b);
  return case_.padding_q < 0 ? 0 : RowsOfQ() - case_.padding_q - case_.dense.lengths.sq[b];
}
int64_t InferProblem::FirstKey(int64_t b) const {
  if (case_.packed()) return Before(own_keys_, b);
  return case_.padding_kv < 0 ? 0 : RowsOfK() - case_.padding_kv - own_keys_[b];
}

/// Makes a table whose pages lie in random order. Some pages belong to no sequence, and stay NaN.
void InferProblem::MakeTable() {
  const ForwardCase& d = case_.dense;
  constexpr int64_t kSparePages = 3;
  std::vector<int64_t> counts;
  for (const int64_t keys : own_keys_) counts.push_back(CeilDiv(keys, case_.page_rows));
  std::vector<int32_t> order(static_cast<size_t>(Before(counts, d.batch()) + kSparePages));
  std::iota(order.begin(), order.end(), 0);
  for (auto i = std::ssize(order) - 1; i > 0; --i) {
    std::swap(order[i], order[RandomBits(case_.page_order, Tag::kChoice, {i}) % static_cast<uint64_t>(i + 1)]);
  }
  table_ = Tensor(DType::kI32, {d.batch(), Longest(counts) + 2}, {Longest(counts) + 5, 1});
  auto next = order.begin();
  for (int64_t b = 0; b < d.batch(); ++b) {
    pages_.emplace_back(next, next + counts[b]);
    next += counts[b];
    for (int64_t page = 0; page < counts[b]; ++page) SetTableEntry(b, page, pages_[b][page]);
  }
}

void InferProblem::SetTableEntry(int64_t b, int64_t page, int32_t value) const {
  std::memcpy(table_.Address(b * table_.stride()[0] + page), &value, sizeof value);
}

void InferProblem::MakeKeys(Part part) {
  const ForwardCase& d = case_.dense;
  const int64_t columns = part == Part::kKey ? d.d : part == Part::kRope ? d.d_rope : d.dv;
  std::vector<LetteredTensor>& tensors = part == Part::kKey ? k_ : part == Part::kRope ? k_rope_ : v_;
  std::vector<TensorView>& views = part == Part::kKey ? k_views_ : part == Part::kRope ? k_rope_views_ : v_views_;
  LetteredTensor& prefix = part == Part::kKey ? k_prefix_ : v_prefix_;
  const std::vector<double>& from = part == Part::kKey ? values_.k : part == Part::kRope ? values_.k_rope : values_.v;
  const std::string letters = IsPaged(case_.cache) ? LettersOfPages(case_.cache) : LettersOfInputs(case_.layout);
  LetteredTensor::Sizes sizes{.batch = d.batch(), .heads = d.heads_kv, .rows = RowsOfK(), .columns = columns};
  if (IsPaged(case_.cache)) {
    sizes.rows = case_.page_rows;
    sizes.batch = 3;  // the spare pages
    for (const auto& pages : pages_) sizes.batch += std::ssize(pages);
  }
  if (case_.cache == Cache::kList) sizes.batch = 1;
  for (int64_t i = 0; i < (case_.cache == Cache::kList ? d.batch() : 1); ++i) {
    if (case_.cache == Cache::kList) sizes.rows = own_keys_[i] + case_.spare_k;
    tensors.emplace_back(d.dtype, letters, sizes, d.padding.outer, d.placement);
  }
  for (const LetteredTensor& tensor : tensors) views.push_back(tensor.tensor().view());
  if (case_.prefix_rows > 0) {
    sizes.batch = 1;
    sizes.rows = case_.prefix_rows + case_.spare_prefix;
    prefix = LetteredTensor(d.dtype, letters, sizes, 2 * d.padding.outer, d.placement);
  }
  for (int64_t b = 0; b < d.batch(); ++b) {
    for (int64_t n = 0; n < d.heads_kv; ++n) {
      for (int64_t j = 0; j < d.lengths.sk[b]; ++j) {
        const int64_t own = j - case_.prefix_rows;
        const LetteredTensor& to = own < 0 ? prefix : tensors[case_.cache == Cache::kList ? b : 0];
        const int64_t batch = own < 0 || case_.packed() || case_.cache == Cache::kList ? 0 : b;
        for (int64_t x = 0; x < columns; ++x) {
          const int64_t at = own < 0 ? to.Offset(0, n, j, x)
                             : IsPaged(case_.cache)
                                 ? to.Offset(pages_[b][own / case_.page_rows], n, own % case_.page_rows, x)
                                 : to.Offset(batch, n, (case_.cache == Cache::kList ? 0 : FirstKey(b)) + own, x);
          to.tensor().Set(at, from[values_.KeyRow(b, n, j, columns) + x]);
        }
      }
    }
  }
}

void InferProblem::MakeQueries() {
  const ForwardCase& d = case_.dense;
  const auto make = [&](const std::string& letters, DType dtype, int64_t columns) {
    return LetteredTensor(dtype, letters, {d.batch(), d.heads, RowsOfQ(), columns}, d.padding.outer, d.placement);
  };
  const auto place = [&](const LetteredTensor& to, const std::vector<double>& from, int64_t columns) {
    for (int64_t b = 0; b < d.batch(); ++b) {
      for (int64_t n = 0; n < d.heads; ++n) {
        for (int64_t i = 0; i < d.lengths.sq[b]; ++i) {
          for (int64_t x = 0; x < columns; ++x) {
            to.tensor().Set(to.Offset(case_.packed() ? 0 : b, n, FirstRow(b) + i, x),
                            from[values_.QueryRow(b, n, i, columns) + x]);
          }
        }
      }
    }
  };
  q_ = make(LettersOfInputs(case_.layout), d.dtype, d.d);
  place(q_, values_.q, d.d);
  if (d.d_rope > 0) {
    q_rope_ = make(LettersOfInputs(case_.layout), d.dtype, d.d_rope);
    place(q_rope_, values_.q_rope, d.d_rope);
  }
  out_ = make(LettersOfOutput(case_.layout), d.dtype, d.dv);
  lse_ = make(case_.packed() ? "TN" : "BNS", DType::kF32, 1);
  if (case_.one_more_dim) lse_ = make(case_.packed() ? "TND" : "BNSD", DType::kF32, 1);
}

/// Makes pse and dense_mask. With left padding, both count the rows and keys of the tensors.
void InferProblem::PlacePairs() {
  const ForwardCase& d = case_.dense;
  const int64_t rows = case_.packed() ? Longest(d.lengths.sq) : RowsOfQ();
  const int64_t keys = case_.prefix_rows + (case_.packed() || IsPaged(case_.cache) ? Longest(own_keys_) : RowsOfK());
  const auto first_row = [&](int64_t b) { return case_.packed() ? 0 : FirstRow(b); };
  const auto first_key = [&](int64_t b) { return case_.packed() || IsPaged(case_.cache) ? 0 : FirstKey(b); };
  if (d.pse != PseForm::kNone) {
    const int64_t pse_rows = d.pse == PseForm::kRow ? 1 : rows;
    pse_ = Tensor(d.pse_f32 ? DType::kF32 : d.dtype, {d.batch(), d.heads, pse_rows, keys},
                  DenseStride({d.batch(), d.heads, pse_rows, keys}), d.placement);
    for (int64_t b = 0; b < d.batch(); ++b) {
      for (int64_t n = 0; n < d.heads; ++n) {
        for (int64_t i = 0; i < (d.pse == PseForm::kRow ? 1 : d.lengths.sq[b]); ++i) {
          for (int64_t j = 0; j < d.lengths.sk[b]; ++j) {
            const int64_t row = d.pse == PseForm::kRow ? 0 : first_row(b) + i;
            pse_.Set(((b * d.heads + n) * pse_rows + row) * keys + first_key(b) + j,
                     values_.pse.values[values_.pse.Index(b, n, i, j)]);
          }
        }
      }
    }
  }
  if (case_.full_mask) {
    constexpr int64_t kSide = 2048;
    mask_ = Tensor(DType::kI8, {kSide, kSide}, {kSide, 1});
    for (int64_t i = 0; i < kSide; ++i) {
      for (int64_t j = 0; j < kSide; ++j) mask_.Set(i * kSide + j, j > i ? 1 : 0);
    }
  }
  if (d.dense_mask == MaskForm::kNone) return;
  const auto dropped = [&](int64_t b, int64_t i, int64_t j) {
    return values_.dense_mask.values[values_.dense_mask.Index(b, 0, i, j)];
  };
  if (case_.tree) {
    const int64_t all = std::inner_product(d.lengths.sq.begin(), d.lengths.sq.end(), d.lengths.sq.begin(), int64_t{0});
    const Dims shape = case_.packed() ? Dims{all} : Dims{d.batch(), rows, rows};
    mask_ = Tensor(d.dense_mask_dtype, shape, DenseStride(shape), d.placement);
    int64_t at = 0;
    for (int64_t b = 0; b < d.batch(); ++b) {
      const int64_t sq = d.lengths.sq[b], stride = case_.packed() ? sq : rows;
      for (int64_t i = 0; i < sq; ++i) {
        for (int64_t j = 0; j < sq; ++j) mask_.Set(at + i * stride + j, dropped(b, i, d.lengths.sk[b] - sq + j));
      }
      at += stride * stride;
    }
    return;
  }
  const Dims shape{d.batch(), 1, rows, keys};
  mask_ = Tensor(d.dense_mask_dtype, shape, DenseStride(shape), d.placement);
  for (int64_t b = 0; b < d.batch(); ++b) {
    for (int64_t i = 0; i < d.lengths.sq[b]; ++i) {
      for (int64_t j = 0; j < d.lengths.sk[b]; ++j) {
        mask_.Set((b * rows + first_row(b) + i) * keys + first_key(b) + j, dropped(b, i, j));
      }
    }
  }
}

InferAttentionArgs InferProblem::args() const {
  InferAttentionArgs args;
  args.q = q_.tensor().view();
  args.q_rope = q_rope_.tensor().view();
  args.k = k_views_;
  args.v = v_views_;
  args.k_rope = k_rope_views_;
  args.block_table = table_.view();
  if (case_.packed()) {
    args.cu_q = cu_q_;
    (IsPaged(case_.cache) ? args.lengths_kv : args.cu_kv) = IsPaged(case_.cache) ? own_keys_ : cu_kv_;
  } else {
    args.lengths_q = case_.dense.lengths.sq;
    args.lengths_kv = own_keys_;
  }
  if (padding_q_ >= 0) args.q_padding = {&padding_q_, DType::kI64, {1}, {}};
  if (padding_kv_ >= 0) args.kv_padding = {&padding_kv_, DType::kI64, {1}, {}};
  args.k_prefix = k_prefix_.tensor().view();
  args.v_prefix = v_prefix_.tensor().view();
  args.length_prefix = prefix_length_;
  args.pse = pse_.view();
  args.dense_mask = mask_.view();
  args.sink = sink_.view();
  args.out = out_.tensor().mutable_view();
  args.lse = lse_.tensor().mutable_view();
  return args;
}

InferAttentionOptions InferProblem::options() const {
  const ForwardCase& d = case_.dense;
  InferAttentionOptions options;
  options.layout = case_.layout;
  options.heads = d.heads;
  options.heads_kv = d.heads_kv;
  options.scale = d.scale;
  options.sparse_mode = case_.tree ? 9 : d.mask.mode == 1 ? 0 : d.mask.mode;
  if (d.mask.mode == 4) {
    options.pre = d.mask.pre;
    options.next = d.mask.next;
  }
  if (IsPaged(case_.cache)) options.block_size = case_.page_rows;
  options.lse_without_keys = case_.lse_without_keys;
  return options;
}

ForwardOutputs InferProblem::Outputs() const {
  ForwardOutputs outputs;
  const ForwardCase& d = case_.dense;
  const auto read = [&](int64_t b, int64_t n, int64_t row, std::vector<double>& lse, std::vector<double>& out) {
    lse.push_back(lse_.tensor().Get(lse_.Offset(b, n, row, 0)));
    for (int64_t x = 0; x < d.dv; ++x) out.push_back(out_.tensor().Get(out_.Offset(b, n, row, x)));
  };
  for (int64_t b = 0; b < d.batch(); ++b) {
    const int64_t batch = case_.packed() ? 0 : b, first = FirstRow(b), end = first + d.lengths.sq[b];
    for (int64_t n = 0; n < d.heads; ++n) {
      for (int64_t row = first; row < end; ++row) read(batch, n, row, outputs.lse, outputs.out);
      for (int64_t row = 0; row < RowsOfQ(); ++row) {
        const bool used = case_.packed() ? row < cu_q_.back() : row >= first && row < end;
        if (!used && (b == 0 || !case_.packed())) read(batch, n, row, outputs.tail, outputs.tail);
      }
    }
  }
  return outputs;
}

Snapshot InferProblem::TakeSnapshot() const {
  Snapshot snapshot;
  for (const Tensor* tensor :
       {&q_.tensor(), &q_rope_.tensor(), &k_prefix_.tensor(), &v_prefix_.tensor(), &table_, &pse_, &mask_, &sink_}) {
    snapshot.Add(*tensor);
  }
  for (const auto* list : {&k_, &k_rope_, &v_}) {
    for (const LetteredTensor& tensor : *list) snapshot.Add(tensor.tensor());
  }
  snapshot.Allow(out_.tensor());
  snapshot.Allow(lse_.tensor());
  return snapshot;
}

}  // namespace fa::test
