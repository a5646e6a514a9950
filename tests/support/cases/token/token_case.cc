#include "support/cases/token/token_case.h"

#include <algorithm>
#include <numeric>
#include <sstream>

namespace fa::test {
namespace {

/// Returns a random order of 0, 1, ..., count - 1.
std::vector<int64_t> Shuffled(int64_t count, uint64_t seed, int64_t sequence, int64_t row) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = count - 1; i > 0; --i) {
    const uint64_t choice = RandomBits(seed, Tag::kChoice, {sequence, row, i});
    std::swap(order[i], order[choice % static_cast<uint64_t>(i + 1)]);
  }
  return order;
}

std::vector<int64_t> MakeList(const TokenCase& c, int64_t b, int64_t t, int64_t limit) {
  const int64_t sequence = c.first_sequence + b;
  const int64_t below = (limit + c.block_size - 1) / c.block_size;
  const int64_t blocks = (c.lengths.sk[b] + c.block_size - 1) / c.block_size;
  std::vector<int64_t> list(static_cast<size_t>(c.slots), -1);
  switch (c.lists) {
    case ListForm::kDistinct: {
      const std::vector<int64_t> order = Shuffled(below, c.seed, sequence, t);
      std::copy_n(order.begin(), std::min(below, c.slots), list.begin());
      break;
    }
    case ListForm::kMessy: {
      const uint64_t end = RandomBits(c.seed, Tag::kLists, {sequence, t, -1});
      for (int64_t slot = 0; slot < c.slots && blocks > 0; ++slot) {
        const uint64_t bits = RandomBits(c.seed, Tag::kLists, {sequence, t, slot});
        list[slot] = static_cast<int64_t>(bits % static_cast<uint64_t>(blocks));
      }
      // Every other list ends early, by a -1. The entries after it must not be read.
      if (end % 2 == 0 && c.slots > 0) list[static_cast<int64_t>(end / 2 % static_cast<uint64_t>(c.slots))] = -1;
      break;
    }
    case ListForm::kEveryKey:
      for (int64_t slot = 0; slot < std::min(below, c.slots); ++slot) list[slot] = slot;
      break;
  }
  if (c.list_order != 0) {
    const auto end = std::find(list.begin(), list.begin() + std::min(below, c.slots), -1);
    const std::vector<int64_t> before(list.begin(), end);
    const std::vector<int64_t> order = Shuffled(std::ssize(before), c.list_order, sequence, t);
    std::transform(order.begin(), order.end(), list.begin(), [&](int64_t i) { return before[i]; });
  }
  return list;
}

std::vector<int64_t> PrefixSums(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> sums(lengths.size());
  std::partial_sum(lengths.begin(), lengths.end(), sums.begin());
  return sums;
}

int64_t TensorRows(const TokenCase& c, const std::vector<int64_t>& lengths, int64_t spare) {
  if (c.packed()) return std::accumulate(lengths.begin(), lengths.end(), spare);
  return (lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end())) + spare;
}

}  // namespace

std::string ToString(const TokenCase& c) {
  std::ostringstream out;
  out << "seed " << c.seed << " " << Name(c.dtype) << " " << Name(c.layout) << " queries";
  for (const int64_t length : c.lengths.sq) out << ' ' << length;
  out << " keys";
  for (const int64_t length : c.lengths.sk) out << ' ' << length;
  out << " slots " << c.slots << " blocks of " << c.block_size << " lists " << static_cast<int>(c.lists);
  if (!c.causal) out << " mode 0";
  if (c.first_sequence != 0) out << " first sequence " << c.first_sequence;
  if (c.spare_q + c.spare_k != 0) out << " spare " << c.spare_q << "," << c.spare_k;
  if (!c.lengths_given) out << " no lengths";
  if (c.paged()) out << " pages of " << c.page_rows << " in order " << c.page_order;
  if (c.list_order != 0) out << " list order " << c.list_order;
  if (c.index_dtype != DType::kI32) out << " lists of " << Name(c.index_dtype);
  if (c.padding.inner + c.padding.middle + c.padding.outer != 0) {
    out << " padding " << c.padding.inner << "," << c.padding.middle << "," << c.padding.outer;
  }
  if (c.placement.place != Place::kInside) out << " place " << static_cast<int>(c.placement.place);
  if (c.placement.misalignment != 0) out << " misalignment " << c.placement.misalignment;
  return out.str();
}

std::ostream& operator<<(std::ostream& out, const TokenCase& c) { return out << ToString(c); }

reference::Selection MakeSelection(const TokenCase& c) {
  reference::Selection selection{
      .lengths = c.lengths, .causal = c.causal, .block_size = c.block_size, .slots = c.slots};
  for (int64_t b = 0; b < c.batch(); ++b) {
    for (int64_t t = 0; t < c.lengths.sq[b]; ++t) {
      const std::vector<int64_t> list = MakeList(c, b, t, selection.Limit(b, t));
      selection.indices.insert(selection.indices.end(), list.begin(), list.end());
    }
  }
  return selection;
}

std::vector<double> DrawRows(const TokenCase& c, const std::vector<int64_t>& rows, int64_t heads, int64_t size, Tag tag,
                             DType dtype) {
  std::vector<double> values;
  for (size_t b = 0; b < rows.size(); ++b) {
    for (int64_t row = 0; row < rows[b]; ++row) {
      for (int64_t n = 0; n < heads; ++n) {
        const RandomLine line(c.seed, tag, {c.first_sequence + static_cast<int64_t>(b), n, row});
        for (int64_t x = 0; x < size; ++x) values.push_back(RoundTo(dtype, line.Normal(x)));
      }
    }
  }
  return values;
}

TokenTensors::TokenTensors(const TokenCase& c)
    : case_(c),
      tensor_batch_(c.packed() ? 1 : c.batch()),
      q_rows_(TensorRows(c, c.lengths.sq, c.spare_q)),
      k_rows_(TensorRows(c, c.lengths.sk, c.spare_k)) {
  if (c.packed() || c.lengths_given) lengths_q_ = c.packed() ? PrefixSums(c.lengths.sq) : c.lengths.sq;
  if (c.packed() || c.lengths_given || c.paged()) {
    lengths_kv_ = c.packed() && !c.paged() ? PrefixSums(c.lengths.sk) : c.lengths.sk;
  }
  if (c.paged()) MakePages();
}

/// Makes pages in a random order. Some pages belong to no sequence. Behind a sequence's pages, the table has numbers of
/// invalid pages.
void TokenTensors::MakePages() {
  constexpr int64_t kSparePages = 3;
  int64_t most = 0;
  page_count_ = kSparePages;
  for (const int64_t keys : case_.lengths.sk) {
    const int64_t pages = (keys + case_.page_rows - 1) / case_.page_rows;
    page_count_ += pages;
    most = std::max(most, pages);
  }
  const std::vector<int64_t> order = Shuffled(page_count_, case_.page_order, -1, -1);
  table_ = Tensor(DType::kI32, {case_.batch(), most + 2}, {most + 5, 1});
  auto next = order.begin();
  for (int64_t b = 0; b < case_.batch(); ++b) {
    std::vector<int32_t>& pages = pages_.emplace_back();
    for (int64_t page = 0; page * case_.page_rows < case_.lengths.sk[b]; ++page) {
      pages.push_back(static_cast<int32_t>(*next++));
      table_.Set(b * table_.stride()[0] + page, pages.back());
    }
  }
}

RowTensor TokenTensors::MakeRows(DType dtype, bool of_queries, int64_t heads, int64_t size) const {
  const bool paged = !of_queries && case_.paged();
  const HeadSizes sizes{.batch = paged ? page_count_ : tensor_batch_,
                        .heads = heads,
                        .rows = paged        ? case_.page_rows
                                : of_queries ? q_rows_
                                             : k_rows_,
                        .size = size};
  HeadTensor made = MakeHeadTensor(dtype, paged ? Layout::kBSND : case_.layout, sizes, case_.padding, case_.placement);
  return {std::move(made.tensor), made.stride, heads, size};
}

RowTensor TokenTensors::MakeQuerySide(DType dtype, int64_t heads, int64_t size) const {
  return MakeRows(dtype, true, heads, size);
}

RowTensor TokenTensors::MakeKeySide(DType dtype, int64_t heads, int64_t size) const {
  return MakeRows(dtype, false, heads, size);
}

RowTensor TokenTensors::MakeFlatQuerySide(DType dtype, int64_t size) const {
  const HeadStrides stride{.batch = q_rows_ * (size + case_.padding.middle) + case_.padding.outer,
                           .head = 1,
                           .row = size + case_.padding.middle};
  const Dims shape = case_.packed() ? Dims{q_rows_, size} : Dims{tensor_batch_, q_rows_, size};
  const Dims strides = case_.packed() ? Dims{stride.row, 1} : Dims{stride.batch, stride.row, 1};
  return {Tensor(dtype, shape, strides, case_.placement), stride, size, 1};
}

RowTensor TokenTensors::MakeStatistic(int64_t heads_kv, int64_t group) const {
  const int64_t row = group + case_.padding.inner, head_kv = q_rows_ * row + case_.padding.middle;
  const int64_t batch = heads_kv * head_kv + case_.padding.outer;
  const Dims shape = case_.packed() ? Dims{heads_kv, q_rows_, group} : Dims{tensor_batch_, heads_kv, q_rows_, group};
  const Dims strides = case_.packed() ? Dims{head_kv, row, 1} : Dims{batch, head_kv, row, 1};
  Tensor tensor(DType::kF32, shape, strides, case_.placement);
  RowTensor made{std::move(tensor), {.batch = batch, .head = 1, .row = row}, heads_kv * group, 1};
  made.group = group;
  made.group_stride = head_kv;
  return made;
}

RowTensor TokenTensors::MakeRowStatistic() const {
  const Dims shape = case_.packed() ? Dims{1, q_rows_} : Dims{tensor_batch_, 1, q_rows_};
  return {Tensor(DType::kF32, shape, {}, case_.placement), {.batch = q_rows_, .head = 1, .row = 1}, 1, 1};
}

RowTensor TokenTensors::MakeLists(const std::vector<int64_t>& indices) const {
  constexpr int64_t kInvalid = 0x7FFFFFFF;
  RowTensor lists = MakeRows(case_.index_dtype, true, 1, case_.slots);
  for (int64_t b = 0; b < tensor_batch_; ++b) {
    for (int64_t s = 0; s < q_rows_; ++s) {
      lists.tensor.Fill(lists.Offset(b, 0, s), case_.slots, kInvalid);
    }
  }
  FillQueries({indices.begin(), indices.end()}, lists);
  return lists;
}

TokenTensors::Row TokenTensors::QueryRow(int64_t b, int64_t t) const {
  if (!case_.packed()) return {b, t};
  return {0, std::accumulate(case_.lengths.sq.begin(), case_.lengths.sq.begin() + b, t)};
}

TokenTensors::Row TokenTensors::KeyRow(int64_t b, int64_t key) const {
  if (case_.paged()) return {pages_[b][key / case_.page_rows], key % case_.page_rows};
  if (!case_.packed()) return {b, key};
  return {0, std::accumulate(case_.lengths.sk.begin(), case_.lengths.sk.begin() + b, key)};
}

void TokenTensors::FillQueries(const std::vector<double>& packed, const RowTensor& to) const {
  size_t next = 0;
  for (int64_t b = 0; b < case_.batch(); ++b) {
    for (int64_t t = 0; t < case_.lengths.sq[b]; ++t) {
      const Row row = QueryRow(b, t);
      for (int64_t n = 0; n < to.heads; ++n) {
        to.tensor.SetRun(to.Offset(row.b, n, row.s), packed.data() + next, to.size);
        next += static_cast<size_t>(to.size);
      }
    }
  }
}

void TokenTensors::FillKeys(const std::vector<double>& packed, const RowTensor& to) const {
  size_t next = 0;
  for (int64_t b = 0; b < case_.batch(); ++b) {
    for (int64_t key = 0; key < case_.lengths.sk[b]; ++key) {
      const Row row = KeyRow(b, key);
      for (int64_t n = 0; n < to.heads; ++n) {
        to.tensor.SetRun(to.Offset(row.b, n, row.s), packed.data() + next, to.size);
        next += static_cast<size_t>(to.size);
      }
    }
  }
}

std::vector<double> TokenTensors::Unused(const RowTensor& from, bool of_queries) const {
  const std::vector<int64_t>& lengths = of_queries ? case_.lengths.sq : case_.lengths.sk;
  const int64_t rows = of_queries ? q_rows_ : k_rows_;
  std::vector<double> unused;
  for (int64_t b = 0; b < tensor_batch_; ++b) {
    const int64_t first = case_.packed() ? std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) : lengths[b];
    for (int64_t s = first; s < rows; ++s) {
      for (int64_t n = 0; n < from.heads; ++n) {
        from.tensor.AppendTo(unused, from.Offset(b, n, s), from.size);
      }
    }
  }
  return unused;
}

RowValues TokenTensors::Queries(const RowTensor& from) const {
  RowValues got;
  if (from.tensor.absent()) return got;
  for (int64_t b = 0; b < case_.batch(); ++b) {
    for (int64_t t = 0; t < case_.lengths.sq[b]; ++t) {
      const Row row = QueryRow(b, t);
      for (int64_t n = 0; n < from.heads; ++n) {
        from.tensor.AppendTo(got.values, from.Offset(row.b, n, row.s), from.size);
      }
    }
  }
  got.unused = Unused(from, true);
  return got;
}

RowValues TokenTensors::Keys(const RowTensor& from) const {
  RowValues got;
  if (from.tensor.absent()) return got;
  for (int64_t b = 0; b < case_.batch(); ++b) {
    for (int64_t key = 0; key < case_.lengths.sk[b]; ++key) {
      const Row row = KeyRow(b, key);
      for (int64_t n = 0; n < from.heads; ++n) {
        from.tensor.AppendTo(got.values, from.Offset(row.b, n, row.s), from.size);
      }
    }
  }
  got.unused = Unused(from, false);
  return got;
}

}  // namespace fa::test
