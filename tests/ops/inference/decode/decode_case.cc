#include "ops/inference/decode/decode_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "support/cases/random_values.h"
#include "support/compressed_number.h"

namespace fa::test {
namespace {

Layout OutLayout(Layout layout) { return layout == Layout::kBNSD_BSND ? Layout::kBSND : layout; }

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool IsPerToken(Quantization kind) { return kind == Quantization::kPerToken || kind >= Quantization::kPerTokenAndHead; }
bool IsPerHead(Quantization kind) {
  return kind == Quantization::kPerChannel || kind == Quantization::kPerHead || kind >= Quantization::kPerGroup;
}

}  // namespace

DecodeCase MakeDecodeCase(int64_t heads, int64_t heads_kv, int64_t sq, std::vector<int64_t> sk, DType dtype) {
  DecodeCase c;
  c.dense.dtype = dtype;
  c.dense.heads = heads;
  c.dense.heads_kv = heads_kv;
  c.dense.d = c.dense.dv = 24;
  c.dense.lengths = {std::vector<int64_t>(sk.size(), sq), std::move(sk)};
  return c;
}

DecodeCase MakeCompressedCase(DType format, Quantization kind, int64_t group, std::vector<int64_t> sk, DType dtype) {
  DecodeCase c = MakeDecodeCase(2 * group, 2, 1, std::move(sk), dtype);
  c.dense.d = c.dense.dv = 64;
  c.format = format;
  c.quantization = kind;
  c.combined = false;
  return c;
}

std::ostream& operator<<(std::ostream& out, const DecodeCase& c) {
  return out << "keys " << static_cast<int>(c.keys) << " page_rows " << c.page_rows << " order " << c.page_order
             << " spare " << c.spare_q << "," << c.spare_k << " quantization " << static_cast<int>(c.quantization)
             << (c.combined ? " combined " : " apart ") << static_cast<int>(c.format) << " times " << c.scale_factor
             << " numbers " << static_cast<int>(c.antiquant_dtype) << " of " << c.group_columns << " offset "
             << c.antiquant_offset << (c.int8_out ? " int8" : "") << " " << c.dense;
}

DecodeProblem::DecodeProblem(const DecodeCase& c, reference::Problem values) : case_(c), values_(std::move(values)) {
  const ForwardCase& d = c.dense;
  if (c.keys == KeyForm::kPages || c.keys == KeyForm::kPagesOfHeads) MakeTable();
  if (c.quantization != Quantization::kNone) MakeNumbers();
  for (const Part part : {Part::kKey, Part::kRope, Part::kValue}) {
    if (part == Part::kRope && d.d_rope == 0) continue;
    MakeKeys(part);
    if (c.quantization != Quantization::kNone) {
      Quantize(part == Part::kValue);
    } else {
      PlaceKeys(part);
    }
  }
  for (const HeadTensor& k : k_) k_views_.push_back(k.tensor.view());
  for (const HeadTensor& k : k_rope_) k_rope_views_.push_back(k.tensor.view());
  for (const HeadTensor& v : v_) v_views_.push_back(v.tensor.view());
  const auto sizes = [&](int64_t size) {
    const int64_t rows = (d.packed() ? d.tensor_rows_q() : d.max_sq()) + c.spare_q;
    return HeadSizes{.batch = d.packed() ? 1 : d.batch(), .heads = d.heads, .rows = rows, .size = size};
  };
  for (const int64_t sq : d.lengths.sq) cu_q_.push_back(sq + (cu_q_.empty() ? 0 : cu_q_.back()));
  q_ = MakeHeadTensor(d.dtype, d.layout, sizes(d.d), d.padding, d.placement);
  out_ = MakeHeadTensor(c.int8_out ? DType::kI8 : d.dtype, OutLayout(d.layout), sizes(d.dv), d.padding, d.placement);
  if (c.int8_out) output_scales_ = OutputScales(*c.int8_out, d.seed, d.heads, d.dv, d.placement);
  lse_ = MakeStatistic(d.packed(), sizes(1), 1, {}, d.placement);
  const auto place_queries = [&](const HeadTensor& to, const std::vector<double>& from, int64_t columns) {
    size_t next = 0;
    for (int64_t b = 0; b < d.batch(); ++b) {
      for (int64_t n = 0; n < d.heads; ++n) {
        for (int64_t i = 0; i < d.lengths.sq[b]; ++i) {
          for (int64_t x = 0; x < columns; ++x) to.tensor.Set(QueryOffset(to, b, n, i) + x, from[next++]);
        }
      }
    }
  };
  place_queries(q_, values_.q, d.d);
  if (d.d_rope > 0) {
    q_rope_ = MakeHeadTensor(d.dtype, d.layout, sizes(d.d_rope), d.padding, d.placement);
    place_queries(q_rope_, values_.q_rope, d.d_rope);
  }
  if (d.dense_mask != MaskForm::kNone) PlaceMask();
  if (d.pse != PseForm::kNone) PlacePse();
  sink_ = SinkTensor(d, values_, c.spare_q);
}

int64_t DecodeProblem::QueryOffset(const HeadTensor& of, int64_t b, int64_t n, int64_t i) const {
  if (!case_.dense.packed()) return of.Offset(b, n, i);
  return of.Offset(0, n, (b == 0 ? 0 : cu_q_[b - 1]) + i);
}

int64_t DecodeProblem::PagesOf(int64_t b) const { return CeilDiv(case_.dense.lengths.sk[b], case_.page_rows); }

/// Makes a table whose pages lie in random order. Some pages belong to no sequence.
void DecodeProblem::MakeTable() {
  const ForwardCase& d = case_.dense;
  constexpr int64_t kSparePages = 3;
  int64_t total = kSparePages;
  int64_t most = 0;
  for (int64_t b = 0; b < d.batch(); ++b) {
    total += PagesOf(b);
    most = std::max(most, PagesOf(b));
  }
  std::vector<int32_t> order(total);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = total - 1; i > 0; --i) {
    std::swap(order[i], order[RandomBits(case_.page_order, Tag::kChoice, {i}) % static_cast<uint64_t>(i + 1)]);
  }
  table_ = Tensor(DType::kI32, {d.batch(), most + 2}, {most + 5, 1});
  auto next = order.begin();
  for (int64_t b = 0; b < d.batch(); ++b) {
    pages_.emplace_back(next, next + PagesOf(b));
    next += PagesOf(b);
    for (int64_t page = 0; page < PagesOf(b); ++page) SetTableEntry(b, page, pages_[b][page]);
  }
}

void DecodeProblem::SetTableEntry(int64_t b, int64_t page, int32_t value) const {
  std::memcpy(table_.Address(b * table_.stride()[0] + page), &value, sizeof value);
}

int64_t DecodeProblem::ColumnsOf(Part part) const {
  const ForwardCase& d = case_.dense;
  return part == Part::kKey ? d.d : part == Part::kRope ? d.d_rope : d.dv;
}

const std::vector<HeadTensor>& DecodeProblem::TensorsOf(Part part) const {
  return part == Part::kKey ? k_ : part == Part::kRope ? k_rope_ : v_;
}

void DecodeProblem::MakeKeys(Part part) {
  const ForwardCase& d = case_.dense;
  const DType dtype = case_.quantization != Quantization::kNone ? case_.format : d.dtype;
  const int64_t columns = ColumnsOf(part);
  HeadSizes sizes{.heads = d.heads_kv, .size = dtype == DType::kI4x8 ? columns / 8 : columns};
  std::vector<HeadTensor>& tensors = part == Part::kKey ? k_ : part == Part::kRope ? k_rope_ : v_;
  switch (case_.keys) {
    case KeyForm::kOneTensor:
      sizes.batch = d.batch();
      sizes.rows = d.max_sk() + case_.spare_k;
      tensors.push_back(MakeHeadTensor(dtype, d.layout, sizes, d.padding, d.placement));
      return;
    case KeyForm::kList:
      for (int64_t b = 0; b < d.batch(); ++b) {
        sizes.rows = d.lengths.sk[b] + case_.spare_k;
        // The tensor of each sequence has different gaps.
        const Padding padding{.middle = b % 3, .outer = 2 * b};
        tensors.push_back(MakeHeadTensor(dtype, d.layout, sizes, padding, d.placement));
      }
      return;
    case KeyForm::kPages:
    case KeyForm::kPagesOfHeads:
      sizes.batch = std::accumulate(pages_.begin(), pages_.end(), int64_t{3},
                                    [](int64_t sum, const auto& pages) { return sum + std::ssize(pages); });
      sizes.rows = case_.page_rows;
      const Layout layout = case_.keys == KeyForm::kPages ? Layout::kBSH : d.packed() ? Layout::kBSND : d.layout;
      tensors.push_back(MakeHeadTensor(dtype, layout, sizes, {.outer = part == Part::kKey ? 0 : 5}, d.placement));
      return;
  }
}

DecodeProblem::Place DecodeProblem::PlaceOf(Part part, int64_t b, int64_t n, int64_t j) const {
  const std::vector<HeadTensor>& tensors = TensorsOf(part);
  switch (case_.keys) {
    case KeyForm::kOneTensor: return {&tensors[0].tensor, tensors[0].Offset(b, n, j)};
    case KeyForm::kList: return {&tensors[b].tensor, tensors[b].Offset(0, n, j)};
    case KeyForm::kPages:
    case KeyForm::kPagesOfHeads: break;
  }
  return {&tensors[0].tensor, tensors[0].Offset(pages_[b][j / case_.page_rows], n, j % case_.page_rows)};
}

void DecodeProblem::PlaceKeys(Part part) {
  const ForwardCase& d = case_.dense;
  const int64_t size = ColumnsOf(part);
  const std::vector<double>& from = part == Part::kKey ? values_.k : part == Part::kRope ? values_.k_rope : values_.v;
  size_t next = 0;
  for (int64_t b = 0; b < d.batch(); ++b) {
    for (int64_t n = 0; n < d.heads_kv; ++n) {
      for (int64_t j = 0; j < d.lengths.sk[b]; ++j) {
        const Place place = PlaceOf(part, b, n, j);
        for (int64_t x = 0; x < size; ++x) place.tensor->Set(place.offset + x, from[next++]);
      }
    }
  }
}

/// Makes the tensors that hold scales and offsets.
void DecodeProblem::MakeNumbers() {
  const ForwardCase& d = case_.dense;
  const Quantization kind = case_.quantization;
  const bool paged = !pages_.empty() && !case_.scales_of_keys;
  const bool token = IsPerToken(kind), page = kind == Quantization::kPerPage;
  const auto make = [&](const Dims& shape, int side) {
    // The elements of k_scale have gaps between them.
    Dims stride = DenseStride(shape);
    for (int dim = 0; !case_.combined && dim < shape.rank(); ++dim) stride[dim] *= 2;
    scale_[side] = Tensor(case_.antiquant_dtype, shape, stride, d.placement);
    if (case_.antiquant_offset) offset_[side] = Tensor(case_.antiquant_dtype, shape, stride, d.placement);
  };
  if (case_.combined) {
    const int64_t columns = token ? d.max_sk() + case_.spare_k : d.d, rows = token ? d.batch() : d.heads_kv;
    if (kind == Quantization::kPerTokenAndHead) return make({2, rows, d.heads_kv, columns}, 0);
    return make(kind == Quantization::kPerTensor ? Dims{2} : Dims{2, rows, columns}, 0);
  }
  for (const int side : {0, 1}) {
    const int64_t columns = side == 0 ? d.d : d.dv;
    const int64_t groups = kind == Quantization::kPerChannel ? columns
                           : kind == Quantization::kPerGroup || kind == Quantization::kPerTokenAndGroup
                               ? columns / std::gcd(columns, case_.group_columns)
                               : 1;
    const int64_t pages = std::accumulate(pages_.begin(), pages_.end(), int64_t{3},
                                          [](int64_t sum, const auto& of) { return sum + std::ssize(of); });
    const int64_t keys = !paged ? d.max_sk() + case_.spare_k : page ? 1 : case_.page_rows;
    const bool varies = token || page;
    make({!varies ? 1 : paged ? pages : d.batch(), IsPerHead(kind) ? d.heads_kv : 1, varies ? keys : 1, groups}, side);
  }
}

int64_t DecodeProblem::NumberAt(bool values, int64_t b, int64_t n, int64_t j, int64_t x) const {
  const Tensor& scale = scale_[values && !case_.combined ? 1 : 0];
  const Dims &shape = scale.shape(), &stride = scale.stride();
  if (case_.combined) {
    const int64_t side = values ? stride[0] : 0;
    if (shape.rank() == 1) return side;
    if (shape.rank() == 4) return side + b * stride[1] + n * stride[2] + j;
    return case_.quantization == Quantization::kPerToken ? side + b * stride[1] + j : side + n * stride[1] + x;
  }
  const bool paged = !pages_.empty() && !case_.scales_of_keys;
  const int64_t columns = values ? case_.dense.dv : case_.dense.d;
  const int64_t at[] = {paged ? pages_[b][j / case_.page_rows] : b, n, paged ? j % case_.page_rows : j,
                        x / (columns / shape[3])};
  int64_t offset = 0;
  for (int dim = 0; dim < 4; ++dim) offset += shape[dim] == 1 ? 0 : at[dim] * stride[dim];
  return offset;
}

/// Draws compressed keys or values, scales and offsets. The reference gets the numbers that they stand for.
void DecodeProblem::Quantize(bool values) {
  const ForwardCase& d = case_.dense;
  const int64_t size = values ? d.dv : d.d;
  std::vector<double>& reference = values ? values_.v : values_.k;
  const Tag tag = values ? Tag::kV : Tag::kK;
  const Tensor& scales = scale_[values && !case_.combined ? 1 : 0];
  const Tensor& offsets = offset_[values && !case_.combined ? 1 : 0];
  // The formats have different ranges, so codes are scaled to numbers of similar size.
  const double unit = case_.scale_factor * (case_.format == DType::kF8E4M3   ? 0.25
                                            : case_.format == DType::kF8E5M2 ? 1.0 / 512
                                            : case_.format == DType::kI4x8   ? 16
                                                                             : 1);
  size_t next = 0;
  for (int64_t b = 0; b < d.batch(); ++b) {
    for (int64_t n = 0; n < d.heads_kv; ++n) {
      for (int64_t j = 0; j < d.lengths.sk[b]; ++j) {
        const Place place = PlaceOf(values ? Part::kValue : Part::kKey, b, n, j);
        for (int64_t x = 0; x < size; ++x) {
          const int64_t at = NumberAt(values, b, n, j, x);
          // A number depends on its index in a tensor without pages, so it is the same however keys lie.
          const bool token = IsPerToken(case_.quantization), page = case_.quantization == Quantization::kPerPage;
          const int64_t groups =
              case_.combined ? (case_.quantization == Quantization::kPerChannel ? size : 1) : scales.shape()[3];
          const double uniform =
              RandomUniform(d.seed, Tag::kSlopes,
                            {values, token || page ? d.first_sequence + b : 0, IsPerHead(case_.quantization) ? n : 0,
                             token  ? j
                             : page ? j / case_.page_rows
                                    : 0,
                             x / (size / groups)});
          const double scale = RoundTo(case_.antiquant_dtype, (0.005 + 0.02 * uniform) * unit);
          const double offset = case_.antiquant_offset ? RoundTo(case_.antiquant_dtype, (30 * uniform - 11)) : 0;
          scales.Set(at, scale);
          if (case_.antiquant_offset) offsets.Set(at, offset);
          auto code = static_cast<uint8_t>(RandomBits(d.seed, tag, {d.first_sequence + b, n, j, x}) % 256);
          if (!std::isfinite(CompressedNumber(case_.format, code))) code = 0x80;
          StoreCode(case_.format, place.tensor->Address(place.offset), x, code);
          reference[next++] = (CompressedNumber(case_.format, code) + offset) * scale;
        }
      }
    }
  }
}

void DecodeProblem::PlaceMask() {
  const ForwardCase& d = case_.dense;
  const int64_t keys = d.max_sk() + case_.spare_k;
  const int64_t heads = d.dense_mask == MaskForm::kPerHead ? d.heads : 1;
  const int64_t rows = case_.mask_rank < 4 && d.max_sq() == 1 ? 1 : d.max_sq() + case_.spare_q;
  Dims shape{d.batch(), heads, rows, keys};
  if (case_.mask_rank == 3) shape = {d.batch(), rows, keys};
  if (case_.mask_rank == 2) shape = {d.batch(), keys};
  mask_ = Tensor(d.dense_mask_dtype, shape, {}, d.placement);
  for (int64_t b = 0; b < d.batch(); ++b) {
    for (int64_t n = 0; n < heads; ++n) {
      for (int64_t i = 0; i < d.lengths.sq[b]; ++i) {
        for (int64_t j = 0; j < d.lengths.sk[b]; ++j) {
          mask_.Set(((b * heads + n) * rows + i) * keys + j,
                    values_.dense_mask.values[values_.dense_mask.Index(b, n, i, j)]);
        }
      }
    }
  }
}

void DecodeProblem::PlacePse() {
  const ForwardCase& d = case_.dense;
  const int64_t keys = d.max_sk() + case_.spare_k;
  const int64_t batch = d.pse_broadcast_batch ? 1 : d.batch();
  const int64_t rows = d.pse == PseForm::kRow ? 1 : d.max_sq() + case_.spare_q;
  pse_ = Tensor(d.pse_f32 ? DType::kF32 : d.dtype, {batch, d.heads, rows, keys}, {}, d.placement);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t n = 0; n < d.heads; ++n) {
      for (int64_t i = 0; i < (d.pse == PseForm::kRow ? 1 : d.lengths.sq[b]); ++i) {
        for (int64_t j = 0; j < d.lengths.sk[b]; ++j) {
          pse_.Set(((b * d.heads + n) * rows + i) * keys + j, values_.pse.values[values_.pse.Index(b, n, i, j)]);
        }
      }
    }
  }
}

DecodeAttentionArgs DecodeProblem::args() const {
  DecodeAttentionArgs args;
  args.q = q_.tensor.view();
  args.k = k_views_;
  args.v = v_views_;
  args.q_rope = q_rope_.tensor.view();
  args.k_rope = k_rope_views_;
  args.lengths_kv = case_.dense.lengths.sk;
  (case_.dense.packed() ? args.cu_q : args.lengths_q) = case_.dense.packed() ? cu_q_ : case_.dense.lengths.sq;
  args.block_table = table_.view();
  if (case_.combined) {
    args.antiquant_scale = scale_[0].view();
    args.antiquant_offset = offset_[0].view();
  } else {
    args.k_scale = scale_[0].view();
    args.v_scale = scale_[1].view();
    args.k_offset = offset_[0].view();
    args.v_offset = offset_[1].view();
  }
  args.pse = pse_.view();
  args.dense_mask = mask_.view();
  args.sink = sink_.view();
  args.quant_scale2 = output_scales_.scale().view();
  args.quant_offset2 = output_scales_.offset().view();
  args.out = out_.tensor.mutable_view();
  args.lse = lse_.tensor.mutable_view();
  return args;
}

DecodeAttentionOptions DecodeProblem::options() const {
  const AttentionOptions dense = OptionsOf(case_.dense);
  DecodeAttentionOptions options;
  options.layout = dense.layout;
  options.heads = case_.dense.heads;
  options.scale = dense.scale;
  options.mask = dense.mask;
  CopyNumbers(dense, options);
  if (case_.scales_of_keys || (case_.combined && IsPerToken(case_.quantization)))
    options.antiquant = Antiquant::kPerToken;
  return options;
}

ForwardOutputs DecodeProblem::Outputs() const {
  ForwardOutputs outputs;
  const ForwardCase& d = case_.dense;
  const auto read = [&](int64_t offset_of_lse, int64_t offset, std::vector<double>& lse, std::vector<double>& out) {
    lse.push_back(lse_.tensor.Get(offset_of_lse));
    for (int64_t x = 0; x < d.dv; ++x) out.push_back(out_.tensor.Get(offset + x));
  };
  const auto read_tail = [&](int64_t b, int64_t begin, int64_t end) {
    for (int64_t n = 0; n < d.heads; ++n) {
      for (int64_t i = begin; i < end; ++i) {
        read(lse_.Offset(b, n, i), out_.Offset(b, n, i), outputs.tail, outputs.tail);
      }
    }
  };
  for (int64_t b = 0; b < d.batch(); ++b) {
    for (int64_t n = 0; n < d.heads; ++n) {
      for (int64_t i = 0; i < d.lengths.sq[b]; ++i) {
        read(QueryOffset(lse_, b, n, i), QueryOffset(out_, b, n, i), outputs.lse, outputs.out);
      }
    }
    if (!d.packed()) read_tail(b, d.lengths.sq[b], d.max_sq() + case_.spare_q);
  }
  if (d.packed()) read_tail(0, cu_q_.back(), d.tensor_rows_q() + case_.spare_q);
  return outputs;
}

Snapshot DecodeProblem::TakeSnapshot() const {
  Snapshot snapshot;
  for (const Tensor* tensor : {&q_.tensor, &q_rope_.tensor, &table_, &scale_[0], &scale_[1], &offset_[0], &offset_[1],
                               &pse_, &mask_, &sink_, &output_scales_.scale(), &output_scales_.offset()}) {
    snapshot.Add(*tensor);
  }
  for (const HeadTensor& tensor : k_) snapshot.Add(tensor.tensor);
  for (const HeadTensor& tensor : k_rope_) snapshot.Add(tensor.tensor);
  for (const HeadTensor& tensor : v_) snapshot.Add(tensor.tensor);
  snapshot.Allow(out_.tensor);
  snapshot.Allow(lse_.tensor);
  return snapshot;
}

}  // namespace fa::test
